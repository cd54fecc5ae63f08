//! RETRY_DUPLICATES: requests that the client had given up were executed all the same.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Mode, Row};
use super::symptom::Symptom;
use crate::record::Record;
use crate::strategy::contract::Op;
use crate::units::{Grouped, total};

pub(super) struct RetryDuplicates;

const DOCS: &[Doc] = &[Doc {
    code: "RETRY_DUPLICATES",
    means: "Requests whose time-out had run out stayed in the server's queue and were executed later; what the client tries again is executed twice.",
    measured: "Time-outs in the client's words, and more operations executed by the server than the client counts as done.",
    wrong_when: "Other clients use the same server and the same commands.",
    todo: "Use operations that may be repeated, or a longer time-out; never retry an INCR blindly.",
}];

impl Rule for RetryDuplicates {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let op = <Op as clap::ValueEnum>::from_str(&row.result.axes.op, true).ok()?;
    let symptoms = row.symptoms();
    // EAGAIN of a client that connects each time is a full queue, where nothing was sent at all.
    let late: &[Symptom] = match row.mode() {
        Mode::Kept => &[Symptom::ReadError, Symptom::TimedOut, Symptom::TryAgain],
        Mode::Connect | Mode::Unknown => &[Symptom::ReadError, Symptom::TimedOut],
    };
    let given_up = total(
        late.iter()
            .filter_map(|symptom| Some(symptoms.get(symptom)?.count)),
    );
    let rounds = row
        .timed()?
        .rounds
        .iter()
        .filter_map(|round| Some((round, round.server.known()?)));
    let (claimed, served) = rounds.fold((0_u64, 0_u64), |(claimed, served), (round, view)| {
        (
            claimed.saturating_add(round.ops.0),
            served.saturating_add(view.served(op.commands())),
        )
    });
    let more = served.checked_sub(claimed).filter(|more| *more > 0)?;
    if given_up == 0 {
        return None;
    }
    Some(
        Finding::about(row, "RETRY_DUPLICATES", Severity::Warning)
            .with("served_ops", served)
            .with("claimed_ops", claimed)
            .with("given_up", given_up)
            .says(format!(
                "{} operations were executed by the server after the client had given them up; tried again they count twice",
                Grouped(more)
            ))
            .try_next("operations that may be repeated; a time-out longer than the server's pauses"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, round, row, set_rounds};

    #[test]
    fn a_queue_that_was_full_took_nothing_in() {
        let mut record = empty();
        let mut strategy = row("phpredis/connect/unix");
        let mut lossy = round(2305, 4800, 2306);
        lossy
            .errors
            .insert("RedisException:Resource temporarily unavailable".to_owned(), 2494);
        set_rounds(&mut strategy, vec![lossy], 7500.0);
        record.strategies.push(strategy);
        assert!(!codes(&record).contains(&"RETRY_DUPLICATES".to_owned()));
    }
}
