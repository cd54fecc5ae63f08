//! The BPF engine: the kernel itself counts every call of every descendant, with errno and time, at
//! nearly the speed of an uncounted program. It needs CAP_BPF and CAP_PERFMON.
//!
//! Four small programs (`programs`, written with the assembler in `asm`) run at the entry and the return
//! of every call, and at the birth and the end of every task. State is kept in task storage: it belongs to
//! a task and not to its number, so nothing depends on process ids or their namespaces, and a child is
//! followed before it runs. Where the kernel keeps what the programs read is told by its own type
//! information (`btf`, `kernel`). The phases of the worker contract are switched in the kernel, at the
//! very return of the read and entry of the write that mark them.
//!
//! Every way in which a count could be lost has a counter (`layout::Loss`); when one is not zero there is
//! no count, only the reason.
//!
//! What it does not see: where a descriptor leads, and calls that the vDSO serves without entering the
//! kernel. A call that a program's own seccomp filter refuses is counted without its time.

mod asm;
mod attach;
mod availability;
mod btf;
mod collect;
mod kernel;
mod layout;
mod programs;
mod session;
mod tracer;

use super::{
    Attachment, Availability, Capabilities, Engine, EngineError, EngineKind, Finder, Program, Request,
    Session,
};

/// The engine. See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bpf;

impl Engine for Bpf {
    fn kind(&self) -> EngineKind {
        EngineKind::Bpf
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            all_calls: true,
            errors: true,
            time: true,
            peers: false,
            phases: true,
            exact: true,
            attach: true,
        }
    }

    fn availability(&self) -> Availability {
        availability::availability()
    }

    fn launch(&self, programs: Vec<Program>, request: &Request) -> Result<Box<dyn Session>, EngineError> {
        Ok(Box::new(session::BpfSession::launch(programs, request)?))
    }

    fn attach(&self, find: Finder, request: &Request) -> Result<Box<dyn Attachment>, EngineError> {
        Ok(Box::new(attach::BpfAttachment::begin(&find, request)?))
    }
}
