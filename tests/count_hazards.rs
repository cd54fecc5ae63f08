//! Programs that trip tracers: the counts are exact, and each program sees what it would see untraced
//! (the guests in `tests/guests` check that themselves and exit with 0).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::time::{Duration, Instant};

use common::guest;
use counting::{LIMIT, by_name, can_trace, count, count_with, everything, launch, of, only, program};
use systally::engine::{
    Availability, EngineError, EngineKind, Exit, Outcome, Program, Request, Selection, Stdio, engine,
};
use systally::tally::{CallTally, Errno, Syscall};

/// Counts one part of a guest, which must end well; `None` where that cannot be tried.
fn part(name: &str, arguments: &[&str]) -> Option<Outcome> {
    part_with(name, arguments, &everything())
}

fn part_with(name: &str, arguments: &[&str], request: &Request) -> Option<Outcome> {
    let program = guest(name)?;
    if !can_trace() {
        return None;
    }
    let argv: Vec<&str> = [program.to_str().unwrap()]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    let outcome = count_with(&argv, request);
    assert_eq!(outcome.exits, [Exit::Code(0)], "{arguments:?}");
    Some(outcome)
}

fn calls(outcome: &Outcome, name: &str) -> u64 {
    of(outcome, name).calls
}

#[test]
fn vfork() {
    let Some(outcome) = part("strange", &["vfork"]) else {
        return;
    };
    assert_eq!(calls(&outcome, "getppid"), 5);
    assert_eq!(calls(&outcome, "vfork"), 1);
    assert_eq!(outcome.tracees, 2);
}

#[test]
fn clone3() {
    let Some(outcome) = part("strange", &["clone3"]) else {
        return;
    };
    assert_eq!(calls(&outcome, "getppid"), 3);
    assert_eq!(calls(&outcome, "clone3"), 1);
}

#[test]
fn exec_from_a_thread_that_is_not_the_first() {
    let Some(outcome) = part("strange", &["thread-exec"]) else {
        return;
    };
    assert_eq!(calls(&outcome, "getppid"), 4 + 5);
    assert_eq!(calls(&outcome, "execve"), 2);
    // The first thread and another one died in pause.
    assert_eq!(
        of(&outcome, "pause"),
        CallTally {
            unfinished: 2,
            ..CallTally::default()
        }
    );
    assert_eq!(outcome.tracees, 3);
}

#[test]
fn threads_that_die_in_a_call() {
    let Some(outcome) = part("strange", &["die-in-call"]) else {
        return;
    };
    assert_eq!(of(&outcome, "read").unfinished, 5);
    assert_eq!(of(&outcome, "exit_group").unfinished, 1);
}

#[test]
fn a_first_thread_that_ends_before_the_others() {
    let Some(outcome) = part("strange", &["leader-exits"]) else {
        return;
    };
    assert_eq!(calls(&outcome, "getppid"), 6);
    assert_eq!(
        (
            of(&outcome, "exit").unfinished,
            of(&outcome, "exit_group").unfinished
        ),
        (1, 1)
    );
}

#[test]
fn signals_that_a_program_ignores_cut_no_call_short() {
    let Some(guest) = guest("strange") else { return };
    let calls = ["epoll_wait", "recvfrom"].map(|name| Syscall::all_by_name(name)[0]);
    for kind in [
        EngineKind::Ptrace,
        EngineKind::PtraceCounts,
        EngineKind::Bpf,
        EngineKind::Perf,
    ] {
        let request = Request {
            selection: match kind {
                EngineKind::Perf => Selection::Only(calls.to_vec()),
                _ => Selection::All,
            },
            ..everything()
        };
        let engine = engine(kind);
        if let Availability::Unavailable { why, .. } = engine.availability() {
            println!("SKIP: {kind}: {why}");
            continue;
        }
        let program = program(&[guest.to_str().unwrap(), "ignored"]);
        let session = engine.launch(vec![program], &request).unwrap();
        let outcome = session.finish(Some(LIMIT)).unwrap();
        // The guest has looked at what its calls returned.
        assert_eq!(outcome.exits, [Exit::Code(0)], "{kind}");
        let [wait, receive] = ["epoll_wait", "recvfrom"].map(|name| of(&outcome, name));
        assert_eq!((wait.calls, receive.calls), (10, 5), "{kind}");
        if engine.learns(&request).errors {
            // Five met a handler; the receives ran into their time-out.
            assert_eq!((wait.failed(), receive.failed()), (5, 5), "{kind}");
        }
    }
}

