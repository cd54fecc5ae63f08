//! Limits of the machine and the server: what a planned load demands of each, and what there is.
//!
//! One file per limit, listed in [`LIMITS`]. A limit is read from a [`crate::proc::Root`], which can be
//! the live system or a recorded tree, so everything here can be tested on recordings.

mod abort_on_overflow;
mod accept_backlog;
mod capacity;
mod client_nofile;
mod conntrack;
mod cpu_quota;
mod ephemeral_ports;
mod facts;
mod file_max;
mod fin_timeout;
mod fork_memory;
mod hugepages;
mod idle_timeout;
mod load;
mod maxclients;
mod maxmemory;
pub mod memcached;
mod memcached_conns;
mod netdev_backlog;
mod nproc;
mod nr_open;
mod orphans;
mod output_buffer;
mod overcommit;
mod pid_max;
mod pids_max;
mod protected_mode;
mod reading;
mod server_memory_max;
mod server_nofile;
mod server_side;
mod socket_buffers;
mod socket_memory;
mod socket_permission;
mod somaxconn;
mod syn_backlog;
mod syn_retries;
mod tcp_backlog;
mod tcp_mem;
mod threads_max;
mod tw_buckets;
mod witness;

use crate::proc::Root;
use crate::record::{LimitReading, Verdict};

pub use capacity::{Capacity, beyond_loopback, capacities, followed};
pub use facts::{REDIS_RESERVED_FDS, ServerFacts, ServerKind};
pub use load::{Load, is_loopback};
pub use reading::worst;
pub use witness::Witness;

/// One limit.
pub trait Limit: Sync {
    /// Stable name.
    fn id(&self) -> &'static str;
    /// The name people know it by (`ulimit -n`), for the line under a table.
    fn title(&self) -> &'static str;
    /// What demand and capacity count, in the plural; empty where the title says it.
    fn unit(&self) -> &'static str {
        ""
    }
    /// Whether it is named under every table of a bench, fitting or not.
    fn headline(&self) -> bool {
        false
    }
    /// Whether it only bears on a load that goes to a server.
    fn needs_server(&self) -> bool {
        true
    }
    /// Reads it below `root` and sets it against the load.
    fn check(&self, root: &Root, load: &Load) -> LimitReading;
}

/// All limits, in the order in which they are listed.
pub const LIMITS: &[&dyn Limit] = &[
    &file_max::FileMax,
    &nr_open::NrOpen,
    &client_nofile::ClientNofile,
    &server_nofile::ServerNofile,
    &nproc::Nproc,
    &pid_max::PidMax,
    &threads_max::ThreadsMax,
    &pids_max::PidsMax,
    &fork_memory::ForkMemory,
    &accept_backlog::AcceptBacklog,
    &somaxconn::Somaxconn,
    &tcp_backlog::TcpBacklog,
    &syn_backlog::SynBacklog,
    &abort_on_overflow::AbortOnOverflow,
    &syn_retries::SynRetries,
    &ephemeral_ports::EphemeralPorts,
    &fin_timeout::FinTimeout,
    &tw_buckets::TwBuckets,
    &orphans::Orphans,
    &tcp_mem::TcpMem,
    &socket_buffers::SocketBuffers,
    &socket_memory::SocketMemory,
    &conntrack::Conntrack,
    &netdev_backlog::NetdevBacklog,
    &cpu_quota::CpuQuota,
    &server_memory_max::ServerMemoryMax,
    &maxclients::Maxclients,
    &idle_timeout::IdleTimeout,
    &output_buffer::OutputBuffer,
    &maxmemory::Maxmemory,
    &protected_mode::ProtectedMode,
    &socket_permission::SocketPermission,
    &overcommit::Overcommit,
    &hugepages::Hugepages,
    &memcached_conns::MemcachedConns,
];

/// Sets every limit against the load, in the order of [`LIMITS`].
pub fn check_all(root: &Root, load: &Load) -> Vec<LimitReading> {
    let root = root.at_one_moment();
    LIMITS.iter().map(|limit| limit.check(&root, load)).collect()
}

