//! How a program talks and waits: what single calls show and their sums do not.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Turns and waits of one phase, as an engine saw them that looks at every call. A turn is one or more
/// sends on a socket and the first data that comes back on it; its wait goes from the return of the last
/// send to the return of that receive, tracing included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Talk {
    /// Turns that began with more than one send.
    pub turns_with_several_sends: u64,
    /// The most sends in one turn.
    pub most_sends_in_turn: u64,
    /// Waits of all turns together.
    #[serde(rename = "waited_ns")]
    #[schemars(with = "u64")]
    pub waited: Nanos,
    /// The longest wait of a turn.
    #[serde(rename = "longest_wait_ns")]
    #[schemars(with = "u64")]
    pub longest_wait: Nanos,
    /// Turns by the length of their wait: log2 of the nanoseconds.
    pub waits: BTreeMap<u8, u64>,
    /// Waits of 35 to 50 ms (Linux acknowledges a lone segment after 40 ms) behind several sends on a TCP
    /// socket without TCP_NODELAY.
    pub ack_waits_after_several: u64,
    /// Waits of that length that Nagle's algorithm cannot have made: behind one send, on a socket with
    /// TCP_NODELAY, or on another kind of socket.
    pub ack_waits_otherwise: u64,
    /// Turns on TCP sockets that were made under the engine and never given TCP_NODELAY.
    pub turns_without_nodelay: u64,
    /// Turns on TCP sockets with TCP_NODELAY.
    pub turns_with_nodelay: u64,
    /// Receives that filled a buffer of at least 4 KiB to the last byte.
    pub full_receives: u64,
    /// The largest buffer so filled, in bytes.
    pub full_buffer: u64,
    /// Waits for descriptors with a time-out of zero that reported nothing.
    pub polls_at_once: u64,
    /// Waits for descriptors whose time-out ran out.
    pub poll_timeouts: u64,
    /// The most waits with a time-out of zero in a row on one thread that reported nothing.
    pub longest_poll_streak: u64,
    /// Calls of at least [`LONG_WAIT`], alike ones together, the longest first.
    pub long_waits: Vec<LongWait>,
}

/// From where on a call is listed in [`Talk::long_waits`].
pub const LONG_WAIT: Nanos = Nanos(30_000_000);
/// How many kinds of long waits are kept.
pub const MOST_LONG_WAITS: usize = 16;

/// Calls of one name that took equally long, to within 2 %.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LongWait {
    /// The call.
    pub call: String,
    /// How long the longest of them took.
    #[serde(rename = "took_ns")]
    #[schemars(with = "u64")]
    pub took: Nanos,
    /// How many.
    pub count: u64,
    /// How many of them ended because their own time was over (a wait that returned 0, `EAGAIN` or
    /// `ETIMEDOUT`).
    pub timed_out: u64,
}

/// Whether two spans are the same to within 2 %.
pub fn alike(a: Nanos, b: Nanos) -> bool {
    a.0.abs_diff(b.0) <= a.0.max(b.0) / 50
}

impl Talk {
    /// Adds another phase or program.
    pub fn merge(&mut self, other: &Talk) {
        self.turns_with_several_sends += other.turns_with_several_sends;
        self.most_sends_in_turn = self.most_sends_in_turn.max(other.most_sends_in_turn);
        self.waited += other.waited;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        for (log2, n) in &other.waits {
            *self.waits.entry(*log2).or_default() += n;
        }
        self.ack_waits_after_several += other.ack_waits_after_several;
        self.ack_waits_otherwise += other.ack_waits_otherwise;
        self.turns_without_nodelay += other.turns_without_nodelay;
        self.turns_with_nodelay += other.turns_with_nodelay;
        self.full_receives += other.full_receives;
        self.full_buffer = self.full_buffer.max(other.full_buffer);
        self.polls_at_once += other.polls_at_once;
        self.poll_timeouts += other.poll_timeouts;
        self.longest_poll_streak = self.longest_poll_streak.max(other.longest_poll_streak);
        for wait in &other.long_waits {
            let same = |kept: &&mut LongWait| kept.call == wait.call && alike(kept.took, wait.took);
            match self.long_waits.iter_mut().find(same) {
                Some(kept) => {
                    kept.took = kept.took.max(wait.took);
                    kept.count += wait.count;
                    kept.timed_out += wait.timed_out;
                }
                None => self.long_waits.push(wait.clone()),
            }
        }
        self.long_waits.sort_by_key(|wait| std::cmp::Reverse(wait.took));
        self.long_waits.truncate(MOST_LONG_WAITS);
    }

    /// Turns, all of which have a wait.
    pub fn turns(&self) -> u64 {
        crate::units::total(self.waits.values().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(call: &str, ms: u64, count: u64) -> LongWait {
        LongWait {
            call: call.to_owned(),
            took: Nanos(ms * 1_000_000),
            count,
            timed_out: 0,
        }
    }

    #[test]
    fn alike_waits_are_added_up_and_the_shortest_are_dropped() {
        let mut all = Talk::default();
        for ms in 1..40 {
            all.merge(&Talk {
                long_waits: vec![wait("poll", ms * 100, 1), wait("poll", 60_000, 2)],
                ..Talk::default()
            });
        }
        assert_eq!(all.long_waits.len(), MOST_LONG_WAITS);
        assert_eq!(all.long_waits[0], wait("poll", 60_000, 78));
        assert!(all.long_waits.iter().all(|wait| wait.took.0 > 2_000_000_000));
    }

    #[test]
    fn two_percent_is_alike() {
        assert!(alike(Nanos(5_000), Nanos(5_090)));
        assert!(!alike(Nanos(5_000), Nanos(5_200)));
    }
}
