//! The same numbers as `strace -f -c` on real programs.
//!
//! strace 6.1 counts calls when they return, as systally does. It counts calls that the kernel restarts
//! after a signal as errors, and the register that `rt_sigreturn` restores as its result; both are
//! allowed for here.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{find, guest, have};
use counting::{LIMIT, by_name, can_trace, everything, launch, program};
use systally::engine::{Exit, Program, Stdio as Streams};

/// Calls and failures by name.
type Counts = BTreeMap<String, (u64, u64)>;

/// Runs a command under strace and reads its table.
fn strace(command: &Program) -> Counts {
    let table = tempfile::NamedTempFile::new().unwrap();
    // Pipes as under systally: programs ask what their streams are.
    let output = Command::new("strace")
        .args(["-f", "-c", "-o"])
        .arg(table.path())
        .args(&command.argv)
        .envs(&command.env)
        .stdin(Stdio::piped())
        .output()
        .unwrap();
    assert!(output.status.success(), "strace {:?}: {output:?}", command.argv);
    let text = std::fs::read_to_string(table.path()).unwrap();
    let mut counts = Counts::new();
    for line in text.lines().skip(2).take_while(|line| !line.starts_with("---")) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (name, failed) = match columns[4..] {
            [name] => (name, 0),
            [failed, name] => (name, failed.parse().unwrap()),
            _ => panic!("{line}"),
        };
        counts.insert(name.to_owned(), (columns[3].parse().unwrap(), failed));
    }
    counts
}

/// Runs a command under systally.
fn systally(command: &Program) -> Counts {
    let piped = Program {
        stdio: Streams::Piped,
        ..command.clone()
    };
    let mut session = launch(vec![piped], &everything());
    let pipes = session.pipes().remove(0);
    drop(pipes.stdin);
    // Drained, so that no writer waits; what it says does not matter here.
    let drains = [pipes.stdout, pipes.stderr].map(|pipe| {
        std::thread::spawn(move || std::io::copy(&mut std::fs::File::from(pipe), &mut std::io::sink()))
    });
    let outcome = session.finish(Some(LIMIT)).unwrap();
    for drain in drains {
        drain.join().unwrap().unwrap();
    }
    assert_eq!(outcome.exits, [Exit::Code(0)], "{:?}", command.argv);
    by_name(outcome.tallies.known().unwrap())
        .into_iter()
        .filter(|(_, tally)| tally.calls > 0)
        .map(|(name, tally)| {
            (
                name,
                (tally.calls, tally.failed() + tally.restarts.values().sum::<u64>()),
            )
        })
        .collect()
}

/// Compares a command's counts, the calls in `varying` apart. Returns how many calls were compared.
fn compare(command: &Program, varying: &[&str]) -> u64 {
    let strip = |counts: Counts| -> Counts {
        counts
            .into_iter()
            .filter(|(name, _)| !varying.contains(&name.as_str()))
            .map(|(name, (calls, failed))| match name.as_str() {
                // A child that ends while its parent forks restarts that fork.
                "clone" => (name, (calls - failed, 0)),
                "rt_sigreturn" => (name, (calls, 0)),
                _ => (name, (calls, failed)),
            })
            .collect()
    };
    let expected = strip(strace(command));
    let counted = strip(systally(command));
    let differences: Vec<String> = expected
        .keys()
        .chain(counted.keys().filter(|name| !expected.contains_key(*name)))
        .filter(|name| expected.get(*name) != counted.get(*name))
        .map(|name| {
            format!(
                "{name}: strace {:?}, systally {:?}",
                expected.get(name),
                counted.get(name)
            )
        })
        .collect();
    assert!(differences.is_empty(), "{:?}: {differences:#?}", command.argv);
    expected.values().map(|(calls, _)| calls).sum()
}

fn command(argv: &[&str]) -> Program {
    let mut command = program(argv);
    // So that two runs of an interpreter do the same.
    for (name, value) in [
        ("LC_ALL", "C"),
        ("PYTHONHASHSEED", "0"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ] {
        command.env.insert(name.into(), value.into());
    }
    command
}

fn ready() -> bool {
    have("strace") && can_trace()
}

#[test]
fn ls() {
    if ready() {
        assert!(compare(&command(&["ls", "-l", "/etc"]), &[]) > 50);
    }
}

#[test]
fn git_in_a_repository() {
    if !ready() || !have("git") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let path = folder.path().to_str().unwrap();
        let identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"];
        let argv: Vec<&str> = ["git", "-C", path]
            .into_iter()
            .chain(identity)
            .chain(arguments.iter().copied())
            .collect();
        let mut command = command(&argv);
        // Without it, git status rewrites its index when that is cheap, which depends on the clock.
        command.env.insert("GIT_OPTIONAL_LOCKS".into(), "0".into());
        command
    };
    for arguments in [&["init", "-q"][..], &["commit", "-q", "--allow-empty", "-m", "x"]] {
        let command = git(arguments);
        let status = Command::new("git")
            .args(&command.argv[1..])
            .envs(&command.env)
            .status()
            .unwrap();
        assert!(status.success());
    }
    std::fs::write(folder.path().join("new"), "text").unwrap();
    compare(&command(&["git", "--version"]), &[]);
    assert!(compare(&git(&["status"]), &[]) > 50);
}

