//! Counting a program with an engine, for tests.
#![allow(dead_code, clippy::expect_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use systally::engine::{
    Availability, EngineKind, Failures, Outcome, Program, Request, Selection, Session, Stdio, Window, engine,
};
use systally::tally::{CallTally, PhaseTallies, Syscall};

/// Nothing here runs longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Everything counted, as `systally count` does.
pub(crate) fn everything() -> Request {
    Request {
        window: Window::Whole,
        selection: Selection::All,
        pin: true,
        cpu_time: false,
        failures: Failures::All,
    }
}

/// A program with the streams of the test.
pub(crate) fn program(argv: &[&str]) -> Program {
    Program {
        argv: argv.iter().map(OsString::from).collect(),
        env: BTreeMap::new(),
        stdio: Stdio::Inherit,
        own_group: false,
    }
}

/// Whether ptrace works here; otherwise says `SKIP:` with the reason.
pub(crate) fn can_trace() -> bool {
    match engine(EngineKind::Ptrace).availability() {
        Availability::Ready => true,
        Availability::Unavailable { why, fix } => {
            println!("SKIP: {why}; {fix}");
            false
        }
    }
}

/// Launches programs under ptrace.
pub(crate) fn launch(programs: Vec<Program>, request: &Request) -> Box<dyn Session> {
    engine(EngineKind::Ptrace)
        .launch(programs, request)
        .expect("launch")
}

/// Runs a program to its end.
pub(crate) fn count_with(argv: &[&str], request: &Request) -> Outcome {
    launch(vec![program(argv)], request)
        .finish(Some(LIMIT))
        .expect("finish")
}

/// Runs a program to its end, counting everything.
pub(crate) fn count(argv: &[&str]) -> Outcome {
    count_with(argv, &everything())
}

/// All phases of an outcome together, each call under its name.
pub(crate) fn by_name(tallies: &PhaseTallies) -> BTreeMap<String, CallTally> {
    let mut names: BTreeMap<String, CallTally> = BTreeMap::new();
    for phase in [&tallies.startup, &tallies.run_loop, &tallies.shutdown] {
        for (call, tally) in &phase.calls {
            names.entry(call.name().into_owned()).or_default().merge(tally);
        }
    }
    names
}

/// What was counted of one call over all phases; empty when it was never made.
pub(crate) fn of(outcome: &Outcome, name: &str) -> CallTally {
    by_name(outcome.tallies.known().expect("counts"))
        .remove(name)
        .unwrap_or_default()
}

/// A selection of native calls.
pub(crate) fn only(names: &[&str]) -> Selection {
    Selection::Only(names.iter().flat_map(|name| Syscall::all_by_name(name)).collect())
}
