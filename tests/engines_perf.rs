//! The perf engine against guests whose calls are known to the number.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod engines_support;

use std::collections::BTreeMap;

use engines_support::*;
use systally::engine::perf::keep;
use systally::engine::{
    EngineError, EngineKind, Exit, Failures, Outcome, Request, Selection, Stdio, Window, engine,
};
use systally::proc::Root;
use systally::tally::{Errno, Syscall};

const PERF: EngineKind = EngineKind::Perf;
const GETPPID: Syscall = Syscall::native(libc::SYS_getppid);

/// The guest, when everything is there.
fn ready() -> Option<std::path::PathBuf> {
    usable(PERF).then(guest).flatten()
}

fn only(calls: &[i64], window: Window) -> Request {
    let selection = Selection::Only(calls.iter().copied().map(Syscall::native).collect());
    Request {
        selection,
        ..request(window)
    }
}

fn count(guest: &std::path::Path, arguments: &str, copies: usize, calls: &[i64]) -> Outcome {
    let programs = vec![program(guest, arguments, Stdio::Inherit); copies];
    engine(PERF)
        .launch(programs, &only(calls, Window::Whole))
        .unwrap()
        .finish(Some(LIMIT))
        .unwrap()
}

#[test]
fn counts_are_exact_for_one_ten_and_a_hundred_processes() {
    let Some(guest) = ready() else { return };
    for copies in [1, 10, 100] {
        let outcome = count(
            &guest,
            "calls 1000",
            copies,
            &[libc::SYS_getppid, libc::SYS_execve],
        );
        assert!(outcome.exits.iter().all(|exit| *exit == Exit::Code(0)));
        assert_eq!(calls(counted(&outcome), "getppid"), 1000 * copies as u64);
        assert_eq!(calls(counted(&outcome), "execve"), copies as u64);
    }
}

#[test]
fn children_are_followed_however_they_are_made() {
    let Some(guest) = ready() else { return };
    for (arguments, getppid, forks) in [
        ("forks 200 5", 1000, 200),
        ("short 300", 300, 300),
        ("threads 50 20", 1000, 50),
        ("spawn 20", 60, 20),
        ("exec", 22, 1),
        ("orphan 77", 77, 2),
    ] {
        let makers = [
            libc::SYS_getppid,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_fork,
            libc::SYS_vfork,
        ];
        let outcome = count(&guest, arguments, 1, &makers);
        assert_eq!(outcome.exits, [Exit::Code(0)], "{arguments}");
        let counted = counted(&outcome);
        assert_eq!(calls(counted, "getppid"), getppid, "{arguments}");
        let made: u64 = ["clone", "clone3", "fork", "vfork"]
            .iter()
            .map(|name| calls(counted, name))
            .sum();
        // A fork that the end of an earlier child interrupts is made anew by the kernel.
        assert!(made >= forks, "{arguments}: {made}");
    }
}

#[test]
fn other_abis_are_not_counted_as_native() {
    let Some(guest) = ready() else { return };
    let outcome = count(&guest, "foreign", 1, &[libc::SYS_recvfrom, libc::SYS_brk]);
    if outcome.exits != [Exit::Code(0)] {
        println!("SKIP: this kernel was built without IA32 emulation");
        return;
    }
    assert_eq!(calls(counted(&outcome), "recvfrom"), 2);
}

#[test]
fn failures_are_counted_and_eagain_is_named() {
    let Some(guest) = ready() else { return };
    let outcome = count(&guest, "failures", 1, &[libc::SYS_recvfrom, libc::SYS_sendto]);
    let counted = counted(&outcome);
    assert_eq!(calls(counted, "recvfrom"), 22);
    let expected = BTreeMap::from([(Errno(libc::EAGAIN), 12), (Errno::OTHER, 5)]);
    assert_eq!(errors(counted, libc::SYS_recvfrom), expected);
    assert_eq!(
        errors(counted, libc::SYS_sendto),
        BTreeMap::from([(Errno::OTHER, 4)])
    );
    assert!(
        outcome
            .notes
            .iter()
            .any(|note| note.contains("recvfrom, sendto") || note.contains("sendto, recvfrom"))
    );

    let outcome = count(&guest, "refused", 1, &[libc::SYS_getppid]);
    assert_eq!(calls(engines_support::counted(&outcome), "getppid"), 9);

    // Returns that the kernel restarts are no failures.
    let outcome = count(&guest, "restart", 1, &[libc::SYS_recvfrom]);
    assert_eq!(calls(engines_support::counted(&outcome), "recvfrom"), 11);
    assert_eq!(
        errors(engines_support::counted(&outcome), libc::SYS_recvfrom),
        BTreeMap::new()
    );
}

