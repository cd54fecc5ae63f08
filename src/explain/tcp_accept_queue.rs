//! TCP_ACCEPTQ_SYNDROP: connection requests were dropped at a full accept queue, and clients stalled for
//! whole seconds without any error.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::Row;
use super::symptom::Symptom;
use crate::record::{Record, sampled};

pub(super) struct TcpAcceptQueue;

const DOCS: &[Doc] = &[Doc {
    code: "TCP_ACCEPTQ_SYNDROP",
    means: "A listener's accept queue was full, so the kernel dropped connection requests; each is tried again after \
            a second, which shows as a stall and not as an error.",
    measured: "TcpExt.ListenOverflows and ListenDrops grew over the run, and the server's own listener counts drops; \
               with them grows TCPSynRetrans, one for each stall.",
    wrong_when: "The listener's own count could not be read and another listener of the same network namespace \
                 overflowed: ListenOverflows is that of the namespace.",
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
    let grew = |name| kernel::server_grew(record, name);
    let overflows = grew("TcpExt.ListenOverflows").filter(|n| *n > 0)?;
    // Another listener's queue may have been the full one.
    let drops = kernel::listener_drops(record);
    if drops == Some(0) {
        return None;
    }
    let rows: Vec<Row<'_>> = Row::run(record)
        .filter(|row| row.is_unix() == Some(false))
        .collect();
    let backlog = rows
        .iter()
        .find_map(|row| row.number(Fact::Backlog))
        .or_else(|| kernel::reading(record, "listener.tcp.backlog"));
    let clients = rows.iter().map(|row| u64::from(row.result.axes.clients)).max();
    let retries = record.counters.grew("TcpExt.TCPSynRetrans");
    let timed_out = rows
        .iter()
        .filter_map(|row| Some(row.symptoms().remove(&Symptom::TimedOut)?.count))
        .sum::<u64>();
    let wanted = clients.unwrap_or(1).max(2) - 1;
    let slowest = rows.iter().filter_map(Row::slowest).max();
    let peak = kernel::highest(record, sampled::TCP_QUEUED);
    Some(
        Finding::about_all("TCP_ACCEPTQ_SYNDROP", Severity::Warning)
            .with("listen_overflows", overflows)
            .explains(retries.unwrap_or(overflows).max(timed_out))
            .with_known("listen_drops", grew("TcpExt.ListenDrops"))
            .with_known("drops_of_this_listener", drops)
            .with_known("syn_retransmits", retries)
            .with_known("slowest_ms", slowest.map(|ns| ns / 1_000_000))
            .with_known("connect_timeouts", Some(timed_out).filter(|n| *n > 0))
            .with_known("longest_queue_seen", peak.map(|peak| peak.peak))
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
    use crate::explain::testing::{codes, empty, row, set_overflows};

    #[test]
    fn only_the_difference_counts() {
        let mut record = empty();
        record.strategies.push(row("phpredis/connect/tcp"));
        let mut count = |before, after| {
            set_overflows(&mut record, before, after);
            codes(&record)
        };
        assert_eq!(count(7, 7), [] as [&str; 0]);
        assert_eq!(count(7, 23_662), ["TCP_ACCEPTQ_SYNDROP"]);
    }

    #[test]
    fn another_listener_s_drops_are_not_ours() {
        let mut record = empty();
        record.strategies.push(row("phpredis/connect/tcp"));
        for (name, after) in [
            ("TcpExt.ListenOverflows", 9),
            ("TcpExt.ListenDrops", 9),
            ("listener.tcp.drops", 0),
        ] {
            record.counters.before.insert(name.into(), 0);
            record.counters.after.insert(name.into(), after);
        }
        assert_eq!(codes(&record), [] as [&str; 0]);
        record.counters.after.insert("listener.tcp.drops".into(), 9);
        assert_eq!(codes(&record), ["TCP_ACCEPTQ_SYNDROP"]);
    }
}
