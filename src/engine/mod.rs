//! How system calls are counted: the contract that every engine keeps, and the list of engines.

mod bpf;
mod error;
mod leftovers;
mod measure;
mod none;
pub mod perf;
mod plain;
mod ptrace;
mod rights;
mod start;
mod strace;
mod window;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::tally::PhaseTallies;
use crate::units::{Measured, Nanos};

pub use bpf::Bpf;
pub use error::EngineError;
pub use measure::{CallCost, measure};
pub use none::Untraced;
pub use perf::Perf;
pub use ptrace::{Ptrace, PtraceCounts};
pub use strace::Strace;

/// The engines, in the order in which `auto` prefers them for a full count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    /// Native ptrace: every call, errno and time, without rights.
    Ptrace,
    /// Native ptrace with one stop a call: every call, at half the cost, without errno, time and peers.
    PtraceCounts,
    /// BPF programs: every call, errno and time at nearly full speed, with CAP_BPF and CAP_PERFMON.
    Bpf,
    /// Counters of the kernel for a few chosen calls, at nearly full speed, mostly without rights.
    Perf,
    /// An installed strace, whose log is read: every call, errno and time, slowly.
    Strace,
    /// No tracer: the program runs at full speed and nothing is counted (timed rounds).
    None,
}

impl EngineKind {
    /// Whether programs run under it at nearly the speed they have without, so that its counts are what a
    /// client does when nobody counts.
    pub fn is_near_native(self) -> bool {
        match self {
            EngineKind::Ptrace | EngineKind::PtraceCounts | EngineKind::Strace => false,
            EngineKind::Bpf | EngineKind::Perf | EngineKind::None => true,
        }
    }

    /// The kind of that name, as records have it.
    pub fn by_name(name: &str) -> Option<EngineKind> {
        let kinds = ENGINES.iter().map(|engine| engine.kind());
        kinds.into_iter().find(|kind| kind.name() == name)
    }

    /// The name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Ptrace => "ptrace",
            EngineKind::PtraceCounts => "ptrace-counts",
            EngineKind::Bpf => "bpf",
            EngineKind::Perf => "perf",
            EngineKind::Strace => "strace",
            EngineKind::None => "none",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an engine can know. What it cannot is *not measured* in the record, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Every call of the tracees, not a chosen set.
    pub all_calls: bool,
    /// Errors by errno.
    pub errors: bool,
    /// Time between entry and return.
    pub time: bool,
    /// Where a descriptor leads to, hence connects, round trips and bytes.
    pub peers: bool,
    /// The three phases of the worker contract.
    pub phases: bool,
    /// Counts are exact: no event can be lost.
    pub exact: bool,
    /// Programs that are running already ([`Engine::attach`]).
    pub attach: bool,
}

/// Whether an engine works on this machine now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It does.
    Ready,
    /// It does not: why, and what would allow it.
    Unavailable {
        /// What forbids it, with the value read (`kernel.yama.ptrace_scope is 3`).
        why: String,
        /// The next step for the user.
        fix: String,
    },
}

/// One program to run.
#[derive(Debug, Clone)]
pub struct Program {
    /// Program and arguments; the first is looked up in PATH as execvp(3) does.
    pub argv: Vec<OsString>,
    /// Variables to set on top of the inherited environment.
    pub env: BTreeMap<OsString, OsString>,
    /// How its standard streams are connected.
    pub stdio: Stdio,
    /// Whether it leads a process group of its own. Workers do, so that Ctrl-C reaches systally first.
    pub own_group: bool,
}

/// The standard streams of a [`Program`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    /// systally's own, as strace does.
    Inherit,
    /// Pipes for stdin, stdout and stderr, handed out by [`Session::pipes`].
    Piped,
    /// systally's own but for stdout, which is a pipe handed out by [`Session::pipes`]; the other two
    /// descriptors handed out lead nowhere.
    PipedOutput,
}

/// systally's ends of the pipes of one program, with `O_CLOEXEC` set.
#[derive(Debug)]
pub struct Pipes {
    /// Writes to the program's standard input.
    pub stdin: OwnedFd,
    /// Reads its standard output.
    pub stdout: OwnedFd,
    /// Reads its standard error.
    pub stderr: OwnedFd,
}

/// What bounds the measured window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// No markers: everything from exec to exit is the loop.
    Whole,
    /// The markers of the worker contract: opens when `read(0)` returns `go`, closes at the entry of the
    /// `write(1)` that begins with `{"event":"done"`.
    Markers,
}

