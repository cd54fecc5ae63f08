//! PACKET_LOSS: connection requests were repeated, and neither the listener nor connection tracking
//! dropped them.

use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::Row;
use crate::record::Record;

pub(super) struct PacketLoss;

const DOCS: &[Doc] = &[Doc {
    code: "PACKET_LOSS",
    means: "Connection requests had to be repeated although no queue known here was full: packets were lost on the way.",
    measured: "Operations of a second or more, TCPSynRetrans grew, while ListenOverflows, the listener's drops and nf_conntrack's drop did not.",
    wrong_when: "The server is on another machine, whose queue cannot be seen from here, or its namespace's counters could not be read.",
    todo: "Look at the interface's and queueing discipline's drops (ip -s link, tc -s qdisc), and at the server's own ListenOverflows.",
}];

impl Rule for PacketLoss {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        check(record).into_iter().collect()
    }
}

fn check(record: &Record) -> Option<Finding> {
    let dropped_here = [
        "TcpExt.ListenOverflows",
        "TcpExt.ListenDrops",
        "listener.tcp.drops",
        "nf_conntrack.drop",
    ];
    if dropped_here.iter().any(|name| kernel::grown(record, name) > 0) {
        return None;
    }
    let retries = record.counters.grew("TcpExt.TCPSynRetrans").filter(|n| *n > 0)?;
    let rows: Vec<Row<'_>> = Row::run(record).filter(Row::stalled).collect();
    let first = rows.first()?;
    let softnet = record.counters.grew("softnet.dropped");
    let where_ = match softnet {
        Some(n) if n > 0 => format!("; {n} packets did not fit into a CPU's backlog (netdev_max_backlog)"),
        _ => String::new(),
    };
    Some(
        Finding::about_all("PACKET_LOSS", Severity::Warning)
            .with("syn_retransmits", retries)
            .explains(retries)
            .with_known("softnet_dropped", softnet)
            .with_known("slowest_ms", rows.iter().filter_map(Row::slowest).max().map(|ns| ns / 1_000_000))
            .says(format!(
                "{retries} connection requests had to be repeated, and no queue that can be seen from here dropped \
                 them{where_}"
            ))
            .try_next("ip -s link and tc -s qdisc on both machines; ListenOverflows on the server's")
            .clears(first.cleared(&["netdev_backlog"])),
    )
}
