//! IO_URING in a counted pass. The code is described in [`super::trace`].

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct Uring;

impl Rule for Uring {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let entered = row.good_calls(&["io_uring_enter"]);
    let made = row.good_calls(&["io_uring_setup"]);
    // A ring that is only made, as some run-times do at their start, hides nothing so far.
    let polled = entered == 0 && made > 0;
    if entered == 0 && !polled {
        return None;
    }
    let (severity, says) = if polled {
        (
            Severity::Info,
            "an io_uring was made but never entered: either it is not used, or the kernel polls it (IORING_SETUP_SQPOLL) and no \
             operation on it is a system call"
                .to_owned(),
        )
    } else {
        (
            Severity::Warning,
            format!(
                "{} io_uring_enter calls: operations are submitted through a ring and have no system calls of their own, so they \
                 are not in these counts",
                Grouped(entered)
            ),
        )
    };
    Some(
        Finding::about(row, "IO_URING", severity)
            .with("io_uring_enter", entered)
            .with("io_uring_setup", made)
            .says(says)
            .try_next("do not compare these counts with those of other clients; compare completions (bpftrace io_uring:*)"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::Severity;
    use crate::explain::testing::{codes, empty, explained, row, set_call};

    #[test]
    fn a_ring_in_use_a_ring_unused_and_none() {
        let mut record = empty();
        let mut strategy = row("redis-rs/persistent/tcp");
        set_call(&mut strategy, "io_uring_enter", 1000, &[]);
        record.strategies.push(strategy);
        assert_eq!(explained(&record)[0].severity, Severity::Warning);
        record.strategies[0] = row("redis-rs/persistent/tcp");
        set_call(&mut record.strategies[0], "io_uring_setup", 1, &[]);
        assert_eq!(explained(&record)[0].severity, Severity::Info);
        record.strategies[0] = row("redis-rs/persistent/tcp");
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
