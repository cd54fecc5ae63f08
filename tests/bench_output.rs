//! What `systally bench` prints and writes, and what is left of a run that is cut short.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use bench_support::{Run, have, is_root, may_trace, row};
use nix::sys::signal::Signal;
use systally::record::{Record, Status, wire};
use systally::render::{Format, View, render};
use unicode_width::UnicodeWidthStr;

const QUICK: [&str; 6] = ["--runs", "2", "--warmup", "0", "-n", "100"];
const NAMES: [&str; 3] = [
    "raw/persistent/tcp",
    "redis-rs/connect/unix",
    "redis-rs-async/persistent/tcp",
];

fn quick() -> Run {
    Run::bench(NAMES).args(QUICK).args(["--timeout", "100s"])
}

fn complete(path: &Path) -> Option<Record> {
    // The record is replaced in one step, so what is there is whole at any moment.
    let text = std::fs::read_to_string(path).ok()?;
    Some(wire::from_json(&text).unwrap())
}

#[test]
fn the_first_line_is_the_server_and_a_pipe_gets_plain_text() {
    let ended = quick().end();
    ended.code(0);
    let mut lines = ended.stdout.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with("server: "), "{first}");
    assert!(
        first.contains("private (tcp 127.0.0.1:") || first.contains("built in"),
        "{first}"
    );
    let second = lines.next().unwrap();
    for flag in [
        "--clients 1",
        "--requests 100",
        "--runs 2",
        "--seed 1",
        "--tests setget",
        "--warmup 0",
    ] {
        assert!(second.contains(flag), "{second}");
    }
    assert!(!ended.stdout.contains('\u{1b}'), "{}", ended.stdout);
    assert_eq!(ended.stderr, "", "there is no progress where nobody looks");
    for name in NAMES {
        assert!(ended.stdout.contains(name), "{name} in {}", ended.stdout);
    }
    assert!(ended.stdout.contains("limits: "), "{}", ended.stdout);
    assert!(ended.stdout.contains("slowdown"), "{}", ended.stdout);
}

#[test]
fn quiet_is_the_table_alone() {
    let ended = quick().arg("-q").end();
    ended.code(0);
    assert!(
        !ended.stdout.contains("server: ") && !ended.stdout.contains("--requests"),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains(NAMES[0]), "{}", ended.stdout);
    assert_eq!(ended.stderr, "");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for columns in [80, 120] {
        let run = quick().arg("-c").arg("1,2").env("COLUMNS", columns.to_string());
        let ended = run.end();
        ended.code(0);
        // The two lines above the table name addresses and flags, and break nowhere.
        for line in ended.stdout.lines().skip(2) {
            assert!(line.width() <= columns, "{} columns: {line}", line.width());
        }
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    if !have(
        "script",
        &["-qec", "true", "/dev/null"],
        "how a terminal is treated",
    ) {
        return;
    }
    // Only colours and bold are looked for: progress moves the cursor on any terminal.
    let is_coloured = |text: &str| {
        let colour = regex::Regex::new("\u{1b}\\[[0-9;]+m").unwrap();
        colour.is_match(text)
    };
    let run = |variable: (&str, &str)| {
        let program = env!("CARGO_BIN_EXE_systally");
        let command = format!("exec {program} bench {} {}", NAMES.join(" "), QUICK.join(" "));
        let mut run = Run::of([""; 0]);
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &command, "/dev/null"]);
        run.instead(script);
        run.env("TERM", "xterm").env(variable.0, variable.1).end()
    };
    let ended = run(("TERM", "xterm"));
    ended.code(0);
    assert!(is_coloured(&ended.stdout), "{}", ended.stdout);
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let ended = run(variable);
        ended.code(0);
        assert!(!is_coloured(&ended.stdout), "{variable:?}: {}", ended.stdout);
        assert!(ended.stdout.contains(NAMES[0]), "{}", ended.stdout);
    }
}