#[test]
fn what_hides_calls_from_an_engine_is_told() {
    let Some(guest) = guest("strange") else { return };
    if !can_trace() {
        return;
    }
    let notes = |kind: EngineKind, part: &str, chosen: bool| {
        let selection = if chosen {
            only(&["getppid"])
        } else {
            Selection::All
        };
        let request = Request {
            selection,
            ..everything()
        };
        let programs = vec![program(&[guest.to_str().unwrap(), part])];
        let session = engine(kind).launch(programs, &request).unwrap();
        let outcome = session.finish(Some(LIMIT)).unwrap();
        assert_eq!(outcome.exits, [Exit::Code(0)], "{kind} {part}");
        outcome.notes.join("\n")
    };
    use EngineKind::{Ptrace, PtraceCounts};
    for (part, words) in [("strict", "strict mode"), ("seccomp", "filter of its own")] {
        // All calls in detail need no filter, so nothing is hidden.
        assert!(!notes(Ptrace, part, false).contains(words), "{part}");
        assert!(notes(Ptrace, part, true).contains(words), "{part}");
        assert!(notes(PtraceCounts, part, false).contains(words), "{part}");
    }
    for kind in [Ptrace, PtraceCounts] {
        assert!(
            notes(kind, "untraced", false).contains("CLONE_UNTRACED"),
            "{kind}"
        );
        assert!(!notes(kind, "clone3", false).contains("CLONE_UNTRACED"), "{kind}");
    }
}

#[test]
fn a_program_with_a_seccomp_filter_of_its_own() {
    let Some(outcome) = part("strange", &["seccomp"]) else {
        return;
    };
    let getppid = of(&outcome, "getppid");
    assert_eq!((getppid.calls, getppid.errors[&Errno(libc::EPERM)]), (9, 7));
    assert_eq!(of(&outcome, "getpgrp").errors[&Errno(libc::ENOSYS)], 1);
}

#[test]
fn calls_of_other_abis_have_their_own_tables() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("SKIP: int 0x80 exists on x86-64 only");
        return;
    }
    let Some(outcome) = part("strange", &["int80"]) else {
        return;
    };
    let names = by_name(outcome.tallies.known().unwrap());
    assert_eq!(names["i386:getpid"].calls, 3);
    assert_eq!(names["i386:brk"].calls, 2);
    assert_eq!(names["i386:connect"].calls, 1);
    assert_eq!(names["i386:syscall_0xfa0"].errors[&Errno(libc::ENOSYS)], 1);
    assert_eq!(names["x32:getpid"].calls, 1);
    // 45 is recvfrom in the native table.
    assert!(!names.contains_key("recvfrom"));
    let request = Request {
        selection: only(&["recvfrom", "brk"]),
        ..everything()
    };
    let Some(outcome) = part_with("strange", &["int80"], &request) else {
        return;
    };
    let names = by_name(outcome.tallies.known().unwrap());
    assert_eq!(names["i386:brk"].calls, 2);
    assert!(!names.contains_key("recvfrom") && !names.contains_key("i386:connect"));
}

#[test]
fn unknown_numbers_are_counted_by_number() {
    let Some(outcome) = part("strange", &["unknown"]) else {
        return;
    };
    let names = by_name(outcome.tallies.known().unwrap());
    assert_eq!(names["syscall_0x1388"].errors[&Errno(libc::ENOSYS)], 3);
    assert_eq!(names["syscall_0x12345678"].calls, 1);
    assert_eq!(names["syscall_0xffffffffffffffff"].calls, 2);
}

#[test]
fn every_signal_arrives_with_its_value() {
    let Some(outcome) = part("signals", &["every"]) else {
        return;
    };
    let sent = calls(&outcome, "rt_sigqueueinfo");
    assert!(sent > 50, "{sent}");
    let returned = of(&outcome, "rt_sigreturn");
    assert_eq!((returned.calls, returned.failed()), (sent, 0));
}

