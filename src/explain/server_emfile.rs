//! SERVER_EMFILE: the server cannot accept, because its process has no descriptor left.
//!
//! Clients connect (the kernel does that) and then wait for a server that spins in accept4().

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::Row;
use super::symptom::Symptom;
use crate::record::{FailureKind, Record, sampled};

pub(super) struct ServerEmfile;

const DOCS: &[Doc] = &[Doc {
    code: "SERVER_EMFILE",
    means: "The server's process has as many descriptors open as its limit allows, so it accepts no more connections; clients connect and are never answered.",
    measured: "Operations without a reply while the server's open descriptors were at its limit and rejected_connections did not grow.",
    wrong_when: "The descriptors were read when the clients had gone already, or the limit was lowered afterwards.",
    todo: "Raise the limit of the server's process (prlimit --nofile, LimitNOFILE=); Redis writes nothing of it to a log file, since opening that needs a descriptor as well.",
}];

impl Rule for ServerEmfile {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let record = row.record;
    // By the time of reading the clients may have gone, and with them the server's descriptors.
    let peak = kernel::peak(row, sampled::SERVER_FDS);
    let readings = [
        row.number(Fact::ServerFds),
        peak.map(|peak| peak.peak),
        kernel::reading(record, "server.fds_open"),
    ];
    let open = readings.into_iter().flatten().max()?;
    let limit = row
        .number(Fact::ServerNofile)
        .or_else(|| kernel::reading(record, "server.nofile"))?;
    let rejected = row.result.server_view.known().map_or(0, |view| view.rejected);
    let rejected = rejected.max(record.counters.grew("redis.rejected_connections").unwrap_or(0));
    if open < limit || rejected > 0 {
        return None;
    }
    let mut symptoms = row.symptoms();
    let unanswered = [
        Symptom::ReadError,
        Symptom::TimedOut,
        Symptom::TryAgain,
        Symptom::Closed,
    ];
    let seen = unanswered
        .into_iter()
        .find_map(|symptom| symptoms.remove(&symptom));
    let silent = matches!(
        row.failure().map(|failure| failure.kind),
        Some(FailureKind::Hung | FailureKind::ServerUnreachable)
    );
    if seen.is_none() && !silent {
        return None;
    }
    Some(
        Finding::about(row, "SERVER_EMFILE", Severity::Error)
            .with("server_fds_open", open)
            .with("server_nofile", limit)
            .explains(seen.as_ref().map_or(1, |seen| seen.count))
            .with("rejected_connections", rejected)
            .with_known("client_says", seen.map(|seen| seen.text))
            .with_known("waiting_at_listener", row.number(Fact::BacklogQueued))
            .says(format!(
                "the server has {open} of {limit} descriptors open and cannot accept: clients connect and are never answered"
            ))
            .try_next(
                "prlimit --nofile=N --pid PID for the server (as root), or a restart with LimitNOFILE= / ulimit -n of \
                 maxclients + 32",
            )
            .clears(row.cleared(&["server_nofile"])),
    )
}
