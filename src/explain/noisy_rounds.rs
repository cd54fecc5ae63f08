//! NOISY_ROUNDS: the timed rounds of a row differ so much that its speed says little.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, round2};
use crate::record::Record;

pub(super) struct NoisyRounds;

const DOCS: &[Doc] = &[Doc {
    code: "NOISY_ROUNDS",
    means: "The rounds of these rows differ so much that their op/s are no more than an order of size. Counts are not \
            touched by it.",
    measured: "The farther end of the 95 % bootstrap interval lies more than a quarter of the median away from it, over \
               at least three timed rounds.",
    wrong_when: "The client itself is uneven, such as one that waits for a timer now and then.",
    todo: "End what else runs on the machine, make the rounds longer (--duration) or more (--runs), and compare by the \
           ratio to the base, which is taken round by round.",
}];

impl Rule for NoisyRounds {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let speed = row.result.speed();
    let timed = speed.known()?;
    let error = timed.ops_per_s.relative_error()?;
    if !timed.is_noisy() {
        return None;
    }
    Some(
        Finding::about(row, "NOISY_ROUNDS", Severity::Warning)
            .with("rounds", timed.rounds.len() as u64)
            .with("reaches_to", round2(error))
            .says(
                "the rounds differ so much that op/s is no more than an order of size here (see ±95%); the counts are \
                 not touched by it",
            )
            .try_next(
                "end what else runs on this machine; longer rounds (--duration) or more of them (--runs); compare by the \
                 ratio to the base",
            ),
    )
}
