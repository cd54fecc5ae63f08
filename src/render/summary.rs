//! The few lines that stand before the tables of a bench: what decides how to read them, and of a long one what a
//! reader wants first.

use std::collections::BTreeMap;

use super::{prose, shown};
use crate::explain::Severity;
use crate::record::label::label;
use crate::record::{Record, Status, StrategyResult, Verdict};
use crate::units::Grouped;

/// More rows than can be seen at a glance.
const AT_A_GLANCE: usize = 10;
/// Rows and codes that are named in one line; the details are below.
const NAMED: usize = 4;

pub(super) fn lines(record: &Record) -> Vec<String> {
    let rows = &record.strategies;
    let noise = noise(rows);
    if rows.len() <= AT_A_GLANCE {
        return noise.into_iter().collect();
    }
    let speed = extremes(record, |row| {
        let speed = row.speed();
        let timed = speed.known().filter(|timed| !timed.is_noisy())?;
        Some(timed.ops_per_s.median)
    })
    .map(|(low, high)| {
        let words = |(name, rate): (String, f64)| format!("{name} {} op/s", whole(rate));
        format!(
            "fastest of the ok rows: {}; slowest: {}.",
            words(high),
            words(low)
        )
    });
    let calls = extremes(record, |row| {
        let counted = row.counted.known()?;
        // Where not all calls were counted there is no sum.
        counted.floor_ratio.known()?;
        counted.ops?.per_op(counted.phases.run_loop.total())
    })
    .map(|(low, high)| {
        let words = |(name, rate): (String, f64)| format!("{name} {rate:.2}");
        format!(
            "fewest system calls per operation: {}; most: {}.",
            words(low),
            words(high)
        )
    });
    [Some(statuses(rows)), noise, speed, calls, Some(below(record))]
        .into_iter()
        .flatten()
        .collect()
}

/// A rate without decimals, in groups of three digits; small ones keep one decimal.
fn whole(rate: f64) -> String {
    if rate < 100.0 {
        format!("{rate:.1}")
    } else {
        Grouped(rate.round() as u64).to_string()
    }
}

/// A few names, and how many more there are.
fn few(names: &[String]) -> String {
    match names.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..NAMED].join(", ")),
    }
}

fn named<'a>(rows: &[StrategyResult], those: impl Iterator<Item = &'a StrategyResult>) -> Vec<String> {
    those.map(|row| shown(&label(row, rows))).collect()
}

/// How many rows are what, and which have no result.
fn statuses(rows: &[StrategyResult]) -> String {
    let all = [Status::Ok, Status::Unverified, Status::Failed, Status::Skipped];
    let words: Vec<String> = all
        .into_iter()
        .filter_map(|status| {
            let those = rows.iter().filter(|row| row.status == status);
            let names = named(rows, those);
            match (status, names.len()) {
                (_, 0) => None,
                (Status::Ok | Status::Skipped, n) => Some(format!("{n} {}", status.name())),
                (Status::Unverified | Status::Failed, n) => {
                    Some(format!("{n} {} ({})", status.name(), few(&names)))
                }
            }
        })
        .collect();
    format!("{} rows: {}.", rows.len(), words.join(", "))
}

/// Which rows cannot be compared by their speed.
fn noise(rows: &[StrategyResult]) -> Option<String> {
    let noisy = |row: &&StrategyResult| row.speed().known().is_some_and(|timed| timed.is_noisy());
    let names = named(rows, rows.iter().filter(noisy));
    (!names.is_empty()).then(|| {
        format!(
            "not to be compared by op/s, since the rounds differ too much (NOISY_ROUNDS): {}; counts are not touched by it.",
            few(&names)
        )
    })
}

