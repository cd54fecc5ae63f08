//! SENT_IN_PIECES and REPLY_IN_PIECES in a counted pass. The codes are described in [`super::trace`].

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, round2};
use crate::record::{Kind, Record};
use crate::units::Grouped;

pub(super) struct Pieces;

impl Rule for Pieces {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record)
            .flat_map(|row| [sent(&row), replies(&row)])
            .flatten()
            .collect()
    }
}

fn sent(row: &Row<'_>) -> Option<Finding> {
    let talk = row.talk()?;
    let turns = talk.turns();
    // A pipeline sends several commands before it reads, and has a rule of its own.
    if row.result.axes.pipeline > 1 || turns < 2 || talk.turns_with_several_sends.saturating_mul(2) < turns {
        return None;
    }
    let counted_program = row.record.kind == Kind::Count;
    let what = if counted_program {
        "a request in pieces, or a pipeline whose commands are sent one by one; counts alone cannot tell which"
    } else {
        "each request leaves in pieces, such as header and body apart"
    };
    Some(
        Finding::about(row, "SENT_IN_PIECES", Severity::Info)
            .with("turns_with_several_sends", talk.turns_with_several_sends)
            .with("turns", turns)
            .with("most_sends_before_a_reply", talk.most_sends_in_turn)
            .says(format!(
                "{} of {} replies were preceded by two or more sends, up to {}: {what}",
                Grouped(talk.turns_with_several_sends),
                Grouped(turns),
                Grouped(talk.most_sends_in_turn)
            ))
            .try_next(if counted_program {
                "strace -f -e trace=network shows the pieces; one send per request: a larger buffer, writev, or TCP_CORK"
            } else {
                "one send per request: a larger buffer, writev, or TCP_CORK"
            }),
    )
}

fn replies(row: &Row<'_>) -> Option<Finding> {
    let talk = row.talk()?;
    let turns = talk.turns();
    if talk.full_receives < 2 || talk.full_receives.saturating_mul(2) < turns {
        return None;
    }
    let each = 1.0 + talk.full_receives as f64 / turns.max(1) as f64;
    Some(
        Finding::about(row, "REPLY_IN_PIECES", Severity::Info)
            .with("full_receives", talk.full_receives)
            .with("buffer_bytes", talk.full_buffer)
            .with("receives_per_reply_at_most", round2(each))
            .says(format!(
                "{} receives filled a buffer of {} bytes, so that more had to be read: replies come in up to {each:.1} pieces \
                 each",
                Grouped(talk.full_receives),
                talk.full_buffer
            ))
            .try_next("smaller values, compression, or a client with a larger read buffer"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, row, set_talk};

    fn with(several: u64, full: u64, pipeline: u32) -> Record {
        let mut record = empty();
        let mut strategy = row("predis/persistent/unix");
        strategy.axes.pipeline = pipeline;
        set_talk(&mut strategy, |talk| {
            talk.waits = [(10, 1000)].into();
            talk.turns_with_several_sends = several;
            talk.most_sends_in_turn = 2;
            talk.full_receives = full;
            talk.full_buffer = 8192;
        });
        record.strategies.push(strategy);
        record
    }

    #[test]
    fn pieces_both_ways() {
        assert_eq!(
            codes(&with(1000, 12_000, 1)),
            ["SENT_IN_PIECES", "REPLY_IN_PIECES"]
        );
    }

    #[test]
    fn whole_requests_small_replies_and_pipelines_are_fine() {
        assert_eq!(codes(&with(0, 0, 1)), [] as [&str; 0]);
        assert_eq!(codes(&with(3, 1, 1)), [] as [&str; 0]);
        assert_eq!(codes(&with(1000, 0, 50)), [] as [&str; 0]);
    }
}
