//! TCP_ACCEPTQ_RST: the server's machine answers a full accept queue with a reset.

use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::Row;
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct TcpAcceptReset;

const DOCS: &[Doc] = &[Doc {
    code: "TCP_ACCEPTQ_RST",
    means: "A handshake was finished while the accept queue was full, and tcp_abort_on_overflow=1 reset it.",
    measured: "ECONNRESET soon after connecting, EmbryonicRsts and ListenOverflows grew, and tcp_abort_on_overflow is 1.",
    wrong_when: "Another client of the same network namespace was reset, and this one for a reason of its own.",
    todo: "Set net.ipv4.tcp_abort_on_overflow=0, which lets clients wait, and raise tcp-backlog and somaxconn to the number of clients less one.",
}];

impl Rule for TcpAcceptReset {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    if row.is_unix() == Some(true) {
        return None;
    }
    let record = row.record;
    let policy = kernel::reading(record, "net.ipv4.tcp_abort_on_overflow")?;
    let resets = kernel::grown(record, "TcpExt.EmbryonicRsts");
    let overflows = kernel::grown(record, "TcpExt.ListenOverflows");
    let seen = row.met(
        Symptom::Reset,
        &["recvfrom", "read", "recvmsg", "sendto", "write"],
    )?;
    if policy != 1 || resets == 0 || overflows == 0 {
        return None;
    }
    Some(
        Finding::about(row, "TCP_ACCEPTQ_RST", Severity::Error)
            .with("failed", seen.count)
            .explains(seen.count.min(resets))
            .with("client_says", seen.text)
            .with("embryonic_resets", resets)
            .with("listen_overflows", overflows)
            .with("tcp_abort_on_overflow", policy)
            .says(format!(
                "{resets} connections were reset at a full accept queue of {}, because tcp_abort_on_overflow is 1",
                row.endpoint()
            ))
            .try_next(
                "net.ipv4.tcp_abort_on_overflow=0 on the server's machine, and tcp-backlog and somaxconn of at least the \
                 number of clients less one",
            )
            .clears(row.cleared(&["accept_backlog", "somaxconn"])),
    )
}