/// Which calls to count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// All calls.
    #[default]
    All,
    /// Only these; the others run at full speed where the engine can arrange it.
    Only(Vec<crate::tally::Syscall>),
    /// All but these, unknown numbers included.
    Except(Vec<crate::tally::Syscall>),
}

impl Selection {
    /// Whether calls of that name are counted, whatever the ABI.
    pub fn contains_all(&self, name: &str) -> bool {
        use crate::tally::Syscall;
        let mut calls = Syscall::all_by_name(name).into_iter();
        match self {
            Selection::All => true,
            Selection::Only(chosen) => calls.all(|call| chosen.contains(&call)),
            Selection::Except(left_out) => !calls.any(|call| left_out.contains(&call)),
        }
    }
}

/// What to count and how: everything an engine needs beside the programs.
#[derive(Debug, Clone)]
pub struct Request {
    /// The measured window.
    pub window: Window,
    /// The calls.
    pub selection: Selection,
    /// Whether tracer and tracees may be kept on one CPU (a stop costs a seventh of what it costs
    /// otherwise). The tracee still sees its own affinity.
    pub pin: bool,
    /// Whether to measure system CPU time per call; it makes every stop a little slower.
    pub cpu_time: bool,
    /// Which failures to count where an engine pays for each kind.
    pub failures: Failures,
}

/// Which failed calls are told apart. To most engines they cost nothing; perf needs a counter more for each
/// kind of each call, and every counter slows the program at each of its sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Failures {
    /// Those that cost nothing.
    #[default]
    Free,
    /// Those that cost nothing, and EAGAIN of these calls.
    Again(Vec<crate::tally::Syscall>),
    /// All that the engine can know.
    All,
}

/// A way to send a signal to everything that descends from a session's programs, usable from another thread
/// while the session is being finished.
#[derive(Clone)]
pub struct Order(Arc<dyn Fn(i32) + Send + Sync>);

impl Order {
    /// By what the session does with the signal.
    pub fn new(send: impl Fn(i32) + Send + Sync + 'static) -> Order {
        Order(Arc::new(send))
    }

    /// Sends it, within a moment.
    pub fn signal_all(&self, signal: i32) {
        (self.0)(signal);
    }
}

/// Which processes to attach to. Asked again until it names none that is new, so that one forked meanwhile
/// is not missed.
pub type Finder = Arc<dyn Fn() -> Vec<i32> + Send + Sync>;

/// A process that could not be attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its id.
    pub pid: i32,
    /// What forbids it.
    pub why: String,
    /// What would allow it.
    pub fix: String,
}

impl Refusal {
    /// Why a thread of the kernel is not counted, and what to do, by every engine.
    fn of_kernel(who: &str) -> (String, String) {
        (
            format!("{who} is a thread of the kernel, which makes no system calls"),
            "name a process that runs a program".to_owned(),
        )
    }
}

/// How one program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit status {code}"),
            Exit::Signal(number) => match nix::sys::signal::Signal::try_from(*number) {
                Ok(signal) => write!(f, "killed by {signal}"),
                Err(_) => write!(f, "killed by signal {number}"),
            },
        }
    }
}

/// What a session found out.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How each program ended, in the order they were given.
    pub exits: Vec<Exit>,
    /// What was counted, all programs and their descendants together.
    pub tallies: Measured<PhaseTallies>,
    /// How long each program's measured window was open, in the order they were given.
    pub windows: Vec<Measured<Nanos>>,
    /// User and system CPU time of the programs and the descendants they waited for.
    pub cpu: Measured<CpuTimes>,
    /// Threads and processes seen.
    pub tracees: u64,
    /// Processes that the programs left running and that were ended, each in words, from an engine that does not
    /// follow what programs start.
    pub left: Vec<String>,
    /// Things a reader of the counts must know (a setuid program that lost its rights under the tracer,
    /// descendants that were still running), one sentence each.
    pub notes: Vec<String>,
}

/// CPU time split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// In user mode.
    pub user: Nanos,
    /// In the kernel.
    pub system: Nanos,
}

