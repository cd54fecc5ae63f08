//! Files as they come: unreadable, torn, growing, hostile, enormous when unpacked. One clear message, the exit
//! code that says what happened, bounded time and memory, and no panic.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Nothing here may take longer, on a busy machine and without optimisation.
const LIMIT: Duration = Duration::from_secs(240);

const LOG: &str = "sendto(4, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 14, 0, NULL, 0) = 14\n";

fn start(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_systally"))
        .args(args)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The end of a run, which must come in time, with the most memory it was seen to use.
fn end(mut child: Child) -> (Output, u64) {
    let begun = Instant::now();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let err = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut peak = 0;
    let status = loop {
        let read = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let kib = read.lines().find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        });
        peak = peak.max(kib.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("it is still running");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let output = Output {
        status,
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    (output, peak)
}

fn run(args: &[&str]) -> Output {
    end(start(args)).0
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `import` on a file with this content.
fn import(name: &str, content: &[u8]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    run(&["import", path.to_str().unwrap()])
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(content).unwrap();
    out.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn one_line_says_what_is_wrong_and_the_code_is_two() {
    let cases: [(&str, &[u8], &str); 8] = [
        ("empty", b"", "the input is empty"),
        ("blank", b"\n \n", "the input is empty"),
        ("perf.data", b"PERFILE2\0\0\0\0", "not text"),
        ("utf16", b"\xff\xfe%\0 \0t\0i\0m\0e\0\n\0", "UTF-16"),
        ("diary", b"Dear diary,\n", "line 1 is of no format"),
        (
            "bent.gz",
            b"\x1f\x8b\x08\x00garbage that is no deflate",
            "cannot read",
        ),
        ("bent.zst", b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff", "zstd"),
        ("head.gz", &[0x1f, 0x8b, 8], "ends in the middle"),
    ];
    for (name, content, words) in cases {
        let output = import(name, content);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(words) && said.contains(name), "{name}: {said}");
        assert_eq!(said.lines().count(), 1, "{name}: {said}");
        assert!(output.stdout.is_empty(), "{name}");
    }
}

#[test]
fn what_is_no_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.log");
    for (path, words) in [
        (folder.path(), "is a directory"),
        (missing.as_path(), "No such file"),
    ] {
        for command in ["import", "explain"] {
            let output = run(&[command, path.to_str().unwrap()]);
            assert_eq!(output.status.code(), Some(2));
            assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
        }
    }
    let secret = folder.path().join("secret.log");
    fs::write(&secret, LOG).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).unwrap();
    if nix::unistd::geteuid().is_root() {
        println!("SKIP: nothing is unreadable for root");
        return;
    }
    let output = run(&["import", secret.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("Permission denied"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_cut_file_is_read_as_a_part_and_the_code_is_five() {
    let whole = LOG.repeat(20_000);
    let torn = |packed: Vec<u8>| packed[..packed.len() - packed.len() / 3].to_vec();
    let cases: [(&str, Vec<u8>, &str); 4] = [
        ("plain.log", format!("{LOG}recvfrom(4, \"+PO").into_bytes(), "ends in the middle of a line"),
        ("torn.gz", torn(gzip(whole.as_bytes())), "compressed data ends in the middle"),
        ("torn.zst", torn(zstd(whole.as_bytes())), "compressed data ends in the middle"),
        (
            "rows.txt",
            b"% time     seconds  usecs/call     calls    errors syscall\n 99.00    0.000012           4         3           read\n\
              100.00    0.000013                  5000           total\n"
                .to_vec(),
            "rows with 4997 calls are missing",
        ),
    ];
    for (name, content, words) in cases {
        let output = import(name, &content);
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{name}: {shown}");
        // Lines are wrapped at the width of the table.
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(words), "{name}: {shown}");
    }
    assert_eq!(import("whole.gz", &gzip(whole.as_bytes())).status.code(), Some(0));
}

#[test]
fn a_bomb_is_unpacked_in_bounded_memory() {
    // 40 MiB each when unpacked: one endless line, and lines without end.
    let line = gzip(&vec![b'a'; 40 << 20]);
    let lines = gzip(LOG.repeat((40 << 20) / LOG.len()).as_bytes());
    assert!(line.len() < 1 << 20 && lines.len() < 1 << 20);
    let folder = tempfile::tempdir().unwrap();
    for (name, content, code) in [("line.gz", &line, 2), ("lines.gz", &lines, 0)] {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let (output, peak) = end(start(&["import", path.to_str().unwrap()]));
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        // A debug build with its libraries takes some; what must not show is the content.
        assert!(peak < 32 << 10, "{name}: {peak} KiB");
        assert!(text(&output.stderr).len() < 1000);
    }
}

#[test]
fn many_threads_descriptors_and_names_cost_no_square() {
    // Each would take hours if a line looked at all that came before it.
    let waiting: String = (0..40_000)
        .map(|i| format!("{} poll([{{fd=4}}], 1, 9 <unfinished ...>\n", 1000 + i))
        .collect();
    let shapes: [(&str, String); 4] = [
        ("resumed", waiting + &"<... select resumed>) = 1\n".repeat(60_000)),
        (
            "forks",
            (0..20_000).map(|i| format!("7 socket(AF_INET, SOCK_STREAM, 0) = {i}\n")).collect::<String>()
                + &(0..20_000)
                    .map(|i| {
                        let child = 100_000 + i;
                        format!("7 clone(child_stack=NULL, flags=SIGCHLD) = {child}\n{child} close(3) = 0\n{child} +++ exited with 0 +++\n")
                    })
                    .collect::<String>(),
        ),
        (
            "threads",
            (0..60_000)
                .map(|i| format!("{} socket(AF_INET, SOCK_STREAM, 0) = {i}\n{} futex(0x7f, FUTEX_WAIT, 0, NULL) = 0\n", 1000 + i, 1000 + i))
                .collect(),
        ),
        (
            "names",
            (0..60_000).map(|i| format!("7 openat(AT_FDCWD, \"/tmp/{i}\", O_RDONLY) = -1 E{i} (x)\n7 call_{i}() = 0\n")).collect(),
        ),
    ];
    for (name, content) in shapes {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, &content).unwrap();
        let (output, peak) = end(start(&["import", path.to_str().unwrap()]));
        assert!(
            matches!(output.status.code(), Some(0 | 5)),
            "{name}: {}",
            text(&output.stderr)
        );
        assert!(peak < 64 << 10, "{name}: {peak} KiB");
    }
}

#[test]
fn a_file_that_grows_is_read_up_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grows.log");
    fs::write(&path, LOG.repeat(1000)).unwrap();
    let child = start(&["import", "--format", "json", path.to_str().unwrap()]);
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    // Whole lines and halves of lines, while it is being read.
    for _ in 0..200 {
        let (first, second) = LOG.split_at(LOG.len() / 2);
        file.write_all(first.as_bytes()).unwrap();
        file.write_all(second.as_bytes()).unwrap();
    }
    let output = end(child).0;
    assert!(
        matches!(output.status.code(), Some(0 | 5)),
        "{}",
        text(&output.stderr)
    );
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let calls = record["strategies"][0]["counted"]["phases"]["loop"]["total_calls"]
        .as_u64()
        .unwrap();
    assert!((1000..=1201).contains(&calls), "{calls}");
}

#[test]
fn a_fifo_whose_writer_stops_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let child = start(&["import", path.to_str().unwrap()]);
    let to = path.clone();
    let writer = std::thread::spawn(move || fs::write(to, format!("{LOG}recvfrom(4, \"+PO")));
    let output = end(child).0;
    writer.join().unwrap().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
}

#[test]
fn hostile_names_reach_no_terminal() {
    let evil = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}<script>";
    let table = format!(
        "% time     seconds  usecs/call     calls    errors syscall\n 99.00    0.000012           4         3           {evil}\n\
         \x20 1.00    0.000001           1         1         1 read\n"
    );
    let log =
        format!("{LOG}openat(AT_FDCWD, \"/tmp/{evil}\", O_RDONLY) = -1 ENOENT (x)\n{evil}\n").repeat(20);
    for (name, content) in [
        ("table", table),
        ("log", log),
        (
            &*format!("n\u{1b}[31mame{evil}").replace('/', "_"),
            LOG.to_owned(),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, &content).unwrap();
        for command in ["import", "explain"] {
            for format in ["table", "markdown", "csv", "json"] {
                let output = run(&[command, "--format", format, path.to_str().unwrap()]);
                let shown = text(&output.stdout) + &text(&output.stderr);
                let bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
                assert!(!shown.contains(bad), "{command} {format}: {shown:?}");
                if format == "markdown" {
                    assert!(!shown.contains("<script>"), "{command}: {shown}");
                }
            }
        }
    }
}

#[test]
fn numbers_beyond_all_types_are_no_counts() {
    let huge = "9".repeat(40);
    let output = import(
        "huge.txt",
        format!(
            "% time     seconds  usecs/call     calls    errors syscall\n 99.00    {huge}.5           {huge}         {huge}           read\n\
             \x20 1.00    0.000001           1         7           write\n"
        )
        .as_bytes(),
    );
    assert!(
        matches!(output.status.code(), Some(0 | 5)),
        "{}",
        text(&output.stderr)
    );
    let shown = text(&output.stdout);
    assert!(shown.contains("write"), "{shown}");
    assert!(
        shown.contains("does not fit") || shown.contains("not understood"),
        "{shown}"
    );
    let log = format!("{huge} 10:00:00.{huge} read({huge}, \"x\", {huge}) = {huge} <{huge}.{huge}>\n{LOG}");
    let output = import("huge.log", log.as_bytes());
    assert!(
        matches!(output.status.code(), Some(0 | 5)),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn systallys_own_records_are_told_apart() {
    // A record that was made of foreign files is read as those files.
    let folder = tempfile::tempdir().unwrap();
    let (log, record) = (folder.path().join("a.log"), folder.path().join("a.json"));
    fs::write(&log, LOG.repeat(3)).unwrap();
    let (log, record) = (log.to_str().unwrap(), record.to_str().unwrap());
    assert_eq!(run(&["import", "-o", record, log]).status.code(), Some(0));
    let at_once = run(&["import", "--format", "json", log]);
    let again = run(&["import", "--format", "json", record]);
    assert_eq!(
        text(&again.stdout),
        text(&at_once.stdout),
        "{}",
        text(&again.stderr)
    );
    // One of systally's own run stands for itself, and is no file of another tool.
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/records");
    for name in ["bench-full.json", "count.json", "import.json"] {
        let own = records.join(name);
        let own = own.to_str().unwrap();
        for args in [
            [own, log].as_slice(),
            &[own, "--ops", "5"],
            &[own, "--from", "strace-log"],
        ] {
            let output = run(&[&["import"], args].concat());
            assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output.stdout));
            let said = text(&output.stderr);
            assert!(said.contains("systally's own"), "{said}");
        }
    }
}

#[test]
fn a_code_that_does_not_exist_leads_to_the_list() {
    let output = run(&["explain", "NOSUCH"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("explain --list"),
        "{}",
        text(&output.stderr)
    );
    let output = run(&["explain", "NAGLE_DELAYED_ACKS"]);
    assert!(
        text(&output.stderr).contains("did you mean NAGLE_DELAYED_ACK?"),
        "{}",
        text(&output.stderr)
    );
}
