//! PIPELINE_NOT_BATCHED: a pipeline whose commands leave one by one.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, known, round2};
use crate::record::Record;
use crate::strategy::contract::Op;

pub(super) struct PipelineNotBatched;

const DOCS: &[Doc] = &[Doc {
    code: "PIPELINE_NOT_BATCHED",
    means: "The client calls it a pipeline but sends each command with a system call of its own, or even waits for \
            each reply.",
    measured: "Sends per batch in the counted window, against the depth of the pipeline; round trips per operation.",
    wrong_when: "Values are so large that each needs a send of its own (PHP writes in pieces of 8192 bytes).",
    todo: "Use a client or version that joins the commands (predis 3, node-redis, ioredis with autopipelining).",
}];

/// PHP streams and some clients write at most this much at once.
const PIECE_BYTES: u64 = 8192;

impl Rule for PipelineNotBatched {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let depth = row.result.axes.pipeline;
    if depth < 2 {
        return None;
    }
    let counted = row.counted()?;
    let sends = known(&counted.sends_per_batch)?;
    let depth = f64::from(depth);
    if sends < depth * 0.5 || pieces(row) >= sends * 0.9 {
        return None;
    }
    let trips = known(&counted.round_trips_per_op);
    let waits = trips.is_some_and(|trips| trips >= 0.5);
    let says = if waits {
        format!(
            "the pipeline of {depth} waits for every reply: {sends:.0} sends and as many round trips a batch, so it saves nothing"
        )
    } else {
        format!(
            "the pipeline of {depth} sends every command by itself: {sends:.0} sends a batch where one would do; it waits only once"
        )
    };
    Some(
        Finding::about(row, "PIPELINE_NOT_BATCHED", Severity::Warning)
            .with("pipeline", depth)
            .with("sends_per_batch", round2(sends))
            .with_known("round_trips_per_op", trips.map(round2))
            .says(says)
            .try_next("a client that joins the commands of a pipeline into one send (predis 3 does, 1.1 and 2.x do not)"),
    )
}

/// Sends that large values would explain.
fn pieces(row: &Row<'_>) -> f64 {
    let sends_values = <Op as clap::ValueEnum>::from_str(&row.result.axes.op, true)
        .is_ok_and(|op| matches!(op, Op::Set | Op::Setget));
    if !sends_values {
        return 0.0;
    }
    let bytes = row
        .result
        .axes
        .payload_bytes
        .saturating_mul(u64::from(row.result.axes.pipeline));
    bytes as f64 / PIECE_BYTES as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, row, set_counted};
    use crate::units::Measured;

    fn pipeline(sends: f64, trips: f64) -> Record {
        let mut record = empty();
        let mut strategy = row("predis/pipeline/tcp");
        strategy.axes.pipeline = 100;
        set_counted(&mut strategy, |counted| {
            counted.sends_per_batch = Measured::Known(sends);
            counted.round_trips_per_op = Measured::Known(trips);
        });
        record.strategies.push(strategy);
        record
    }

    #[test]
    fn a_send_per_command() {
        assert_eq!(codes(&pipeline(100.0, 0.01)), ["PIPELINE_NOT_BATCHED"]);
        assert!(
            explained(&pipeline(102.0, 1.02))[0]
                .says
                .contains("waits for every reply")
        );
    }

    #[test]
    fn joined_commands_and_large_values_are_fine() {
        assert_eq!(codes(&pipeline(1.0, 0.01)), [] as [&str; 0]);
        assert_eq!(codes(&pipeline(3.0, 0.02)), [] as [&str; 0]);
        let mut record = pipeline(1300.0, 0.01);
        record.strategies[0].axes.op = "set".into();
        record.strategies[0].timed = Measured::NotMeasured("not in this test".into());
        record.strategies[0].axes.payload_bytes = 100_000;
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