/// An engine. What it promises:
///
/// 1. `launch` returns when every program has been started and is under the engine, or nothing is left
///    running. A program that cannot be executed is an error here, not a later exit.
/// 2. It follows every descendant, however it is made (fork, vfork, clone, threads, exec), and counts it
///    into the window of the program it descends from.
/// 3. Nothing is lost: for every call, entries = `calls` + `unfinished`. An engine that cannot promise
///    this says so in its capabilities.
/// 4. It never changes what a program does other than in time: signals reach it, exit statuses and
///    stops are its own, and its affinity looks as it would untraced.
/// 5. No tracee outlives systally by accident (SIGKILL included) and none is left stopped.
/// 6. `finish` returns within the deadline plus a moment, whatever the tracees do; those still running
///    at the deadline are killed and noted.
/// 7. It prints nothing.
pub trait Engine: Send + Sync {
    /// Which one it is.
    fn kind(&self) -> EngineKind;
    /// What it can know.
    fn capabilities(&self) -> Capabilities;
    /// What it gets to know when it is asked for this: less than it can where the request does without.
    fn learns(&self, request: &Request) -> Capabilities {
        let _ = request;
        self.capabilities()
    }
    /// Whether it works here and now; cheap enough to ask at every start.
    fn availability(&self) -> Availability;
    /// Starts the programs. See the contract above.
    ///
    /// # Errors
    /// A program that cannot be executed, or tracing that is not permitted.
    fn launch(&self, programs: Vec<Program>, request: &Request) -> Result<Box<dyn Session>, EngineError>;
    /// Attaches to all threads of running processes; what they start from then on is followed. The window of
    /// the request is ignored: all is loop. Promises 3 and 4 hold as for `launch`; in place of 5, a tracee
    /// runs on untraced whenever counting ends, SIGKILL to systally included, and none is left stopped that
    /// was not before. A call that a thread waits in at the moment of attaching is counted when it returns
    /// or not at all, never twice.
    ///
    /// # Errors
    /// [`EngineError::Denied`] when none may be attached to, [`EngineError::NoneLeft`] when all have
    /// ended, [`EngineError::CannotAttach`] without the capability.
    fn attach(&self, find: Finder, request: &Request) -> Result<Box<dyn Attachment>, EngineError> {
        let _ = (find, request);
        Err(EngineError::CannotAttach { engine: self.kind() })
    }
}

/// All engines, in the order of [`EngineKind`].
pub const ENGINES: &[&dyn Engine] = &[&Ptrace, &PtraceCounts, &Bpf, &Perf, &Strace, &Untraced];

/// The engine of a kind.
pub fn engine(kind: EngineKind) -> &'static dyn Engine {
    match kind {
        EngineKind::Ptrace => &Ptrace,
        EngineKind::PtraceCounts => &PtraceCounts,
        EngineKind::Bpf => &Bpf,
        EngineKind::Perf => &Perf,
        EngineKind::Strace => &Strace,
        EngineKind::None => &Untraced,
    }
}

/// Programs running under an engine.
pub trait Session: Send {
    /// The process ids of the programs, in order.
    fn pids(&self) -> &[i32];
    /// systally's ends of the pipes, in order; empty for [`Stdio::Inherit`], and after the first call.
    fn pipes(&mut self) -> Vec<Pipes>;
    /// Sends a signal to every program (with its group when it leads one).
    fn signal(&self, signal: i32);
    /// Reaches the descendants of the programs too, those that have outlived them included. An engine that
    /// knows of none has nobody to send anything to.
    fn order(&self) -> Order {
        Order::new(|_| ())
    }
    /// Waits until all programs and their traced descendants have ended, `limit` at most (`None`: as
    /// long as it takes), and hands over what was counted.
    ///
    /// # Errors
    /// When the engine itself failed; what a program did is never an error here.
    fn finish(self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError>;
}

/// Running processes under an engine. Dropping it lets them go.
pub trait Attachment: Send {
    /// The processes that are counted, in the order in which they were attached to.
    fn processes(&self) -> &[i32];
    /// Those that could not be attached to.
    fn refused(&self) -> &[Refusal];
    /// Counts until `limit` has passed (`None`: no limit), `stop` says so, or nothing is left to count.
    ///
    /// # Errors
    /// When the engine itself failed; the processes then run on untraced.
    fn wait(&mut self, limit: Option<Duration>, stop: &dyn Fn() -> bool) -> Result<(), EngineError>;
    /// Lets the processes go and hands over what was counted. Calls that are in progress then are
    /// `unfinished`. The outcome has no exits and the length of one window.
    ///
    /// # Errors
    /// As [`Attachment::wait`].
    fn detach(self: Box<Self>) -> Result<Outcome, EngineError>;
}
