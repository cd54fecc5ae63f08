//! The counters of all programs of a session, read whenever a program's phase changes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno as SysErrno;
use nix::unistd::Pid;

use super::calls::{Chosen, may_say_again};
use crate::engine::ptrace::Observer;
use crate::engine::{EngineError, Failures, Window};
use crate::sys::perf::{Counter, Whose};
use crate::tally::{Errno, Phase, PhaseTallies, Syscall};

/// What one call is counted by, in the order of [`Counters::open`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    returns: u64,
    failed: u64,
    again: u64,
}

/// Returns of calls that give the child of a fork a return of its own, with the result 0, which was no
/// call of the child's.
const FORKS: [i64; 2] = [libc::SYS_clone, libc::SYS_clone3];
#[cfg(target_arch = "x86_64")]
const OLD_FORKS: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const OLD_FORKS: &[i64] = &[];

/// Failures, restarts apart (include/linux/errno.h).
const FAILED: &str = "ret < 0 && (ret > -512 || ret < -516)";

/// What one call is counted by.
#[derive(Debug, Clone, Copy)]
struct Plan {
    chosen: Chosen,
    failed: bool,
    again: bool,
}

impl Plan {
    fn new(chosen: Chosen, failures: &Failures) -> Plan {
        let (failed, again) = match failures {
            Failures::Free => (false, false),
            Failures::Again(calls) => (false, calls.contains(&chosen.call)),
            Failures::All => (true, may_say_again(chosen.call)),
        };
        Plan {
            chosen,
            failed,
            again,
        }
    }
}

/// The counters of one call in one program. What has none stays 0.
#[derive(Debug)]
struct Counters {
    call: Syscall,
    returns: Counter,
    failed: Option<Counter>,
    again: Option<Counter>,
}

impl Counters {
    fn open(plan: Plan, pid: i32, leader: Option<&Counter>) -> Result<Counters, SysErrno> {
        let Plan {
            chosen,
            failed,
            again,
        } = plan;
        let counter = |leader: Option<&Counter>, filter: Option<&str>| {
            let counter = Counter::open(chosen.tracepoint, Whose::Program(pid), leader)?;
            if let Some(filter) = filter {
                counter.filter(filter)?;
            }
            Ok(counter)
        };
        let number = chosen.call.number as i64;
        let is_fork = FORKS.contains(&number) || OLD_FORKS.contains(&number);
        let returns = counter(leader, is_fork.then_some("ret != 0"))?;
        let leader = leader.unwrap_or(&returns);
        let again_filter = format!("ret == -{}", libc::EAGAIN);
        let failed = failed.then(|| counter(Some(leader), Some(FAILED))).transpose()?;
        let again = again
            .then(|| counter(Some(leader), Some(&again_filter)))
            .transpose()?;
        Ok(Counters {
            call: chosen.call,
            returns,
            failed,
            again,
        })
    }

    fn read(&self) -> Result<Counts, SysErrno> {
        let of = |counter: &Option<Counter>| counter.as_ref().map_or(Ok(0), Counter::read);
        Ok(Counts {
            returns: self.returns.read()?,
            failed: of(&self.failed)?,
            again: of(&self.again)?,
        })
    }
}

/// One program's counters and what they have come to.
#[derive(Debug)]
struct Lane {
    counters: Vec<Counters>,
    last: Vec<Counts>,
    phase: Phase,
    tallies: PhaseTallies,
    /// Returns with EINTR of calls that began anew, which untraced would not have returned.
    repeated: BTreeMap<(Phase, Syscall), i64>,
}

impl Lane {
    /// Adds what was counted since the last time to the present phase, and goes on to the next.
    fn change(&mut self, next: Phase) -> Result<(), SysErrno> {
        for (counters, last) in self.counters.iter().zip(&mut self.last) {
            let now = counters.read()?;
            let call = self.tallies.phase(self.phase).of(counters.call);
            call.calls += now.returns - last.returns;
            let again = now.again - last.again;
            // Without a counter of failures EAGAIN is all that is known of them.
            let other = (now.failed - last.failed).saturating_sub(again);
            for (errno, n) in [(Errno(libc::EAGAIN), again), (Errno::OTHER, other)] {
                if n > 0 {
                    *call.errors.entry(errno).or_default() += n;
                }
            }
            *last = now;
        }
        self.phase = next;
        Ok(())
    }

