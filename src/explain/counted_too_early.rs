//! COUNTED_TOO_EARLY: a script read the counter while its clients were still adding to it, and took what
//! was missing for lost writes.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use crate::record::{CounterReading, Record};
use crate::units::{Grouped, Nanos};

pub(super) struct CountedTooEarly;

const DOCS: &[Doc] = &[Doc {
    code: "COUNTED_TOO_EARLY",
    means: "A script read a counter before all its clients had ended; what was missing then came later and is not lost.",
    measured: "The counter read twice in one run: as the script does it (after one of its children has ended, and a \
               pause), and when every child has ended.",
    wrong_when: "Somebody else adds to the same counter.",
    todo: "Wait for every child (a wait call for each, not one) before the counter is read.",
}];

impl Rule for CountedTooEarly {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    // The round in which the most was missing.
    let worst = row
        .result
        .experiment
        .counters
        .iter()
        .filter(|read| read.early < read.ended)
        .max_by_key(|read| read.ended - read.early)?;
    let CounterReading {
        expected,
        early,
        ended,
        running,
        early_ns,
    } = *worst;
    let failed = expected.saturating_sub(ended);
    let rest = match failed {
        0 => "all that was asked for: none was lost".to_owned(),
        failed => format!(
            "the other {} failed at the client and were never sent",
            Grouped(failed)
        ),
    };
    Some(
        Finding::about(row, "COUNTED_TOO_EARLY", Severity::Warning)
            .with("clients", row.result.axes.clients)
            .with("counter_early", early)
            .with("counter_all_ended", ended)
            .with("expected", expected)
            .with("clients_still_running", running)
            .with("read_after_ns", early_ns)
            .says(format!(
                "with {} clients the script read the counter {} after its start, when one child had ended, and found {} of \
                 {}; {running} clients were still at work, and when all had ended it stood at {}, {rest}",
                row.result.axes.clients,
                Nanos(early_ns),
                Grouped(early),
                Grouped(expected),
                Grouped(ended),
            ))
            .try_next("wait for every child before the counter is read")
            .clears(cleared(row, worst)),
    )
}

/// What is usually blamed.
fn cleared(row: &Row<'_>, read: &CounterReading) -> Vec<String> {
    let mut cleared = Vec::new();
    if read.ended == read.expected {
        cleared.push(format!(
            "Redis lost no write: {} of {} increments were there in the end",
            Grouped(read.ended),
            Grouped(read.expected)
        ));
        cleared.push("the listen queue: every connection was served in the end".to_owned());
    }
    cleared.push(
        "a server that lags behind: each client had the reply to an increment before its next".to_owned(),
    );
    cleared.extend(row.cleared(&[]));
    cleared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, row};

    fn read(early: u64, ended: u64) -> Record {
        let mut record = empty();
        let mut strategy = row("forked-script/connect/tcp");
        strategy.axes.clients = 1000;
        strategy.experiment.counters = vec![
            CounterReading {
                expected: 1_000_000,
                early: 1_000_000,
                ended: 1_000_000,
                running: 0,
                early_ns: 1,
            },
            CounterReading {
                expected: 1_000_000,
                early,
                ended,
                running: 96,
                early_ns: 67_659_000_000,
            },
        ];
        record.strategies.push(strategy);
        record
    }

    #[test]
    fn what_came_later_was_not_lost() {
        let found = explained(&read(903_505, 1_000_000));
        assert_eq!(found[0].code, "COUNTED_TOO_EARLY");
        assert_eq!(found[0].evidence["counter_early"], 903_505);
        assert_eq!(found[0].evidence["counter_all_ended"], 1_000_000);
        assert!(
            found[0].says.contains("found 903 505 of 1 000 000; 96 clients"),
            "{}",
            found[0].says
        );
        assert!(found[0].not_the_cause[0].starts_with("Redis lost no write"));
        assert!(found[0].not_the_cause[1].starts_with("the listen queue"));
    }

    #[test]
    fn increments_that_failed_are_told_apart() {
        let found = explained(&read(700_000, 800_000));
        assert!(
            found[0]
                .says
                .ends_with("the other 200 000 failed at the client and were never sent"),
            "{}",
            found[0].says
        );
        assert!(
            !found[0]
                .not_the_cause
                .iter()
                .any(|text| text.contains("listen queue"))
        );
    }

    #[test]
    fn a_script_that_read_late_enough_is_fine() {
        assert_eq!(codes(&read(1_000_000, 1_000_000)), [] as [&str; 0]);
    }
}