/// Without failures there is one counter a call, and what it counts is the same.
#[test]
fn failures_are_left_out_unless_they_are_asked_for() {
    let Some(guest) = ready() else { return };
    let recvfrom = Syscall::native(libc::SYS_recvfrom);
    let with = |failures: Failures| {
        let request = Request {
            failures,
            ..only(&[libc::SYS_recvfrom, libc::SYS_sendto], Window::Whole)
        };
        let outcome = engine(PERF)
            .launch(vec![program(&guest, "failures", Stdio::Inherit)], &request)
            .unwrap()
            .finish(Some(LIMIT))
            .unwrap();
        assert_eq!(calls(counted(&outcome), "recvfrom"), 22);
        (outcome, engine(PERF).learns(&request).errors)
    };
    let (free, told) = with(Failures::Free);
    assert!(!told);
    assert_eq!(errors(counted(&free), libc::SYS_recvfrom), BTreeMap::new());
    assert!(free.notes.iter().any(|note| note.contains("--errors")));
    let (again, told) = with(Failures::Again(vec![recvfrom]));
    assert!(told);
    assert_eq!(
        errors(counted(&again), libc::SYS_recvfrom),
        BTreeMap::from([(Errno(libc::EAGAIN), 12)])
    );
    assert_eq!(errors(counted(&again), libc::SYS_sendto), BTreeMap::new());
}

#[test]
fn phases_change_at_the_very_call() {
    let Some(guest) = ready() else { return };
    for how in ["write", "writev", "unread"] {
        for (copies, rounds) in [(1, 1), (1, 3), (10, 2)] {
            let programs = vec![program(&guest, &format!("worker {rounds} 40 {how}"), Stdio::Piped); copies];
            let chosen = [
                libc::SYS_getppid,
                libc::SYS_read,
                libc::SYS_write,
                libc::SYS_writev,
            ];
            let mut session = engine(PERF)
                .launch(programs, &only(&chosen, Window::Markers))
                .unwrap();
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
            for marker in ["read", "write", "writev"] {
                assert_eq!(calls(&all.run_loop, marker), 0, "{context}: {marker}");
            }
            assert!(outcome.windows.iter().all(|window| window.known().is_some()));
        }
    }
}

#[test]
fn too_many_calls_are_refused_in_words() {
    if !usable(PERF) {
        return;
    }
    let many: Vec<i64> = (0..20).collect();
    let program = program(std::path::Path::new("/bin/true"), "", Stdio::Inherit);
    let Err(error) = engine(PERF).launch(vec![program], &only(&many, Window::Whole)) else {
        panic!("launched")
    };
    assert!(matches!(error, EngineError::Denied { .. }));
    assert!(error.to_string().contains("8 at most"), "{error}");
}

#[test]
fn what_setup_keeps_is_what_the_kernel_says() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("tracepoints.json");
    match keep(&Root::live(), &cache) {
        Ok(count) => {
            assert!(count > 200, "{count}");
            let text = std::fs::read_to_string(&cache).unwrap();
            let live = std::fs::read_to_string("/sys/kernel/tracing/events/syscalls/sys_exit_recvfrom/id");
            if let Ok(live) = live {
                assert!(text.contains(&format!("\"recvfrom\": {}", live.trim())));
            }
        }
        Err(error) => println!("SKIP: the numbers cannot be read here: {error}"),
    }
    assert_eq!(GETPPID.name(), "getppid");
}
