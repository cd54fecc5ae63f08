//! The threads of a log by their id.

use super::Thread;
use crate::import::Map;

/// A map of threads that is fast when the same one is asked for again and again, as every call of a log
/// does.
#[derive(Debug, Default)]
pub(super) struct Threads {
    slots: Vec<Thread>,
    free: Vec<usize>,
    by_id: Map<u32, usize>,
    /// The one found last, with its slot.
    last: Option<(u32, usize)>,
}

impl Threads {
    fn find(&self, id: u32) -> Option<usize> {
        match self.last {
            Some((last, slot)) if last == id => Some(slot),
            _ => self.by_id.get(&id).copied(),
        }
    }

    /// The thread, when it is known.
    pub(super) fn get(&self, id: u32) -> Option<&Thread> {
        self.slots.get(self.find(id)?)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Thread> {
        let slot = self.find(id)?;
        self.last = Some((id, slot));
        self.slots.get_mut(slot)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds one that is not known yet.
    pub(super) fn insert(&mut self, id: u32, thread: Thread) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Thread::default());
                self.slots.len() - 1
            }
        };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = thread;
        }
        self.by_id.insert(id, slot);
        self.last = Some((id, slot));
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, id: u32) -> Option<Thread> {
        let slot = self.by_id.remove(&id)?;
        self.last = None;
        self.free.push(slot);
        self.slots.get_mut(slot).map(std::mem::take)
    }
}

/// A set of thread ids of Linux, which end at 2^22 (`PID_MAX_LIMIT` of include/linux/threads.h): a bit each,
/// so that a log of a million threads costs no more than 512 KiB.
#[derive(Debug, Default)]
pub(super) struct Ids(Vec<u64>);

impl Ids {
    const END: u32 = 1 << 22;

    /// Adds one; whether it was not there. Greater ones are never there.
    pub(super) fn insert(&mut self, id: u32) -> bool {
        let (word, bit) = ((id / 64) as usize, 1 << (id % 64));
        if id > Ids::END {
            return true;
        }
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Takes one out, so that it is new when it comes again.
    pub(super) fn remove(&mut self, id: u32) {
        if let Some(word) = self.0.get_mut((id / 64) as usize) {
            *word &= !(1 << (id % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_used_again_is_another_threads() {
        let mut threads = Threads::default();
        let with_clock = |wait_clock| Thread {
            wait_clock,
            ..Thread::default()
        };
        threads.insert(7, with_clock(1));
        threads.insert(8, with_clock(2));
        assert_eq!(threads.get_mut(7).map(|t| t.wait_clock), Some(1));
        assert_eq!(threads.remove(7).map(|t| t.wait_clock), Some(1));
        assert!(threads.get(7).is_none() && threads.get_mut(7).is_none());
        threads.insert(9, with_clock(3));
        assert!(threads.get(7).is_none());
        assert_eq!(threads.get(9).map(|t| t.wait_clock), Some(3));
        assert_eq!((threads.len(), threads.slots.len()), (2, 2));
    }

    #[test]
    fn an_id_is_new_once_and_again_when_it_has_ended() {
        let mut ids = Ids::default();
        assert!(ids.insert(70) && !ids.insert(70) && ids.insert(71));
        ids.remove(70);
        ids.remove(1 << 21);
        assert!(ids.insert(70) && !ids.insert(71));
        assert!(ids.insert(u32::MAX));
    }
}
