//! Counters and sampled queues of a record as rules look at them.

use super::row::Row;
use crate::record::{Peak, Record, Sampled};

/// How much a counter of the server's network namespace or control group grew: under its own name where
/// the server has another namespace than the client, else under the client's.
pub(super) fn server_grew(record: &Record, name: &str) -> Option<u64> {
    let own = record.counters.grew(&format!("server.{name}"));
    own.or_else(|| record.counters.grew(name))
}

/// The same as a number; what was not read did not grow as far as is known.
pub(super) fn grown(record: &Record, name: &str) -> u64 {
    server_grew(record, name).unwrap_or(0)
}

/// A reading (not a counter) after the run, or before it where the run took it away.
pub(super) fn reading(record: &Record, name: &str) -> Option<u64> {
    let counters = &record.counters;
    counters
        .after
        .get(name)
        .or_else(|| counters.before.get(name))
        .copied()
}

/// The peak of a sampled reading while this row ran.
pub(super) fn peak<'a>(row: &Row<'a>, name: &str) -> Option<&'a Peak> {
    row.record
        .sampled
        .as_ref()?
        .peak(name, u64::try_from(row.index()?).ok()?)
}

/// The peak over the whole run.
pub(super) fn highest<'a>(record: &'a Record, name: &str) -> Option<&'a Peak> {
    record
        .sampled
        .as_ref()
        .and_then(|sampled: &Sampled| sampled.highest(name))
}

/// Whether a sampled queue was seen full.
pub(super) fn was_full(peak: &Peak) -> bool {
    peak.of.is_some_and(|of| peak.peak >= of)
}

/// Dropped connection requests of the very listener; `None` when nobody can say whose they were.
pub(super) fn listener_drops(record: &Record) -> Option<u64> {
    record.counters.grew("listener.tcp.drops")
}
