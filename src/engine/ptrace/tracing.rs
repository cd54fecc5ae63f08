//! One tracer thread: it handles every stop of its programs' threads, and hands over what was counted when the
//! last of them has ended.
//!
//! The hot path is [`Tracing::step`] with a system call stop: one wait, one `PTRACE_GET_SYSCALL_INFO`, one
//! resume, and no allocation.

use super::affinity::{Change, Crowd, Pin};
use super::attach::Search;
use super::counts::Counts;
use super::descriptors::Descriptors;
use super::fast::FastMap;
use super::orders::Control;
use super::peers::Peers;
use super::roles::Roles;
use super::state::{ProgramState, Tracee};
use super::{Observer, Pace};
use crate::engine::{EngineError, Exit, Finder, Program, Request};
use crate::proc::Root;
use crate::sys::process::Usage;
use crate::sys::ptrace::{PtraceError, Stop, Stopped, Tracer, Until, Wait};
use crate::sys::spawn::StartError;
use crate::tally::PhaseTallies;
use crate::units::{Nanos, escape};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one tracer thread has to do.
pub(super) struct Job {
    /// Its programs, with their positions in the session.
    pub(super) programs: Vec<(usize, Program)>,
    /// Which running processes to attach to.
    pub(super) find: Option<Finder>,
    /// What to count.
    pub(super) request: Request,
    /// How much of each call to look at.
    pub(super) pace: Pace,
    /// The seccomp filter; empty to stop at every call.
    pub(super) filter: Vec<libc::sock_filter>,
    /// Whether a filter needs `no_new_privs`.
    pub(super) no_new_privs: bool,
    /// Whether set-user-ID programs keep their effect under this tracer.
    pub(super) may_trace_privileged: bool,
    /// Where to keep tracer and tracees.
    pub(super) pin: Option<Pin>,
    /// The signal mask of the programs.
    pub(super) mask: SigSet,
    /// Orders.
    pub(super) control: Arc<Control>,
    /// Who wants to be told of what happens.
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// Whether the tracer thread goes where its tracees run, because they cannot be kept where it is.
    pub(super) stay_near: bool,
}

/// What one tracer thread found out.
pub(super) struct Found {
    /// By program: its position, how it ended, its CPU time, the length of its window.
    pub(super) programs: Vec<(usize, Exit, Option<Usage>, Option<Nanos>)>,
    /// All counts.
    pub(super) tallies: PhaseTallies,
    /// Threads and processes seen.
    pub(super) tracees: u64,
    /// What a reader must know.
    pub(super) notes: BTreeSet<String>,
}

/// A tracer thread's state. It cannot leave its thread, because [`Tracer`] cannot.
pub(super) struct Tracing {
    pub(super) tracer: Tracer,
    pub(super) job: Job,
    pub(super) roles: Roles,
    pub(super) tracees: FastMap<i32, Tracee>,
    pub(super) programs: Vec<ProgramState>,
    /// Those of all programs together: nobody asks for one alone, and a thousand would take their room each.
    pub(super) counts: Counts,
    pub(super) descriptors: Descriptors,
    pub(super) peers: Peers,
    pub(super) crowd: Crowd,
    /// Children whose first stop came before their parent told of them.
    pub(super) early: FastMap<i32, (Stopped, Stop)>,
    /// Since when there are such children.
    pub(super) early_since: Option<Instant>,
    /// Children that had ended before their parent told of them.
    pub(super) early_ends: BTreeSet<i32>,
    pub(super) seen: u64,
    pub(super) notes: BTreeSet<String>,
    pub(super) root: Root,
    /// Resource usage of the last wait, when it was asked for.
    pub(super) usage: Usage,
    /// For how many more waits to ask for it: the end of a root process is near.
    pub(super) ask_usage: u32,
    pub(super) failed: Option<(usize, Option<StartError>)>,
    pub(super) killing: bool,
    /// The signal that was sent to everything last.
    pub(super) signalled: i32,
    /// Until when tracees are let go one by one; those that do not stop until then are let go by the end of
    /// this thread.
    pub(super) letting_go: Option<Instant>,
    /// The search for processes to attach to.
    pub(super) search: Search,
}

/// How long a new thread may wait to be told of. Its maker may have been killed meanwhile, and its own first stop
/// may come after that end. To ask for its parent at every such stop would cost more than the fork.
pub(super) const MATERNITY: Duration = Duration::from_secs(1);

/// Waits for which resource usage is asked for after a sign that a root process is about to end.
pub(super) const NEAR_THE_END: u32 = 64;

impl Tracing {
    pub(super) fn new(job: Job) -> Tracing {
        Tracing {
            tracer: Tracer::new(),
            roles: Roles::new(&job.request.selection),
            tracees: FastMap::default(),
            programs: Vec::new(),
            counts: Counts::default(),
            descriptors: Descriptors::new(),
            peers: Peers::default(),
            crowd: Crowd::new(Instant::now()),
            early: FastMap::default(),
            early_since: None,
            early_ends: BTreeSet::new(),
            seen: 0,
            notes: BTreeSet::new(),
            root: Root::live(),
            usage: Usage::default(),
            ask_usage: 0,
            failed: None,
            killing: false,
            signalled: 0,
            letting_go: None,
            search: Search::default(),
            job,
        }
    }