#[test]
fn every_form_tells_the_same_figures() {
    let run = quick().args(["--format", "json"]);
    let [markdown, csv, json, output] = ["t.md", "t.csv", "t.json", "o.json"].map(|name| run.path(name));
    let run = run
        .arg("--export-markdown")
        .arg(&markdown)
        .arg("--export-csv")
        .arg(&csv);
    let ended = run.arg("--export-json").arg(&json).arg("-o").arg(&output).end();
    ended.code(0);
    assert!(ended.stderr.starts_with("server: "), "{}", ended.stderr);
    let record = wire::from_json(&ended.stdout).unwrap();
    assert!(record.complete);
    let text = |path| std::fs::read_to_string(path).unwrap();
    assert_eq!(text(&json), ended.stdout);
    assert_eq!(text(&output), ended.stdout);
    let view = View::default();
    assert_eq!(text(&markdown), render(&record, Format::Markdown, &view).unwrap());
    assert_eq!(text(&csv), render(&record, Format::Csv, &view).unwrap());

    // The same table with another word for it.
    for (flag, begins) in [("--csv", "row,strategy,"), ("--format=md", "| strategy |")] {
        let ended = quick().arg(flag).end();
        ended.code(0);
        assert!(ended.stdout.starts_with(begins), "{}", ended.stdout);
        assert!(ended.stderr.starts_with("server: "), "{}", ended.stderr);
    }
}

#[test]
fn a_dash_is_standard_output_and_nothing_else_goes_there() {
    let ended = quick().args(["-o", "-"]).end();
    ended.code(0);
    assert!(wire::from_json(&ended.stdout).unwrap().complete);
    let ended = quick().args(["-q", "--format", "json", "-o", "-"]).end();
    assert!(wire::from_json(&ended.stdout).unwrap().complete);
    assert_eq!(ended.stderr, "");
}

/// Starts a run that lasts until it is told to stop, and waits until its record has had a round.
fn under_way(counted: bool) -> bench_support::Running {
    let length: &[&str] = if counted {
        &[
            "--runs",
            "1",
            "--warmup",
            "0",
            "-n",
            "50",
            "--counted-requests",
            "500000000",
        ]
    } else {
        &["--runs", "9999", "--warmup", "0", "-n", "50"]
    };
    let run = Run::bench(NAMES).args(length).args(["--timeout", "100s"]);
    let output = run.path("run.json");
    let mut running = run.arg("-o").arg(&output).start();
    running.until("a round is saved", |run| {
        complete(&run.path("run.json")).is_some()
    });
    if counted {
        // Counting begins after the only round; its first row never ends by itself.
        running.until("a worker is traced", |run| {
            run.family().iter().any(|(pid, _)| is_traced(*pid))
        });
    }
    running
}

fn is_traced(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

fn measured(record: &Record) -> bool {
    record
        .strategies
        .iter()
        .all(|row| row.timed.known().is_some_and(|timed| !timed.rounds.is_empty()))
}

#[test]
fn a_run_that_is_interrupted_keeps_what_it_measured() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        let running = under_way(false);
        let path = running.path("run.json");
        running.signal(signal);
        let ended = running.end();
        ended.code(5);
        let record = complete(&path).unwrap();
        assert!(!record.complete, "{signal}");
        assert!(measured(&record), "{signal}");
        for row in &record.strategies {
            let why = row.counted.reason().unwrap();
            assert!(why.contains("the run ended before this row was counted"), "{why}");
            assert_ne!(row.status, Status::Failed, "{signal}: {:?}", row.reason);
        }
        // What it had is shown as well, with a word about what it is.
        assert!(ended.stdout.contains(NAMES[0]), "{}", ended.all());
        assert!(ended.stdout.contains("INCOMPLETE"), "{}", ended.all());
    }
}

#[test]
fn an_interrupted_count_keeps_the_timed_rounds() {
    if !may_trace() {
        return;
    }
    let running = under_way(true);
    let path = running.path("run.json");
    running.signal(Signal::SIGINT);
    let ended = running.end();
    ended.code(5);
    let record = complete(&path).unwrap();
    assert!(!record.complete && measured(&record));
    assert!(record.strategies.iter().all(|row| row.counted.known().is_none()));
}

