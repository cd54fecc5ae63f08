//! Processes that run already: the kernel is told to follow their threads, and nothing of theirs is touched
//! or stopped.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::Pid;

use super::availability::engine_error;
use super::session::select;
use super::tracer::{Tracer, TracerError};
use crate::engine::{Attachment, EngineError, Finder, Outcome, Refusal, Request, Selection};
use crate::proc::Root;
use crate::proc::processes::{Standing, is_ending, name, standing};
use crate::sys::process::PidFd;
use crate::tally::PhaseTallies;
use crate::units::{Measured, Nanos, escape};

/// How often to look whether anything is left and whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long to look for threads of a process that are not followed yet.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(2);

/// Followed processes. Dropping it ends the counting.
pub(super) struct BpfAttachment {
    tracer: Tracer,
    root: Root,
    processes: Vec<i32>,
    refused: Vec<Refusal>,
    selection: Selection,
    began: Instant,
    /// Threads that were about to end when they were adopted. The kernel may have told of their ends before
    /// that, and they are counted as alive for ever then.
    doubtful: u64,
}

impl BpfAttachment {
    /// Follows everything that the finder names.
    pub(super) fn begin(find: &Finder, request: &Request) -> Result<BpfAttachment, EngineError> {
        let tracer = Tracer::attach_to_running().map_err(|error| engine_error(&error))?;
        let mut attachment = BpfAttachment {
            tracer,
            root: Root::live(),
            processes: Vec::new(),
            refused: Vec::new(),
            selection: request.selection.clone(),
            began: Instant::now(),
            doubtful: 0,
        };
        let mut tried = BTreeSet::new();
        loop {
            let new: Vec<i32> = find().into_iter().filter(|pid| tried.insert(*pid)).collect();
            if new.is_empty() {
                break;
            }
            for pid in new {
                match standing(&attachment.root, pid) {
                    Standing::Runs => {}
                    Standing::Ended => continue,
                    Standing::Kernel => {
                        let name = escape(&name(&attachment.root, pid), 40);
                        let (why, fix) = Refusal::of_kernel(&format!("{name} (pid {pid})"));
                        attachment.refused.push(Refusal { pid, why, fix });
                        continue;
                    }
                }
                match attachment.follow(pid) {
                    Ok(true) => attachment.processes.push(pid),
                    Ok(false) => {}
                    Err(errno) => attachment.refused.push(refusal(pid, errno)),
                }
            }
        }
        match attachment.refused.first() {
            _ if !attachment.processes.is_empty() => Ok(attachment),
            Some(refusal) => Err(EngineError::Denied {
                why: refusal.why.clone(),
                fix: refusal.fix.clone(),
            }),
            None => Err(EngineError::NoneLeft),
        }
    }

    /// Follows the threads of a process, until all are that there are. Returns whether there was any.
    fn follow(&mut self, pid: i32) -> Result<bool, Errno> {
        // A list that is read while threads end may leave some out, so it has to be clean twice. Where the
        // kernel refuses new threads their memory again and again, it may never be.
        let (mut clean, mut any) = (0, false);
        let give_up = Instant::now() + FOLLOW_PATIENCE;
        while clean < 2 && Instant::now() < give_up {
            clean += 1;
            for tid in self.threads(pid) {
                let adopted = open(pid, tid).and_then(|thread| self.tracer.adopt(&thread));
                match adopted {
                    Ok(true) if is_ending(&self.root, pid, tid) => self.doubtful += 1,
                    Ok(true) => (any, clean) = (true, 0),
                    Ok(false) => any = true,
                    // It has ended.
                    Err(Errno::ESRCH | Errno::ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(any)
    }

    fn threads(&self, pid: i32) -> Vec<i32> {
        let names = self.root.list(&format!("proc/{pid}/task")).unwrap_or_default();
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// Whether all that is followed has ended.
    fn is_over(&self) -> Result<bool, EngineError> {
        let live = self.tracer.census().map_err(|error| engine_error(&error))?.live;
        Ok(live == 0 || (live <= self.doubtful && !self.follows_any()))
    }

    /// Whether any task on this machine is followed and still alive. To be asked only when in doubt: it looks
    /// at all of them.
    fn follows_any(&self) -> bool {
        let names = self.root.list("proc").unwrap_or_default();
        let mut pids = names.iter().filter_map(|name| name.parse().ok());
        pids.any(|pid| {
            self.threads(pid).into_iter().any(|tid| {
                !is_ending(&self.root, pid, tid)
                    && open(pid, tid).is_ok_and(|thread| self.tracer.follows(&thread))
            })
        })
    }

    /// Adds what every task on this machine that is followed is in the middle of.
    fn add_unfinished(&self, tallies: &mut PhaseTallies) -> Result<(), TracerError> {
        let names = self.root.list("proc").unwrap_or_default();
        for pid in names.iter().filter_map(|name| name.parse().ok()) {
            for tid in self.threads(pid) {
                if let Ok(thread) = open(pid, tid) {
                    self.tracer.add_unfinished(&thread, tallies)?;
                }
            }
        }
        Ok(())
    }
}

/// A descriptor of a thread. The first one of a process needs no special kind.
fn open(pid: i32, tid: i32) -> Result<PidFd, Errno> {
    if pid == tid {
        PidFd::open(Pid::from_raw(pid))
    } else {
        PidFd::open_thread(Pid::from_raw(tid))
    }
}

fn refusal(pid: i32, errno: Errno) -> Refusal {
    let (why, fix) = match errno {
        Errno::EINVAL => (
            format!(
                "process {pid} has several threads, and this kernel cannot name single ones (before Linux 6.9)"
            ),
            "use --engine ptrace",
        ),
        Errno::ENOMEM => (
            format!("there is no kernel memory to follow process {pid}"),
            "use --engine ptrace",
        ),
        other => (
            format!("process {pid} cannot be followed: {other}"),
            "use --engine ptrace",
        ),
    };
    Refusal {
        pid,
        why,
        fix: fix.to_owned(),
    }
}

impl Attachment for BpfAttachment {
    fn processes(&self) -> &[i32] {
        &self.processes
    }

    fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    fn wait(&mut self, limit: Option<Duration>, stop: &dyn Fn() -> bool) -> Result<(), EngineError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let over = left.is_some_and(|left| left.is_zero()) || stop();
            if over || self.is_over()? {
                return Ok(());
            }
            std::thread::sleep(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)));
        }
    }

    fn detach(mut self: Box<Self>) -> Result<Outcome, EngineError> {
        let elapsed = Nanos::from(self.began.elapsed());
        let failed = |error| engine_error(&error);
        let tallies = match self.tracer.stop().map_err(failed)? {
            Some(lost) => Measured::NotMeasured(format!("the kernel lost part of the count ({lost})")),
            None => {
                let mut tallies = self.tracer.tallies().map_err(failed)?;
                self.add_unfinished(&mut tallies).map_err(failed)?;
                select(&mut tallies, &self.selection);
                Measured::Known(tallies)
            }
        };
        Ok(Outcome {
            exits: Vec::new(),
            tallies,
            windows: vec![Measured::Known(elapsed)],
            cpu: Measured::NotMeasured("the program was running before it was counted".to_owned()),
            tracees: self.tracer.census().map_err(failed)?.seen,
            left: Vec::new(),
            notes: Vec::new(),
        })
    }
}
