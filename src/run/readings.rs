//! The counters around a run: the machine's, the server's process's and listeners', the server's own.

use std::collections::BTreeMap;

use crate::limits::Load;
use crate::proc::cgroup::CpuQuota;
use crate::proc::process::{Resource, Who, open_files, rlimit, same_netns};
use crate::proc::{self, Root, cgroup, net, sockdiag};
use crate::strategy::contract::{Endpoint, Transport};

/// Counters of the server's network namespace that rules use, when it is not the client's.
const OF_THE_SERVER: &[&str] = &[
    "TcpExt.ListenOverflows",
    "TcpExt.ListenDrops",
    "TcpExt.TCPReqQFullDrop",
    "TcpExt.TCPReqQFullDoCookies",
    "TcpExt.EmbryonicRsts",
    "TcpExt.SyncookiesSent",
];

/// Reads them, beside those of [`proc::counters`]:
///
/// * `listener.tcp.backlog`, `listener.tcp.drops`, `listener.unix.backlog`: the very listeners of these
///   addresses;
/// * `server.cpu.stat.*`, `server.memory.events.oom_kill`, `server.pids.events.max` of its control groups;
/// * `server.cpu.quota_us`, `server.cpu.period_us` of the tightest of them, readings;
/// * `server.fds_open`, `server.nofile`: readings;
/// * `server.TcpExt.*` when it is in another network namespace, whose counters the client's are not.
///
/// What cannot be read is left out.
pub(super) fn counters(root: &Root, server: Option<i32>, endpoints: &[Endpoint]) -> BTreeMap<String, u64> {
    let mut out = proc::counters(root, None);
    let mut here = true;
    if let Some(pid) = server {
        let who = Who::Pid(pid);
        let mut put = |name: &str, value: u64| out.insert(format!("server.{name}"), value);
        for (name, value) in cgroup::counters(root, who) {
            put(&name, value);
        }
        let quotas = cgroup::cpu_quotas(root, who).unwrap_or_default();
        // The tightest one on the way up binds.
        if let Some(tightest) = quotas.iter().min_by(|a, b| {
            let share = |quota: &CpuQuota| u128::from(quota.quota);
            (share(a) * u128::from(b.period)).cmp(&(share(b) * u128::from(a.period)))
        }) {
            put("cpu.quota_us", tightest.quota);
            put("cpu.period_us", tightest.period);
        }
        if let Ok(open) = open_files(root, who) {
            put("fds_open", open);
        }
        if let Ok(limit) = rlimit(root, who, Resource::OpenFiles)
            && let Some(soft) = limit.soft
        {
            put("nofile", soft);
        }
        here = same_netns(root, pid).unwrap_or(true);
        if !here && let Ok(table) = net::table(root, &who.file("net/netstat")) {
            for name in OF_THE_SERVER {
                if let Some(value) = table.get(*name) {
                    put(name, *value);
                }
            }
        }
    }
    if here && let Ok(listeners) = sockdiag::listeners(root) {
        for endpoint in endpoints {
            let load = Load::to(endpoint);
            let Some(listener) = load.listener(&listeners).filter(|_| load.same_host) else {
                continue;
            };
            let name = match endpoint.transport() {
                Transport::Tcp => "tcp",
                Transport::Unix => "unix",
                Transport::Local => continue,
            };
            out.insert(format!("listener.{name}.backlog"), listener.backlog.into());
            if let Some(drops) = listener.drops {
                out.insert(format!("listener.{name}.drops"), drops.into());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_and_the_process_are_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port: listener.local_addr().unwrap().port(),
            user: None,
            password: None,
        };
        let me = std::process::id().cast_signed();
        let counters = counters(&Root::live(), Some(me), &[endpoint]);
        for name in ["TcpExt.ListenOverflows", "server.fds_open"] {
            assert!(counters.contains_key(name), "{name}: {counters:?}");
        }
        if sockdiag::tcp_listeners().is_err() {
            return println!("SKIP: the kernel does not answer socket queries here");
        }
        assert_eq!(counters.get("listener.tcp.drops"), Some(&0));
    }
}
