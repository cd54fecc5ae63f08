//! The native ptrace engine: every call of every descendant, with errno, time and what its descriptor
//! leads to, without rights.
//!
//! Each tracer thread (`tracing`) owns the tracees it has launched and all that descends from them; state
//! is kept per thread id. Programs are dealt to one tracer thread per CPU, each kept on its CPU together
//! with its tracees, because a stop costs a seventh there (`affinity`). `session` is the outside of it.
//!
//! What it cannot see: calls that a program denies itself by a seccomp filter of its own, when only
//! chosen calls are counted (with all calls counted they are seen); operations of io_uring; the clock
//! calls that the vDSO serves without entering the kernel.
//!
//! # What a stop costs, and what would cost less
//!
//! Two switches between threads, three calls of the tracer and two wake-ups are 7 to 11 µs on a virtual machine, and
//! two stops a call are the least that shows errno and time. Tried and left: a tracer that yields
//! (sched_yield(2)) after each resume saves a wake-up and is a twentieth faster alone, but a tenth to a fifth slower
//! among a hundred programs and four times slower beside busy neighbours; a tracer of low priority
//! (`SCHED_IDLE`, nice 19) is a sixth cheaper a stop in a loop of calls, no faster with a client that waits for its
//! server, and would starve beside neighbours; registers read at the return alone would save one call in six, and lose
//! what a call that never returns was.
//!
//! Below that no tracer gets without rights, only code inside the program. What it would take on x86-64, without the
//! page at address 0 that zpoline needs: `syscall` is two bytes, so a short jump (two bytes, one atomic store) takes
//! its place and leads into the padding behind a function nearby, and from there a longer one leads to a routine in
//! a page mapped in the program. A thread that is in the kernel at that moment returns behind the patched bytes, to
//! code that was not touched. 480 of the 526 `syscall` instructions in Debian 12's libc have five bytes of
//! such padding in reach. The filter lets calls from the routine's page pass (`seccomp_data` has the instruction pointer)
//! and stops all others, so what cannot be patched is still counted, as now. The routine would have to write
//! number, arguments, result and times to a ring per thread, found by the `gs` base, which user space leaves alone; leave
//! fork, clone, exec and rt_sigreturn to stops; give a forked child rings of its own before it runs on;
//! reserve its entry before the call, so that a signal handler in between does not overwrite it; and fall back to a
//! stop when its ring is full. What it changes in a program (its code as it reads itself, its mappings, where an
//! asynchronous cancellation finds it) is the price, and why it is not done here.

mod affinity;
mod attach;
mod attachment;
mod availability;
mod blind;
mod calls;
mod counts;
mod counts_only;
mod descriptors;
mod fast;
mod filter;
mod ignored;
mod launch;
mod lineage;
mod memory;
mod orders;
mod peers;
mod refusal;
mod roles;
mod session;
mod state;
mod tracing;
mod transfers;
mod workers;

use std::collections::BTreeSet;
use std::sync::Arc;

use nix::sys::signal::SigSet;
use nix::unistd::Pid;

use self::affinity::Pin;
use self::availability::Rights;
pub use self::counts_only::PtraceCounts;
use self::orders::Control;
use self::session::PtraceSession;
use self::tracing::Job;
use super::window;
use super::{
    Attachment, Availability, Capabilities, Engine, EngineError, EngineKind, Finder, Program, Request,
    Session,
};
use crate::proc::Root;
use crate::tally::{Phase, Syscall};

/// The engine. See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ptrace;

impl Engine for Ptrace {
    fn kind(&self) -> EngineKind {
        EngineKind::Ptrace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            all_calls: true,
            errors: true,
            time: true,
            peers: true,
            phases: true,
            exact: true,
            attach: true,
        }
    }

    fn availability(&self) -> Availability {
        availability::availability()
    }

    fn launch(&self, programs: Vec<Program>, request: &Request) -> Result<Box<dyn Session>, EngineError> {
        launch_observed(programs, request, Pace::Detail, None)
    }

    fn attach(&self, find: Finder, request: &Request) -> Result<Box<dyn Attachment>, EngineError> {
        Ok(Box::new(attachment::PtraceAttachment::begin(&find, request)?))
    }
}

