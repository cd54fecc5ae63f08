//! `systally count` from outside: what it prints where, how it ends, and what it leaves behind.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::guest;
use counting::can_trace;
use systally::engine::{Availability, EngineKind};

fn systally(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_systally"));
    command
        .arg("count")
        .args(arguments)
        .env("COLUMNS", "120")
        .env_remove("NO_COLOR");
    command
}

/// Copies a program in a process of its own: a descriptor open for writing here would be inherited by
/// what other tests start just then, and the copy could not be executed (ETXTBSY).
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// Runs it to its end, which must come soon.
fn run(arguments: &[&str]) -> Output {
    let mut child = systally(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut streams = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = std::thread::spawn(move || {
        let mut text = Vec::new();
        streams.0.read_to_end(&mut text).unwrap();
        text
    });
    let mut stderr = Vec::new();
    streams.1.read_to_end(&mut stderr).unwrap();
    Output {
        status: wait(&mut child),
        stdout: out.join().unwrap(),
        stderr,
    }
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > give_up {
            let _ = child.kill();
            panic!("systally is still running");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The calls of one row of the table: the number that ends where the heading `calls` ends.
fn calls(table: &str, name: &str) -> Option<u64> {
    let header = table.lines().find(|line| line.contains("calls"))?;
    let end = header.find("calls")? + "calls".len();
    let row = table
        .lines()
        .find(|line| line.split_whitespace().any(|word| word == name))?;
    let row: String = row.chars().take(end).collect();
    row.rsplit("  ")
        .next()?
        .split_whitespace()
        .collect::<String>()
        .parse()
        .ok()
}

#[test]
fn the_program_keeps_its_streams_and_the_table_goes_to_stderr() {
    if !can_trace() {
        return;
    }
    let output = run(&["-f", "-c", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), "out\n");
    let said = text(&output.stderr);
    let (err, table) = said.split_once('\n').unwrap();
    assert_eq!(err, "err");
    assert_eq!(calls(table, "execve"), Some(1), "{table}");
    assert_eq!(calls(table, "write"), Some(2), "{table}");
}

#[test]
fn options_of_the_program_are_its_own() {
    if can_trace() {
        let output = run(&["echo", "-e", "-n", "x"]);
        assert_eq!(text(&output.stdout).trim_end(), "x");
    }
}

#[test]
fn it_ends_as_the_program_ended() {
    let Some(guest) = guest("signals") else { return };
    if !can_trace() {
        return;
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, 40] {
        let output = run(&["--", guest.to_str().unwrap(), "die", &signal.to_string()]);
        assert_eq!(output.status.signal(), Some(signal));
        assert!(!output.status.core_dumped());
        assert!(
            text(&output.stderr).contains("execve"),
            "the table is printed all the same"
        );
    }
}

#[test]
fn a_program_that_cannot_be_run_is_said_once() {
    if !can_trace() {
        return;
    }
    for (program, code, part) in [
        ("systally-no-such-program", 127, "not in PATH"),
        ("/etc/passwd", 126, "not executable"),
        ("/etc", 126, "folder"),
        ("", 127, "cannot run ''"),
    ] {
        let output = run(&["--", program]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(part), "{said}");
        assert!(program.is_empty() || said.matches(program).count() == 1, "{said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn wrong_usage_is_code_2_and_names_the_nearest_call() {
    for (arguments, part) in [
        (&["-e", "trace=recvform", "--", "true"][..], "recvfrom"),
        (&["-e", "trace=%netwrk", "--", "true"], "%network"),
        (&["--ops", "0", "--", "true"], "--ops"),
        (&["--ops-from", "(", "--", "true"], "--ops-from"),
        (&["-z", "-Z", "--", "true"], "cannot be used"),
        (&[], "CMD"),
    ] {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
}

/// Failures that cost a counter of their own are counted when that is asked for, and never shown as none.
#[test]
fn failures_are_not_shown_as_none_where_they_were_not_counted() {
    let output = run(&["--engine", "ptrace-counts", "-Z", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("does not see which calls fail"));
    if !ready(systally::engine::EngineKind::Perf) {
        return;
    }
    let script = "cat /nonexistent 2>/dev/null; true";
    let counted = |more: &[&str]| {
        let all = [
            &["--engine", "perf", "-e", "trace=openat"],
            more,
            &["--", "sh", "-c", script],
        ]
        .concat();
        let output = run(&all);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let plain = counted(&[]);
    assert!(plain.contains("--errors"), "{plain}");
    let with = counted(&["--errors"]);
    assert!(with.contains("OTHER") || with.contains("other"), "{with}");
    assert!(!with.contains("not told apart"), "{with}");
    let failed = counted(&["-Z"]);
    assert!(calls(&failed, "openat").is_some_and(|n| n >= 1), "{failed}");
    assert!(
        calls(&plain, "openat") > calls(&failed, "openat"),
        "{plain}{failed}"
    );
}

#[test]
fn chosen_calls_only() {
    if !can_trace() {
        return;
    }
    let table = text(&run(&["-e", "trace=openat,close", "--", "cat", "/dev/null"]).stderr);
    assert!(
        calls(&table, "openat").is_some() && calls(&table, "close").is_some(),
        "{table}"
    );
    assert!(!table.contains("execve") && !table.contains("mmap"), "{table}");
    let table = text(&run(&["-e", "trace=!openat", "--", "cat", "/dev/null"]).stderr);
    assert!(
        calls(&table, "openat").is_none() && calls(&table, "close").is_some(),
        "{table}"
    );
    let table = text(&run(&["-Z", "-e", "%file", "--", "ls", "/nonexistent"]).stderr);
    assert!(
        calls(&table, "statx").is_some() && calls(&table, "execve").is_none(),
        "{table}"
    );
}

#[test]
fn operations_give_a_column_per_operation() {
    let Some(guest) = guest("counting") else { return };
    if !can_trace() {
        return;
    }
    let guest = guest.to_str().unwrap();
    let output = run(&["--ops", "50", "--", guest, "forks", "1", "100"]);
    let table = text(&output.stderr);
    let row = table.lines().find(|line| line.contains("getppid")).unwrap();
    assert!(table.contains("per op") && row.contains(" 2"), "{table}");

    let script = format!("echo warming up: 1 op; {guest} forks 1 100; echo done: 25 ops; echo end");
    let output = run(&[
        "--ops-from",
        r"done: (\d+) ops",
        "-o",
        "-",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let said = text(&output.stdout);
    let (own, record) = said.split_once("end\n").unwrap();
    assert_eq!(
        own, "warming up: 1 op\ndone: 25 ops\n",
        "the program's output is copied as it is"
    );
    let record: serde_json::Value = serde_json::from_str(record).unwrap();
    let counted = &record["strategies"][0]["counted"];
    assert_eq!(counted["ops"], 25);
    // The shell makes one too, or not.
    let made = &counted["phases"]["loop"]["syscalls"]["getppid"]["calls"];
    assert!(matches!(made.as_u64(), Some(100 | 101)), "{made}");

    let output = run(&["--ops-from", "nothing (like) this", "--", "echo", "x"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text(&output.stderr).contains("--ops-from found no number"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn the_record_keeps_the_counts() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.json");
    let output = run(&["-o", file.to_str().unwrap(), "--", "sh", "-c", "exit 0"]);
    assert_eq!(output.status.code(), Some(0));
    let record = systally::record::wire::load(&file).unwrap();
    let counted = record.strategies[0].counted.known().unwrap();
    assert_eq!(counted.engine, "ptrace");
    assert_eq!(counted.phases.run_loop.syscalls["execve"].calls, 1);
}

/// Starts it over a program that prints the ids of processes that never end by themselves.
fn lingering() -> Option<(Child, Vec<i32>)> {
    let guest = guest("strange")?;
    if !can_trace() {
        return None;
    }
    let mut child = systally(&["--", guest.to_str().unwrap(), "linger"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pids = lines.take(2).map(|line| line.unwrap().parse().unwrap()).collect();
    Some((child, pids))
}

fn wait_until_gone(pids: &[i32]) {
    let give_up = Instant::now() + Duration::from_secs(20);
    let is_alive = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
            !stat
                .rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with(['Z', 'X']))
        })
    };
    while pids.iter().any(is_alive) {
        assert!(Instant::now() < give_up, "{pids:?} are still running");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn send(pid: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal).unwrap();
}

#[test]
fn killing_systally_kills_what_it_traces() {
    let Some((mut child, pids)) = lingering() else {
        return;
    };
    send(child.id(), nix::sys::signal::Signal::SIGKILL);
    assert_eq!(wait(&mut child).signal(), Some(libc::SIGKILL));
    wait_until_gone(&pids);
}

#[test]
fn signals_are_passed_on_and_the_table_is_still_printed() {
    use nix::sys::signal::Signal;
    use std::sync::mpsc::RecvTimeoutError;
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        let Some(guest) = guest("strange") else { return };
        if !can_trace() {
            return;
        }
        // A program that says when it is there, and whose end by the signal is its own.
        let script = format!("ulimit -c 0; echo ready; exec {} wait", guest.display());
        // A shell without job control starts its background jobs with SIGINT ignored, and whoever runs the
        // tests may be one.
        let count = systally(&["--", "sh", "-c", &script]);
        let mut child = Command::new("env")
            .arg("--default-signal")
            .arg(count.get_program())
            .args(count.get_args())
            .env("COLUMNS", "120")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        let (over, watched) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            if watched.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                send(pid, Signal::SIGKILL);
            }
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        send(child.id(), signal);
        let mut table = String::new();
        child.stderr.take().unwrap().read_to_string(&mut table).unwrap();
        assert_eq!(wait(&mut child).signal(), Some(signal as i32), "{table}");
        drop(over);
        assert!(calls(&table, "execve").is_some(), "{table}");
    }
}

#[test]
fn a_signal_ends_what_the_program_has_left_behind() {
    use nix::sys::signal::Signal;
    if !can_trace() {
        return;
    }
    for engine in ["ptrace", "bpf"] {
        if engine == "bpf" && !ready(systally::engine::EngineKind::Bpf) {
            continue;
        }
        for (how, signal) in [
            ("", Signal::SIGTERM),
            ("", Signal::SIGQUIT),
            ("trap '' TERM HUP;", Signal::SIGHUP),
        ] {
            // Outlives the shell; the second kind does not heed the signal either.
            let script = format!("{how} sleep 1000 </dev/null >/dev/null 2>&1 & echo $!");
            // Whoever runs the tests in the background may have SIGQUIT ignored.
            let count = systally(&["--engine", engine, "--", "sh", "-c", &script]);
            let mut child = Command::new("env")
                .arg("--default-signal")
                .arg(count.get_program())
                .args(count.get_args())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap())
                .read_line(&mut line)
                .unwrap();
            let left: i32 = line.trim().parse().unwrap();
            // The shell ends soon; only then is the signal for the others.
            let shell_is_there = || {
                let stat = std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap();
                let parent = stat
                    .rsplit_once(") ")
                    .unwrap()
                    .1
                    .split(' ')
                    .nth(1)
                    .unwrap()
                    .to_owned();
                std::fs::read_to_string(format!("/proc/{parent}/comm")).is_ok_and(|name| name == "sh\n")
            };
            let give_up = Instant::now() + Duration::from_secs(60);
            while shell_is_there() {
                assert!(Instant::now() < give_up);
                std::thread::sleep(Duration::from_millis(5));
            }
            send(child.id(), signal);
            let mut table = String::new();
            child.stderr.take().unwrap().read_to_string(&mut table).unwrap();
            assert_eq!(wait(&mut child).code(), Some(0), "{table}");
            assert!(calls(&table, "execve").is_some(), "{table}");
            wait_until_gone(&[left]);
        }
    }
}

fn ready(kind: systally::engine::EngineKind) -> bool {
    match systally::engine::engine(kind).availability() {
        systally::engine::Availability::Ready => true,
        systally::engine::Availability::Unavailable { why, fix } => {
            println!("SKIP: {why}; {fix}");
            false
        }
    }
}

#[test]
fn a_record_that_cannot_be_kept_is_said_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("ran");
    let output = run(&[
        "-o",
        "/nonexistent/x.json",
        "--",
        "touch",
        trace.to_str().unwrap(),
    ]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(
        said.trim_end(),
        "systally: cannot write /nonexistent/x.json: No such file or directory (os error 2)"
    );
    assert!(!trace.exists());
}

#[test]
fn forms_on_standard_output_begin_on_a_line_of_their_own() {
    if !can_trace() {
        return;
    }
    let output = run(&["--format", "md", "--", "printf", "no end of line"]);
    let said = text(&output.stdout);
    assert!(said.starts_with("no end of line\n"), "{said}");
    let output = run(&["-o", "-", "--", "printf", "no end of line"]);
    let (own, record) = text(&output.stdout)
        .split_once('\n')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    assert_eq!(own, "no end of line");
    assert!(serde_json::from_str::<serde_json::Value>(&record).is_ok());
}

/// Whoever reads the result by a program is told that it is not alone on standard output, where that is so.
#[test]
fn a_result_behind_other_output_is_told_of() {
    if !can_trace() {
        return;
    }
    const HINT: &str = "-o FILE keeps it apart";
    let folder = tempfile::tempdir().unwrap();
    let to_file = |arguments: &[&str]| {
        let file = std::fs::File::create(folder.path().join("out")).unwrap();
        let output = systally(arguments).stdout(file).output().unwrap();
        assert!(output.status.success());
        text(&output.stderr)
    };
    let record = folder.path().join("run.json");
    let record = record.to_str().unwrap();
    for form in ["json", "csv", "md"] {
        let said = text(&run(&["--format", form, "--", "echo", "x"]).stderr);
        assert_eq!(said.matches(HINT).count(), 1, "{said}");
    }
    assert_eq!(to_file(&["-o", "-", "--", "echo", "x"]).matches(HINT).count(), 1);
    for apart in [
        &["--format", "json", "--", "true"][..],
        &["-o", record, "--", "echo", "x"],
        &["--format", "strace", "--", "echo", "x"],
    ] {
        let said = to_file(apart);
        assert!(!said.contains(HINT), "{apart:?}: {said}");
    }
    let devnull = systally(&["--format", "json", "--", "echo", "x"])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(!text(&devnull.stderr).contains(HINT));
}

#[test]
fn a_negative_number_of_operations_is_refused_in_words() {
    if !can_trace() {
        return;
    }
    for (regex, out, part) in [
        (
            r"ops: (\S+)",
            "ops: -5",
            "found '-5', which is no number of operations",
        ),
        (r"ops: -?(\d+)", "ops: -5", "found '-5'"),
        (r"ops: (\d+)", "ops: 0", "found '0'"),
    ] {
        let output = run(&["--ops-from", regex, "--", "echo", out]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0));
        assert!(said.contains(part) && !said.contains("per op "), "{said}");
    }
}

#[test]
fn numbers_are_plain_where_no_terminal_reads_them() {
    let Some(guest) = guest("counting") else { return };
    if !can_trace() {
        return;
    }
    let table = text(&run(&["--", guest.to_str().unwrap(), "forks", "1", "12345"]).stderr);
    let row = table.lines().find(|line| line.contains("getppid")).unwrap();
    assert!(row.split_whitespace().any(|word| word == "12345"), "{table}");
}

#[test]
fn the_time_that_shares_are_of_is_said() {
    if !can_trace() {
        return;
    }
    // A program so short that no tick of the CPU clock may fall into its calls, or may.
    for _ in 0..5 {
        let table = text(&run(&["-e", "trace=getppid,execve", "--", "true"]).stderr);
        let mut lines = table.lines();
        let unit = lines.nth(1).unwrap().trim();
        let unit = unit.split_whitespace().next().unwrap();
        if unit == "wall" {
            assert!(
                table.contains("% time and usecs/call are of wall time"),
                "{table}"
            );
            assert!(
                table.contains("–[") && table.contains("no tick of the kernel's CPU clock"),
                "{table}"
            );
        } else {
            assert_eq!(unit, "cpu", "{table}");
        }
    }
}

#[test]
fn calls_are_shown_by_peer_and_only_those_of_a_peer() {
    if !can_trace() {
        return;
    }
    let both = |extra: &[&str]| {
        let mut arguments = extra.to_vec();
        arguments.extend(["--", "sh", "-c", "echo a | cat > /dev/null"]);
        text(&run(&arguments).stderr)
    };
    let table = both(&["--peers"]);
    let by_peer = table.split("by peer").nth(1).unwrap();
    let written = by_peer
        .lines()
        .find(|line| line.contains("write") && line.contains("pipe"))
        .unwrap();
    assert_eq!(
        written.split_whitespace().collect::<Vec<_>>(),
        ["1", "write", "pipe"],
        "{table}"
    );
    let table = both(&["--only-peer", "pipe"]);
    assert_eq!(calls(&table, "write"), Some(1), "{table}");
    assert!(!table.contains("execve"), "{table}");
    let table = both(&["--connections"]);
    assert!(!table.contains("write"), "{table}");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_as_usual() {
    if !can_trace() {
        return;
    }
    for extra in [&[][..], &["--ops-from", "(y)"]] {
        let arguments: Vec<&str> = extra.iter().copied().chain(["--", "yes"]).collect();
        let mut child = systally(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut two = [0; 2];
        child.stdout.take().unwrap().read_exact(&mut two).unwrap();
        // The pipe is closed here; yes dies of SIGPIPE.
        assert_eq!(wait(&mut child).signal(), Some(libc::SIGPIPE));
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    if !can_trace() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_systally");
    let ignored = |prefix: &[&str]| {
        let output = Command::new("env")
            .arg("--ignore-signal=HUP,INT,CHLD")
            .args(prefix)
            .args(["grep", "SigIgn", "/proc/self/status"])
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{prefix:?} {}",
            text(&output.stderr)
        );
        let mask = text(&output.stdout);
        let mask = u64::from_str_radix(mask.trim_start_matches("SigIgn:").trim(), 16).unwrap();
        // Without the two signals that the C library keeps to itself.
        mask & !(3 << 31)
    };
    let natively = ignored(&[]);
    assert_ne!(natively & (1 << (libc::SIGCHLD - 1)), 0);
    for engine in [
        EngineKind::Ptrace,
        EngineKind::PtraceCounts,
        EngineKind::Bpf,
        EngineKind::Strace,
    ] {
        match systally::engine::engine(engine).availability() {
            Availability::Ready => {
                let prefix = [program, "count", "--engine", engine.name(), "--"];
                assert_eq!(ignored(&prefix), natively, "{engine}");
            }
            Availability::Unavailable { why, .. } => println!("SKIP: {engine}: {why}"),
        }
    }
}

#[test]
fn a_user_without_rights_can_count() {
    if !nix::unistd::geteuid().is_root() || !common::have("setpriv") || !can_trace() {
        println!("SKIP: only root can become a user without rights");
        return;
    }
    // A copy in a folder that everybody can reach.
    let folder = tempfile::Builder::new()
        .prefix("systally")
        .tempdir_in("/tmp")
        .unwrap();
    let program = folder.path().join("systally");
    copy(Path::new(env!("CARGO_BIN_EXE_systally")), &program);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let output = Command::new("setpriv")
            .args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "--bounding-set",
                "-all",
            ])
            .arg(&program)
            .arg("count")
            .args(arguments)
            .current_dir("/")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let table = as_nobody(&["--", "cat", "/dev/null"]);
    assert_eq!(calls(&table, "execve"), Some(1), "{table}");
    let table = as_nobody(&["-e", "trace=openat", "--", "cat", "/dev/null"]);
    assert!(
        calls(&table, "openat").is_some() && table.contains("no_new_privs"),
        "{table}"
    );

    // A set-user-ID program loses its rights, which is said.
    let privileged = folder.path().join("cat");
    copy(&common::find("cat").unwrap(), &privileged);
    let set_user = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&privileged, set_user).unwrap();
    let table = as_nobody(&["--", privileged.to_str().unwrap(), "/dev/null"]);
    assert!(table.contains("set-user-ID"), "{table}");
}

#[test]
fn a_program_that_is_traced_already_is_explained() {
    if !common::have("strace") || !can_trace() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_systally");
    let strace = |options: &[&str]| {
        Command::new("strace")
            .args(options)
            .args(["-o", "/dev/null", program, "count", "--", "true"])
            .output()
            .unwrap()
    };
    let followed = strace(&["-f"]);
    let said = text(&followed.stderr);
    assert_eq!(followed.status.code(), Some(6), "{said}");
    assert!(said.contains("strace (pid "), "{said}");
    // Without -f its children are free.
    assert_eq!(strace(&[]).status.code(), Some(0));
}

/// What reads strace's table reads ours: the same heading, the same rows where a program makes the same calls, and
/// our own importer finds the same counts in it.
#[test]
fn the_table_of_strace_is_that_of_strace() {
    if !can_trace() {
        return;
    }
    let heading = "% time     seconds  usecs/call     calls    errors syscall\n\
                   ------ ----------- ----------- --------- --------- ----------------\n";
    let output = run(&[
        "--format",
        "strace",
        "-w",
        "--",
        "sh",
        "-c",
        "cat /nonexistent 2>&-; echo out",
    ]);
    let table = text(&output.stderr);
    assert_eq!(text(&output.stdout), "out\n");
    assert!(table.starts_with(heading), "{table}");
    let last = table.trim_end().lines().last().unwrap();
    assert!(last.starts_with("100.00 ") && last.ends_with(" total"), "{table}");
    // As awk scripts take it: calls in the fourth column, errors in the fifth where there are six.
    let execve = table.lines().find(|line| line.ends_with(" execve")).unwrap();
    let words: Vec<&str> = execve.split_whitespace().collect();
    assert_eq!((words.len(), words[3]), (5, "2"), "{table}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table.txt");
    std::fs::write(&file, &table).unwrap();
    let again = Command::new(env!("CARGO_BIN_EXE_systally"))
        .args(["import", "--format", "strace"])
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    // Whether the times of a foreign table are of the CPU or the clock is not known, so they are not repeated.
    let counts = |table: &str, skip: usize| -> Vec<String> {
        let rows = table.lines().skip(2).filter(|line| !line.starts_with('-'));
        let mut rows: Vec<String> = rows
            .map(|line| line.split_whitespace().skip(skip).collect::<Vec<_>>().join(" "))
            .collect();
        rows.sort();
        rows
    };
    assert_eq!(counts(&text(&again.stdout), 0), counts(&table, 3));
    if !common::have("strace") {
        return;
    }
    let theirs = Command::new("strace")
        .args(["-c", "-f", "-S", "name", "true"])
        .output()
        .unwrap();
    let ours = run(&["--format", "strace", "-S", "name", "--", "true"]);
    let (theirs, ours) = (text(&theirs.stderr), text(&ours.stderr));
    let names = |table: &str| -> Vec<(String, String)> {
        let rows = table.lines().skip(2).filter(|line| !line.starts_with('-'));
        rows.map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[3].to_owned(), (*words.last().unwrap()).to_owned())
        })
        .collect()
    };
    assert_eq!(names(&ours), names(&theirs), "{ours}\n{theirs}");
    assert_eq!(ours.lines().next(), theirs.lines().next());
}
