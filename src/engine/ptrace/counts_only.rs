//! The counts-only pace of the ptrace engine: every call stops once, at its entry, and never at its return.
//!
//! That is half the stops, and so half the cost; what only a return shows (errno, time in the call, bytes, and
//! with the results of `socket`, `accept` and `dup` also where a descriptor leads) is not measured. Calls
//! that a program denies itself by a seccomp filter of its own are not seen: the stricter filter wins
//! (seccomp(2)).

use super::{Pace, availability, launch_observed};
use crate::engine::{Availability, Capabilities, Engine, EngineError, EngineKind, Program, Request, Session};

/// The engine. See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct PtraceCounts;

impl Engine for PtraceCounts {
    fn kind(&self) -> EngineKind {
        EngineKind::PtraceCounts
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            all_calls: true,
            errors: false,
            time: false,
            peers: false,
            phases: true,
            exact: true,
            attach: false,
        }
    }

    fn availability(&self) -> Availability {
        availability::availability()
    }

    fn launch(&self, programs: Vec<Program>, request: &Request) -> Result<Box<dyn Session>, EngineError> {
        // CPU time of a call is taken between its two stops.
        let request = Request {
            cpu_time: false,
            ..request.clone()
        };
        launch_observed(programs, &request, Pace::Counts, None)
    }
}