#[test]
fn a_receive_that_ten_signals_interrupt() {
    let Some(outcome) = part("signals", &["restart"]) else {
        return;
    };
    let received = of(&outcome, "recvfrom");
    assert_eq!(received.calls, 11);
    assert_eq!(received.restarts[&Errno(512)], 10);
    assert_eq!(received.failed(), 0);
}

#[test]
fn restarts_of_every_kind_are_told_from_failures() {
    let Some(outcome) = part("signals", &["restart-kinds"]) else {
        return;
    };
    // ERESTART_RESTARTBLOCK and ERESTARTNOHAND (include/linux/errno.h).
    let poll = of(&outcome, "poll");
    assert_eq!((poll.calls, poll.failed(), poll.restarts[&Errno(516)]), (1, 0, 1));
    let again = of(&outcome, "restart_syscall");
    assert_eq!(
        (again.calls, again.failed(), again.restarts[&Errno(516)]),
        (2, 0, 1)
    );
    let select = of(&outcome, "pselect6");
    assert_eq!(
        (select.calls, select.failed(), select.restarts[&Errno(514)]),
        (2, 0, 1)
    );
}

#[test]
fn a_32_bit_program_is_counted_by_its_own_table() {
    if cfg!(not(target_arch = "x86_64")) || !common::have("cc") || !can_trace() {
        println!("SKIP: 32-bit programs beside 64-bit ones are tried on x86-64");
        return;
    }
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/i386.c");
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("i386");
    // Without a C library, which few machines have for 32 bits.
    let built = std::process::Command::new("cc")
        .args([
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-m32",
            "-nostdlib",
            "-static",
            "-ffreestanding",
        ])
        .args(["-fno-pic", "-no-pie", "-fno-stack-protector", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    if !built.status.success() {
        println!(
            "SKIP: cc makes no 32-bit programs: {}",
            String::from_utf8_lossy(&built.stderr)
        );
        return;
    }
    if std::process::Command::new(&program).status().is_err() {
        println!("SKIP: this kernel runs no 32-bit programs");
        return;
    }
    // Executed by a 64-bit program, so that the table changes within one process.
    let outcome = count(&["sh", "-c", &format!("{}; exit $?", program.display())]);
    assert_eq!(outcome.exits, [Exit::Code(0)]);
    let names = by_name(outcome.tallies.known().unwrap());
    let calls = |name: &str| names.get(name).map_or(0, |call| call.calls);
    assert_eq!((calls("i386:getpid"), calls("i386:socketpair")), (3, 1));
    assert_eq!((calls("i386:send"), calls("i386:recv")), (4, 4));
    assert_eq!((names["i386:send"].bytes, names["i386:recv"].bytes), (20, 20));
    assert_eq!(names["i386:send"].peers["socketpair"], 4);
    assert_eq!(names["i386:shutdown"].errors[&Errno(libc::EBADF)], 1);
    assert_eq!((names["i386:write"].bytes, calls("i386:close")), (8, 1));
    assert_eq!(names["i386:exit_group"].unfinished, 1);
    assert!(!names.contains_key("i386:socketcall"));
    let run_loop = &outcome.tallies.known().unwrap().run_loop;
    assert_eq!((run_loop.sends, run_loop.receives), (5, 5));
}

#[test]
fn a_stopped_child_stays_stopped_until_it_is_continued() {
    part("signals", &["stop"]);
}

#[test]
fn deaths_by_signal_reach_the_parent() {
    let Some(outcome) = part("signals", &["deaths"]) else {
        return;
    };
    assert_eq!(outcome.tracees, 6);
}

#[test]
fn a_program_s_own_death_by_signal_is_reported() {
    let Some(program) = guest("signals") else { return };
    if !can_trace() {
        return;
    }
    for signal in [libc::SIGTERM, libc::SIGKILL, 40] {
        let outcome = count(&[program.to_str().unwrap(), "die", &signal.to_string()]);
        assert_eq!(outcome.exits, [Exit::Signal(signal)]);
    }
}

#[test]
fn a_program_that_traces() {
    let Some(outcome) = part("strange", &["ptrace"]) else {
        return;
    };
    assert_eq!(of(&outcome, "ptrace").errors[&Errno(libc::EPERM)], 2);
    assert!(
        outcome.notes.iter().any(|note| note.contains("ptrace")),
        "{:?}",
        outcome.notes
    );
}

#[test]
fn a_daemon_is_counted_to_its_end() {
    let Some(outcome) = part("strange", &["daemon"]) else {
        return;
    };
    assert_eq!(calls(&outcome, "getppid"), 5);
    assert_eq!(outcome.tracees, 3);
}

#[test]
fn the_affinity_looks_as_it_does_untraced() {
    let Some(guest) = guest("strange") else { return };
    if !can_trace() {
        return;
    }
    let untraced = std::process::Command::new(&guest)
        .arg("affinity")
        .output()
        .unwrap();
    for selection in [Selection::All, only(&["getppid"])] {
        let request = Request {
            selection,
            ..everything()
        };
        let piped = Program {
            stdio: Stdio::Piped,
            own_group: true,
            ..program(&[guest.to_str().unwrap(), "affinity"])
        };
        let mut session = launch(vec![piped], &request);
        let pipes = session.pipes().remove(0);
        let mut seen = String::new();
        std::io::Read::read_to_string(&mut std::fs::File::from(pipes.stdout), &mut seen).unwrap();
        let outcome = session.finish(Some(LIMIT)).unwrap();
        assert_eq!(outcome.exits, [Exit::Code(0)]);
        assert_eq!(seen, String::from_utf8_lossy(&untraced.stdout));
    }
}

#[test]
fn counts_do_not_depend_on_the_number_of_processes() {
    for n in [1u64, 10, 100, 1000] {
        for way in ["forks", "burst", "threads"] {
            if way == "threads" && n > 200 {
                continue;
            }
            let Some(outcome) = part("counting", &[way, &n.to_string(), "7"]) else {
                return;
            };
            assert_eq!(calls(&outcome, "getppid"), n * 7, "{way} {n}");
            assert_eq!(outcome.tracees, n + 1, "{way} {n}");
            let ends = of(&outcome, "exit_group").unfinished + of(&outcome, "exit").unfinished;
            assert_eq!(ends, n + 1, "{way} {n}");
        }
    }
}

#[test]
fn ten_thousand_short_forks() {
    let request = Request {
        selection: only(&["getppid"]),
        ..everything()
    };
    let Some(outcome) = part_with("counting", &["forks", "10000", "2"], &request) else {
        return;
    };
    assert_eq!(calls(&outcome, "getppid"), 20_000);
    assert_eq!(outcome.tracees, 10_001);
}

#[test]
fn many_programs_at_once_are_counted_together() {
    let Some(guest) = guest("counting") else { return };
    if !can_trace() {
        return;
    }
    let programs = vec![program(&[guest.to_str().unwrap(), "forks", "2", "5"]); 50];
    let outcome = launch(programs, &everything()).finish(Some(LIMIT)).unwrap();
    assert_eq!(outcome.exits, vec![Exit::Code(0); 50]);
    assert_eq!(calls(&outcome, "getppid"), 50 * 2 * 5);
    assert_eq!(outcome.tracees, 150);
}

#[test]
fn only_chosen_calls_are_counted_and_all_but_excepted_ones() {
    let getppid = Syscall::native(libc::SYS_getppid);
    let request = Request {
        selection: Selection::Only(vec![getppid]),
        ..everything()
    };
    let Some(outcome) = part_with("counting", &["forks", "3", "9"], &request) else {
        return;
    };
    let tallies = outcome.tallies.known().unwrap();
    assert_eq!(tallies.run_loop.total(), 27);

    let Some(all) = part("counting", &["forks", "3", "9"]) else {
        return;
    };
    let request = Request {
        selection: Selection::Except(vec![getppid]),
        ..everything()
    };
    let Some(outcome) = part_with("counting", &["forks", "3", "9"], &request) else {
        return;
    };
    let mut expected = by_name(all.tallies.known().unwrap());
    expected.remove("getppid");
    let counted = by_name(outcome.tallies.known().unwrap());
    let numbers = |names: std::collections::BTreeMap<String, CallTally>| {
        names
            .into_iter()
            .map(|(name, tally)| (name, tally.calls, tally.unfinished))
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(counted), numbers(expected));
}

#[test]
fn time_and_bytes_are_counted() {
    if !can_trace() {
        return;
    }
    let request = Request {
        cpu_time: true,
        ..everything()
    };
    let outcome = count_with(&["sh", "-c", "sleep 0.05; echo hello"], &request);
    assert!(of(&outcome, "wait4").wall.0 > 40_000_000);
    assert_eq!(of(&outcome, "write").bytes, 6);
    let cpu = outcome.cpu.known().expect("CPU time");
    assert!(cpu.user.0 + cpu.system.0 > 0);
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_of_the_launch() {
    if !can_trace() {
        return;
    }
    for (name, errno) in [
        ("systally-no-such-program", nix::errno::Errno::ENOENT),
        ("/etc/passwd", nix::errno::Errno::EACCES),
        ("/no/such/path", nix::errno::Errno::ENOENT),
    ] {
        for good in [0, 3] {
            let mut programs = vec![program(&["sleep", "100"]); good];
            programs.push(program(&[name]));
            let ptrace = systally::engine::engine(systally::engine::EngineKind::Ptrace);
            let plain = systally::engine::engine(systally::engine::EngineKind::None);
            for engine in [ptrace, plain] {
                let started = Instant::now();
                match engine.launch(programs.clone(), &everything()) {
                    Err(EngineError::Exec { source, .. }) => assert_eq!(source, errno, "{name}"),
                    Err(other) => panic!("{name}: {other}"),
                    Ok(_) => panic!("{name}: launched"),
                }
                // The others were ended and not waited for.
                assert!(started.elapsed() < Duration::from_secs(50));
            }
        }
    }
}

/// Whether a process is there and not a zombie.
fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with(['Z', 'X']))
    })
}

