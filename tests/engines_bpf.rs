//! The bpf engine against guests whose calls are known to the number, and against strace.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod engines_support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use engines_support::*;
use systally::engine::{EngineKind, Exit, Selection, Stdio, Window, engine};
use systally::tally::{Errno, Syscall};
use systally::units::Nanos;

const BPF: EngineKind = EngineKind::Bpf;
const EINTR_RESTART: Errno = Errno(512);

/// The guest, when everything is there.
fn ready() -> Option<std::path::PathBuf> {
    usable(BPF).then(guest).flatten()
}

#[test]
fn counts_are_exact_for_one_ten_and_a_hundred_processes() {
    let Some(guest) = ready() else { return };
    for copies in [1, 10, 100] {
        let outcome = run(BPF, &guest, "calls 1000", copies as usize);
        assert!(outcome.exits.iter().all(|exit| *exit == Exit::Code(0)));
        assert_eq!(calls(counted(&outcome), "getppid"), 1000 * copies);
        assert_eq!(calls(counted(&outcome), "execve"), copies);
        assert_eq!(outcome.tracees, copies);
        let getppid = &counted(&outcome).calls[&Syscall::native(libc::SYS_getppid)];
        assert_eq!(
            getppid.times.values().sum::<u64>(),
            1000 * copies,
            "every call has a duration"
        );
        assert!(getppid.wall > Nanos(0));
    }
}

#[test]
fn children_are_followed_however_they_are_made() {
    let Some(guest) = ready() else { return };
    for (arguments, getppid, tracees) in [
        ("forks 200 5", 1000, 201),
        ("short 300", 300, 301),
        ("threads 50 20", 1000, 51),
        ("spawn 20", 60, 21),
        ("exec", 22, 2),
    ] {
        let outcome = run(BPF, &guest, arguments, 1);
        assert_eq!(outcome.exits, [Exit::Code(0)], "{arguments}");
        assert_eq!(calls(counted(&outcome), "getppid"), getppid, "{arguments}");
        assert_eq!(outcome.tracees, tracees, "{arguments}");
    }
}

#[test]
fn children_that_outlive_the_program_are_counted_to_their_end() {
    let Some(guest) = ready() else { return };
    let outcome = run(BPF, &guest, "orphan 77", 1);
    assert_eq!(calls(counted(&outcome), "getppid"), 77);
    assert_eq!(outcome.notes, Vec::<String>::new());
}

