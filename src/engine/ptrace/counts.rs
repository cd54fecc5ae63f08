//! Counts while a program runs: arrays and small vectors in place of trees, made into tallies at the end.

use super::descriptors::Nagle;
use super::fast::FastMap;
use super::peers::{PeerId, Peers};
use super::roles::NATIVE_NUMBERS;
use crate::tally::talk::{LONG_WAIT, MOST_LONG_WAITS, alike};
use crate::tally::{Abi, Errno, LongWait, Phase, PhaseTallies, Syscall, Talk, Tally};
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

/// The calls of one phase.
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
    /// All but its `waits` and `long_waits`, which are below.
    talk: Talk,
    waits: [u64; 64],
    long_waits: Vec<Long>,
}

/// Long calls of one kind: a position in `slots`, and what [`LongWait`] has.
#[derive(Debug)]
struct Long {
    index: u32,
    took: Nanos,
    count: u64,
    timed_out: u64,
}

/// Around Linux's shortest delayed acknowledgement, 40 ms: it runs from the first of several sends, and a
/// wait is measured from the last.
const ACK_WAIT: std::ops::RangeInclusive<u64> = 35_000_000..=50_000_000;
/// The smallest buffer whose filling tells anything.
const SMALLEST_BUFFER: u64 = 4096;

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
            talk: Talk::default(),
            waits: [0; 64],
            long_waits: Vec::new(),
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

    /// Data came back after so many sends.
    pub(super) fn turn(&mut self, sends: u32, wait: Nanos, nagle: Nagle) {
        let talk = &mut self.talk;
        let several = sends > 1;
        talk.turns_with_several_sends += u64::from(several);
        talk.most_sends_in_turn = talk.most_sends_in_turn.max(u64::from(sends));
        talk.waited += wait;
        talk.longest_wait = talk.longest_wait.max(wait);
        talk.turns_without_nodelay += u64::from(nagle == Nagle::On);
        talk.turns_with_nodelay += u64::from(nagle == Nagle::Off);
        if ACK_WAIT.contains(&wait.0) {
            if several && matches!(nagle, Nagle::On | Nagle::Unknown) {
                talk.ack_waits_after_several += 1;
            } else {
                talk.ack_waits_otherwise += 1;
            }
        }
        self.waits[wait.0.max(1).ilog2() as usize] += 1;
    }

    /// A receive filled its buffer.
    pub(super) fn filled(&mut self, bytes: u64) {
        if bytes >= SMALLEST_BUFFER {
            self.talk.full_receives += 1;
            self.talk.full_buffer = self.talk.full_buffer.max(bytes);
        }
    }

    /// A wait for descriptors came back; `streak` is how many in a row were given no time for nothing.
    pub(super) fn polled(&mut self, reported: u64, no_time: bool, streak: u64) {
        let talk = &mut self.talk;
        if no_time {
            talk.polls_at_once += 1;
            talk.longest_poll_streak = talk.longest_poll_streak.max(streak);
        } else if reported == 0 {
            talk.poll_timeouts += 1;
        }
    }

    fn long(&mut self, index: u32, took: Nanos, timed_out: bool) {
        let timed_out = u64::from(timed_out);
        let same = |long: &&mut Long| long.index == index && alike(long.took, took);
        if let Some(long) = self.long_waits.iter_mut().find(same) {
            long.took = long.took.max(took);
            long.count += 1;
            long.timed_out += timed_out;
            return;
        }
        let new = Long {
            index,
            took,
            count: 1,
            timed_out,
        };
        if self.long_waits.len() < MOST_LONG_WAITS {
            self.long_waits.push(new);
        } else if let Some(shortest) = self.long_waits.iter_mut().min_by_key(|long| long.took)
            && shortest.took < took
        {
            *shortest = new;
        }
    }

    /// Turns and waits, complete.
    fn talk(&self) -> Talk {
        let named = |long: &Long| LongWait {
            call: self.slots[long.index as usize].0.name().into_owned(),
            took: long.took,
            count: long.count,
            timed_out: long.timed_out,
        };
        let mut long_waits: Vec<LongWait> = self.long_waits.iter().map(named).collect();
        long_waits.sort_by_key(|wait| std::cmp::Reverse(wait.took));
        let waits = self.waits.iter().enumerate().filter(|(_, n)| **n > 0);
        Talk {
            waits: waits.map(|(log2, n)| (log2 as u8, *n)).collect(),
            long_waits,
            ..self.talk.clone()
        }
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

/// All phases.
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

    /// How long a call took; long ones are listed.
    pub(super) fn waited(&mut self, at: SlotRef, took: Nanos, value: i64, error: Option<Errno>) {
        if took >= LONG_WAIT {
            let timed_out = match error {
                Some(errno) => errno.0 == libc::EAGAIN || errno.0 == libc::ETIMEDOUT,
                None => value == 0,
            };
            self.phase(at.phase).long(at.index, took, timed_out);
        }
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
        talk: Some(counts.talk()),
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

    #[test]
    fn turns_and_long_calls_are_told_apart() {
        let mut counts = Counts::default();
        let ms = |n: u64| Nanos(n * 1_000_000);
        let phase = counts.phase(Phase::Loop);
        phase.turn(2, ms(40), Nagle::On);
        phase.turn(2, ms(40), Nagle::Off);
        phase.turn(1, ms(41), Nagle::On);
        phase.turn(1, Nanos(900), Nagle::None);
        phase.polled(0, true, 7);
        phase.polled(0, false, 0);
        phase.polled(1, false, 0);
        for i in 0..100 {
            let at = counts.enter(Phase::Loop, Syscall::native(libc::SYS_poll));
            counts.slot(at).returned(None, ms(i), Nanos(0));
            counts.waited(at, ms(i), 0, None);
        }
        let at = counts.enter(Phase::Loop, Syscall::native(libc::SYS_recvfrom));
        counts
            .slot(at)
            .returned(Some(Errno(libc::EAGAIN)), ms(60_000), Nanos(0));
        counts.waited(at, ms(60_000), -11, Some(Errno(libc::EAGAIN)));

        let talk = counts.tallies(&Peers::default()).run_loop.talk.unwrap();
        assert_eq!((talk.ack_waits_after_several, talk.ack_waits_otherwise), (1, 2));
        assert_eq!((talk.turns(), talk.turns_with_several_sends), (4, 2));
        assert_eq!((talk.turns_without_nodelay, talk.turns_with_nodelay), (2, 1));
        assert_eq!(
            (talk.polls_at_once, talk.poll_timeouts, talk.longest_poll_streak),
            (1, 1, 7)
        );
        assert_eq!(talk.long_waits.len(), MOST_LONG_WAITS);
        let longest = &talk.long_waits[0];
        assert_eq!(
            (longest.call.as_str(), longest.took, longest.timed_out),
            ("recvfrom", ms(60_000), 1)
        );
        assert!(talk.long_waits.iter().all(|wait| wait.took >= LONG_WAIT));
    }
}