#[test]
fn a_shell_pipeline() {
    if !ready() {
        return;
    }
    // How many children one SIGCHLD tells of decides how often the shell waits.
    let pipeline = "printf 'b\\na\\n' | sort | tail -n 1 | cat";
    assert!(compare(&command(&["sh", "-c", pipeline]), &["wait4", "rt_sigreturn"]) > 100);
}

#[test]
fn python() {
    if !ready() {
        return;
    }
    // The first python3 in PATH may be a wrapper script that is not the same twice.
    let Some(python) = ["/usr/bin/python3"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        println!("SKIP: /usr/bin/python3 is not installed");
        return;
    };
    let script = "import json, os; print(json.dumps({'pid': 1}), sum(1 for _ in os.scandir('/etc')))";
    // The allocator asks for as much memory as the addresses of this run happen to need.
    assert!(compare(&command(&[python, "-c", script]), &["brk", "mmap", "munmap"]) > 100);
}

#[test]
fn php() {
    if ready() && have("php") {
        assert!(compare(&command(&["php", "-v"]), &["brk", "mmap", "munmap"]) > 100);
    }
}

#[test]
fn node() {
    if !ready() || !have("node") {
        return;
    }
    // Threads of the JIT, the collector and libuv: what they do to each other (futex, eventfd reads and
    // writes, epoll, yields) and to memory depends on which of them runs first.
    let varying = [
        "futex",
        "epoll_wait",
        "epoll_pwait",
        "epoll_ctl",
        "madvise",
        "mprotect",
        "mmap",
        "munmap",
        "brk",
        "sched_yield",
        "read",
        "write",
        "getpid",
        "gettid",
        "restart_syscall",
        "clock_nanosleep",
        "mremap",
        "pkey_mprotect",
    ];
    let node = find("node").unwrap();
    assert!(
        compare(
            &command(&[node.to_str().unwrap(), "-e", "console.log(6 * 7)"]),
            &varying
        ) > 30
    );
}

#[test]
fn two_hundred_threads() {
    let Some(guest) = guest("counting") else { return };
    if !ready() {
        return;
    }
    // Whether a join has to wait, whether a stack is new or that of a thread that has ended, and whether
    // two threads meet in the allocator depends on who is faster.
    let varying = ["futex", "mmap", "munmap", "mprotect", "madvise"];
    let total = compare(
        &command(&[guest.to_str().unwrap(), "threads", "200", "10"]),
        &varying,
    );
    assert!(total > 200 * 10);
}

#[test]
fn a_thousand_forks() {
    let Some(guest) = guest("counting") else { return };
    if !ready() {
        return;
    }
    let total = compare(&command(&[guest.to_str().unwrap(), "forks", "1000", "10"]), &[]);
    assert!(total > 1000 * 12);
    // A burst: the parent's fork is restarted whenever a child's end interrupts it.
    compare(
        &command(&[guest.to_str().unwrap(), "burst", "1000", "3"]),
        &["clone"],
    );
}

#[test]
fn signals_and_strange_programs() {
    let (Some(signals), Some(strange)) = (guest("signals"), guest("strange")) else {
        return;
    };
    if !ready() {
        return;
    }
    let (signals, strange) = (signals.to_str().unwrap(), strange.to_str().unwrap());
    compare(&command(&[signals, "every"]), &[]);
    compare(&command(&[signals, "deaths"]), &[]);
    compare(&command(&[strange, "vfork"]), &[]);
    compare(&command(&[strange, "clone3"]), &[]);
    compare(&command(&[strange, "seccomp"]), &[]);
    compare(&command(&[strange, "daemon"]), &[]);
    // The other thread may be in pause or not there yet when everything ends.
    compare(
        &command(&[strange, "thread-exec"]),
        &["rseq", "set_robust_list", "madvise", "rt_sigprocmask"],
    );
}
