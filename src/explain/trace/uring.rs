//! IO_URING: operations that no system call stands for.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::traces;
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct Uring;

const DOCS: &[Doc] = &[Doc {
    code: "IO_URING",
    means: "The program submits its operations through io_uring: sends and receives happen without a system call of their \
            own, so counts of calls say little about operations.",
    measured: "io_uring_enter, io_uring_setup or io_uring_register in the table or log; the same in a counted pass, failed calls apart.",
    wrong_when: "Only a small part of the program uses it.",
    todo: "Do not compare its counts with those of other clients; count completions with bpf tracepoints (io_uring:*).",
}];

impl Rule for Uring {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| trace.tables().collect::<Vec<_>>())
            .filter_map(|table| {
                let calls = table.calls(&["io_uring_enter", "io_uring_setup", "io_uring_register"]);
                (calls > 0).then(|| {
                    table
                        .finding("IO_URING", Severity::Warning)
                        .with("io_uring_calls", calls)
                        .says(format!(
                            "{} io_uring calls: operations are submitted through a ring and have no system calls of their own, so \
                             this table does not count them",
                            Grouped(calls)
                        ))
                        .try_next("compare completions, not calls")
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, has};

    #[test]
    fn the_ring_is_seen() {
        assert!(has(
            "io_uring_enter(5, 1, 1, IORING_ENTER_GETEVENTS, NULL, 8) = 1\n",
            "IO_URING"
        ));
        assert!(!has(&clean(2), "IO_URING"));
    }
}
