//! The perf engine: the kernel counts a few chosen calls by tracepoint counters, at nearly full speed and
//! mostly without rights.
//!
//! A counter is a number in the kernel that is inherited by every descendant; there is no buffer of
//! events, so nothing can be lost. Counters stand at the *return* of calls, where the result can be looked
//! at: one for all returns, and, when failures are asked for ([`Failures`]), one for failures and one for
//! EAGAIN where a call may end so. Each counter is taken off and put on a CPU with the program, so failures are
//! not free. One counter of the failures of all calls would have to stand at `raw_syscalls:sys_exit`, which
//! counts nothing for whoever may not count the kernel (perf_event_paranoid 2), and is run at every call.
//! Where a phase begins and ends is seen by the ptrace engine, which follows the programs and stops them at the two marker calls and nowhere else; at
//! these stops the counters are read, so phases are exact too (`board`).
//!
//! The numbers of the tracepoints are known from tracefs, which is for root, or from what `systally setup`
//! has kept (`ids`); each is tried with calls of our own before it is believed (`calls`).
//!
//! What it does not see: other calls than the chosen ones (eight at most), other errors than EAGAIN by
//! name, calls by another ABI, times, calls that never return, and `rt_sigreturn`, which has no number
//! left when it returns. Under ptrace the end of a child interrupts its parent's calls, which otherwise
//! it does not when the parent has no handler for it.

mod availability;
mod board;
mod calls;
mod ids;

use std::sync::Arc;
use std::time::Duration;

pub use self::calls::{MOST_CALLS, has_counter, may_say_again};
pub use self::ids::{CACHE, IdsError, keep};

use self::board::Board;
use super::ptrace::{Pace, launch_observed};
use super::{
    Availability, Capabilities, Engine, EngineError, EngineKind, Failures, Order, Outcome, Pipes, Program,
    Request, Selection, Session,
};
use crate::units::Measured;

/// The engine. See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Perf;

impl Engine for Perf {
    fn kind(&self) -> EngineKind {
        EngineKind::Perf
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            all_calls: false,
            errors: true,
            time: false,
            peers: false,
            phases: true,
            exact: true,
            attach: false,
        }
    }

    fn learns(&self, request: &Request) -> Capabilities {
        Capabilities {
            errors: request.failures != Failures::Free,
            ..self.capabilities()
        }
    }

    fn availability(&self) -> Availability {
        availability::availability()
    }

    fn launch(&self, programs: Vec<Program>, request: &Request) -> Result<Box<dyn Session>, EngineError> {
        let chosen = calls::choose(&request.selection).map_err(|error| availability::engine_error(&error))?;
        let names: Vec<String> = chosen
            .iter()
            .map(|chosen| chosen.call.name().into_owned())
            .collect();
        let board = Arc::new(Board::new(
            chosen,
            &request.failures,
            programs.len(),
            request.window,
        ));
        // Nothing is stopped but the markers, so there is nothing to gain from keeping programs on one CPU.
        let follow = Request {
            window: request.window,
            selection: Selection::Only(Vec::new()),
            pin: false,
            cpu_time: false,
            failures: Failures::Free,
        };
        let observer = Arc::clone(&board);
        let inner = launch_observed(programs, &follow, Pace::Detail, Some(observer))?;
        let failures_untold = request.failures == Failures::Free;
        Ok(Box::new(PerfSession {
            inner,
            board,
            names,
            failures_untold,
        }))
    }
}

/// Programs with counters, followed by ptrace.
struct PerfSession {
    inner: Box<dyn Session>,
    board: Arc<Board>,
    names: Vec<String>,
    failures_untold: bool,
}

impl Session for PerfSession {
    fn pids(&self) -> &[i32] {
        self.inner.pids()
    }

    fn pipes(&mut self) -> Vec<Pipes> {
        self.inner.pipes()
    }

    fn signal(&self, signal: i32) {
        self.inner.signal(signal);
    }

    fn order(&self) -> Order {
        self.inner.order()
    }

    fn finish(self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError> {
        let mut outcome = self.inner.finish(limit)?;
        outcome.tallies = match self.board.close() {
            Ok(tallies) => Measured::Known(tallies),
            Err(errno) => Measured::NotMeasured(format!("a counter could not be read ({errno})")),
        };
        outcome.notes.push(format!(
            "only these calls were counted: {}; those of another ABI, as 32-bit programs make them, are not among them",
            self.names.join(", ")
        ));
        if self.failures_untold {
            outcome.notes.push(
                "calls that failed are among them and were not told apart: --errors does, at the cost of one or two \
                 more counters a call"
                    .to_owned(),
            );
        }
        Ok(outcome)
    }
}
