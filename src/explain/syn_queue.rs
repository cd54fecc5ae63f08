//! SYNQ_FULL, SYN_BACKLOG_SYSCTL, SYNCOOKIES: the queue of half-open connections was full.

use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::Row;
use crate::record::Record;

pub(super) struct SynQueue;

const DOCS: &[Doc] = &[
    Doc {
        code: "SYNQ_FULL",
        means: "The queue of half-open connections was full and syncookies are off, so connection requests were dropped.",
        measured: "TcpExt.TCPReqQFullDrop grew over the run.",
        wrong_when: "Another listener of the same network namespace was meant (a port scan, an attack).",
        todo: "Set net.ipv4.tcp_syncookies=1; raise the listener's backlog, which bounds this queue as well.",
    },
    Doc {
        code: "SYN_BACKLOG_SYSCTL",
        means: "Connection requests were dropped at three quarters of tcp_max_syn_backlog, which counts only while syncookies are off.",
        measured: "ListenDrops grew by more than ListenOverflows and TCPReqQFullDrop together, with tcp_syncookies=0.",
        wrong_when: "Memory for new sockets was short, which is counted as ListenDrops too.",
        todo: "Set net.ipv4.tcp_syncookies=1; then tcp_max_syn_backlog no longer matters.",
    },
    Doc {
        code: "SYNCOOKIES",
        means: "The queue of half-open connections was full and cookies were sent instead; nothing was lost.",
        measured: "TcpExt.TCPReqQFullDoCookies grew, and no drop did.",
        wrong_when: "Another listener of the same network namespace was meant.",
        todo: "Nothing need be done; a larger backlog keeps TCP options that cookies cannot carry.",
    },
];

impl Rule for SynQueue {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        check(record)
    }
}

fn check(record: &Record) -> Vec<Finding> {
    let grew = |name| kernel::grown(record, name);
    let (drops, overflows) = (grew("TcpExt.ListenDrops"), grew("TcpExt.ListenOverflows"));
    let full = grew("TcpExt.TCPReqQFullDrop");
    let cookies = grew("TcpExt.TCPReqQFullDoCookies");
    let cookies_on = kernel::reading(record, "net.ipv4.tcp_syncookies");
    let max_syn_backlog = kernel::reading(record, "net.ipv4.tcp_max_syn_backlog");
    let backlog = kernel::reading(record, "listener.tcp.backlog");
    let over_tcp = Row::run(record).any(|row| row.is_unix() == Some(false));
    let mut found = Vec::new();
    if !over_tcp {
        return found;
    }
    if full > 0 {
        found.push(
            Finding::about_all("SYNQ_FULL", Severity::Error)
                .with("dropped", full)
                .explains(full)
                .with_known("tcp_syncookies", cookies_on)
                .with_known("backlog", backlog)
                .says(format!(
                    "{full} connection requests were dropped at a full queue of half-open connections, with syncookies off"
                ))
                .try_next("net.ipv4.tcp_syncookies=1, and a larger tcp-backlog and somaxconn"),
        );
    }
    // What is left is dropped by tcp_max_syn_backlog, and by that only without cookies.
    let left = drops.saturating_sub(overflows).saturating_sub(full);
    if left > 0 && cookies_on == Some(0) {
        found.push(
            Finding::about_all("SYN_BACKLOG_SYSCTL", Severity::Error)
                .with("dropped", left)
                .explains(left)
                .with("listen_drops", drops)
                .with("listen_overflows", overflows)
                .with("tcp_syncookies", 0)
                .with_known("tcp_max_syn_backlog", max_syn_backlog)
                .says(format!(
                    "{left} connection requests were dropped because of tcp_max_syn_backlog, which counts while syncookies \
                     are off"
                ))
                .try_next("net.ipv4.tcp_syncookies=1; or a larger net.ipv4.tcp_max_syn_backlog"),
        );
    }
    if cookies > 0 && drops == 0 && full == 0 {
        found.push(
            Finding::about_all("SYNCOOKIES", Severity::Info)
                .with("cookies", cookies)
                .with_known("backlog", backlog)
                .says(format!(
                    "{cookies} connections were made by syncookies, since the queue of half-open ones was full; none was lost"
                ))
                .try_next("a larger tcp-backlog and somaxconn, if window scaling and timestamps shall not be lost"),
        );
    }
    found
}
