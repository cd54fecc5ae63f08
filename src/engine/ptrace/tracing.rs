//! One tracer thread: it launches its programs, handles every stop of their threads, and hands over what
//! was counted when the last of them has ended.
//!
//! The hot path is [`Tracing::step`] with a system call stop: one wait, one `PTRACE_GET_SYSCALL_INFO`, one
//! resume, and no allocation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

use super::affinity::{Change, Crowd, Pin};
use super::attach::Search;
use super::counts::Counts;
use super::descriptors::Descriptors;
use super::fast::FastMap;
use super::peers::Peers;
use super::roles::{Role, Roles};
use super::state::{InCall, ProgramState, Tracee};
use super::{Observer, Pace, availability};
use crate::engine::start::{self, ChildEnds};
use crate::engine::{EngineError, EngineKind, Exit, Finder, Pipes, Program, Request};
use crate::proc::Root;
use crate::sys::process::{PidFd, Usage, send_signal, wait4};
use crate::sys::ptrace::{Options, PtraceError, Stop, Stopped, Tracer, Until, Wait};
use crate::sys::spawn::{Child, Setup, StartError, spawn};
use crate::tally::{PhaseTallies, Syscall};
use crate::units::{Nanos, escape};

/// What the session tells its tracer threads.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Kill everything that is left.
    pub(super) kill: AtomicBool,
    /// Let everything run on untraced.
    pub(super) let_go: AtomicBool,
    /// Send this signal to everything that is left; 0 for none. Each thread does it once.
    pub(super) signal: AtomicI32,
}

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

/// A program that has been executed.
pub(super) struct Started {
    /// Its position in the session.
    pub(super) index: usize,
    /// Its process id.
    pub(super) pid: Pid,
    /// A descriptor of it.
    pub(super) pidfd: Option<PidFd>,
    /// Whether it leads a group of its own.
    pub(super) own_group: bool,
    /// systally's ends of its pipes.
    pub(super) pipes: Option<Pipes>,
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
    failed: Option<(usize, Option<StartError>)>,
    killing: bool,
    /// The signal that was sent to everything last.
    signalled: i32,
    /// Until when tracees are let go one by one; those that do not stop until then are let go by the end of
    /// this thread.
    pub(super) letting_go: Option<Instant>,
    /// The search for processes to attach to.
    pub(super) search: Search,
}

