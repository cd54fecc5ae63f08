//! No tracer: the program runs as it would without systally, and nothing is counted. The timed rounds use
//! this, so a thread that sleeps in waitid(2) is all there is beside the program.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;

use super::start::{self, ChildEnds, Target};
use super::{
    Availability, Capabilities, CpuTimes, Engine, EngineError, EngineKind, Exit, Outcome, Pipes, Program,
    Request, Session, Stdio,
};
use crate::sys::process::{PidFd, Usage, send_signal, wait_ended, wait4};
use crate::sys::spawn::{Setup, spawn};
use crate::units::Measured;

/// How long killed programs may take to end before the session gives up on them.
const PATIENCE: Duration = Duration::from_secs(10);

/// The engine. See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untraced;

impl Engine for Untraced {
    fn kind(&self) -> EngineKind {
        EngineKind::None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn availability(&self) -> Availability {
        Availability::Ready
    }

    fn launch(&self, programs: Vec<Program>, _: &Request) -> Result<Box<dyn Session>, EngineError> {
        let mask = SigSet::thread_get_mask().map_err(|source| EngineError::System {
            operation: "read the signal mask",
            pid: 0,
            source,
        })?;
        let (sender, reports) = std::sync::mpsc::channel();
        let reaper = std::thread::Builder::new()
            .name("systally-reaper".to_owned())
            .spawn(move || reap(&programs, mask, &sender))
            .map_err(|error| start::system("start the thread that waits for the programs", &error))?;
        match reports.recv() {
            Ok(Report::Started(started)) => {
                let mut session = PlainSession {
                    pids: Vec::new(),
                    targets: Vec::new(),
                    pipes: Vec::new(),
                    reports,
                    reaper: Some(reaper),
                };
                for program in started {
                    session.pids.push(program.pid.as_raw());
                    session
                        .targets
                        .push(Target::new(program.pid, program.pidfd, program.own_group));
                    session.pipes.extend(program.pipes);
                }
                Ok(Box::new(session))
            }
            Ok(Report::NotStarted(error)) => Err(error),
            Ok(Report::Ended(_)) | Err(_) => Err(broken("it ended before the programs were started")),
        }
    }
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
    Ended(Vec<(Exit, Usage)>),
}

/// Programs running freely. Dropping it kills what still runs.
struct PlainSession {
    pids: Vec<i32>,
    targets: Vec<Target>,
    pipes: Vec<Pipes>,
    reports: Receiver<Report>,
    reaper: Option<JoinHandle<()>>,
}

impl Session for PlainSession {
    fn pids(&self) -> &[i32] {
        &self.pids
    }

    fn pipes(&mut self) -> Vec<Pipes> {
        std::mem::take(&mut self.pipes)
    }

    fn signal(&self, signal: i32) {
        for target in &self.targets {
            target.signal(signal);
        }
    }

    fn finish(self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError> {
        let mut notes = Vec::new();
        let mut report = match limit {
            Some(limit) => self.reports.recv_timeout(limit),
            None => self.reports.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if matches!(report, Err(RecvTimeoutError::Timeout)) {
            notes.push("programs that were still running at the time limit were killed".to_owned());
            self.signal(libc::SIGKILL);
            report = self.reports.recv_timeout(PATIENCE);
        }
        let ended = match report {
            Ok(Report::Ended(ended)) => ended,
            Ok(Report::Started(_) | Report::NotStarted(_)) | Err(RecvTimeoutError::Disconnected) => {
                return Err(broken(
                    "the thread that waits for the programs ended without a report",
                ));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(broken(
                    "programs were killed but did not end; they are probably stuck in the kernel",
                ));
            }
        };
        let reason = "the none engine counts nothing";
        let cpu = ended
            .iter()
            .fold(CpuTimes::default(), |sum, (_, usage)| CpuTimes {
                user: sum.user + usage.user,
                system: sum.system + usage.system,
            });
        Ok(Outcome {
            windows: ended
                .iter()
                .map(|_| Measured::NotMeasured(reason.to_owned()))
                .collect(),
            exits: ended.iter().map(|(exit, _)| *exit).collect(),
            tallies: Measured::NotMeasured(reason.to_owned()),
            cpu: Measured::Known(cpu),
            tracees: ended.len() as u64,
            notes,
        })
    }
}

impl Drop for PlainSession {
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
fn reap(programs: &[Program], mask: SigSet, reports: &Sender<Report>) {
    // Handlers of systally's own must not run in a child that has not executed its program yet.
    let _ = SigSet::all().thread_block();
    let started = match start_all(programs, mask) {
        Ok(started) => started,
        Err(error) => {
            let _ = reports.send(Report::NotStarted(error));
            return;
        }
    };
    let waited_for: Vec<(Pid, bool)> = started
        .iter()
        .map(|program| (program.pid, program.own_group))
        .collect();
    let _ = reports.send(Report::Started(started));
    let ended = waited_for
        .into_iter()
        .map(|(pid, own_group)| wait_for(pid, own_group))
        .collect();
    let _ = reports.send(Report::Ended(ended));
}

fn start_all(programs: &[Program], mask: SigSet) -> Result<Vec<Started>, EngineError> {
    let images = programs.iter().map(start::image).collect::<Result<Vec<_>, _>>()?;
    let mut started: Vec<Started> = Vec::with_capacity(programs.len());
    for (program, image) in programs.iter().zip(&images) {
        match start_one(program, image, mask) {
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
    program: &Program,
    image: &crate::sys::spawn::Image,
    mask: SigSet,
) -> Result<Started, EngineError> {
    let (ours, theirs) = start::pipes(program)?.unzip();
    let setup = Setup {
        stdio: theirs.as_ref().map(ChildEnds::stdio),
        own_group: program.own_group,
        die_with_thread: program.stdio == Stdio::Piped,
        mask,
        hold: false,
        filter: &[],
        no_new_privs: false,
    };
    let child = spawn(image, &setup).map_err(|error| start::system("fork", &error))?;
    let pid = child.pid();
    let pidfd = PidFd::open(pid).ok();
    match child.start_error() {
        None => Ok(Started {
            pid,
            pidfd,
            own_group: program.own_group,
            pipes: ours,
        }),
        Some(error) => {
            let _ = wait4(pid.as_raw(), 0, None);
            Err(start::start_error(program, error))
        }
    }
}

/// Waits for a program's end. What is left of its group then has lost its leader and is ended too: it is
/// not counted, and nobody else would end it.
fn wait_for(pid: Pid, own_group: bool) -> (Exit, Usage) {
    while wait_ended(pid) == Err(Errno::EINTR) {}
    if own_group {
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

fn broken(what: &str) -> EngineError {
    EngineError::Broken {
        engine: EngineKind::None,
        what: what.to_owned(),
    }
}
