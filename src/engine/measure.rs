//! What one counted call costs on this machine now: a tight loop of the cheapest call under an engine and
//! without one, by turns.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use super::{
    EngineError, EngineKind, Exit, Failures, Program, Request, Selection, Stdio, Window, engine as engine_of,
};
use crate::tally::Syscall;
use crate::units::Nanos;

/// How many times each is run. The fastest counts: whatever else the machine does only makes a loop slower.
const ROUNDS: usize = 5;
/// Calls of the first, probing run.
const PROBE: u64 = 2_000;
/// How long the loop of a round should take.
const ROUND: Duration = Duration::from_millis(60);
/// The most calls of a round.
const MOST: u64 = 1_000_000;
/// Longest that one run may take.
const LIMIT: Duration = Duration::from_secs(30);

/// What counting costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallCost {
    /// One call without an engine.
    pub bare: Nanos,
    /// What the engine adds to it; zero when that is less than what can be told here.
    pub added: Nanos,
}

impl CallCost {
    /// How many times longer the cheapest of calls takes under the engine. Calls that do something are
    /// slowed by the same time and so by a smaller factor.
    pub fn times(self) -> f64 {
        (self.bare.0 + self.added.0) as f64 / self.bare.0.max(1) as f64
    }
}

/// Measures an engine. `looper` is a program that, given `loop N`, makes N calls of getppid and then
/// prints the nanoseconds they took: systally itself.
///
/// # Errors
/// What the engine says; [`EngineError::Broken`] when the loop did not print its time.
pub fn measure(kind: EngineKind, looper: &Path) -> Result<CallCost, EngineError> {
    let probe = timed(kind, looper, PROBE)?;
    let calls = (ROUND.as_nanos() as f64 / probe.max(1.0)) as u64;
    let calls = calls.clamp(PROBE, MOST);
    let (mut bare, mut counted) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        bare = bare.min(timed(EngineKind::None, looper, calls)?);
        counted = counted.min(timed(kind, looper, calls)?);
    }
    Ok(CallCost {
        bare: Nanos(bare.round() as u64),
        added: Nanos((counted - bare).max(0.0).round() as u64),
    })
}

/// Nanoseconds of one call in a loop of so many.
fn timed(kind: EngineKind, looper: &Path, calls: u64) -> Result<f64, EngineError> {
    let broken = |what: String| EngineError::Broken { engine: kind, what };
    let program = Program {
        argv: vec![
            looper.into(),
            OsString::from("loop"),
            OsString::from(calls.to_string()),
        ],
        env: BTreeMap::new(),
        stdio: Stdio::Piped,
        own_group: true,
    };
    let request = Request {
        window: Window::Whole,
        // The one call there is to count; perf could not count all.
        selection: match kind {
            EngineKind::Perf => Selection::Only(vec![Syscall::native(libc::SYS_getppid)]),
            EngineKind::Ptrace
            | EngineKind::PtraceCounts
            | EngineKind::Bpf
            | EngineKind::Strace
            | EngineKind::None => Selection::All,
        },
        pin: true,
        cpu_time: false,
        failures: Failures::Free,
    };
    let mut session = engine_of(kind).launch(vec![program], &request)?;
    let mut said = String::new();
    for pipes in session.pipes() {
        drop(pipes.stdin);
        std::fs::File::from(pipes.stdout)
            .take(64)
            .read_to_string(&mut said)
            .map_err(|error| broken(format!("the loop's time could not be read: {error}")))?;
    }
    let outcome = session.finish(Some(LIMIT))?;
    match (outcome.exits.as_slice(), said.trim().parse::<u64>()) {
        ([Exit::Code(0)], Ok(nanos)) => Ok(nanos as f64 / calls as f64),
        _ => Err(broken(
            "the loop that is to be timed did not come to its end".to_owned(),
        )),
    }
}
