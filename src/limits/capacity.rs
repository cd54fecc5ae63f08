//! What this machine and server can carry without a plan: the largest load of each kind that no limit
//! turns down, and which limit comes first.

use super::{LIMITS, Limit, Load};
use crate::proc::{Root, sysctl};
use crate::record::Verdict;

/// The largest load of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// What is counted, as a word for names (`connections`).
    pub id: &'static str,
    /// What is counted, in words.
    pub what: &'static str,
    /// How many; `None` when no known limit comes before four thousand million.
    pub most: Option<u64>,
    /// The limits that turn down one more.
    pub first: Vec<&'static str>,
}

/// From a number to the load of that size.
type LoadOf<'a> = Box<dyn Fn(u64) -> Load + 'a>;

/// Where the search ends: more than any machine carries.
const CEILING: u64 = 1 << 32;

/// The capacities for loads like `base` (its transport, address, server and clients), of what can be
/// read; limits that are unknown turn nothing down.
pub fn capacities(root: &Root, base: &Load) -> Vec<Capacity> {
    let root = root.at_one_moment();
    // A process takes as many connections as its descriptors allow, then the next one is needed.
    let per_process = largest(&root, &["client_nofile"], |n| Load {
        connections_per_process: n,
        ..kept(base)
    })
    .0
    .unwrap_or(CEILING);
    let kinds: [(&str, &str, LoadOf<'_>); 4] = [
        (
            "processes",
            "client processes with a kept connection each",
            Box::new(|n| Load {
                processes: n,
                ..kept(base)
            }),
        ),
        (
            "connections",
            "kept connections, as many in a process as it can have",
            Box::new(|n: u64| {
                let processes = n.div_ceil(per_process.max(1)).max(1);
                Load {
                    processes,
                    connections_per_process: n / processes,
                    ..kept(base)
                }
            }),
        ),
        (
            "connecting",
            "clients that connect for each operation",
            Box::new(|n| Load {
                processes: n,
                connects_per_second: Some(0),
                ..per_op(base)
            }),
        ),
        (
            "connects_per_second",
            "connections made and closed a second",
            Box::new(|n| Load {
                connects_per_second: Some(n),
                ..per_op(base)
            }),
        ),
    ];
    let all: Vec<&str> = LIMITS.iter().map(|limit| limit.id()).collect();
    kinds
        .into_iter()
        .map(|(id, what, load)| {
            let (most, first) = largest(&root, &all, &load);
            // Connections come in equal shares, so the last number may have rounded down.
            let most = most.map(|n| if id == "connections" { load(n).open() } else { n });
            Capacity {
                id,
                what,
                most,
                first,
            }
        })
        .collect()
}

/// What connection tracking would carry if a rule of the packet filter used it: connections held at once,
/// and made a second. `None` where it is not loaded.
pub fn followed(root: &Root, base: &Load) -> Option<(u64, u64)> {
    let read = |name: &str| sysctl::integer(root, &format!("net.netfilter.{name}")).ok();
    let (count, max) = (read("nf_conntrack_count")?, read("nf_conntrack_max")?);
    let hold = read("nf_conntrack_tcp_timeout_time_wait")?;
    let free = max.saturating_sub(count);
    base.tcp.then_some((free, free / hold.max(1)))
}

/// The connections a second that can last over an address that is not loopback, where TIME_WAIT is not cut
/// short by default; `None` when that is no other number.
pub fn beyond_loopback(root: &Root, base: &Load) -> Option<u64> {
    if !(base.tcp && base.loopback) {
        return None;
    }
    let (most, _) = largest(&root.at_one_moment(), &["ephemeral_ports"], |n| Load {
        connects_per_second: Some(n),
        loopback: false,
        ..per_op(base)
    });
    let (here, _) = largest(&root.at_one_moment(), &["ephemeral_ports"], |n| Load {
        connects_per_second: Some(n),
        ..per_op(base)
    });
    most.filter(|_| most != here)
}

fn kept(base: &Load) -> Load {
    Load {
        processes: 1,
        connections_per_process: 1,
        connect_per_op: false,
        connects_per_second: None,
        ..base.clone()
    }
}

fn per_op(base: &Load) -> Load {
    Load {
        connect_per_op: true,
        ..kept(base)
    }
}

/// The largest number whose load none of the limits turns down, and who turns down the next; by doubling
/// and halving, since demand only grows with the number.
fn largest(root: &Root, ids: &[&str], load: impl Fn(u64) -> Load) -> (Option<u64>, Vec<&'static str>) {
    let limits: Vec<&dyn Limit> = LIMITS
        .iter()
        .copied()
        .filter(|limit| ids.contains(&limit.id()))
        // Demand only grows, so what the largest load does not turn down turns down none.
        .filter(|limit| limit.check(root, &load(CEILING)).verdict == Verdict::Fail)
        .collect();
    let against = |n: u64| -> Vec<&'static str> {
        let load = load(n);
        let turns_down = |limit: &&&dyn Limit| limit.check(root, &load).verdict == Verdict::Fail;
        limits.iter().filter(turns_down).map(|limit| limit.id()).collect()
    };
    let mut high = 1;
    while against(high).is_empty() {
        if high >= CEILING {
            return (None, Vec::new());
        }
        high *= 2;
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if against(middle).is_empty() {
            low = middle;
        } else {
            high = middle;
        }
    }
    (Some(low), against(high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ServerFacts;
    use crate::proc::sockdiag::{Address, Listener};
    use crate::proc::testing::Tree;
    use crate::strategy::contract::Endpoint;

    fn base() -> Load {
        let endpoint = Endpoint::Tcp {
            host: "127.0.0.1".into(),
            port: 6379,
            user: None,
            password: None,
        };
        Load {
            server: ServerFacts {
                maxclients: Some(10_000),
                connected_clients: Some(1),
                listeners: Some(vec![Listener {
                    address: Address::Tcp("127.0.0.1:6379".parse().unwrap()),
                    queued: 0,
                    backlog: 511,
                    drops: None,
                    inode: 1,
                }]),
                ..ServerFacts::default()
            },
            ..Load::to(&endpoint)
        }
    }

    #[test]
    fn each_kind_has_its_first_limit() {
        let tree = Tree::defaults();
        let found = capacities(&tree.root(), &base());
        let get = |id| found.iter().find(|capacity| capacity.id == id).unwrap();
        assert_eq!(
            (get("processes").most, get("processes").first.as_slice()),
            (Some(512), &["accept_backlog"][..])
        );
        assert_eq!(
            (get("connections").most, get("connections").first.as_slice()),
            (Some(9990), &["maxclients"][..])
        );
        assert_eq!(get("connecting").most, Some(512));
        assert_eq!(
            (
                get("connects_per_second").most,
                get("connects_per_second").first.as_slice()
            ),
            (Some(28_231), &["ephemeral_ports"][..])
        );
    }

    #[test]
    fn loopback_and_connection_tracking_are_told_apart() {
        let tree = Tree::defaults().tracking_connections(144);
        assert_eq!(beyond_loopback(&tree.root(), &base()), Some(470));
        assert_eq!(followed(&tree.root(), &base()), Some((262_000, 2183)));
        assert_eq!(followed(&Tree::defaults().root(), &base()), None);
        let unix = Load { tcp: false, ..base() };
        assert_eq!(beyond_loopback(&tree.root(), &unix), None);
    }

    #[test]
    fn what_nothing_bounds_has_no_number() {
        let found = capacities(&Tree::new().root(), &Load::default());
        assert!(
            found
                .iter()
                .all(|capacity| capacity.most.is_none() && capacity.first.is_empty())
        );
    }
}
