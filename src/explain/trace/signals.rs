//! INTERRUPTED_AND_RESTARTED: calls that a signal cut short, which tables count as errors.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::{Trace, traces};
use crate::record::Record;
use crate::units::total;

pub(super) struct Interrupted;

const DOCS: &[Doc] = &[Doc {
    code: "INTERRUPTED_AND_RESTARTED",
    means: "Signals cut calls short, and the kernel started them again by itself. Tables count each as an error and as one \
            call more; nothing failed.",
    measured: "Calls that returned ERESTARTSYS and kin in a log, with the signal that follows.",
    wrong_when: "The handler was set without SA_RESTART: then the program sees EINTR.",
    todo: "Nothing; many of them point at a timer signal or a profiler.",
}];

impl Rule for Interrupted {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).flat_map(|trace| of_trace(&trace)).collect()
    }
}

fn of_trace(trace: &Trace<'_>) -> Vec<Finding> {
    let signals: Vec<String> = trace
        .facts()
        .map(|facts| facts.interrupted.keys().cloned().collect())
        .unwrap_or_default();
    trace
        .tables()
        .flat_map(|table| {
            table
                .rows()
                .iter()
                .filter_map(|row| {
                    let restarts = total(
                        row.errnos
                            .iter()
                            .filter(|(errno, _)| errno.starts_with("ERESTART"))
                            .map(|(_, n)| *n),
                    );
                    (restarts > 0).then(|| {
                        let by = if signals.is_empty() {
                            "a signal".to_owned()
                        } else {
                            signals.join(", ")
                        };
                        table
                            .finding("INTERRUPTED_AND_RESTARTED", Severity::Info)
                            .with("restarts", restarts)
                            .with("calls", row.calls())
                            .says(format!(
                                "{restarts} of {} {}s were interrupted by {by} and restarted: no failure",
                                row.calls(),
                                row.syscall
                            ))
                    })
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    #[test]
    fn the_signal_is_named() {
        let text = "read(3, 0x7f, 1) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)\n--- SIGALRM {si_signo=SIGALRM} ---\n";
        assert!(
            find(&found(text), "INTERRUPTED_AND_RESTARTED")
                .unwrap()
                .says
                .contains("SIGALRM")
        );
        assert!(!has(&clean(2), "INTERRUPTED_AND_RESTARTED"));
    }
}
