//! UNIX_BACKLOG_EAGAIN: more clients wanted to connect to a UNIX socket than its queue holds.
//!
//! No kernel counter shows this, and a TCP client in the same place would silently wait for a second.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::{Mode, Row, round2};
use super::symptom::Symptom;
use crate::record::{FailureKind, Record, Stage, sampled};

pub(super) struct UnixBacklog;

const DOCS: &[Doc] = &[Doc {
    code: "UNIX_BACKLOG_EAGAIN",
    means: "The listen queue of the UNIX socket was full, so a non-blocking connect failed at once with EAGAIN.",
    measured: "EAGAIN from connect() in the counted pass, or \"Resource temporarily unavailable\" while connecting \
               over a UNIX socket; the listener's backlog as the kernel holds it.",
    wrong_when: "Only the client's text is known and it stands for a late reply: some clients use the same words \
                 for a read time-out.",
    todo: "Raise tcp-backlog and somaxconn to the number of clients less one and restart the server, or keep \
           connections, or retry with a pause.",
}];

impl Rule for UnixBacklog {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    // A process that could not be forked says EAGAIN as well.
    if row.is_unix() == Some(false) || row.failed_by(FailureKind::NotStarted).is_some() {
        return None;
    }
    let counted = row.kernel(&["connect"], "EAGAIN");
    let said = row.symptoms().remove(&Symptom::TryAgain);
    let connecting = row.is_unix() == Some(true)
        && (row.mode() == Mode::Connect
            || row
                .failure()
                .is_some_and(|failure| failure.stage == Stage::Startup)
            || queue_was_full(row)
            || kernel::peak(row, sampled::UNIX_QUEUED).is_some_and(kernel::was_full));
    let count = match &said {
        Some(seen) if connecting || counted > 0 => seen.count.max(counted),
        Some(_) | None if counted > 0 => counted,
        Some(_) | None => return None,
    };
    let peak = kernel::peak(row, sampled::UNIX_QUEUED);
    let backlog = row
        .number(Fact::Backlog)
        .or_else(|| kernel::reading(row.record, "listener.unix.backlog"));
    let clients = u64::from(row.result.axes.clients);
    let capacity = backlog.map_or_else(|| "its backlog".to_owned(), |b| format!("{}", b + 1));
    let wanted = clients.max(2).saturating_sub(1);
    Some(
        Finding::about(row, "UNIX_BACKLOG_EAGAIN", Severity::Error)
            .with("failed_connects", count)
            .explains(count)
            .with_known("longest_queue_seen", peak.map(|peak| peak.peak))
            .with("clients", clients)
            .with_known("backlog", backlog)
            .with_known("waiting_now", row.number(Fact::BacklogQueued))
            .with_known("somaxconn", row.number(Fact::Somaxconn))
            .with_known("lost_share", row.lost_share().map(round2))
            .with_known("client_says", said.map(|seen| seen.text))
            .says(format!(
                "the listen queue of {} was full ({capacity} connections can wait), and a UNIX socket then refuses \
                 at once with EAGAIN where TCP would wait",
                row.endpoint()
            ))
            .try_next(format!(
                "tcp-backlog and somaxconn of at least {wanted} and a restart of the server; or keep connections; or \
                 retry after a pause"
            ))
            .clears(row.cleared(&["accept_backlog", "somaxconn"])),
    )
}

fn queue_was_full(row: &Row<'_>) -> bool {
    match (row.number(Fact::BacklogQueued), row.number(Fact::Backlog)) {
        (Some(queued), Some(backlog)) => queued > backlog,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, failed, row, set_errno};

    #[test]
    fn eagain_from_connect_is_a_full_queue() {
        let mut record = empty();
        let mut strategy = row("phpredis/connect/unix");
        set_errno(&mut strategy, "connect", 37, "EAGAIN");
        record.strategies.push(strategy);
        assert_eq!(codes(&record), ["UNIX_BACKLOG_EAGAIN"]);
    }

    #[test]
    fn the_words_while_connecting_are_enough() {
        let record = failed(
            "phpredis/connect/unix",
            "connect",
            "Resource temporarily unavailable",
        );
        assert_eq!(codes(&record), ["UNIX_BACKLOG_EAGAIN"]);
    }

    #[test]
    fn eagain_of_a_read_is_not_the_queue() {
        let mut record = failed(
            "redis-rs/persistent/unix",
            "io",
            "Resource temporarily unavailable (os error 11)",
        );
        record.strategies[0].failure.as_mut().unwrap().stage = Stage::Round;
        assert_eq!(codes(&record), ["SLOW_SERVER_READ_TIMEOUT"]);
        let record = failed("phpredis/connect/tcp", "io", "Resource temporarily unavailable");
        assert_eq!(codes(&record), ["UNEXPLAINED"]);
    }
}
