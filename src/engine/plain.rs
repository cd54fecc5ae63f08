//! Programs that run freely, for the engines that do not stop them: the kernel counts, or nobody does. A
//! thread that sleeps in waitid(2) is all there is beside the programs.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;

use super::leftovers::Mark;
use super::start::{self, ChildEnds, Target};
use super::{CpuTimes, EngineError, EngineKind, Exit, Order, Outcome, Pipes, Program, Session, Stdio};
use crate::sys::process::{PidFd, Usage, send_signal, wait_ended, wait4};
use crate::sys::spawn::{Image, Setup, spawn};

/// How long killed programs may take to end before their session gives up on them.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What an engine does with a program between fork and exec: it is given the program's position and a
/// descriptor of its process, which waits meanwhile.
pub(super) type BeforeExec = Box<dyn FnMut(usize, Pid, &PidFd) -> Result<(), EngineError> + Send>;

/// What becomes of what a program has started when the program has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Orphans {
    /// The rest of its process group is killed, and when all programs have ended the daemons that they left
    /// behind too: nobody counts them, and nobody else would end them.
    Kill,
    /// It is left alone: the engine follows it to its end.
    Leave,
}

/// Programs running freely. Dropping it kills what still runs of them and of their groups.
pub(super) struct Plain {
    engine: EngineKind,
    pids: Vec<i32>,
    targets: Vec<Target>,
    pipes: Vec<Pipes>,
    reports: Receiver<Report>,
    reaper: Option<JoinHandle<()>>,
    ended: Option<Ended>,
}

/// How the programs ended.
#[derive(Debug, Default)]
struct Ended {
    exits: Vec<(Exit, Usage)>,
    /// What they had left running and was killed.
    left: Vec<String>,
}

struct Started {
    pid: Pid,
    pidfd: Option<PidFd>,
    own_group: bool,
    pipes: Option<Pipes>,
}

enum Report {
    Started(Vec<Started>),
    NotStarted(EngineError),
    Ended(Ended),
}

/// What the reaper thread is told.
struct Job {
    programs: Vec<Program>,
    before_exec: Option<BeforeExec>,
    orphans: Orphans,
    die_with_thread: bool,
    mask: SigSet,
    mark: Option<Mark>,
}

impl Plain {
    /// Starts the programs; returns when all have executed, or with an error and nothing left running.
    ///
    /// # Errors
    /// A program that cannot be executed, or what `before_exec` says.
    pub(super) fn launch(
        engine: EngineKind,
        mut programs: Vec<Program>,
        before_exec: Option<BeforeExec>,
        orphans: Orphans,
    ) -> Result<Plain, EngineError> {
        let mark = (orphans == Orphans::Kill).then(Mark::new);
        if let Some(mark) = &mark {
            programs.iter_mut().for_each(|program| mark.put_on(program));
        }
        let mask = SigSet::thread_get_mask().map_err(|source| EngineError::System {
            operation: "read the signal mask",
            pid: 0,
            source,
        })?;
        let job = Job {
            programs,
            before_exec,
            orphans,
            // Nobody counts a program any more when the strace of a killed systally has gone.
            die_with_thread: engine == EngineKind::Strace,
            mask,
            mark,
        };
        let (sender, reports) = std::sync::mpsc::channel();
        let reaper = std::thread::Builder::new()
            .name("systally-reaper".to_owned())
            .spawn(move || reap(job, &sender))
            .map_err(|error| start::no_process("start the thread that waits for the programs", &error))?;
        let mut plain = Plain {
            engine,
            pids: Vec::new(),
            targets: Vec::new(),
            pipes: Vec::new(),
            reports,
            reaper: Some(reaper),
            ended: None,
        };
        match plain.reports.recv() {
            Ok(Report::Started(started)) => {
                for program in started {
                    plain.pids.push(program.pid.as_raw());
                    plain
                        .targets
                        .push(Target::new(program.pid, program.pidfd, program.own_group));
                    plain.pipes.extend(program.pipes);
                }
                Ok(plain)
            }
            Ok(Report::NotStarted(error)) => Err(error),
            Ok(Report::Ended(_)) | Err(_) => {
                Err(plain.broken("its thread ended before the programs were started"))
            }
        }
    }

    /// The process ids of the programs, in order.
    pub(super) fn pids(&self) -> &[i32] {
        &self.pids
    }

