//! SLEEP_LOOP in a counted pass. The code is described in [`super::trace`].

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, SLEEPS, round2};
use crate::record::Record;
use crate::units::{Grouped, Nanos};

pub(super) struct Sleeps;

impl Rule for Sleeps {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let calls = row.loop_calls(SLEEPS);
    let rate = row.per_op(SLEEPS, |call| call.calls);
    if calls < 20 || rate.is_some_and(|rate| rate < 0.5) {
        return None;
    }
    let time = row.loop_wall(SLEEPS);
    let each = time.map(|time| Nanos(time.0 / calls));
    let length = each.map(|each| format!(" of {each} each")).unwrap_or_default();
    let per_op = rate
        .map(|rate| format!(", {rate:.1} per operation"))
        .unwrap_or_default();
    Some(
        Finding::about(row, "SLEEP_LOOP", Severity::Warning)
            .with("sleeps", calls)
            .with_known("sleeps_per_op", rate.map(round2))
            .with_known("mean_us", each.map(|each| round2(each.as_micros_f64())))
            .says(format!(
                "{} sleeps{length}{per_op}: the program looks for something in intervals in place of waiting for it",
                Grouped(calls)
            ))
            .try_next("wait for the event with a time-out in place of sleeping")
            .clears(vec!["the server: the time passes in the client's own sleeps".to_owned()]),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, row, set_call};

    #[test]
    fn a_sleep_per_operation_and_a_rare_one() {
        let mut record = empty();
        let mut strategy = row("phpredis/persistent/tcp");
        set_call(&mut strategy, "clock_nanosleep", 1000, &[]);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), ["SLEEP_LOOP"]);
        set_call(&mut record.strategies[0], "clock_nanosleep", 30, &[]);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