    /// Handles stops until nothing is left.
    pub(super) fn run_to_end(&mut self) -> Result<(), EngineError> {
        while self.step()? {
            if self.letting_go.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        Ok(())
    }

    /// Waits for one event and handles it. False when there is nothing left to wait for.
    pub(super) fn step(&mut self) -> Result<bool, EngineError> {
        let usage = if self.job.request.cpu_time || self.ask_usage > 0 {
            self.ask_usage = self.ask_usage.saturating_sub(1);
            Some(&mut self.usage)
        } else {
            None
        };
        let event = self.tracer.wait(usage).map_err(|source| EngineError::System {
            operation: "wait for the traced programs",
            pid: 0,
            source,
        })?;
        let now = Instant::now();
        match event {
            Wait::Stopped(stopped, stop) => self.stopped(stopped, stop, now)?,
            Wait::Exited(tid, code) => self.ended(tid, Exit::Code(code), now)?,
            Wait::Killed(tid, signal) => self.ended(tid, Exit::Signal(signal), now)?,
            Wait::Interrupted => {}
            Wait::NoneLeft => return Ok(false),
        }
        self.look_at_orders(now)?;
        if self.job.pin.is_some() && self.tracees.len() > 1 && self.crowd.is_due(now) {
            self.look_at_crowd(now);
        }
        Ok(true)
    }

    pub(super) fn stopped(&mut self, stopped: Stopped, stop: Stop, now: Instant) -> Result<(), EngineError> {
        self.crowd.stopped();
        if self.letting_go.is_some() {
            return self.let_stopped_go(stopped, stop, now);
        }
        self.go_where_it_runs(stopped.tid(), now);
        let tid = stopped.tid();
        let Some(tracee) = self.tracees.get(&tid.as_raw()) else {
            // Its parent has not told of it yet, and it cannot be counted before it is known whose it is.
            self.early.insert(tid.as_raw(), (stopped, stop));
            self.early_since.get_or_insert(now);
            if self.killing {
                let _ = kill(tid, Signal::SIGKILL);
            }
            return Ok(());
        };
        if tracee.cut.is_some() || matches!(stop, Stop::Signal(_)) {
            self.settle(&stopped, stop);
        }
        match stop {
            Stop::Syscall | Stop::Seccomp => self.at_syscall(stopped, now),
            Stop::Fork(kind) => self.at_fork(stopped, kind),
            Stop::Exec => self.at_exec(stopped),
            Stop::Signal(signal) => {
                if self.is_root_process(tid) {
                    // It may be the signal that ends it.
                    self.ask_usage = NEAR_THE_END;
                }
                self.resume(stopped, signal)
            }
            Stop::Group(_) => checked("leave in its group stop", tid, stopped.listen().map(drop)),
            Stop::Trap => self.first_stop(stopped),
            Stop::Other(_) => self.resume(stopped, 0),
        }
    }

    fn is_root_process(&self, tid: Pid) -> bool {
        self.tracees
            .get(&tid.as_raw())
            .is_some_and(|tracee| self.programs[tracee.program].root == tracee.tgid)
    }

    /// Lets a tracee run on: to its next call, or, under a filter, to the next chosen one.
    pub(super) fn resume(&mut self, stopped: Stopped, signal: i32) -> Result<(), EngineError> {
        let tid = stopped.tid();
        let inside = self
            .tracees
            .get(&tid.as_raw())
            .is_some_and(|tracee| tracee.call.is_some());
        let until = if self.job.filter.is_empty() || inside {
            Until::Syscall
        } else {
            Until::Event
        };
        checked("resume", tid, stopped.resume(until, signal).map(drop))
    }

    /// The name of a process, for notes.
    pub(super) fn name_of(&self, pid: Pid) -> String {
        let name = self.root.read(&format!("proc/{pid}/comm"));
        name.map_or_else(|_| "a process".to_owned(), |name| escape(name.trim_end(), 40))
    }

    fn look_at_crowd(&mut self, now: Instant) {
        let Some(pin) = &self.job.pin else { return };
        let tids = self.tracees.keys().map(|tid| Pid::from_raw(*tid));
        let Some(change) = self.crowd.look(tids, now) else {
            return;
        };
        for (tid, tracee) in &self.tracees {
            if tracee.own_affinity {
                continue;
            }
            let tid = Pid::from_raw(*tid);
            // One that has become another user's keeps what it has.
            let _ = match change {
                Change::Spread => pin.release(tid),
                Change::Gather => pin.hold(tid),
            };
        }
    }

    /// What was counted. Everything has ended.
    pub(super) fn found(mut self) -> Found {
        // None are left but where tracees were let go and did not stop for it.
        let left: Vec<i32> = self.tracees.keys().copied().collect();
        left.into_iter().for_each(|tid| self.forget(Pid::from_raw(tid)));
        let tallies = self.counts.tallies(&self.peers);
        let mut programs = Vec::with_capacity(self.programs.len());
        for program in &self.programs {
            // A root without an exit status can only be one that vanished with its tracer thread.
            let exit = program.exit.unwrap_or(Exit::Signal(libc::SIGKILL));
            programs.push((program.index, exit, program.usage, program.window.length()));
        }
        Found {
            programs,
            tallies,
            tracees: self.seen,
            notes: self.notes,
        }
    }
}

/// A tracee that was killed meanwhile is no error: its end will be reported.
pub(super) fn checked(
    operation: &'static str,
    tid: Pid,
    result: Result<(), PtraceError>,
) -> Result<(), EngineError> {
    match result {
        Ok(()) | Err(PtraceError::Gone) => Ok(()),
        Err(PtraceError::Failed(source)) => Err(EngineError::System {
            operation,
            pid: tid.as_raw(),
            source,
        }),
    }
}
