//! CONNTRACK_FULL: the packet filter's table of connections was full, so connection requests vanished.

use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::Row;
use crate::record::Record;

pub(super) struct ConntrackFull;

const DOCS: &[Doc] = &[Doc {
    code: "CONNTRACK_FULL",
    means: "The table of followed connections (nf_conntrack_max) was full, so new connection requests were dropped in the client; they look like those of a full accept queue.",
    measured: "Connects that stalled or timed out while ListenOverflows did not grow, and nf_conntrack's drop grew or its count was at 95 % of its maximum.",
    wrong_when: "The table was filled by others and the stalls have another cause.",
    todo: "Raise net.netfilter.nf_conntrack_max on the host, or take the server's port out of it with a notrack rule; or keep connections.",
}];

impl Rule for ConntrackFull {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        check(record).into_iter().collect()
    }
}

fn check(record: &Record) -> Option<Finding> {
    if kernel::grown(record, "TcpExt.ListenOverflows") > 0 {
        return None;
    }
    let rows: Vec<Row<'_>> = Row::run(record).filter(Row::stalled).collect();
    let first = rows.first()?;
    let drops = record.counters.grew("nf_conntrack.drop").unwrap_or(0);
    let count = kernel::reading(record, "nf_conntrack.count");
    let max = kernel::reading(record, "nf_conntrack.max");
    let full =
        matches!((count, max), (Some(count), Some(max)) if u128::from(count) * 100 >= u128::from(max) * 95);
    if drops == 0 && !full {
        return None;
    }
    let stalls = record.counters.grew("TcpExt.TCPSynRetrans");
    Some(
        Finding::about_all("CONNTRACK_FULL", Severity::Error)
            .with("dropped", drops)
            .explains(stalls.unwrap_or(drops))
            .with_known("conntrack_count", count)
            .with_known("conntrack_max", max)
            .with_known("syn_retransmits", stalls)
            .with("listen_overflows", 0)
            .says(format!(
                "the table of followed connections was full ({} of {}), so connection requests were dropped before they left",
                count.map_or_else(|| "count not read".to_owned(), |n| n.to_string()),
                max.map_or_else(|| "?".to_owned(), |n| n.to_string())
            ))
            .try_next("sysctl -w net.netfilter.nf_conntrack_max=N on the host; or a notrack rule for the server's port")
            .clears(first.cleared(&["conntrack"])),
    )
}
