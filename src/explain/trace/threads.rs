//! THREAD_HANDOVER: threads that wake each other for every operation.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Table, traces};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct Futex;

const DOCS: &[Doc] = &[Doc {
    code: "THREAD_HANDOVER",
    means: "Threads hand each operation to one another through futexes: each handover is a sleep, a wake-up and a change \
            of thread.",
    measured: "futex calls per operation, one and more; without the operations, half of all calls; the same in a counted pass.",
    wrong_when: "Threads idle in time-outs of their own beside the work.",
    todo: "A client that does its work in the calling thread (a current-thread run-time, a synchronous client), or larger \
           batches per handover; time in futex is waiting and mostly another thread's work.",
}];

impl Rule for Futex {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| trace.tables().collect::<Vec<_>>())
            .filter_map(|table| futex(&table))
            .collect()
    }
}

fn futex(table: &Table<'_>) -> Option<Finding> {
    let calls = table.calls(&["futex", "futex_time64", "lwp_park", "lwp_cond_wait"]);
    let total = table.table.sum_calls();
    let ops = table.ops().filter(|ops| ops.known);
    let rate = ops.map(|ops| ops.per_op(calls));
    let many = rate.is_some_and(|rate| rate >= 1.0) || calls.saturating_mul(2) >= total;
    if calls < 20 || !many {
        return None;
    }
    let failed = table.row("futex").and_then(|row| row.errors).unwrap_or(0);
    let per_op = rate
        .map(|rate| format!(", {rate:.1} per operation"))
        .unwrap_or_default();
    let late = if failed > 0 {
        format!(
            "; {} of them failed, normally because the value had changed already (EAGAIN) or a time-out passed",
            Grouped(failed)
        )
    } else {
        String::new()
    };
    Some(
        table
            .finding("THREAD_HANDOVER", Severity::Info)
            .with("futex_calls", calls)
            .with_known("futex_per_op", rate.map(round2))
            .with("share_of_calls", round2(calls as f64 / total.max(1) as f64))
            .says(format!(
                "{} of {} calls are futex{per_op}: threads hand work to each other{late}; time in futex is waiting for another \
                 thread",
                Grouped(calls),
                Grouped(total)
            ))
            .try_next("look at what the other threads do (strace -f); a current-thread run-time or a synchronous client for comparison"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, has};

    #[test]
    fn mostly_futex() {
        let text = "futex(0x7f, FUTEX_WAIT_PRIVATE, 0, NULL) = 0\nfutex(0x7f, FUTEX_WAKE_PRIVATE, 1) = 1\n"
            .repeat(20);
        assert!(has(&text, "THREAD_HANDOVER"));
        assert!(!has(&clean(20), "THREAD_HANDOVER"));
    }
}