#[test]
fn what_still_runs_at_the_limit_is_killed_and_said() {
    let Some(guest) = ready() else { return };
    if !have("sh") || !have("sleep") {
        return;
    }
    // A daemon: of another session and not a child of ours any more.
    let script = "(setsid sleep 1000 >/dev/null 2>&1 & echo $! > \"$0\") & wait";
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut daemon = program(&guest, "", Stdio::Inherit);
    daemon.argv = ["sh", "-c", script].map(Into::into).to_vec();
    daemon.argv.push(file.path().into());
    let session = engine(BPF).launch(vec![daemon], &request(Window::Whole)).unwrap();
    let begun = Instant::now();
    let outcome = session.finish(Some(Duration::from_millis(500))).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(outcome.exits, [Exit::Code(0)]);
    assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
    let daemon = std::fs::read_to_string(file.path()).unwrap();
    let state = std::fs::read_to_string(format!("/proc/{}/stat", daemon.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "still alive: {state}");
    let sleep = &counted(&outcome).calls[&Syscall::native(libc::SYS_clock_nanosleep)];
    assert_eq!((sleep.calls, sleep.unfinished), (0, 1));
}

#[test]
fn dropping_a_session_ends_its_programs() {
    let Some(guest) = ready() else { return };
    if !have("sleep") {
        return;
    }
    let mut sleeper = program(&guest, "", Stdio::Inherit);
    sleeper.argv = ["sleep", "1000"].map(Into::into).to_vec();
    let session = engine(BPF)
        .launch(vec![sleeper], &request(Window::Whole))
        .unwrap();
    let pid = session.pids()[0];
    drop(session);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn numbers_of_other_abis_are_not_taken_for_native_ones() {
    let Some(guest) = ready() else { return };
    if !cfg!(target_arch = "x86_64") {
        println!("SKIP: this machine has no i386 calls");
        return;
    }
    let outcome = run(BPF, &guest, "foreign", 1);
    let counted = counted(&outcome);
    if outcome.exits != [Exit::Code(0)] {
        println!("SKIP: this kernel was built without IA32 emulation");
        return;
    }
    assert_eq!(calls(counted, "recvfrom"), 2);
    assert_eq!(calls(counted, "i386:brk"), 5);
    assert_eq!(calls(counted, "i386:socket"), 2);
    assert_eq!(calls(counted, "i386:socketcall"), 1);
    let socket = counted
        .calls
        .iter()
        .find(|(call, _)| call.name() == "i386:socket")
        .unwrap()
        .1;
    assert_eq!(socket.errors, BTreeMap::from([(Errno(libc::EFAULT), 2)]));
}

#[test]
fn unknown_numbers_are_counted_by_number() {
    let Some(guest) = ready() else { return };
    let outcome = run(BPF, &guest, "unknown", 1);
    let counted = counted(&outcome);
    assert_eq!(calls(counted, "syscall_0x270f"), 3);
    assert_eq!(calls(counted, "syscall_0xffffffffffffffff"), 2);
    assert_eq!(calls(counted, "x32:getpid"), 4);
}

#[test]
fn calls_that_a_seccomp_filter_refuses_are_counted() {
    let Some(guest) = ready() else { return };
    let outcome = run(BPF, &guest, "refused", 1);
    assert_eq!(calls(counted(&outcome), "getppid"), 9);
    assert_eq!(
        errors(counted(&outcome), libc::SYS_getppid),
        BTreeMap::from([(Errno(libc::EPERM), 7)])
    );
}

#[test]
fn restarts_are_told_from_failures() {
    let Some(guest) = ready() else { return };
    let outcome = run(BPF, &guest, "restart", 1);
    let recvfrom = &counted(&outcome).calls[&Syscall::native(libc::SYS_recvfrom)];
    assert_eq!(recvfrom.calls, 11);
    assert_eq!(recvfrom.restarts, BTreeMap::from([(EINTR_RESTART, 10)]));
    assert_eq!(recvfrom.errors, BTreeMap::new());
    assert_eq!(recvfrom.bytes, 1);
}

#[test]
fn calls_that_never_return_are_unfinished() {
    let Some(guest) = ready() else { return };
    let outcome = run(BPF, &guest, "unfinished", 1);
    let counted = counted(&outcome);
    let pause = &counted.calls[&Syscall::native(libc::SYS_pause)];
    assert_eq!((pause.calls, pause.unfinished, pause.restarts.len()), (0, 3, 0));
    let exit_group = &counted.calls[&Syscall::native(libc::SYS_exit_group)];
    assert_eq!((exit_group.calls, exit_group.unfinished), (0, 1));

    let outcome = run(BPF, &guest, "killed", 1);
    assert_eq!(outcome.exits, [Exit::Signal(libc::SIGKILL)]);
    assert_eq!(entries(engines_support::counted(&outcome), "pause"), 1);
    assert_eq!(calls(engines_support::counted(&outcome), "pause"), 0);
}

#[test]
fn errors_bytes_and_peeks_are_told_apart() {
    let Some(guest) = ready() else { return };
    let outcome = run(BPF, &guest, "failures", 1);
    let receive = &counted(&outcome).calls[&Syscall::native(libc::SYS_recvfrom)];
    assert_eq!(receive.calls, 22);
    assert_eq!(
        receive.errors,
        BTreeMap::from([(Errno(libc::EAGAIN), 12), (Errno(libc::EBADF), 5)])
    );
    assert_eq!((receive.bytes, receive.peeks), (3, 2));
    let send = &counted(&outcome).calls[&Syscall::native(libc::SYS_sendto)];
    assert_eq!((send.calls, send.bytes, send.failed()), (5, 3, 4));
}

#[test]
fn the_whole_table_is_that_of_strace() {
    let Some(guest) = ready() else { return };
    if !have("strace") {
        return;
    }
    for arguments in [
        "calls 10", "refused", "unknown", "failures", "short 20", "spawn 2",
    ] {
        let mut ours = like_strace(counted(&run(BPF, &guest, arguments, 1)));
        let mut theirs = strace(&guest, arguments);
        for table in [&mut ours, &mut theirs] {
            // Whether a parent that waits is interrupted by its child's end is a matter of timing.
            table.remove("wait4");
            // strace names x32 calls and unknown numbers otherwise.
            table.retain(|name, _| !name.contains("getpid") && !name.starts_with("syscall_"));
        }
        assert_eq!(ours, theirs, "{arguments}");
    }
}

#[test]
fn phases_change_at_the_very_call() {
    let Some(guest) = ready() else { return };
    for (how, last) in [("write", "write"), ("writev", "writev"), ("unread", "write")] {
        for (copies, rounds) in [(1, 1), (1, 3), (10, 2)] {
            let arguments = format!("worker {rounds} 40 {how}");
            let programs = vec![program(&guest, &arguments, Stdio::Piped); copies];
            let mut session = engine(BPF).launch(programs, &request(Window::Markers)).unwrap();
            drive(session.pipes(), rounds);
            let outcome = session.finish(Some(LIMIT)).unwrap();
            let all = tallies(&outcome);
            let (workers, rounds) = (copies as u64, u64::from(rounds));
            let context = format!("{how}, {workers} workers, {rounds} rounds");
            assert_eq!(calls(&all.startup, "getppid"), 2 * workers, "{context}");
            assert_eq!(
                calls(&all.run_loop, "getppid"),
                40 * rounds * workers,
                "{context}"
            );
            assert_eq!(calls(&all.shutdown, "getppid"), 5 * rounds * workers, "{context}");
            // Nothing but the work is in the window: the read belongs before it, the write behind it.
            assert_eq!(all.run_loop.calls.len(), 1, "{context}: {:?}", all.run_loop);
            // Every `done`; from the second round on also its `ready`.
            let written = rounds * workers
                + if last == "write" {
                    (rounds - 1) * workers
                } else {
                    0
                };
            assert_eq!(calls(&all.shutdown, last), written, "{context}");
            assert_eq!(outcome.windows.len(), copies);
            assert!(
                outcome
                    .windows
                    .iter()
                    .all(|window| window.known().is_some_and(|span| span.0 > 0))
            );
        }
    }
}

#[test]
fn a_window_that_never_opens_is_not_measured() {
    let Some(guest) = ready() else { return };
    let programs = vec![program(&guest, "calls 3", Stdio::Inherit)];
    let session = engine(BPF).launch(programs, &request(Window::Markers)).unwrap();
    let outcome = session.finish(Some(LIMIT)).unwrap();
    assert_eq!(calls(&tallies(&outcome).startup, "getppid"), 3);
    assert!(outcome.windows[0].known().is_none());
}

#[test]
fn sessions_at_the_same_time_do_not_mix() {
    let Some(guest) = ready() else { return };
    let sessions: Vec<_> = [100u64, 200, 300]
        .into_iter()
        .map(|times| {
            let programs = vec![program(&guest, &format!("calls {times}"), Stdio::Inherit); 3];
            (
                times,
                engine(BPF).launch(programs, &request(Window::Whole)).unwrap(),
            )
        })
        .collect();
    for (times, session) in sessions {
        let outcome = session.finish(Some(LIMIT)).unwrap();
        assert_eq!(calls(counted(&outcome), "getppid"), 3 * times);
    }
}

#[test]
fn only_chosen_calls_are_handed_over() {
    let Some(guest) = ready() else { return };
    let getppid = Syscall::native(libc::SYS_getppid);
    for (selection, kept) in [
        (Selection::Only(vec![getppid]), true),
        (Selection::Except(vec![getppid]), false),
    ] {
        let only = systally::engine::Request {
            selection,
            ..request(Window::Whole)
        };
        let programs = vec![program(&guest, "calls 9", Stdio::Inherit)];
        let outcome = engine(BPF)
            .launch(programs, &only)
            .unwrap()
            .finish(Some(LIMIT))
            .unwrap();
        assert_eq!(calls(counted(&outcome), "getppid"), if kept { 9 } else { 0 });
        assert_eq!(counted(&outcome).calls.len() == 1, kept);
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_of_the_launch() {
    if !usable(BPF) {
        return;
    }
    let missing = program(std::path::Path::new("/no/such/program"), "", Stdio::Inherit);
    let Err(error) = engine(BPF).launch(vec![missing], &request(Window::Whole)) else {
        panic!("it was launched")
    };
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}
