//! Calls of a log whose end is still to come, in bounded memory.

use super::Map;
use super::names::NameId;

/// Bytes of the first half of one call that are kept for the second, as long as there is room.
const HALF: usize = 4 << 10;
/// Bytes that are always kept: the descriptor is among them.
const LEAST: usize = 64;
/// Bytes of all halves together beyond which only the least is kept of a new one.
const ROOM: usize = 8 << 20;
/// Calls that are kept with their arguments.
const MOST_WHOLE: usize = 65_536;
/// Calls that are kept at all, most of them only by name.
const MOST: usize = (1 << 20) + MOST_WHOLE;
/// How many are looked through for the one that a line without a pid resumes: it is the last
/// thread left, so there are few.
const MOST_SEARCHED: usize = 64;

/// A call whose end is still to come.
#[derive(Debug)]
pub(super) struct Pending {
    /// Which.
    pub(super) id: NameId,
    /// Its arguments so far.
    pub(super) args: Vec<u8>,
    /// When it began.
    pub(super) at: Option<u64>,
    /// Where it began; 0 when that was not kept.
    pub(super) line: u64,
}

/// At most one per thread.
#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    /// For each thread where its call is, or which when only that is kept: so many fit into little.
    by_pid: Map<u32, Place>,
    whole: Vec<Pending>,
    free: Vec<u32>,
    bytes: usize,
}

/// Index in the list, or with the highest bit the name alone; half the size of an enum of the two.
#[derive(Debug, Clone, Copy)]
struct Place(u32);

enum Is {
    Whole(usize),
    Named(NameId),
}

impl Place {
    const NAMED: u32 = 1 << 31;

    fn named(id: NameId) -> Option<Place> {
        u16::try_from(id)
            .ok()
            .map(|id| Place(Place::NAMED | u32::from(id)))
    }

    fn is(self) -> Is {
        match self.0 & Place::NAMED {
            0 => Is::Whole(self.0 as usize),
            _ => Is::Named((self.0 ^ Place::NAMED) as usize),
        }
    }
}

/// What became of the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// They are all there.
    Whole,
    /// The call is known, and not all of its arguments.
    Part,
    /// There are too many: even the call is forgotten.
    Nothing,
}

impl PendingCalls {
    /// Whether no thread is inside a call.
    pub(super) fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }

    /// Whether this thread is inside one.
    pub(super) fn contains(&self, pid: u32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// The call that a thread is inside of, when it is kept with its arguments.
    pub(super) fn get(&self, pid: u32) -> Option<&Pending> {
        match self.by_pid.get(&pid)?.is() {
            Is::Whole(index) => self.whole.get(index),
            Is::Named(_) => None,
        }
    }

    /// Notes the call that a thread has begun and that it has not been inside of until now.
    pub(super) fn insert(&mut self, pid: u32, id: NameId, args: &[u8], at: Option<u64>, line: u64) -> Kept {
        if self.whole.len() - self.free.len() >= MOST_WHOLE {
            let Some(place) = Place::named(id).filter(|_| self.by_pid.len() < MOST) else {
                return Kept::Nothing;
            };
            self.by_pid.insert(pid, place);
            return Kept::Part;
        }
        let most = if self.bytes > ROOM { LEAST } else { HALF };
        let kept = &args[..args.len().min(most)];
        self.bytes += kept.len();
        let pending = Pending {
            id,
            args: kept.to_vec(),
            at,
            line,
        };
        let place = match self.free.pop() {
            Some(place) => place,
            None => self.whole.len() as u32,
        };
        match self.whole.get_mut(place as usize) {
            Some(slot) => *slot = pending,
            None => self.whole.push(pending),
        }
        self.by_pid.insert(pid, Place(place));
        // Halves longer than that are looked at no further anyway.
        if kept.len() < args.len().min(HALF) {
            Kept::Part
        } else {
            Kept::Whole
        }
    }

    /// Takes out the call that a thread is inside of.
    pub(super) fn remove(&mut self, pid: u32) -> Option<Pending> {
        let place = self.by_pid.remove(&pid)?;
        match place.is() {
            Is::Whole(index) => {
                let slot = self.whole.get_mut(index)?;
                let pending = Pending {
                    args: std::mem::take(&mut slot.args),
                    ..*slot
                };
                self.bytes -= pending.args.len();
                self.free.push(place.0);
                Some(pending)
            }
            Is::Named(id) => Some(Pending {
                id,
                args: Vec::new(),
                at: None,
                line: 0,
            }),
        }
    }

    /// Gives one thread's call to another, which is inside of none.
    pub(super) fn hand_over(&mut self, from: u32, to: u32) {
        if let Some(place) = self.by_pid.remove(&from) {
            self.by_pid.insert(to, place);
        }
    }

    fn id(&self, place: Place) -> Option<NameId> {
        match place.is() {
            Is::Whole(index) => self.whole.get(index).map(|pending| pending.id),
            Is::Named(id) => Some(id),
        }
    }

    /// The thread, of few, whose call satisfies a test; the one with the lowest number.
    pub(super) fn find(&self, mut test: impl FnMut(NameId) -> bool) -> Option<u32> {
        if self.by_pid.len() > MOST_SEARCHED {
            return None;
        }
        self.by_pid
            .iter()
            .filter(|(_, place)| self.id(**place).is_some_and(&mut test))
            .map(|(pid, _)| *pid)
            .min()
    }

    /// The calls that never ended.
    pub(super) fn ids(&self) -> impl Iterator<Item = NameId> {
        self.by_pid.values().filter_map(|place| self.id(*place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_bounds_arguments_go_first_and_then_calls() {
        let mut calls = PendingCalls::default();
        let long = vec![b'x'; 3 * HALF];
        let kept = |kept: Kept, n: &mut [u64; 3]| n[kept as usize] += 1;
        let mut n = [0; 3];
        let all = (MOST + 10) as u32;
        for pid in 0..all {
            kept(calls.insert(pid, (pid % 4096) as usize, &long, None, 1), &mut n);
        }
        assert_eq!(n[2], 10);
        assert!(calls.bytes <= ROOM + HALF + MOST_WHOLE * LEAST);
        assert_eq!(n[0] as usize, ROOM / HALF + 1);
        assert_eq!(calls.remove(5).map(|p| p.args.len()), Some(HALF));
        let late = MOST_WHOLE as u32 + 7;
        assert!(calls.contains(late));
        assert_eq!(calls.remove(late).map(|p| p.id), Some((late % 4096) as usize));
        assert!(calls.remove(late).is_none() && !calls.contains(late));
        assert_eq!(calls.ids().count(), MOST - 2);
    }
}
