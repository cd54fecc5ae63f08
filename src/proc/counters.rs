//! All kernel counters that a rule may want, under dotted names, for before and after a run.

use std::collections::BTreeMap;

use super::process::Who;
use super::{Root, cgroup, net, sysctl};

/// Reads the counters as process `pid` sees them (the server, so that its network namespace and its
/// groups are meant), or as this process does:
///
/// * `TcpExt.*`, `IpExt.*` from `netstat`, `Tcp.*` and the other groups of `snmp`;
/// * `sockstat.TCP.tw`, `sockstat.TCP.inuse` …: readings, not counters;
/// * `fs.file-nr`: open files of the machine, a reading;
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
        assert_eq!(counters.len(), 1);
        assert_eq!(counters["fs.file-nr"], 1500);
    }
}