    /// Takes off what only tracing has made return. Nothing else is read afterwards.
    fn leave_out_repeated(&mut self) {
        for ((phase, call), times) in std::mem::take(&mut self.repeated) {
            let Ok(times) = u64::try_from(times) else { continue };
            let Some(tally) = self.tallies.phase(phase).calls.get_mut(&call) else {
                continue;
            };
            tally.calls = tally.calls.saturating_sub(times);
            if let Some(other) = tally.errors.get_mut(&Errno::OTHER) {
                *other = other.saturating_sub(times);
            }
            tally.errors.retain(|_, n| *n > 0);
        }
    }
}

/// The counters of a session. Tracer threads add to it while programs run.
#[derive(Debug)]
pub(super) struct Board {
    plans: Vec<Plan>,
    first: Phase,
    lanes: Mutex<Vec<Option<Lane>>>,
    /// The first read that failed, after which there is no exact count.
    failed: Mutex<Option<SysErrno>>,
}

impl Board {
    /// For so many programs.
    pub(super) fn new(chosen: Vec<Chosen>, failures: &Failures, programs: usize, window: Window) -> Board {
        let first = match window {
            Window::Whole => Phase::Loop,
            Window::Markers => Phase::Startup,
        };
        let lanes = std::iter::repeat_with(|| None).take(programs).collect();
        let plans = chosen.into_iter().map(|chosen| Plan::new(chosen, failures));
        Board {
            plans: plans.collect(),
            first,
            lanes: Mutex::new(lanes),
            failed: Mutex::new(None),
        }
    }

    /// Reads all counters for the last time and closes them.
    ///
    /// # Errors
    /// The first read that failed.
    pub(super) fn close(&self) -> Result<PhaseTallies, SysErrno> {
        let mut lanes: Vec<Lane> = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *lanes).into_iter().flatten().collect()
        };
        let mut all = PhaseTallies::default();
        let mut result = Ok(());
        for lane in &mut lanes {
            result = result.and(lane.change(Phase::Shutdown));
            lane.leave_out_repeated();
            all.merge(&lane.tallies);
        }
        // The kernel waits some 40 ms for each tracepoint that nobody uses any more, and nobody has to
        // wait with it. Without a thread it is waited for here.
        let _ = std::thread::Builder::new()
            .name("systally-close".to_owned())
            .spawn(move || drop(lanes));
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(result, Err).map(|()| all)
    }
}

impl Observer for Board {
    fn held(&self, program: usize, pid: Pid) -> Result<(), EngineError> {
        let open = || -> Result<Vec<Counters>, SysErrno> {
            let mut counters: Vec<Counters> = Vec::with_capacity(self.plans.len());
            for plan in &self.plans {
                let leader = counters.first().map(|first| &first.returns);
                let next = Counters::open(*plan, pid.as_raw(), leader)?;
                counters.push(next);
            }
            Ok(counters)
        };
        let counters = open().map_err(|source| EngineError::System {
            operation: "open the counters of the program (raise ulimit -n when it says EMFILE)",
            pid: pid.as_raw(),
            source,
        })?;
        let lane = Lane {
            last: vec![Counts::default(); counters.len()],
            counters,
            phase: self.first,
            tallies: PhaseTallies::default(),
            repeated: BTreeMap::new(),
        };
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = lanes.get_mut(program) {
            *place = Some(lane);
        }
        Ok(())
    }

    /// The tracepoint at its return has no number to know it by, so it is added here.
    fn refused(&self, program: usize, call: Syscall) {
        let Some(plan) = self.plans.iter().find(|plan| plan.chosen.call == call) else {
            return;
        };
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get_mut(program).and_then(Option::as_mut) {
            let tally = lane.tallies.phase(lane.phase).of(call);
            tally.calls += 1;
            if plan.failed {
                *tally.errors.entry(Errno::OTHER).or_default() += 1;
            }
        }
    }

    fn repeated(&self, program: usize, call: Syscall, times: i64) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get_mut(program).and_then(Option::as_mut) {
            *lane.repeated.entry((lane.phase, call)).or_default() += times;
        }
    }

    fn phase(&self, program: usize, phase: Phase) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = lanes
            .get_mut(program)
            .and_then(Option::as_mut)
            .map(|lane| lane.change(phase));
        if let Some(Err(errno)) = changed {
            self.failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(errno);
        }
    }
}
