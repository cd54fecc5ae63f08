//! Tracer and tracees on one CPU: a stop is then a switch between two threads there, and costs a seventh
//! of waking another CPU. What the tracees see of it is put right.
//!
//! One CPU is wrong for a program whose processes compute side by side. So when more than one tracee
//! wants a CPU at several looks in a row while few stops are made, the tracees get their own mask back,
//! until they take turns again.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::proc::Root;

/// How often to look who wants a CPU.
const EVERY: Duration = Duration::from_millis(25);
/// Looks in a row that have to agree before the tracees are spread.
const LOOKS_TO_SPREAD: u32 = 2;
/// Looks in a row that have to agree before they are gathered again.
const LOOKS_TO_GATHER: u32 = 8;
/// Tracees looked at, at most.
const MOST_LOOKED_AT: usize = 32;
/// With more stops than this between two looks, one CPU is the better place even for several
/// processes: each stop saves about 60 µs there, so 200 save half of the time between two looks.
const MANY_STOPS: u64 = 200;

/// The CPUs a program may use when it is not pinned, and the one it is kept on.
#[derive(Debug, Clone)]
pub(super) struct Pin {
    original: CpuSet,
    one: CpuSet,
    bytes: Vec<u8>,
}

impl Pin {
    /// Tracee and tracer on `cpu`; `original` is what the tracee is shown.
    pub(super) fn new(original: CpuSet, cpu: usize) -> Result<Pin, Errno> {
        let mut one = CpuSet::new();
        one.set(cpu)?;
        let bytes = (0..CpuSet::count())
            .step_by(8)
            .map(|first| {
                (0..8).fold(0u8, |byte, bit| {
                    let set = original.is_set(first + bit).unwrap_or(false);
                    byte | (u8::from(set) << bit)
                })
            })
            .collect();
        Ok(Pin { original, one, bytes })
    }

    /// Keeps a thread on the CPU; 0 is the calling one.
    pub(super) fn hold(&self, tid: Pid) -> Result<(), Errno> {
        sched_setaffinity(tid, &self.one)
    }

    /// Gives a thread its own mask back.
    pub(super) fn release(&self, tid: Pid) -> Result<(), Errno> {
        sched_setaffinity(tid, &self.original)
    }

    /// The mask as sched_getaffinity(2) would have written it, `length` bytes of it.
    pub(super) fn shown(&self, length: usize) -> &[u8] {
        &self.bytes[..length.min(self.bytes.len())]
    }
}

/// The CPUs this thread may use, the one it runs on first: a tracer that stays where the scheduler has
/// put it does not collide with others that do the same.
///
/// # Errors
/// What sched_getaffinity(2) says.
pub(super) fn cpus() -> Result<(CpuSet, Vec<usize>), Errno> {
    let mask = sched_getaffinity(Pid::from_raw(0))?;
    let mut cpus: Vec<usize> = (0..CpuSet::count())
        .filter(|cpu| mask.is_set(*cpu).unwrap_or(false))
        .collect();
    if let Ok(here) = nix::sched::sched_getcpu()
        && let Some(position) = cpus.iter().position(|cpu| *cpu == here)
    {
        cpus.rotate_left(position);
    }
    Ok((mask, cpus))
}

/// Decides when the tracees are better off apart.
#[derive(Debug)]
pub(super) struct Crowd {
    root: Root,
    next: Instant,
    stops: u64,
    agreeing: u32,
    spread: bool,
    changed: bool,
}

/// What to do with the tracees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Give them their own mask.
    Spread,
    /// Keep them on the one CPU.
    Gather,
}

impl Crowd {
    /// All on one CPU.
    pub(super) fn new(now: Instant) -> Crowd {
        Crowd {
            root: Root::live(),
            next: now + EVERY,
            stops: 0,
            agreeing: 0,
            spread: false,
            changed: false,
        }
    }

    /// Whether the tracees have their own mask at the moment.
    pub(super) fn is_spread(&self) -> bool {
        self.spread
    }

    /// Whether that has ever changed.
    pub(super) fn has_changed(&self) -> bool {
        self.changed
    }

    /// A stop was made.
    pub(super) fn stopped(&mut self) {
        self.stops += 1;
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Looks at the tracees.
    pub(super) fn look(&mut self, tids: impl Iterator<Item = Pid>, now: Instant) -> Option<Change> {
        let waiting = tids
            .take(MOST_LOOKED_AT)
            .filter(|tid| self.wants_cpu(*tid))
            .count();
        self.decide(waiting, now)
    }

    fn decide(&mut self, waiting: usize, now: Instant) -> Option<Change> {
        let stops = std::mem::take(&mut self.stops);
        self.next = now + EVERY;
        let better_apart = waiting > 1 && stops < MANY_STOPS;
        if better_apart == self.spread {
            self.agreeing = 0;
            return None;
        }
        self.agreeing += 1;
        let (needed, change) = match self.spread {
            false => (LOOKS_TO_SPREAD, Change::Spread),
            true => (LOOKS_TO_GATHER, Change::Gather),
        };
        if self.agreeing < needed {
            return None;
        }
        self.agreeing = 0;
        self.spread = !self.spread;
        self.changed = true;
        Some(change)
    }

    /// Whether a thread runs or waits for a CPU: state `R`.
    fn wants_cpu(&self, tid: Pid) -> bool {
        let Ok(stat) = self.root.read(&format!("proc/{tid}/stat")) else {
            return false;
        };
        // The name in parentheses may hold anything, so the state is what follows the last one.
        stat.rfind(") ")
            .is_some_and(|end| stat[end + 2..].starts_with('R'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_shown_as_the_kernel_lays_it_out() {
        let mut original = CpuSet::new();
        for cpu in [0, 1, 9, 63, 64] {
            original.set(cpu).unwrap();
        }
        let pin = Pin::new(original, 1).unwrap();
        assert_eq!(pin.shown(8), [3, 2, 0, 0, 0, 0, 0, 0x80]);
        assert_eq!(pin.shown(16)[8], 1);
        assert_eq!(pin.shown(1 << 20).len(), CpuSet::count() / 8);
    }

    #[test]
    fn tracees_are_spread_only_when_they_compute_side_by_side() {
        let mut now = Instant::now();
        let mut crowd = Crowd::new(now);
        let mut look = |crowd: &mut Crowd, waiting, stops| {
            now += EVERY;
            assert!(crowd.is_due(now));
            crowd.stops = stops;
            crowd.decide(waiting, now)
        };
        // Many stops: one CPU is better.
        assert!((0..9).all(|_| look(&mut crowd, 5, MANY_STOPS).is_none()));
        // Taking turns.
        assert!((0..9).all(|_| look(&mut crowd, 1, 0).is_none()));
        assert_eq!(look(&mut crowd, 2, 3), None);
        assert_eq!(look(&mut crowd, 2, 3), Some(Change::Spread));
        assert!(crowd.is_spread());
        assert!((1..LOOKS_TO_GATHER).all(|_| look(&mut crowd, 1, 0).is_none()));
        assert_eq!(look(&mut crowd, 1, 0), Some(Change::Gather));
    }
}