/// Sets every limit against several loads that come one after the other: of each limit the gravest reading.
pub fn check_each(root: &Root, loads: &[Load]) -> Vec<LimitReading> {
    let root = root.at_one_moment();
    let gravest = |limit: &&dyn Limit| {
        let readings = loads.iter().map(|load| limit.check(&root, load));
        readings.max_by_key(|reading| (reading.verdict, reading.demand.known().copied()))
    };
    LIMITS.iter().filter_map(gravest).collect()
}

/// The limits that a bench tells of: the usual suspects, and whatever else does not fit.
pub fn check_bench(root: &Root, loads: &[Load]) -> Vec<LimitReading> {
    let to_servers = loads.iter().any(|load| load.endpoint.is_some());
    check_each(root, loads)
        .into_iter()
        .filter_map(|reading| Some((limit(&reading.id)?, reading)))
        // Clients that keep their data themselves meet the limits of their own process alone.
        .filter(|(limit, _)| to_servers || !limit.needs_server())
        .filter(|(limit, reading)| {
            limit.headline() || matches!(reading.verdict, Verdict::Fail | Verdict::Warn)
        })
        .map(|(_, reading)| reading)
        .collect()
}

/// The limit with this id.
pub fn limit(id: &str) -> Option<&'static dyn Limit> {
    LIMITS.iter().copied().find(|limit| limit.id() == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn every_limit_has_a_name_of_its_own() {
        let ids: BTreeSet<_> = LIMITS.iter().map(|limit| limit.id()).collect();
        assert_eq!(ids.len(), LIMITS.len());
        assert!(LIMITS.iter().all(|limit| !limit.title().is_empty()));
    }

    #[test]
    fn a_reading_carries_the_name_of_its_limit() {
        let tree = Tree::defaults();
        for limit in LIMITS {
            assert_eq!(limit.check(&tree.root(), &Load::default()).id, limit.id());
        }
    }

    #[test]
    fn an_unreadable_machine_is_never_ok() {
        let load = Load {
            connect_per_op: true,
            connects_per_second: Some(100),
            tcp: true,
            ..Load::default()
        };
        for reading in check_all(&Tree::new().root(), &load) {
            assert!(
                matches!(reading.verdict, Verdict::Unknown | Verdict::NotApplicable),
                "{}: {:?}",
                reading.id,
                reading.verdict
            );
            assert!(!reading.effect.is_empty(), "{}", reading.id);
        }
    }

    #[test]
    fn hostile_content_is_never_ok() {
        let names = [
            "proc/sys/fs/file-max",
            "proc/sys/fs/file-nr",
            "proc/sys/net/core/somaxconn",
            "proc/sys/net/ipv4/ip_local_port_range",
            "proc/self/limits",
        ];
        for text in [
            "",
            "-1\n",
            "99999999999999999999999999\n",
            "\u{1b}[2J",
            "1 -2 3\n",
        ] {
            let mut tree = Tree::defaults();
            for name in names {
                tree = tree.with(name, text);
            }
            let load = Load {
                tcp: true,
                ..Load::default()
            };
            for reading in check_all(&tree.root(), &load) {
                assert_ne!(reading.verdict, Verdict::Ok, "{} of {text:?}", reading.id);
                assert!(!reading.effect.contains('\u{1b}'));
            }
        }
    }

    #[test]
    fn an_overflowing_plan_fails_and_does_not_wrap() {
        let load = Load {
            processes: u64::MAX,
            connections_per_process: u64::MAX,
            attempts_per_op: u64::MAX,
            connects_per_second: Some(u64::MAX),
            connect_per_op: true,
            tcp: true,
            ..Load::default()
        };
        let readings = check_all(&Tree::defaults().root(), &load);
        for id in ["file_max", "ephemeral_ports"] {
            let reading = readings.iter().find(|reading| reading.id == id).unwrap();
            assert_eq!(reading.verdict, Verdict::Fail, "{id}");
        }
    }
}
