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
mod unit;
mod witness;

use crate::proc::Root;
use crate::record::{LimitReading, Verdict};

pub use capacity::{Capacity, beyond_loopback, capacities, followed};
pub use facts::{REDIS_RESERVED_FDS, ServerFacts, ServerKind};
pub use load::{Load, is_loopback};
pub use reading::worst;
pub use unit::Unit;
pub use witness::Witness;

/// One limit.
pub trait Limit: Sync {
    /// Stable name.
    fn id(&self) -> &'static str;
    /// The name people know it by (`ulimit -n`), for the line under a table.
    fn title(&self) -> &'static str;
    /// What demand and capacity count.
    fn unit(&self) -> Unit;
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
    gravest(root, loads, |_, _| true)
}

/// Of each limit the gravest reading over the loads that it bears on.
fn gravest(root: &Root, loads: &[Load], bears: impl Fn(&dyn Limit, &Load) -> bool) -> Vec<LimitReading> {
    let root = root.at_one_moment();
    let gravest = |limit: &&dyn Limit| {
        let readings = loads
            .iter()
            .filter(|load| bears(*limit, load))
            .map(|load| limit.check(&root, load));
        readings.max_by_key(|reading| (reading.verdict, reading.demand.known().copied()))
    };
    LIMITS.iter().filter_map(gravest).collect()
}

/// The limits that a bench tells of: the usual suspects, and whatever else does not fit. Clients that keep
/// their data themselves meet the limits of their own process alone.
pub fn check_bench(root: &Root, loads: &[Load]) -> Vec<LimitReading> {
    gravest(root, loads, |limit, load| {
        load.endpoint.is_some() || !limit.needs_server()
    })
    .into_iter()
    .map(|reading| (limit(&reading.id).is_some_and(|limit| limit.headline()), reading))
    .filter(|(headline, reading)| *headline || matches!(reading.verdict, Verdict::Fail | Verdict::Warn))
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

    /// What a formula comes to: sums of products, of which each factor is the first number in it.
    fn worked_out(formula: &str) -> u64 {
        let number = |text: &str| -> u64 {
            let digits: String = text
                .chars()
                .skip_while(|c| !c.is_ascii_digit())
                .take_while(char::is_ascii_digit)
                .collect();
            let scale = if text.contains("MiB") { 1 << 20 } else { 1 };
            digits.parse::<u64>().unwrap() * scale
        };
        let product = |term: &str| term.split(" x ").map(number).product::<u64>();
        let (plus, minus) = formula.split_once(" - ").unwrap_or((formula, ""));
        let sum: u64 = plus.split(" + ").map(product).sum();
        sum - if minus.is_empty() { 0 } else { product(minus) }
    }

    #[test]
    fn every_formula_comes_to_its_demand() {
        let tree = Tree::defaults()
            .tracking_connections(144)
            .with("proc/sys/net/ipv4/tcp_tw_reuse", "0\n");
        let server = ServerFacts {
            maxclients: Some(10_000),
            connected_clients: Some(3),
            tcp_backlog: Some(511),
            maxmemory: Some(1 << 30),
            evicts: Some(false),
            used_memory: Some(900_000),
            output_buffer_limit: Some(1 << 20),
            ..ServerFacts::default()
        };
        let base = Load {
            processes: 2000,
            pipeline: 3,
            payload_bytes: 50,
            server,
            ..Load::default()
        };
        let loads = [
            base.clone(),
            Load {
                connections_per_process: 4,
                attempts_per_op: 3,
                ..base.clone()
            },
            Load {
                connect_per_op: true,
                connects_per_second: Some(40),
                ..base.clone()
            },
            Load {
                connect_per_op: true,
                connects_in_all: Some(20_000),
                ..base.clone()
            },
        ];
        let mut seen = BTreeSet::new();
        for load in &loads {
            for reading in check_all(&tree.root(), load) {
                let Some(demand) = reading.demand.known() else {
                    continue;
                };
                if reading.formula.contains("those") {
                    continue;
                }
                assert_eq!(
                    worked_out(&reading.formula),
                    *demand,
                    "{}: {}",
                    reading.id,
                    reading.formula
                );
                seen.insert(reading.id);
            }
        }
        for id in [
            "maxclients",
            "file_max",
            "conntrack",
            "ephemeral_ports",
            "accept_backlog",
            "maxmemory",
        ] {
            assert!(seen.contains(id), "{id} of {seen:?}");
        }
    }
}
