//! `tcp_max_orphans`: sockets that a program closed while data was still to be sent. A client that has its
//! replies leaves hardly any.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::process::Who;
use crate::proc::{Root, net, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct Orphans;

impl Limit for Orphans {
    fn id(&self) -> &'static str {
        "orphans"
    }

    fn title(&self) -> &'static str {
        "tcp_max_orphans"
    }

    fn unit(&self) -> Unit {
        Unit::Of("closing sockets")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "machine",
            "/proc/sys/net/ipv4/tcp_max_orphans, orphan in /proc/net/sockstat",
        );
        if !load.tcp {
            return reading.not_applicable("UNIX sockets are never orphans");
        }
        let (max, now) = match (
            sysctl::integer(root, "net.ipv4.tcp_max_orphans"),
            net::sockstat(root, Who::Me).map(|stat| stat.get("sockstat.TCP.orphan").copied()),
        ) {
            (Ok(max), Ok(Some(now))) => (max, now),
            (Ok(_), Ok(None)) => return reading.unknown("sockstat has no count of orphans"),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        // At the worst every client closes at once with something unsent.
        let closing = if load.connect_per_op {
            load.processes
        } else {
            load.open()
        };
        let demand = now.saturating_add(closing);
        reading
            .demand(
                demand,
                format!("{now} now + {closing} that close at once at most"),
            )
            .capacity(max)
            .fix(
                format!("sysctl -w net.ipv4.tcp_max_orphans={}", demand.saturating_mul(2)),
                format!(
                    "net.ipv4.tcp_max_orphans = {} in /etc/sysctl.d/90-orphans.conf",
                    demand.saturating_mul(2)
                ),
                "not namespaced: set it on the host",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "closing sockets are reset when data is still unsent (TCPAbortOnMemory)".to_owned()
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{demand} of {max}, and only while unsent data is left")
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn orphans_now_and_clients_that_close() {
        let tree = Tree::new()
            .with("proc/sys/net/ipv4/tcp_max_orphans", "1000\n")
            .with(
                "proc/self/net/sockstat",
                "TCP: inuse 3 orphan 200 tw 0 alloc 3 mem 1\n",
            );
        let verdict = |n| {
            Orphans
                .check(
                    &tree.root(),
                    &Load {
                        processes: n,
                        ..Load::default()
                    },
                )
                .verdict
        };
        assert_eq!(verdict(100), Verdict::Ok);
        assert_eq!(verdict(801), Verdict::Fail);
    }
}
