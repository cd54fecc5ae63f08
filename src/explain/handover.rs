//! THREAD_HANDOVER in a counted pass. The code is described in [`super::trace`].

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{FUTEX, Row, round2};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct Handover;

impl Rule for Handover {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let calls = row.loop_calls(FUTEX);
    let total = row.counted()?.phases.run_loop.total();
    let rate = row.per_op(FUTEX, |call| call.calls);
    let many = match rate {
        Some(rate) => rate >= 1.0,
        None => calls.saturating_mul(2) >= total,
    };
    if calls < 20 || !many {
        return None;
    }
    let per_op = rate
        .map(|rate| format!(", {rate:.1} per operation"))
        .unwrap_or_default();
    Some(
        Finding::about(row, "THREAD_HANDOVER", Severity::Info)
            .with("futex_calls", calls)
            .with_known("futex_per_op", rate.map(round2))
            .with("share_of_calls", round2(calls as f64 / total.max(1) as f64))
            .says(format!(
                "{} of {} calls are futex{per_op}: threads hand work to each other; time in futex is waiting for another thread",
                Grouped(calls),
                Grouped(total)
            ))
            .try_next("a current-thread run-time or a synchronous client for comparison; larger batches per handover"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, row, set_call};

    #[test]
    fn two_futex_calls_per_operation_and_a_few_in_all() {
        let mut record = empty();
        let mut strategy = row("redis-rs-async/persistent/tcp");
        set_call(&mut strategy, "futex", 2000, &[]);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), ["THREAD_HANDOVER"]);
        set_call(&mut record.strategies[0], "futex", 40, &[]);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
