//! Attaching to processes that run already, and letting them go again as they were.
//!
//! Every thread is seized and interrupted once, since only a stop makes it stop at its calls from then on.
//! What it starts is traced by the kernel from its first moment. Nothing of the tracees is changed that
//! would stay changed when systally is killed: no `PTRACE_O_EXITKILL`, no pinning to a CPU, no filter.
//!
//! A stop cuts some blocking calls short. The kernel makes most of them again by itself; those that would
//! return EINTR to a program that has no reason to expect it are made again by
//! [`Stopped::make_again`].

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};

use super::ignored::INTERRUPTIBLE;
use super::refusal;
use super::state::{ProgramState, Tracee};
use super::tracing::{Tracing, checked};
use super::workers::LOOK_EVERY;
use crate::engine::{EngineError, Refusal};
use crate::proc::Root;
use crate::sys::ptrace::{Options, PtraceError, Stop, Stopped, SyscallStop};
use crate::tally::Errno as CallErrno;

/// How long tracees may take to stop so that they can be let go. One that waits in the kernel without
/// being interruptible (a vfork, a broken disk) is let go by the end of its tracer thread.
const LET_GO_PATIENCE: Duration = Duration::from_secs(2);
/// Looks for threads and processes whose maker was inside clone(2) when it was seized: the kernel had
/// decided by then that they are not traced.
const LATE_LOOKS: u32 = 3;

/// What one tracer thread attached to.
#[derive(Debug, Default)]
pub(super) struct Attached {
    /// The processes.
    pub(super) processes: Vec<i32>,
    /// Those that may not be traced.
    pub(super) refused: Vec<Refusal>,
}

/// What came of seizing one thread.
enum Seized {
    Yes,
    /// It was seized before, or was born traced.
    Ours,
    Gone,
    No(Errno),
}

/// What was found of processes so far.
#[derive(Debug, Default)]
pub(super) struct Search {
    tried: BTreeSet<i32>,
    looks: u32,
    next: Option<Instant>,
    /// The CPU that this thread was moved to last, and when.
    here: Option<(usize, Instant)>,
}

impl Tracing {
    /// Seizes every thread of every process that the finder names.
    pub(super) fn attach_all(&mut self) -> Result<Attached, EngineError> {
        let mut attached = Attached::default();
        self.search.looks = LATE_LOOKS;
        self.search.next = Some(Instant::now() + LOOK_EVERY);
        self.attach_found(&mut attached)?;
        Ok(attached)
    }

    fn attach_found(&mut self, attached: &mut Attached) -> Result<(), EngineError> {
        let Some(find) = self.job.find.clone() else {
            return Ok(());
        };
        loop {
            let found = find();
            let new: Vec<i32> = found
                .into_iter()
                .filter(|pid| self.search.tried.insert(*pid))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            for pid in new {
                self.attach_process(Pid::from_raw(pid), attached)?;
            }
        }
    }

    /// Looks again when it is time to.
    pub(super) fn look_for_late_ones(&mut self, now: Instant) -> Result<(), EngineError> {
        if self.search.looks == 0 || self.search.next.is_none_or(|next| now < next) {
            return Ok(());
        }
        self.search.looks -= 1;
        self.search.next = Some(now + LOOK_EVERY);
        let processes: BTreeSet<Pid> = self.tracees.values().map(|tracee| tracee.tgid).collect();
        let mut late = Attached::default();
        for pid in processes {
            self.attach_threads(pid, &mut late)?;
        }
        self.attach_found(&mut late)?;
        for refusal in late.refused {
            self.notes.insert(format!(
                "process {} appeared meanwhile and could not be attached to: {}",
                refusal.pid, refusal.why
            ));
        }
        Ok(())
    }

    /// Moves this thread, which is ours, to the CPU where a tracee that has just stopped ran last. The
    /// scheduler often leaves the tracee there too, and then a stop costs a fraction of what it costs from
    /// CPU to CPU. The tracee itself is not pinned: who would undo that if systally were killed?
    pub(super) fn go_where_it_runs(&mut self, tid: Pid, now: Instant) {
        if !self.job.stay_near
            || self
                .search
                .here
                .is_some_and(|(_, moved)| now < moved + LOOK_EVERY)
        {
            return;
        }
        let Ok(stat) = self.root.read(&format!("proc/{tid}/stat")) else {
            return;
        };
        let Some(cpu) = last_cpu(&stat) else { return };
        if self.search.here.is_none_or(|(here, _)| here != cpu) {
            let mut one = CpuSet::new();
            // Only speed depends on it.
            let _ = one
                .set(cpu)
                .and_then(|()| sched_setaffinity(Pid::from_raw(0), &one));
        }
        self.search.here = Some((cpu, now));
    }

    fn attach_process(&mut self, pid: Pid, attached: &mut Attached) -> Result<(), EngineError> {
        if self.attach_threads(pid, attached)? {
            attached.processes.push(pid.as_raw());
        }
        Ok(())
    }

    /// Seizes the threads of a process that are not traced yet, until none is left. Returns whether it has
    /// any that is traced.
    fn attach_threads(&mut self, pid: Pid, attached: &mut Attached) -> Result<bool, EngineError> {
        // A list that is read while threads end may leave some out, so it has to be clean twice.
        let mut clean = 0;
        let mut any = false;
        while clean < 2 {
            let Ok(names) = self.root.list(&format!("proc/{pid}/task")) else {
                return Ok(any);
            };
            clean += 1;
            for tid in names.iter().filter_map(|name| name.parse().ok()) {
                if self.tracees.contains_key(&tid) {
                    any = true;
                    continue;
                }
                match self.seize(Pid::from_raw(tid))? {
                    Seized::Yes => {
                        self.add(Pid::from_raw(tid), pid);
                        (any, clean) = (true, 0);
                    }
                    Seized::Ours => any = true,
                    Seized::Gone => {}
                    Seized::No(errno) => {
                        let (why, fix) = refusal::why_not(errno, pid, Pid::from_raw(tid));
                        attached.refused.push(Refusal {
                            pid: pid.as_raw(),
                            why,
                            fix,
                        });
                        return Ok(any);
                    }
                }
            }
        }
        Ok(any)
    }

