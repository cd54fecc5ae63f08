//! OUTPUT_BUFFER_CLOSE: the server closed a client that did not read its replies.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct OutputBufferClose;

const DOCS: &[Doc] = &[Doc {
    code: "OUTPUT_BUFFER_CLOSE",
    means: "The client sent commands and did not read the replies, until they came to more than client-output-buffer-limit, and the server closed the connection.",
    measured: "The connection was closed, and client_output_buffer_limit_disconnections grew (Redis 7.2) or the server's output says so.",
    wrong_when: "Another client of the same server was closed for it.",
    todo: "Read replies while sending, in smaller batches; or raise client-output-buffer-limit normal.",
}];

impl Rule for OutputBufferClose {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let mut symptoms = row.symptoms();
    let closed = [Symptom::Closed, Symptom::Reset, Symptom::BrokenPipe];
    let seen = closed.into_iter().find_map(|symptom| symptoms.remove(&symptom))?;
    let counted = row
        .record
        .counters
        .grew("redis.client_output_buffer_limit_disconnections")
        .unwrap_or(0);
    let said = row.yes(Fact::OutputBufferLog) == Some(true);
    if counted == 0 && !said {
        return None;
    }
    let limit = row
        .record
        .server
        .as_ref()
        .and_then(|server| server.settings.get("client-output-buffer-limit"));
    Some(
        Finding::about(row, "OUTPUT_BUFFER_CLOSE", Severity::Error)
            .with("failed", seen.count)
            .explains(seen.count)
            .with("client_says", seen.text)
            .with("closed_by_limit", counted)
            .with("server_log_says_so", said)
            .with_known("client_output_buffer_limit", limit.map(String::as_str))
            .says("the server closed a client whose unread replies came to more than client-output-buffer-limit")
            .try_next("read replies while sending (smaller batches); or CONFIG SET client-output-buffer-limit \"normal 0 0 0\"")
            .clears(row.cleared(&["output_buffer"])),
    )
}
