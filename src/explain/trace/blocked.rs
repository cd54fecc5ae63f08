//! BLOCKED_IN_ONE_CALL: a capture in which no call finished.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::traces;
use crate::import::ImportFormat;
use crate::record::Record;

pub(super) struct Blocked;

const DOCS: &[Doc] = &[Doc {
    code: "BLOCKED_IN_ONE_CALL",
    means: "No system call finished during the capture: the process was inside one call the whole time. strace -c counts \
            calls when they return, so its table is empty.",
    measured: "strace's notices of attaching and detaching without a table between them.",
    wrong_when: "The process ran in user mode only, which makes no calls either (top shows its CPU time).",
    todo: "/proc/PID/syscall and /proc/PID/stack, or strace without -c, show the call it is in; -f follows its threads.",
}];

impl Rule for Blocked {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .filter(|trace| {
                trace.imported.format == ImportFormat::StraceSummary
                    && trace.imported.tables.is_empty()
                    && !trace.imported.incomplete
            })
            .map(|trace| {
                trace
                    .finding("BLOCKED_IN_ONE_CALL", Severity::Warning)
                    .with("calls_finished", 0)
                    .says(
                        "no system call finished during the capture: the process was blocked in one call the whole time, which is \
                         not the same as no work",
                    )
                    .try_next("look at the call it is in: /proc/PID/syscall, or strace -p PID without -c (with -f for its threads)")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::has;

    #[test]
    fn notices_alone_and_a_denied_attach() {
        assert!(has(
            "strace: Process 7 attached\nstrace: Process 7 detached\n",
            "BLOCKED_IN_ONE_CALL"
        ));
        let denied = "strace: attach: ptrace(PTRACE_SEIZE, 7): Operation not permitted\n";
        assert!(!has(denied, "BLOCKED_IN_ONE_CALL"));
    }
}
