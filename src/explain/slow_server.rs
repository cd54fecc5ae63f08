//! SLOW_SERVER_READ_TIMEOUT: the connection was there at once, the reply was late.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::{Mode, Row, round2};
use super::symptom::Symptom;
use crate::record::{FailureKind, Record, Stage, sampled};

pub(super) struct SlowServer;

const DOCS: &[Doc] = &[Doc {
    code: "SLOW_SERVER_READ_TIMEOUT",
    means: "The client had connected and sent its command, and its time-out ran out before the reply came.",
    measured: "A read time-out in the client's words on a living server, whose accept queue was not seen full and did not overflow.",
    wrong_when: "The client uses the same words for a connect that timed out, or the queue was full between two readings.",
    todo: "Look for a slow command (SLOWLOG GET), a fork for saving (latest_fork_usec) or a stopped server; raise the client's read time-out.",
}];

impl Rule for SlowServer {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let failure = row.failure();
    if failure.is_some_and(|failure| failure.kind != FailureKind::Said || failure.stage == Stage::Startup) {
        return None;
    }
    let mut symptoms = row.symptoms();
    // EAGAIN of a client that keeps its connection, and that did not come from a connect, is how
    // SO_RCVTIMEO ends; a client that says "timed out" says not of what, but a kept connection tells.
    let kept = row.mode() == Mode::Kept && row.kernel(&["connect"], "EAGAIN") == 0;
    let seen = symptoms.remove(&Symptom::ReadError).or_else(|| {
        let said = symptoms
            .remove(&Symptom::TryAgain)
            .or_else(|| symptoms.remove(&Symptom::TimedOut));
        said.filter(|_| kept)
    })?;
    let record = row.record;
    let full = [sampled::TCP_QUEUED, sampled::UNIX_QUEUED]
        .into_iter()
        .any(|name| kernel::peak(row, name).is_some_and(kernel::was_full));
    let overflows = match kernel::listener_drops(record) {
        Some(drops) => drops,
        None => kernel::grown(record, "TcpExt.ListenOverflows"),
    };
    let without_descriptors = matches!(
        (row.number(Fact::ServerFds), row.number(Fact::ServerNofile)),
        (Some(open), Some(limit)) if open >= limit
    );
    let over_tcp = row.is_unix() == Some(false);
    if row.yes(Fact::ServerAlive) == Some(false)
        || without_descriptors
        || full
        || (over_tcp && overflows > 0 && !kept)
    {
        return None;
    }
    let slowest = row.slowest().map(|ns| ns / 1_000_000);
    Some(
        Finding::about(row, "SLOW_SERVER_READ_TIMEOUT", Severity::Error)
            .with("failed", seen.count)
            .explains(seen.count)
            .with("client_says", seen.text)
            .with_known("slowest_ms", slowest)
            .with_known("server_process_alive", row.fact(Fact::ServerAlive))
            .with_known("waiting_at_listener", row.number(Fact::BacklogQueued))
            .with_known("lost_share", row.lost_share().map(round2))
            .says(format!(
                "{} was connected and did not answer before the client's read time-out",
                row.endpoint()
            ))
            .try_next("SLOWLOG GET and latest_fork_usec of the server; then the client's read time-out")
            .clears(row.cleared(&[])),
    )
}
