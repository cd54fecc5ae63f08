//! What an import needs of memory, whatever is in the log and however long it is. By counting: the peak of a
//! process of its own, read when it has ended. Alone in its file, because that is the peak of all children.

#![allow(clippy::unwrap_used)]

use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

use nix::sys::resource::{UsageWho, getrusage};

/// More than any of the importer's own bounds, of which the largest is 65,536.
const MANY: u64 = 150_000;
/// Process ids, each once and not in order: those would be the numbers of lines.
fn pid(n: u64) -> u64 {
    1_000 + n * 7_919 % MANY
}

/// KiB.
const MOST: i64 = 64 << 10;

/// Imports the lines, and checks the exit code, what is to be found in the result, and the peak of memory.
fn peak_of(what: &str, n: u64, line: impl Fn(u64) -> String, code: i32, words: &str) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_systally"))
        .args(["import", "--from", "strace-log", "--format", "json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = BufWriter::new(child.stdin.take().unwrap());
    for i in 0..n {
        input.write_all(line(i).as_bytes()).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{what}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains(words), "{what}: no “{words}”");
    let peak = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    assert!(peak > 0 && peak < MOST, "{what}: {peak} KiB");
}

#[test]
fn memory_stays_bounded() {
    peak_of(
        "descriptors",
        MANY,
        |n| {
            format!(
                "7 socket(AF_INET, SOCK_STREAM, 0) = {n}\n7 connect({n}, {{sa_family=AF_INET, sin_port=htons({}), sin_addr=inet_addr(\"10.1.2.3\")}}, 16) = 0\n",
                n % 65_536
            )
        },
        0,
        "\"calls\": 150000",
    );
    // Each is counted once, also where the second half comes when nothing more of the first was kept.
    peak_of(
        "threads inside a call",
        2 * MANY,
        |n| match n {
            0..MANY => format!(
                "{} poll([{{fd=4, events=POLLIN}}], 1, 60000 <unfinished ...>\n",
                pid(n)
            ),
            _ => format!("{} <... poll resumed>) = 0 (Timeout)\n", pid(n - MANY)),
        },
        0,
        "\"calls\": 150000",
    );
    peak_of(
        "calls that never end",
        MANY,
        |n| {
            format!(
                "{} futex(0x7f12ab340000, FUTEX_WAIT, 1, NULL <unfinished ...>\n",
                pid(n)
            )
        },
        0,
        "\"unfinished\": 150000",
    );
    let long = "x".repeat(4_000);
    peak_of(
        "long halves",
        20_000,
        |n| format!("{} write(4, \"{long}\", 4000 <unfinished ...>\n", pid(n)),
        0,
        "\"unfinished\": 20000",
    );
    peak_of(
        "processes",
        MANY,
        |n| format!("{} openat(AT_FDCWD, \"/srv/{n}\", O_RDONLY) = 3\n", pid(n)),
        0,
        "\"calls\": 150000",
    );
    peak_of(
        "names of errors",
        MANY,
        |n| format!("7 call_{}(1) = -1 E{n:030} (no such thing)\n", n % 4_000),
        0,
        "\"calls\": 38",
    );
    // A time that no call can take, on every line: counted, and only the first few are kept.
    peak_of(
        "unusable times",
        MANY,
        |_| "7 read(3, \"\", 1) = 0 <99999999999.9>\n".to_owned(),
        0,
        "\"count\": 150000",
    );
}
