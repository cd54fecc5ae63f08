//! Counts while a program runs: arrays and small vectors in place of trees, made into tallies at the end.

use super::fast::FastMap;
use super::peers::{PeerId, Peers};
use super::roles::NATIVE_NUMBERS;
use crate::tally::{Abi, Errno, Phase, PhaseTallies, Syscall, Tally};
use crate::units::Nanos;

/// What is counted of one call in one phase.
#[derive(Debug, Default)]
pub(super) struct Slot {
    entries: u64,
    returns: u64,
    unfinished: u64,
    wall: u64,
    cpu: u64,
    pub(super) bytes: u64,
    pub(super) peeks: u64,
    /// Few errnos occur in one call, so a scan is cheaper than a map.
    errors: Vec<(Errno, u64)>,
    peers: FastMap<PeerId, u64>,
}

impl Slot {
    /// A call came back.
    pub(super) fn returned(&mut self, error: Option<Errno>, wall: Nanos, cpu: Nanos) {
        self.returns += 1;
        self.wall += wall.0;
        self.cpu += cpu.0;
        let Some(errno) = error else { return };
        match self.errors.iter_mut().find(|(known, _)| *known == errno) {
            Some((_, n)) => *n += 1,
            None => self.errors.push((errno, 1)),
        }
    }

    /// The thread ended inside the call.
    pub(super) fn never_returned(&mut self) {
        self.unfinished += 1;
    }

    /// The call was on a descriptor that leads there.
    pub(super) fn led_to(&mut self, peer: PeerId) {
        *self.peers.entry(peer).or_default() += 1;
    }
}

/// The calls of one phase of one program.
#[derive(Debug)]
pub(super) struct PhaseCounts {
    /// Position in `slots` plus one; 0 for none.
    native: Box<[u32; NATIVE_NUMBERS]>,
    others: FastMap<Syscall, u32>,
    slots: Vec<(Syscall, Slot)>,
    pub(super) connects: u64,
    pub(super) round_trips: u64,
    pub(super) sends: u64,
    pub(super) receives: u64,
}

impl Default for PhaseCounts {
    fn default() -> Self {
        PhaseCounts {
            native: Box::new([0; NATIVE_NUMBERS]),
            others: FastMap::default(),
            slots: Vec::new(),
            connects: 0,
            round_trips: 0,
            sends: 0,
            receives: 0,
        }
    }
}

impl PhaseCounts {
    /// Counts an entry, and tells where its return is to be counted.
    fn enter(&mut self, call: Syscall) -> u32 {
        let native = (call.abi == Abi::NATIVE)
            .then(|| self.native.get_mut(call.number as usize))
            .flatten();
        let position = match native {
            Some(position) => position,
            None => self.others.entry(call).or_default(),
        };
        if *position == 0 {
            self.slots.push((call, Slot::default()));
            *position = self.slots.len() as u32;
        }
        let index = *position - 1;
        self.slots[index as usize].1.entries += 1;
        index
    }
}

/// Where a call that was entered is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotRef {
    phase: Phase,
    index: u32,
}

impl SlotRef {
    /// The phase in which the call was entered.
    pub(super) fn phase(self) -> Phase {
        self.phase
    }
}

/// All phases of one program.
#[derive(Debug, Default)]
pub(super) struct Counts {
    phases: [PhaseCounts; 3],
}

impl Counts {
    /// Counts an entry in a phase.
    pub(super) fn enter(&mut self, phase: Phase, call: Syscall) -> SlotRef {
        SlotRef {
            phase,
            index: self.phase(phase).enter(call),
        }
    }

    /// The slot of a call that was entered, and the sums of the phase it was entered in.
    pub(super) fn slot(&mut self, at: SlotRef) -> &mut Slot {
        &mut self.phase(at.phase).slots[at.index as usize].1
    }

    /// One phase.
    pub(super) fn phase(&mut self, phase: Phase) -> &mut PhaseCounts {
        &mut self.phases[phase as usize]
    }

    /// As tallies.
    pub(super) fn tallies(&self, peers: &Peers) -> PhaseTallies {
        let [startup, run_loop, shutdown] = &self.phases;
        PhaseTallies {
            startup: tally(startup, peers),
            run_loop: tally(run_loop, peers),
            shutdown: tally(shutdown, peers),
        }
    }
}

fn tally(counts: &PhaseCounts, peers: &Peers) -> Tally {
    let mut tally = Tally {
        connects: counts.connects,
        round_trips: counts.round_trips,
        sends: counts.sends,
        receives: counts.receives,
        ..Tally::default()
    };
    for (call, slot) in &counts.slots {
        debug_assert_eq!(slot.entries, slot.returns + slot.unfinished, "{}", call.name());
        let entry = tally.of(*call);
        entry.calls = slot.returns;
        entry.unfinished = slot.unfinished;
        entry.wall = Nanos(slot.wall);
        entry.cpu = Nanos(slot.cpu);
        entry.bytes = slot.bytes;
        entry.peeks = slot.peeks;
        for (errno, n) in &slot.errors {
            let kind = if errno.is_restart() {
                &mut entry.restarts
            } else {
                &mut entry.errors
            };
            kind.insert(*errno, *n);
        }
        for (peer, n) in &slot.peers {
            entry.peers.insert(peers.name(*peer).to_owned(), *n);
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_become_tallies() {
        let mut counts = Counts::default();
        let mut peers = Peers::default();
        let read = Syscall::native(libc::SYS_read);
        let foreign = Syscall {
            abi: Abi::I386,
            number: 3,
        };
        let server = peers.id("127.0.0.1:6379");
        for error in [None, Some(Errno(11)), Some(Errno(11)), Some(Errno(512))] {
            let at = counts.enter(Phase::Loop, read);
            counts.slot(at).returned(error, Nanos(10), Nanos(1));
            counts.slot(at).led_to(server);
        }
        let at = counts.enter(Phase::Loop, read);
        counts.slot(at).never_returned();
        let at = counts.enter(Phase::Startup, foreign);
        counts.slot(at).returned(None, Nanos(1), Nanos(0));

        let tallies = counts.tallies(&peers);
        let read = &tallies.run_loop.calls[&read];
        assert_eq!((read.calls, read.unfinished, read.failed()), (4, 1, 2));
        assert_eq!((read.wall, read.cpu), (Nanos(40), Nanos(4)));
        assert_eq!(read.restarts[&Errno(512)], 1);
        assert_eq!(read.peers["127.0.0.1:6379"], 4);
        assert_eq!(tallies.startup.calls[&foreign].calls, 1);
        assert!(tallies.shutdown.calls.is_empty());
    }
}