    /// systally's ends of the pipes; empty after the first call.
    pub(super) fn pipes(&mut self) -> Vec<Pipes> {
        std::mem::take(&mut self.pipes)
    }

    /// Sends a signal to every program that still runs, with its group when it leads one.
    pub(super) fn signal(&self, signal: i32) {
        for target in &self.targets {
            target.signal(signal);
        }
    }

    /// Waits until all programs have ended, up to the deadline. True when they have.
    ///
    /// # Errors
    /// When the thread that waits for them is gone.
    pub(super) fn wait(&mut self, deadline: Option<Instant>) -> Result<bool, EngineError> {
        if self.ended.is_some() {
            return Ok(true);
        }
        let report = match deadline {
            Some(deadline) => self
                .reports
                .recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => self.reports.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match report {
            Ok(Report::Ended(ended)) => {
                self.ended = Some(ended);
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Ok(Report::Started(_) | Report::NotStarted(_)) | Err(RecvTimeoutError::Disconnected) => {
                Err(self.broken("the thread that waits for the programs ended without a report"))
            }
        }
    }

    /// Kills the programs and waits for their end.
    ///
    /// # Errors
    /// When they do not end even then.
    pub(super) fn kill(&mut self) -> Result<(), EngineError> {
        self.signal(libc::SIGKILL);
        if self.wait(Some(Instant::now() + PATIENCE))? {
            Ok(())
        } else {
            Err(self.broken("programs were killed but did not end; they are probably stuck in the kernel"))
        }
    }

    /// How each program ended, and their CPU time together; empty before [`Plain::wait`] has said true.
    pub(super) fn ended(&self) -> (Vec<Exit>, CpuTimes) {
        let ended = self
            .ended
            .as_ref()
            .map(|ended| ended.exits.as_slice())
            .unwrap_or_default();
        let cpu = ended
            .iter()
            .fold(CpuTimes::default(), |sum, (_, usage)| CpuTimes {
                user: sum.user + usage.user,
                system: sum.system + usage.system,
            });
        (ended.iter().map(|(exit, _)| *exit).collect(), cpu)
    }

    /// What the programs had left running and was killed, each in words; empty before [`Plain::wait`] has said
    /// true.
    pub(super) fn left(&mut self) -> Vec<String> {
        self.ended
            .as_mut()
            .map(|ended| std::mem::take(&mut ended.left))
            .unwrap_or_default()
    }

    /// An error of this session's engine.
    pub(super) fn broken(&self, what: &str) -> EngineError {
        EngineError::Broken {
            engine: self.engine,
            what: what.to_owned(),
        }
    }
}

/// A session whose programs run freely; what a [`Plain`] does of a session's work is said here once.
pub(super) trait Free: Send {
    /// The programs.
    fn plain(&self) -> &Plain;
    /// The same, to take something from.
    fn plain_mut(&mut self) -> &mut Plain;
    /// See [`Session::order`].
    fn everything(&self) -> Order {
        Order::new(|_| ())
    }
    /// See [`Session::finish`].
    fn end(self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError>;
}

impl<F: Free> Session for F {
    fn pids(&self) -> &[i32] {
        self.plain().pids()
    }

    fn pipes(&mut self) -> Vec<Pipes> {
        self.plain_mut().pipes()
    }

    fn signal(&self, signal: i32) {
        self.plain().signal(signal);
    }

    fn order(&self) -> Order {
        self.everything()
    }

    fn finish(self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError> {
        self.end(limit)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if let Some(reaper) = self.reaper.take()
            && !reaper.is_finished()
        {
            self.signal(libc::SIGKILL);
            let give_up = Instant::now() + PATIENCE;
            while !reaper.is_finished() && Instant::now() < give_up {
                let _ = self.reports.recv_timeout(Duration::from_millis(10));
            }
        }
    }
}

/// The thread that starts the programs and waits for them. It lives as long as they do, because the
/// kernel kills piped programs when the thread that forked them ends.
fn reap(mut job: Job, reports: &Sender<Report>) {
    // Handlers of systally's own must not run in a child that has not executed its program yet.
    let _ = SigSet::all().thread_block();
    let started = match start_all(&mut job) {
        Ok(started) => started,
        Err(error) => {
            end_left(&job);
            let _ = reports.send(Report::NotStarted(error));
            return;
        }
    };
    // What the engine needed for the start (descriptors, perhaps) is not kept for the whole run.
    job.before_exec = None;
    let waited_for: Vec<(Pid, bool)> = started
        .iter()
        .map(|program| (program.pid, program.own_group))
        .collect();
    let _ = reports.send(Report::Started(started));
    let exits = waited_for
        .into_iter()
        .map(|(pid, own_group)| wait_for(pid, own_group && job.orphans == Orphans::Kill))
        .collect();
    let left = end_left(&job);
    let _ = reports.send(Report::Ended(Ended { exits, left }));
}

/// Ends what the programs have left running, where that is asked for.
fn end_left(job: &Job) -> Vec<String> {
    job.mark.as_ref().map(Mark::end_all).unwrap_or_default()
}

fn start_all(job: &mut Job) -> Result<Vec<Started>, EngineError> {
    let images = job
        .programs
        .iter()
        .map(start::image)
        .collect::<Result<Vec<_>, _>>()?;
    let mut started: Vec<Started> = Vec::with_capacity(job.programs.len());
    for (index, (program, image)) in job.programs.iter().zip(&images).enumerate() {
        match start_one(
            index,
            program,
            image,
            (job.mask, job.die_with_thread),
            job.before_exec.as_mut(),
        ) {
            Ok(one) => started.push(one),
            Err(error) => {
                for other in &started {
                    send_signal(other.pid.as_raw(), libc::SIGKILL);
                    wait_for(other.pid, other.own_group);
                }
                return Err(error);
            }
        }
    }
    Ok(started)
}

fn start_one(
    index: usize,
    program: &Program,
    image: &Image,
    (mask, die_with_thread): (SigSet, bool),
    before_exec: Option<&mut BeforeExec>,
) -> Result<Started, EngineError> {
    let (ours, theirs) = start::pipes(program)?.unzip();
    let setup = Setup {
        stdio: theirs.as_ref().map(ChildEnds::stdio),
        own_group: program.own_group,
        die_with_thread: die_with_thread || program.stdio == Stdio::Piped,
        mask,
        hold: before_exec.is_some(),
        filter: &[],
        no_new_privs: false,
    };
    let mut child = spawn(image, &setup).map_err(|error| start::no_process("fork", &error))?;
    let pid = child.pid();
    let pidfd = PidFd::open(pid);
    if let Some(before_exec) = before_exec {
        let prepared = pidfd
            .as_ref()
            .map_err(|errno| EngineError::System {
                operation: "open a descriptor of the program's process (pidfd_open, Linux 5.3)",
                pid: pid.as_raw(),
                source: *errno,
            })
            .and_then(|pidfd| before_exec(index, pid, pidfd));
        if let Err(error) = prepared {
            send_signal(pid.as_raw(), libc::SIGKILL);
            let _ = wait4(pid.as_raw(), 0, None);
            return Err(error);
        }
        // A child that died meanwhile is reported below, or by its exit status.
        let _ = child.release();
    }
    match child.start_error() {
        None => Ok(Started {
            pid,
            pidfd: pidfd.ok(),
            own_group: program.own_group,
            pipes: ours,
        }),
        Some(error) => {
            let _ = wait4(pid.as_raw(), 0, None);
            Err(start::start_error(program, error))
        }
    }
}

/// Waits for a program's end, and ends what is left of its group when asked to.
fn wait_for(pid: Pid, end_group: bool) -> (Exit, Usage) {
    while wait_ended(pid) == Err(Errno::EINTR) {}
    if end_group {
        // Before it is reaped, no other group can have this number.
        send_signal(-pid.as_raw(), libc::SIGKILL);
    }
    let mut usage = Usage::default();
    loop {
        match wait4(pid.as_raw(), 0, Some(&mut usage)) {
            Ok((_, status)) if libc::WIFSIGNALED(status) => {
                return (Exit::Signal(libc::WTERMSIG(status)), usage);
            }
            Ok((_, status)) => return (Exit::Code(libc::WEXITSTATUS(status)), usage),
            Err(Errno::EINTR) => {}
            // Somebody else has reaped it, and its status is lost.
            Err(_) => return (Exit::Signal(libc::SIGKILL), usage),
        }
    }
}