#[test]
fn rows_that_an_interruption_spared_say_so() {
    let run = Run::bench(NAMES).args(["--runs", "1", "--warmup", "0", "--duration", "60s"]);
    let output = run.path("run.json");
    let mut running = run.arg("-o").arg(&output).start();
    running.until("the first worker is there", |run| {
        run.family()
            .iter()
            .any(|(_, command)| command.contains("worker raw"))
    });
    running.signal(Signal::SIGTERM);
    let ended = running.end();
    ended.code(5);
    assert!(
        ended.took < std::time::Duration::from_secs(55),
        "{:?}",
        ended.took
    );
    let record = complete(&output).unwrap();
    let reason = row(&record, NAMES[1]).reason.clone().unwrap();
    assert!(reason.contains("interrupted before this row"), "{reason}");
}

#[test]
fn a_killed_run_leaves_its_last_record_and_nobody_running() {
    for counted in [false, true] {
        if counted && !may_trace() {
            continue;
        }
        let running = under_way(counted);
        let family = running.family();
        assert!(
            family.len() >= 2,
            "there were a server and a worker at least: {family:?}"
        );
        let path = running.path("run.json");
        running.signal(Signal::SIGKILL);
        // Looks for survivors.
        let ended = running.end();
        assert_eq!(ended.status.code(), None);
        let record = complete(&path).unwrap();
        assert!(!record.complete && measured(&record));
        // The folder that it could not remove goes with the next run.
        let next = quick().env("TMPDIR", ended.path("tmp")).end();
        next.code(0);
        let rest: Vec<_> = std::fs::read_dir(ended.path("tmp")).unwrap().collect();
        assert!(rest.is_empty(), "{rest:?}");
    }
}

#[test]
fn a_place_that_cannot_be_written_to_is_found_out_at_once() {
    for flag in ["-o", "--export-json", "--export-csv", "--export-markdown"] {
        let run = Run::bench(["raw"]).args(["--duration", "100s", flag]);
        let missing = run.path("no/such/folder/run.json");
        let ended = run.arg(&missing).end();
        ended.code(2);
        let error = ended.error();
        assert!(
            error.contains(&format!("cannot write {}", missing.display())),
            "{error}"
        );
        assert!(error.contains("No such file or directory"), "{error}");
        assert_eq!(ended.stdout, "");
    }
    let run = Run::bench(["raw"]).arg("-o");
    let folder = run.path("tmp");
    let ended = run.arg(&folder).end();
    assert!(ended.code(2).error().contains("s a directory"), "{}", ended.all());
}

/// A full disk must not cost the table.
fn a_full_disk(output: &Path) {
    let ended = quick().arg("-o").arg(output).end();
    ended.code(1);
    let error = ended.error();
    assert!(
        error.contains(&format!("cannot write {}", output.display())),
        "{error}"
    );
    assert!(error.contains("No space left on device"), "{error}");
    for name in NAMES {
        assert!(ended.stdout.contains(name), "{}", ended.all());
    }
}

#[test]
fn a_full_device_costs_the_record_and_not_the_table() {
    a_full_disk(Path::new("/dev/full"));
}

#[test]
fn a_full_file_system_costs_the_record_and_not_the_table() {
    if !is_root() {
        println!("SKIP: a small file system: only root may mount one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap().to_owned();
    if !have(
        "mount",
        &["-t", "tmpfs", "-o", "size=4k,nr_inodes=8", "tmpfs", &at],
        "a small file system",
    ) {
        return;
    }
    struct Mounted(String);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount")
                .args(["-l", &self.0])
                .status();
        }
    }
    let mounted = Mounted(at);
    let old = Path::new(&mounted.0).join("run.json");
    std::fs::write(&old, "old").unwrap();
    a_full_disk(&old);
    assert_eq!(
        std::fs::read_to_string(&old).unwrap(),
        "old",
        "half a record is none"
    );
    assert_eq!(std::fs::read_dir(&mounted.0).unwrap().count(), 1);
}

#[test]
fn standard_output_may_be_full_or_gone() {
    let mut run = quick();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    run.command.stdout(full);
    let ended = run.end();
    ended.code(1);
    assert!(
        ended.error().contains("cannot write to standard output"),
        "{}",
        ended.stderr
    );

    // As `| head -1` does.
    let mut run = quick();
    run.command.stdout(Stdio::piped());
    let mut running = run.start_unread();
    let mut stdout = running.child.stdout.take().unwrap();
    let mut first = [0; 8];
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"server: ");
    drop(stdout);
    let ended = running.end();
    ended.code(0);
    assert_eq!(ended.stderr, "");
}