fn wait_until_gone(pids: &[i32]) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while pids.iter().any(|pid| is_alive(*pid)) {
        assert!(Instant::now() < give_up, "{pids:?} are still running");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Launches processes that never end by themselves, one of them in a session of its own.
fn lingering(request: &Request) -> Option<(Box<dyn systally::engine::Session>, Vec<i32>)> {
    let guest = guest("strange")?;
    if !can_trace() {
        return None;
    }
    let piped = Program {
        stdio: Stdio::Piped,
        own_group: true,
        ..program(&[guest.to_str().unwrap(), "linger"])
    };
    let mut session = launch(vec![piped], request);
    let pipes = session.pipes().remove(0);
    let mut pids = session.pids().to_vec();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(std::fs::File::from(pipes.stdout)));
    pids.extend(lines.take(2).map(|line| line.unwrap().parse::<i32>().unwrap()));
    // All are in their pause before anybody looks; the file begins with the number of the call (proc(5)).
    let give_up = Instant::now() + Duration::from_secs(20);
    let paused = |pid: &i32| {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        call.split(' ').next() == Some(&libc::SYS_pause.to_string())
    };
    while !pids.iter().all(paused) {
        assert!(Instant::now() < give_up, "{pids:?} do not pause");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some((session, pids))
}

#[test]
fn the_deadline_ends_every_descendant_and_says_so() {
    let Some((session, pids)) = lingering(&everything()) else {
        return;
    };
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let outcome = session.finish(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(outcome.exits, [Exit::Signal(libc::SIGKILL)]);
    assert!(
        outcome
            .notes
            .iter()
            .any(|note| note.contains("3 of the counted processes")),
        "{:?}",
        outcome.notes
    );
    assert_eq!(of(&outcome, "pause").unfinished, 3);
    wait_until_gone(&pids);
}

#[test]
fn a_dropped_session_leaves_nothing_running() {
    let Some((session, pids)) = lingering(&everything()) else {
        return;
    };
    drop(session);
    wait_until_gone(&pids);
}

#[test]
fn signals_go_to_the_program() {
    let Some((session, pids)) = lingering(&everything()) else {
        return;
    };
    session.signal(libc::SIGUSR1);
    let outcome = session.finish(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(outcome.exits, [Exit::Signal(libc::SIGUSR1)]);
    wait_until_gone(&pids);
}
