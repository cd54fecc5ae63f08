//! The measured window of the worker contract, and the engine without a tracer.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/counting.rs"]
mod counting;

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use common::guest;
use counting::{LIMIT, can_trace, everything, launch, only, program};
use systally::engine::{EngineKind, Exit, Outcome, Program, Request, Session, Stdio, Window, engine};
use systally::tally::{Syscall, Tally};

fn worker(arguments: &[&str]) -> Option<Program> {
    let guest = guest("worker")?;
    let argv: Vec<&str> = [guest.to_str().unwrap()]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    Some(Program {
        stdio: Stdio::Piped,
        own_group: true,
        ..program(&argv)
    })
}

/// Drives workers through rounds, all at the same time, and ends them.
fn drive(mut session: Box<dyn Session>, rounds: usize) -> Outcome {
    let mut workers: Vec<_> = session
        .pipes()
        .into_iter()
        .map(|pipes| {
            (
                std::fs::File::from(pipes.stdin),
                BufReader::new(std::fs::File::from(pipes.stdout)),
            )
        })
        .collect();
    let mut line = String::new();
    let mut hear = |output: &mut BufReader<std::fs::File>, event: &str| {
        line.clear();
        output.read_line(&mut line).unwrap();
        assert!(line.contains(event), "{line:?}");
    };
    for (_, output) in &mut workers {
        hear(output, "ready");
    }
    for _ in 0..rounds {
        for (input, _) in &mut workers {
            input.write_all(b"go\n").unwrap();
        }
        for (_, output) in &mut workers {
            hear(output, "done");
        }
    }
    drop(workers);
    session.finish(Some(LIMIT)).unwrap()
}

fn getppid(tally: &Tally) -> u64 {
    tally
        .calls
        .get(&Syscall::native(libc::SYS_getppid))
        .map_or(0, |tally| tally.calls)
}

#[test]
fn the_window_opens_and_closes_by_the_markers() {
    let Some(worker) = worker(&["2"]) else { return };
    if !can_trace() {
        return;
    }
    let request = Request {
        window: Window::Markers,
        ..everything()
    };
    let outcome = drive(launch(vec![worker; 5], &request), 2);
    assert_eq!(outcome.exits, vec![Exit::Code(0); 5]);
    let tallies = outcome.tallies.known().unwrap();
    assert_eq!(getppid(&tallies.startup), 5 * 2);
    assert_eq!(getppid(&tallies.run_loop), 5 * 2 * (7 + 4));
    assert_eq!(getppid(&tallies.shutdown), 5 * 2 * 3);
    // The markers themselves are outside of it.
    for marker in [libc::SYS_read, libc::SYS_write, libc::SYS_writev] {
        assert!(
            !tallies.run_loop.calls.contains_key(&Syscall::native(marker)),
            "{marker}"
        );
    }
    assert!(
        outcome
            .windows
            .iter()
            .all(|window| window.known().is_some_and(|length| length.0 > 0))
    );
    assert_eq!(outcome.windows.len(), 5);
}

#[test]
fn the_markers_are_seen_when_only_other_calls_are_chosen() {
    let Some(worker) = worker(&["1"]) else { return };
    if !can_trace() {
        return;
    }
    let request = Request {
        window: Window::Markers,
        selection: only(&["getppid"]),
        ..everything()
    };
    let outcome = drive(launch(vec![worker], &request), 1);
    let tallies = outcome.tallies.known().unwrap();
    assert_eq!(tallies.run_loop.total(), 11);
    assert_eq!((tallies.startup.total(), tallies.shutdown.total()), (2, 3));
}

#[test]
fn a_window_that_never_opens_leaves_everything_in_the_startup() {
    let Some(worker) = worker(&["1"]) else { return };
    if !can_trace() {
        return;
    }
    let request = Request {
        window: Window::Markers,
        ..everything()
    };
    let outcome = drive(launch(vec![worker], &request), 0);
    assert_eq!(outcome.exits, [Exit::Code(3)]);
    let tallies = outcome.tallies.known().unwrap();
    assert_eq!(getppid(&tallies.startup), 2);
    assert_eq!((tallies.run_loop.total(), tallies.shutdown.total()), (0, 0));
    assert!(outcome.windows[0].known().is_none());
}

#[test]
fn the_engine_without_a_tracer_runs_the_same_programs() {
    let Some(worker) = worker(&["3"]) else { return };
    let session = engine(EngineKind::None)
        .launch(vec![worker; 3], &everything())
        .unwrap();
    assert_eq!(session.pids().len(), 3);
    let outcome = drive(session, 3);
    assert_eq!(outcome.exits, vec![Exit::Code(0); 3]);
    assert!(outcome.tallies.known().is_none());
    assert!(outcome.cpu.known().is_some());
}

#[test]
fn the_engine_without_a_tracer_keeps_the_deadline() {
    let piped = Program {
        stdio: Stdio::Piped,
        own_group: true,
        ..program(&["sh", "-c", "sleep 100 & wait"])
    };
    let session = engine(EngineKind::None)
        .launch(vec![piped], &everything())
        .unwrap();
    let outcome = session.finish(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(outcome.exits, [Exit::Signal(libc::SIGKILL)]);
    assert_eq!(outcome.notes.len(), 1);
}
