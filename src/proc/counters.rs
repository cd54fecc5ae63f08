//! All kernel counters that a rule may want, under dotted names, for before and after a run.

use std::collections::BTreeMap;

use super::process::Who;
use super::{Root, cgroup, net, sysctl};

/// Settings that decide what a counter means.
pub const SETTINGS: &[&str] = &[
    "net.core.somaxconn",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_max_syn_backlog",
];

/// Reads the counters as process `pid` sees them (the server, so that its network namespace and its
/// groups are meant), or as this process does:
///
/// * `TcpExt.*`, `IpExt.*` from `netstat`, `Tcp.*` and the other groups of `snmp`;
/// * `sockstat.TCP.tw`, `sockstat.TCP.inuse` …: readings, not counters;
/// * `fs.file-nr`, `fs.file-max`: open files of the machine and their limit, readings;
/// * `net.core.somaxconn` and the other settings of [`SETTINGS`], readings of this process's namespace;
/// * `nf_conntrack.count`, `nf_conntrack.max`: readings; `nf_conntrack.drop`; `softnet.dropped`;
/// * `vmstat.oom_kill`: processes killed for memory on the whole machine;
/// * `pids.events.max`, `cpu.stat.nr_throttled`, `cpu.stat.throttled_usec`, `memory.events.oom_kill`.
///
/// What cannot be read is left out, so that a missing name means "not measured".
pub fn counters(root: &Root, pid: Option<i32>) -> BTreeMap<String, u64> {
    let who = pid.map_or(Who::Me, Who::Pid);
    let mut out = cgroup::counters(root, who);
    for name in ["net/netstat", "net/snmp"] {
        out.extend(net::table(root, &who.file(name)).unwrap_or_default());
    }
    out.extend(net::sockstat(root, who).unwrap_or_default());
    if let Ok(file_nr) = sysctl::integers(root, "fs.file-nr", 3) {
        out.insert("fs.file-nr".to_owned(), file_nr[0]);
        out.insert("fs.file-max".to_owned(), file_nr[2]);
    }
    for name in SETTINGS {
        if let Ok(value) = sysctl::integer(root, name) {
            out.insert((*name).to_owned(), value);
        }
    }
    for (name, setting) in [("count", "nf_conntrack_count"), ("max", "nf_conntrack_max")] {
        if let Ok(value) = sysctl::integer(root, &format!("net.netfilter.{setting}")) {
            out.insert(format!("nf_conntrack.{name}"), value);
        }
    }
    if let Ok(text) = root.read("proc/vmstat") {
        let kills = text
            .lines()
            .find_map(|line| sysctl::whole(line.strip_prefix("oom_kill ")?.trim()));
        out.extend(kills.map(|kills| ("vmstat.oom_kill".to_owned(), kills)));
    }
    if let Ok(drops) = net::conntrack_drops(root) {
        out.insert("nf_conntrack.drop".to_owned(), drops);
    }
    if let Ok(dropped) = net::softnet_dropped(root) {
        out.insert("softnet.dropped".to_owned(), dropped);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;

    #[test]
    fn the_live_counters_are_there() {
        let counters = counters(&Root::live(), None);
        for name in [
            "TcpExt.ListenOverflows",
            "Tcp.ActiveOpens",
            "sockstat.TCP.tw",
            "fs.file-nr",
        ] {
            assert!(counters.contains_key(name), "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_left_out() {
        let tree = Tree::defaults().with("proc/9/net/netstat", "TcpExt: A B\nTcpExt: 1\n");
        let counters = counters(&tree.root(), Some(9));
        assert_eq!(counters["fs.file-nr"], 1500);
        assert_eq!(counters["net.core.somaxconn"], 4096);
        assert_eq!(counters.len(), 3, "{counters:?}");
    }
}
