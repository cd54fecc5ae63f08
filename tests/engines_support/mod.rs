//! What the tests of the engines that count in the kernel share.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use systally::engine::{
    Availability, EngineKind, Failures, Outcome, Pipes, Program, Request, Selection, Stdio, Window, engine,
};
use systally::tally::{Errno, PhaseTallies, Syscall, Tally};

/// Longest any guest may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Whether an engine works here; otherwise says `SKIP:` with the reason.
pub(crate) fn usable(kind: EngineKind) -> bool {
    match engine(kind).availability() {
        Availability::Ready => true,
        Availability::Unavailable { why, fix } => {
            println!("SKIP: the {kind} engine is not available: {why}; {fix}");
            false
        }
    }
}

/// Whether a program is in PATH; otherwise says `SKIP:` with the reason.
pub(crate) fn have(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).any(|folder| folder.join(program).is_file());
    if !found {
        println!("SKIP: {program} is not installed");
    }
    found
}

/// The compiled guest; `None`, with a `SKIP:` line, without a C compiler.
pub(crate) fn guest() -> Option<PathBuf> {
    guest_of("kernel")
}

/// A guest of another source in `tests/guests`, compiled once per test process.
pub(crate) fn guest_of(source: &'static str) -> Option<PathBuf> {
    static COMPILED: std::sync::Mutex<BTreeMap<&str, Option<PathBuf>>> =
        std::sync::Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap();
    compiled.entry(source).or_insert_with(|| compile(source)).clone()
}

fn compile(source: &str) -> Option<PathBuf> {
    if !have("cc") {
        return None;
    }
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-guest-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/guests/{source}.c"));
    let output = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(program)
}

/// A guest as a program.
pub(crate) fn program(guest: &Path, arguments: &str, stdio: Stdio) -> Program {
    let arguments = arguments.split_whitespace().map(OsString::from);
    Program {
        argv: std::iter::once(OsString::from(guest)).chain(arguments).collect(),
        env: BTreeMap::new(),
        stdio,
        own_group: true,
    }
}

/// What to count.
pub(crate) fn request(window: Window) -> Request {
    Request {
        window,
        selection: Selection::All,
        pin: true,
        cpu_time: false,
        failures: Failures::All,
    }
}

/// Runs copies of a guest and hands over what was found out.
pub(crate) fn run(kind: EngineKind, guest: &Path, arguments: &str, copies: usize) -> Outcome {
    let programs = vec![program(guest, arguments, Stdio::Inherit); copies];
    let session = engine(kind).launch(programs, &request(Window::Whole)).unwrap();
    session.finish(Some(LIMIT)).unwrap()
}

/// The tallies, which must be there.
pub(crate) fn tallies(outcome: &Outcome) -> &PhaseTallies {
    outcome
        .tallies
        .known()
        .unwrap_or_else(|| panic!("{:?} {:?}", outcome.tallies, outcome.notes))
}

/// Everything that was counted in the loop.
pub(crate) fn counted(outcome: &Outcome) -> &Tally {
    &tallies(outcome).run_loop
}

/// Calls of that name, unfinished ones too.
pub(crate) fn entries(tally: &Tally, name: &str) -> u64 {
    tally
        .calls
        .iter()
        .filter(|(call, _)| call.name() == name)
        .map(|(_, n)| n.calls + n.unfinished)
        .sum()
}

/// Calls of that name that returned.
pub(crate) fn calls(tally: &Tally, name: &str) -> u64 {
    tally
        .calls
        .iter()
        .filter(|(call, _)| call.name() == name)
        .map(|(_, n)| n.calls)
        .sum()
}

/// Errors of a native call.
pub(crate) fn errors(tally: &Tally, call: i64) -> BTreeMap<Errno, u64> {
    tally
        .calls
        .get(&Syscall::native(call))
        .map(|call| call.errors.clone())
        .unwrap_or_default()
}

/// Calls and errors by name, restarts counted as errors and nothing else, as `strace -c` does.
pub(crate) fn like_strace(tally: &Tally) -> BTreeMap<String, (u64, u64)> {
    tally
        .calls
        .iter()
        .filter(|(_, n)| n.calls > 0)
        .map(|(call, n)| {
            (
                call.name().into_owned(),
                (n.calls, n.failed() + n.restarts.values().sum::<u64>()),
            )
        })
        .collect()
}

/// What `strace -f -c` counts; the program must exit with status 0.
pub(crate) fn strace(guest: &Path, arguments: &str) -> BTreeMap<String, (u64, u64)> {
    let table = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new("strace")
        .args(["-f", "-c", "-U", "calls,errors,name", "-o"])
        .arg(table.path())
        .arg(guest)
        .args(arguments.split_whitespace())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let mut counts = BTreeMap::new();
    for line in std::fs::read_to_string(table.path()).unwrap().lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(Ok(calls)), Some(name)) = (fields.first().map(|f| f.parse()), fields.last()) else {
            continue;
        };
        if *name != "total" {
            let errors = if fields.len() == 3 {
                fields[1].parse().unwrap()
            } else {
                0
            };
            counts.insert((*name).to_owned(), (calls, errors));
        }
    }
    counts
}

/// Plays the strategy's part of the worker contract for guests that were told `worker ROUNDS …`: each
/// round begins for all of them at once.
pub(crate) fn drive(pipes: Vec<Pipes>, rounds: u32) {
    let mut workers: Vec<_> = pipes
        .into_iter()
        .map(|pipes| {
            (
                std::fs::File::from(pipes.stdin),
                BufReader::new(std::fs::File::from(pipes.stdout)),
                pipes.stderr,
            )
        })
        .collect();
    for _ in 0..rounds {
        for (_, lines, _) in &mut workers {
            expect(lines, "ready");
        }
        for (stdin, ..) in &mut workers {
            stdin.write_all(b"go\n").unwrap();
        }
        for (_, lines, _) in &mut workers {
            expect(lines, "done");
        }
    }
    for (stdin, mut lines, _) in workers {
        drop(stdin);
        lines.read_to_end(&mut Vec::new()).unwrap();
    }
}

fn expect(lines: &mut impl BufRead, event: &str) {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains(&format!("\"event\":\"{event}\"")), "{line}");
}
