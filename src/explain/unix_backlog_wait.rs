//! UNIX_BACKLOG_WAIT: the queue of a UNIX socket was full, and the client waited for it without an error.
//!
//! Nothing but the sampled queue shows this: no counter grows and no call fails.

use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::{Row, round2};
use super::symptom::Symptom;
use crate::record::{Record, sampled};

pub(super) struct UnixBacklogWait;

const DOCS: &[Doc] = &[Doc {
    code: "UNIX_BACKLOG_WAIT",
    means: "The listen queue of the UNIX socket was full, and blocking clients waited in connect() until there was room.",
    measured: "The queue, read 10 to 50 times a second, was seen with as many connections as fit, and no connect failed.",
    wrong_when: "The queue was full for moments only; its length is read too seldom to say for how long.",
    todo: "Raise tcp-backlog and somaxconn to the number of clients less one and restart the server; keep connections; set a time-out, since the wait has no end of its own.",
}];

impl Rule for UnixBacklogWait {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    if row.is_unix() != Some(true)
        || row.symptoms().contains_key(&Symptom::TryAgain)
        || row.kernel(&["connect"], "EAGAIN") > 0
    {
        return None;
    }
    let peak = kernel::peak(row, sampled::UNIX_QUEUED).filter(|peak| kernel::was_full(peak))?;
    let clients = u64::from(row.result.axes.clients);
    let wanted = clients.max(2) - 1;
    let slowest = row.slowest().map(|ns| ns / 1_000_000);
    Some(
        Finding::about(row, "UNIX_BACKLOG_WAIT", Severity::Warning)
            .with("longest_queue_seen", peak.peak)
            .with_known("queue_holds", peak.of)
            .with("at_s", round2(peak.at_s))
            .with("clients", clients)
            .with_known("slowest_ms", slowest)
            .says(format!(
                "the listen queue of {} was full ({} waiting), and this client waits in connect() until there is room",
                row.endpoint(),
                peak.peak
            ))
            .try_next(format!(
                "tcp-backlog and somaxconn of at least {wanted} and a restart of the server; or keep connections; and set a \
                 time-out"
            ))
            .clears(row.cleared(&["accept_backlog", "somaxconn"])),
    )
}