    fn seize(&mut self, tid: Pid) -> Result<Seized, EngineError> {
        let options = Options {
            follow: true,
            seccomp: false,
            kill_with_tracer: false,
        };
        let running = match self.tracer.seize(tid, options) {
            Ok(running) => running,
            Err(Errno::ESRCH) => return Ok(Seized::Gone),
            Err(errno) => {
                return Ok(match refusal::state(&self.root, tid) {
                    refusal::State::Gone => Seized::Gone,
                    refusal::State::Ours => Seized::Ours,
                    refusal::State::Other => Seized::No(errno),
                });
            }
        };
        match running.interrupt() {
            Ok(_) => Ok(Seized::Yes),
            Err(PtraceError::Gone) => Ok(Seized::Gone),
            Err(PtraceError::Failed(source)) => Err(EngineError::System {
                operation: "stop a thread to attach to it",
                pid: tid.as_raw(),
                source,
            }),
        }
    }

    /// Makes the state of a seized thread.
    fn add(&mut self, tid: Pid, tgid: Pid) {
        let relative = self.tracees.values().find(|tracee| tracee.tgid == tgid);
        let (program, table) = match relative.map(|tracee| (tracee.program, tracee.table)) {
            Some((program, table)) => (program, self.descriptors.share(table)),
            None => {
                let index = self.programs.len();
                self.programs.push(ProgramState::attached(index, tgid));
                (index, self.descriptors.fresh())
            }
        };
        self.seen += 1;
        self.tracees.insert(
            tid.as_raw(),
            Tracee {
                tgid,
                program,
                table,
                call: None,
                cut: None,
                again: None,
                own_affinity: false,
                polls: 0,
                fresh: true,
            },
        );
    }

    /// The first stop of a thread that was attached to.
    pub(super) fn first_stop(&mut self, stopped: Stopped) -> Result<(), EngineError> {
        if let Some(tracee) = self.tracees.get_mut(&stopped.tid().as_raw())
            && std::mem::take(&mut tracee.fresh)
        {
            // Killed meanwhile: the next wait tells.
            let _ = stopped.make_again(INTERRUPTIBLE);
        }
        self.resume(stopped, 0)
    }

    /// Begins to let everything go.
    pub(super) fn let_go(&mut self, now: Instant) -> Result<(), EngineError> {
        self.letting_go = Some(now + LET_GO_PATIENCE);
        for tid in self.tracees.keys() {
            let tid = Pid::from_raw(*tid);
            checked("stop a thread to let it go", tid, self.tracer.interrupt(tid))?;
        }
        for (_, (stopped, stop)) in std::mem::take(&mut self.early) {
            self.let_stopped_go(stopped, stop, now)?;
        }
        Ok(())
    }

    /// Lets go of a thread at whatever it stopped for. One that was born meanwhile is traced too, and comes
    /// here by its own first stop.
    pub(super) fn let_stopped_go(
        &mut self,
        stopped: Stopped,
        stop: Stop,
        now: Instant,
    ) -> Result<(), EngineError> {
        let tid = stopped.tid();
        let mut signal = 0;
        match stop {
            Stop::Signal(number) => {
                self.settle(&stopped, stop);
                signal = number;
            }
            Stop::Syscall | Stop::Seccomp => self.last_call(&stopped, now),
            Stop::Trap => {
                let _ = stopped.make_again(INTERRUPTIBLE);
            }
            Stop::Exec => {
                if let Ok(former) = stopped.message() {
                    self.forget(Pid::from_raw(former as i32));
                }
            }
            Stop::Group(_) | Stop::Fork(_) | Stop::Other(_) => {}
        }
        self.forget(tid);
        checked("let a thread go", tid, stopped.detach(signal))
    }

    /// A thread that is let go returns from a call, or enters one that is not counted any more. A call that
    /// only our interruption cut short is in progress still.
    fn last_call(&mut self, stopped: &Stopped, now: Instant) {
        let Ok(SyscallStop::Exit { result, failed }) = stopped.syscall() else {
            return;
        };
        let errno = CallErrno(i32::try_from(result.unsigned_abs()).unwrap_or(0));
        let cut_short = failed && (errno.is_restart() || stopped.make_again(INTERRUPTIBLE) == Ok(true));
        if !cut_short {
            self.leave(stopped, result, failed, now);
        }
    }
}

/// The CPU that a thread ran on last: field 39 of `/proc/PID/stat` (proc(5)).
fn last_cpu(stat: &str) -> Option<usize> {
    // The name in parentheses may hold anything, so fields are counted from the last one.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(39 - 3)?.parse().ok()
}

/// Whether a thread id is one of this process's.
pub(super) fn is_own_thread(root: &Root, tid: i32) -> bool {
    tid == gettid().as_raw() || root.path(&format!("proc/self/task/{tid}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_is_read() {
        let root = Root::live();
        let stat = root.read("proc/self/stat").unwrap();
        assert!(last_cpu(&stat).unwrap() < CpuSet::count());
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        assert_eq!(last_cpu(&format!("7 (a) b) {}", fields.join(" "))), Some(39));
        assert_eq!(last_cpu("7 (a) S 1"), None);
    }
}
