//! TRACER_CHANGED: counts that depend on timing, and that tracing therefore shifts.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{RECEIVES, Row, WAITS, known, round2};
use crate::record::Record;

pub(super) struct TracerChanged;

const DOCS: &[Doc] = &[Doc {
    code: "TRACER_CHANGED",
    means: "Some counts of this client depend on whether a reply is already there when it looks. A traced client is \
            slower, so replies are there more often than in a real run.",
    measured: "Receives that found nothing (EAGAIN), and waits that are not a whole number per operation, in the \
               counted window.",
    wrong_when: "The client tries to read for another reason, always with the same outcome.",
    todo: "Do not compare these two counts between tracers or machines; all others are exact.",
}];

impl Rule for TracerChanged {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let pipeline = f64::from(row.result.axes.pipeline.max(1));
    let empty = row.per_op(RECEIVES, |call| {
        call.errors
            .known()
            .and_then(|errors| errors.get("EAGAIN"))
            .copied()
            .unwrap_or(0)
    })? * pipeline;
    let waits = row.per_op(WAITS, |call| call.calls)? * pipeline;
    let is_whole = |value: f64| (value - value.round()).abs() <= 0.02;
    if empty < 0.02 && is_whole(waits) {
        return None;
    }
    Some(
        Finding::about(row, "TRACER_CHANGED", Severity::Info)
            .with("empty_receives_per_batch", round2(empty))
            .with("waits_per_batch", round2(waits))
            .with_known("slowdown", row.counted().and_then(|counted| known(&counted.slowdown)).map(round2))
            .says(
                "how often this client looks and finds nothing depends on timing, which tracing changes: its EAGAIN and \
                 wait counts are approximate, the others exact",
            )
            .try_next("compare only the other calls; or count with an engine that does not slow the client"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, row, set_call};

    #[test]
    fn a_client_that_tries_first() {
        let mut record = empty();
        let mut strategy = row("memcached/persistent/tcp");
        set_call(&mut strategy, "poll", 660, &[]);
        set_call(&mut strategy, "recvfrom", 1660, &[("EAGAIN", 660)]);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), ["TRACER_CHANGED"]);
    }

    #[test]
    fn a_client_that_waits_first_is_exact() {
        let mut record = empty();
        let mut strategy = row("predis/persistent/tcp");
        set_call(&mut strategy, "poll", 1000, &[]);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