/// How long a new thread may wait to be told of. Its maker may have been killed meanwhile, and its own first stop
/// may come after that end. To ask for its parent at every such stop would cost more than the fork.
const MATERNITY: Duration = Duration::from_secs(1);

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

    /// Starts all programs of the job and brings each past its exec. After an error nothing of them runs
    /// any more.
    pub(super) fn launch(&mut self) -> Result<Vec<Started>, EngineError> {
        let launched = self.launch_all();
        if launched.is_err() {
            self.kill_all();
            // The first error is the one to report.
            let _ = self.run_to_end();
        }
        launched
    }

    fn launch_all(&mut self) -> Result<Vec<Started>, EngineError> {
        let programs = std::mem::take(&mut self.job.programs);
        // Names that lead nowhere are found before anything runs.
        let images = programs
            .iter()
            .map(|(_, program)| start::image(program))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(pin) = &self.job.pin {
            // Only speed depends on it.
            let _ = pin.hold(Pid::from_raw(0));
        }
        let mut started = Vec::with_capacity(programs.len());
        for ((index, program), image) in programs.iter().zip(&images) {
            let (ours, theirs) = start::pipes(program)?.unzip();
            let setup = Setup {
                stdio: theirs.as_ref().map(ChildEnds::stdio),
                own_group: program.own_group,
                die_with_thread: false,
                mask: self.job.mask,
                hold: true,
                filter: &self.job.filter,
                no_new_privs: self.job.no_new_privs,
            };
            let child = spawn(image, &setup).map_err(|e| start::no_process("fork", &e))?;
            let pid = child.pid();
            let pidfd = PidFd::open(pid).ok();
            self.attach(*index, child)?;
            started.push(Started {
                index: *index,
                pid,
                pidfd,
                own_group: program.own_group,
                pipes: ours,
            });
        }
        while self.failed.is_none() && self.programs.iter().any(|program| program.starting.is_some()) {
            if !self.step()? {
                break;
            }
        }
        match self.failed.take() {
            None => Ok(started),
            Some((index, error)) => {
                let program = programs
                    .iter()
                    .find(|(i, _)| *i == index)
                    .map(|(_, program)| program);
                Err(match (program, error) {
                    (Some(program), Some(error)) => start::start_error(program, error),
                    _ => EngineError::Broken {
                        engine: EngineKind::Ptrace,
                        what: "a program was killed before it could be executed".to_owned(),
                    },
                })
            }
        }
    }

    /// Attaches to a held child and lets it execute its program.
    fn attach(&mut self, index: usize, child: Child) -> Result<(), EngineError> {
        let pid = child.pid();
        let options = Options {
            follow: true,
            seccomp: !self.job.filter.is_empty(),
            kill_with_tracer: true,
        };
        if let Err(errno) = self.tracer.seize(pid, options) {
            let (why, fix) = availability::why_denied(errno, pid);
            let _ = kill(pid, Signal::SIGKILL);
            let _ = wait4(pid.as_raw(), libc::__WALL, None);
            return Err(EngineError::Denied { why, fix });
        }
        if let Some(observer) = &self.job.observer
            && let Err(error) = observer.held(index, pid)
        {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = wait4(pid.as_raw(), libc::__WALL, None);
            return Err(error);
        }
        if let Some(pin) = &self.job.pin {
            let _ = pin.hold(pid);
        }
        let mut program = ProgramState::new(index, child, self.job.request.window);
        let mut tracee = Tracee {
            tgid: pid,
            program: self.programs.len(),
            table: self.descriptors.fresh(),
            call: None,
            own_affinity: false,
            polls: 0,
            fresh: false,
        };
        if self.job.filter.is_empty() {
            // Without a filter nothing stops before the exec event, which is inside the call.
            let execve = Syscall::native(libc::SYS_execve);
            tracee.call = Some(InCall {
                slot: Some(self.counts.enter(program.window.phase(), execve)),
                role: Role::Exec,
                native: true,
                args: [0; 6],
                entered: Instant::now(),
                system: Nanos(0),
            });
        }
        if let Some(child) = &mut program.starting {
            // A child that died meanwhile is reported by the next wait.
            let _ = child.release();
        }
        self.programs.push(program);
        self.tracees.insert(pid.as_raw(), tracee);
        self.seen += 1;
        Ok(())
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
    fn step(&mut self) -> Result<bool, EngineError> {
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

    fn look_at_orders(&mut self, now: Instant) -> Result<(), EngineError> {
        let control = Arc::clone(&self.job.control);
        let signal = control.signal.load(Ordering::Relaxed);
        if signal != self.signalled {
            self.signalled = signal;
            self.signal_all(signal);
        }
        if control.kill.load(Ordering::Relaxed) && !self.killing {
            self.note_survivors();
            self.kill_all();
        }
        if self.letting_go.is_some() {
            return Ok(());
        }
        if control.let_go.load(Ordering::Relaxed) {
            return self.let_go(now);
        }
        if self.early.is_empty() {
            self.early_since = None;
        } else if self.early_since.is_some_and(|since| now > since + MATERNITY) {
            self.early_since = None;
            self.adopt_all_early()?;
        }
        self.look_for_late_ones(now)
    }

    pub(super) fn stopped(&mut self, stopped: Stopped, stop: Stop, now: Instant) -> Result<(), EngineError> {
        self.crowd.stopped();
        if self.letting_go.is_some() {
            return self.let_stopped_go(stopped, stop, now);
        }
        self.go_where_it_runs(stopped.tid(), now);
        let tid = stopped.tid();
        if !self.tracees.contains_key(&tid.as_raw()) {
            // Its parent has not told of it yet, and it cannot be counted before it is known whose it is.
            self.early.insert(tid.as_raw(), (stopped, stop));
            self.early_since.get_or_insert(now);
            if self.killing {
                let _ = kill(tid, Signal::SIGKILL);
            }
            return Ok(());
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

    /// Kills every process that is still there, now and as it appears.
    pub(super) fn kill_all(&mut self) {
        self.killing = true;
        self.signal_all(libc::SIGKILL);
    }

    /// Sends a signal to every process that is still there.
    fn signal_all(&mut self, signal: i32) {
        // A process that is not reaped keeps its number, and only this thread reaps these.
        let processes: BTreeSet<i32> = self.tracees.values().map(|tracee| tracee.tgid.as_raw()).collect();
        for pid in processes.into_iter().chain(self.early.keys().copied()) {
            send_signal(pid, signal);
        }
    }

    /// Whether new processes are to be killed at once.
    pub(super) fn is_killing(&self) -> bool {
        self.killing
    }

    /// A root process ended before it executed its program.
    pub(super) fn start_failed(&mut self, index: usize, error: Option<StartError>) {
        self.failed.get_or_insert((index, error));
    }

    fn note_survivors(&mut self) {
        let processes: BTreeSet<i32> = self.tracees.values().map(|tracee| tracee.tgid.as_raw()).collect();
        let named: Vec<String> = processes
            .iter()
            .take(5)
            .map(|pid| format!("{} (pid {pid})", self.name_of(Pid::from_raw(*pid))))
            .collect();
        let more = if processes.len() > named.len() {
            " and others"
        } else {
            ""
        };
        if !named.is_empty() {
            self.notes.insert(format!(
                "{} of the counted processes were still running at the time limit and were killed: {}{more}",
                processes.len(),
                named.join(", "),
            ));
        }
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