/// How much of each call the tracer looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Pace {
    /// Its entry and its return: two stops.
    Detail,
    /// Its entry alone: one stop, and so no errno, no time and no descriptors.
    Counts,
}

/// Told of the moments of programs that are followed; by tracer threads, while the program stands still.
pub(super) trait Observer: Send + Sync {
    /// A program is about to be executed.
    ///
    /// # Errors
    /// When it must not be; nothing of the session is left running then.
    fn held(&self, program: usize, pid: Pid) -> Result<(), EngineError>;
    /// A program has come to another phase.
    fn phase(&self, program: usize, phase: Phase);
    /// A call was made to fail with ENOSYS, which its program's own filter had asked for: nobody sees it
    /// return by its number.
    fn refused(&self, program: usize, call: Syscall);
    /// Calls that returned EINTR only because the program is traced begin anew: so many returns of this call are
    /// not the program's (fewer than none: they are after all).
    fn repeated(&self, program: usize, call: Syscall, times: i64);
}

/// Starts programs under ptrace as [`Ptrace`] does, for an engine that counts by other means.
pub(super) fn launch_observed(
    programs: Vec<Program>,
    request: &Request,
    pace: Pace,
    observer: Option<Arc<dyn Observer>>,
) -> Result<Box<dyn Session>, EngineError> {
    let watches = roles::watches(&request.selection, request.window, request.pin);
    let filter = filter::build(&request.selection, &watches);
    let filter = filter.ok_or(EngineError::Broken {
        engine: EngineKind::Ptrace,
        what: "the chosen calls need a longer filter than the kernel accepts; choose fewer, or all"
            .to_owned(),
    })?;
    // One stop a call is a stop of the filter, so that even all calls need one then.
    let filter = match pace {
        Pace::Counts if filter.is_empty() => filter::everything(),
        Pace::Counts | Pace::Detail => filter,
    };
    let rights = Rights::read(&Root::live());
    let no_new_privs = !filter.is_empty() && !rights.may_filter;
    let mut notes = BTreeSet::new();
    if no_new_privs {
        notes.insert(
            "the program ran with no_new_privs, which counting only chosen calls, or only entries, needs without \
             CAP_SYS_ADMIN; set-user-ID programs get no rights then"
                .to_owned(),
        );
    }
    let mask = SigSet::thread_get_mask().map_err(|source| EngineError::System {
        operation: "read the signal mask",
        pid: 0,
        source,
    })?;
    let control = Arc::new(Control::default());
    let job = |programs, pin| Job {
        programs,
        find: None,
        request: request.clone(),
        pace,
        filter: filter.clone(),
        no_new_privs,
        may_trace_privileged: rights.may_trace_all,
        pin,
        mask,
        control: Arc::clone(&control),
        observer: observer.clone(),
        stay_near: false,
    };
    let pins = pins(request, programs.len());
    let mut shares: Vec<Vec<(usize, Program)>> = pins.iter().map(|_| Vec::new()).collect();
    for (index, program) in programs.into_iter().enumerate() {
        let share = index % shares.len();
        shares[share].push((index, program));
    }
    let jobs = shares
        .into_iter()
        .zip(pins)
        .map(|(programs, pin)| job(programs, pin))
        .collect();
    let session = PtraceSession::launch(jobs, Arc::clone(&control), notes)?;
    Ok(Box::new(session))
}

/// One entry per tracer thread: as many as there are CPUs to use, but no more than programs.
fn pins(request: &Request, programs: usize) -> Vec<Option<Pin>> {
    let Ok((mask, cpus)) = affinity::cpus() else {
        return vec![None];
    };
    let threads = programs.clamp(1, cpus.len().max(1));
    let pins = cpus.into_iter().take(threads).map(|cpu| {
        // Tracing works without it, only slower.
        if request.pin {
            Pin::new(mask, cpu).ok()
        } else {
            None
        }
    });
    let pins: Vec<_> = pins.collect();
    if pins.is_empty() { vec![None] } else { pins }
}
