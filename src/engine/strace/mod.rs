//! The strace engine: drives an installed strace and reads its log, for comparison, and for machines
//! where only strace may trace.
//!
//! strace runs apart from the program (`-DDD`), so that the program is systally's own child: with the
//! streams it would have anyway, its own exit status, and no strace between it and a signal. Each program
//! has a strace of its own, which writes to a FIFO in a private folder (`session`); a thread takes every
//! line apart (`log`). Calls are counted by the number that strace prints beside the name, so that its
//! names do not matter.
//!
//! A log that breaks off, because strace was killed, is no count: what still runs of its program is
//! killed then, as the tracees of the ptrace engine would be.
//!
//! What it does not see: where a descriptor leads (strace would have to look it up at every call), bytes
//! and peeks, and the program's CPU time, since strace begins in the process that becomes the program.

mod command;
mod log;
mod session;

use super::{Availability, Capabilities, Engine, EngineError, EngineKind, Program, Ptrace, Request, Session};

/// The engine. See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Strace;

impl Engine for Strace {
    fn kind(&self) -> EngineKind {
        EngineKind::Strace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            all_calls: true,
            errors: true,
            time: true,
            peers: false,
            phases: true,
            exact: true,
            attach: false,
        }
    }

    fn availability(&self) -> Availability {
        if command::find().is_none() {
            return Availability::Unavailable {
                why: "strace is not in PATH".to_owned(),
                fix: "install it (apt install strace, dnf install strace)".to_owned(),
            };
        }
        // strace needs the same rights, and what forbids them is said the same way.
        Ptrace.availability()
    }

    fn launch(&self, programs: Vec<Program>, request: &Request) -> Result<Box<dyn Session>, EngineError> {
        Ok(Box::new(session::StraceSession::launch(programs, request)?))
    }
}
