//! TCP_ACCEPTQ_SYNDROP: connection requests were dropped at a full accept queue, and clients stalled for
//! whole seconds without any error.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use crate::record::Record;

pub(super) struct TcpAcceptQueue;

const DOCS: &[Doc] = &[Doc {
    code: "TCP_ACCEPTQ_SYNDROP",
    means: "A listener's accept queue was full, so the kernel dropped connection requests; each is tried again after \
            a second, which shows as a stall and not as an error.",
    measured: "TcpExt.ListenOverflows and ListenDrops grew over the run, and with them TCPSynRetrans.",
    wrong_when: "Another listener of the same network namespace overflowed: the counters are those of the namespace.",
    todo: "Raise tcp-backlog and somaxconn to the number of clients less one and listen again (CONFIG SET bind, or a \
           restart); or keep connections.",
}];

impl Rule for TcpAcceptQueue {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        check(record).into_iter().collect()
    }
}

fn check(record: &Record) -> Option<Finding> {
    let grew = |name| record.counters.grew(name);
    let overflows = grew("TcpExt.ListenOverflows").filter(|n| *n > 0)?;
    let rows: Vec<Row<'_>> = Row::run(record)
        .filter(|row| row.is_unix() == Some(false))
        .collect();
    let backlog = rows.iter().find_map(|row| row.number(Fact::Backlog));
    let clients = rows.iter().map(|row| u64::from(row.result.axes.clients)).max();
    let retries = grew("TcpExt.TCPSynRetrans");
    let wanted = clients.unwrap_or(1).max(2) - 1;
    Some(
        Finding::about_all("TCP_ACCEPTQ_SYNDROP", Severity::Warning)
            .with("listen_overflows", overflows)
            .with_known("listen_drops", grew("TcpExt.ListenDrops"))
            .with_known("syn_retransmits", retries)
            .with_known("backlog", backlog)
            .with_known("clients", clients)
            .says(format!(
                "{overflows} connection requests were dropped at a full accept queue; each client then waited a second or \
                 more to try again, and no error tells of it"
            ))
            .try_next(format!(
                "tcp-backlog and somaxconn of at least {wanted}, then listen again (CONFIG SET bind to the same addresses, or a \
                 restart); or keep connections"
            ))
            .clears(rows.first().map(|row| row.cleared(&["accept_backlog", "somaxconn"])).unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, row};

    #[test]
    fn only_the_difference_counts() {
        let mut record = empty();
        record.strategies.push(row("phpredis/connect/tcp"));
        let mut count = |before, after| {
            for name in [
                "TcpExt.ListenOverflows",
                "TcpExt.ListenDrops",
                "TcpExt.TCPSynRetrans",
            ] {
                record.counters.before.insert(name.into(), before);
                record.counters.after.insert(name.into(), after);
            }
            codes(&record)
        };
        assert_eq!(count(7, 7), [] as [&str; 0]);
        assert_eq!(count(7, 23_662), ["TCP_ACCEPTQ_SYNDROP"]);
    }
}
