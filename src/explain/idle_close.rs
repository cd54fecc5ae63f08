//! IDLE_TIMEOUT_CLOSE: the server closes clients that are idle, and this one was.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Mode, Row};
use super::symptom::Symptom;
use crate::record::{Record, Stage};

pub(super) struct IdleClose;

const DOCS: &[Doc] = &[Doc {
    code: "IDLE_TIMEOUT_CLOSE",
    means: "The server closes connections that are idle for longer than its setting timeout, and a kept connection of this client was found closed.",
    measured: "End of file, EPIPE or a reset on a kept connection, with timeout of the server above 0, the server alive and no connection rejected.",
    wrong_when: "The connection was closed for another reason (CLIENT KILL, a proxy); how long it was idle is not known.",
    todo: "Set timeout 0, or one longer than the pauses of the clients; let the client connect again when it finds its connection closed.",
}];

impl Rule for IdleClose {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    if row.mode() == Mode::Connect || row.server_died() || row.yes(Fact::ServerAlive) == Some(false) {
        return None;
    }
    let settings = &row.record.server.as_ref()?.settings;
    let timeout: u64 = settings
        .get("timeout")?
        .parse()
        .ok()
        .filter(|seconds| *seconds > 0)?;
    let rejected = row.result.server_view.known().map_or(0, |view| view.rejected);
    if rejected > 0
        || row
            .failure()
            .is_some_and(|failure| failure.stage == Stage::Startup)
    {
        return None;
    }
    let mut symptoms = row.symptoms();
    let closed = [Symptom::Closed, Symptom::BrokenPipe, Symptom::Reset];
    let seen = closed.into_iter().find_map(|symptom| symptoms.remove(&symptom))?;
    Some(
        Finding::about(row, "IDLE_TIMEOUT_CLOSE", Severity::Error)
            .with("failed", seen.count)
            .explains(seen.count)
            .with("client_says", seen.text)
            .with("timeout_s", timeout)
            .says(format!(
                "the server closes clients that are idle for {timeout} s, and this one found its connection closed"
            ))
            .try_next("CONFIG SET timeout 0; and a client that connects again by itself")
            .clears(row.cleared(&["idle_timeout"])),
    )
}