/// The ok rows with the least and the most of something; none where there are not two.
fn extremes(
    record: &Record,
    of: impl Fn(&StrategyResult) -> Option<f64>,
) -> Option<((String, f64), (String, f64))> {
    let rows = &record.strategies;
    let mut values: Vec<(&StrategyResult, f64)> = rows
        .iter()
        .filter(|row| row.status == Status::Ok && !row.is_noop())
        .filter_map(|row| Some((row, of(row).filter(|value| value.is_finite())?)))
        .collect();
    values.sort_by(|a, b| a.1.total_cmp(&b.1));
    let words = |(row, value): &(&StrategyResult, f64)| (shown(&label(row, rows)), *value);
    match values.as_slice() {
        [low, .., high] => Some((words(low), words(high))),
        _ => None,
    }
}

/// What was found, by code, and where it is told at length.
fn below(record: &Record) -> String {
    let mut parts = Vec::new();
    for severity in [Severity::Error, Severity::Warning] {
        let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in record.findings.iter().filter(|one| one.severity == severity) {
            *codes.entry(&finding.code).or_default() += 1;
        }
        let codes: Vec<String> = codes
            .into_iter()
            .map(|(code, n)| match n {
                1 => shown(code),
                n => format!("{} ×{n}", shown(code)),
            })
            .collect();
        if !codes.is_empty() {
            parts.push(format!("{}: {}", severity.name(), few(&codes)));
        }
    }
    let tight: Vec<String> = record
        .limits
        .iter()
        .filter(|limit| limit.verdict == Verdict::Fail)
        .map(prose::title)
        .collect();
    if !tight.is_empty() {
        parts.push(format!("limits that do not fit: {}", few(&tight)));
    }
    let found = match parts.as_slice() {
        [] => "no finding graver than info".to_owned(),
        parts => parts.join("; "),
    };
    format!("{found}. The details are below, and every number is in the record (-o FILE).")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{empty, round, row, set_rounds};
    use crate::units::Measured;

    fn of(rows: usize) -> Record {
        let mut record = empty();
        for n in 0..rows {
            let mut one = row(&format!("client{n}/persistent/tcp"));
            set_rounds(
                &mut one,
                vec![round(1000, 1000, 1000); 3],
                1000.0 * (n + 1) as f64,
            );
            record.strategies.push(one);
        }
        record
    }

    fn make_noisy(row: &mut StrategyResult) {
        if let Measured::Known(timed) = &mut row.timed {
            timed.ops_per_s.low = timed.ops_per_s.median / 2.0;
        }
    }

    #[test]
    fn a_short_and_sound_run_needs_none() {
        assert_eq!(lines(&of(AT_A_GLANCE)), [] as [&str; 0]);
    }

    #[test]
    fn what_may_not_be_compared_is_said_before_the_numbers() {
        let mut record = of(3);
        make_noisy(&mut record.strategies[1]);
        let said = lines(&record);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("NOISY_ROUNDS): client1/persistent/tcp;"),
            "{said:?}"
        );
        // What failed has no speed, noisy or not.
        record.strategies[1].status = Status::Failed;
        assert_eq!(lines(&record), [] as [&str; 0]);
    }

    #[test]
    fn a_long_run_begins_with_what_became_of_its_rows() {
        let mut record = of(20);
        for (place, status) in [
            (19, Status::Failed),
            (18, Status::Unverified),
            (17, Status::Skipped),
        ] {
            record.strategies[place].status = status;
        }
        make_noisy(&mut record.strategies[16]);
        let said = lines(&record);
        assert!(said.len() <= 5, "{said:?}");
        assert_eq!(
            said[0],
            "20 rows: 17 ok, 1 unverified (client18/persistent/tcp), 1 failed (client19/persistent/tcp), 1 skipped."
        );
        // Neither a failed row nor one that is not confirmed or noisy is the fastest.
        assert!(
            said[2]
                .starts_with("fastest of the ok rows: client15/persistent/tcp 16 000 op/s; slowest: client0"),
            "{said:?}"
        );
        assert!(said.last().unwrap().contains("-o FILE"), "{said:?}");
    }
}
