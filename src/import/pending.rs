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
/// Calls of which only the name is kept.
const MOST_NAMED: usize = 1 << 20;
/// Of those, how many are looked through for the one that a line without a pid resumes: it is the last
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
    whole: Map<u32, Pending>,
    /// Beyond those: the ids alone, so that the second half is still known to be one.
    named: Map<u32, u16>,
    bytes: usize,
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
        self.whole.is_empty() && self.named.is_empty()
    }

    /// Whether this thread is inside one.
    pub(super) fn contains(&self, pid: u32) -> bool {
        self.whole.contains_key(&pid) || self.named.contains_key(&pid)
    }

    /// The call that a thread is inside of, when it is kept with its arguments.
    pub(super) fn get(&self, pid: u32) -> Option<&Pending> {
        self.whole.get(&pid)
    }

    /// Notes the call that a thread has begun and that it has not been inside of until now.
    pub(super) fn insert(&mut self, pid: u32, id: NameId, args: &[u8], at: Option<u64>, line: u64) -> Kept {
        if self.whole.len() >= MOST_WHOLE {
            if self.named.len() >= MOST_NAMED {
                return Kept::Nothing;
            }
            let Ok(id) = u16::try_from(id) else {
                return Kept::Nothing;
            };
            self.named.insert(pid, id);
            return Kept::Part;
        }
        let most = if self.bytes > ROOM { LEAST } else { HALF };
        let kept = &args[..args.len().min(most)];
        self.put(
            pid,
            Pending {
                id,
                args: kept.to_vec(),
                at,
                line,
            },
        );
        // Halves longer than that are looked at no further anyway.
        if kept.len() < args.len().min(HALF) {
            Kept::Part
        } else {
            Kept::Whole
        }
    }

    fn put(&mut self, pid: u32, pending: Pending) {
        self.bytes += pending.args.len();
        self.whole.insert(pid, pending);
    }

    /// Takes out the call that a thread is inside of.
    pub(super) fn remove(&mut self, pid: u32) -> Option<Pending> {
        if let Some(pending) = self.whole.remove(&pid) {
            self.bytes -= pending.args.len();
            return Some(pending);
        }
        if self.named.is_empty() {
            return None;
        }
        self.named.remove(&pid).map(|id| Pending {
            id: NameId::from(id),
            args: Vec::new(),
            at: None,
            line: 0,
        })
    }

    /// Gives one thread's call to another.
    pub(super) fn hand_over(&mut self, from: u32, to: u32) {
        if let Some(pending) = self.remove(from) {
            self.put(to, pending);
        }
    }

    /// The thread, of few, whose call satisfies a test; the one with the lowest number.
    pub(super) fn find(&self, mut test: impl FnMut(NameId) -> bool) -> Option<u32> {
        if self.whole.len() > MOST_SEARCHED {
            return None;
        }
        self.whole
            .iter()
            .filter(|(_, pending)| test(pending.id))
            .map(|(pid, _)| *pid)
            .min()
    }

    /// The calls that never ended.
    pub(super) fn into_ids(self) -> impl Iterator<Item = NameId> {
        self.whole
            .into_values()
            .map(|pending| pending.id)
            .chain(self.named.into_values().map(NameId::from))
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
        let all = (MOST_WHOLE + MOST_NAMED + 10) as u32;
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
        assert_eq!(calls.into_ids().count(), MOST_WHOLE + MOST_NAMED - 2);
    }
}
