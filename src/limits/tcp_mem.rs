//! `tcp_mem`: memory of all TCP sockets of the machine, in pages. Idle connections take none; what counts
//! is data on its way.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::process::Who;
use crate::proc::{Root, net, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct TcpMem;

const PAGE_BYTES: u64 = 4096;

impl Limit for TcpMem {
    fn id(&self) -> &'static str {
        "tcp_mem"
    }

    fn title(&self) -> &'static str {
        "tcp_mem"
    }

    fn unit(&self) -> Unit {
        Unit::Pages
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "machine",
            "/proc/sys/net/ipv4/tcp_mem, mem in /proc/net/sockstat",
        );
        if !load.tcp {
            return reading.not_applicable("UNIX sockets do not count");
        }
        let (max, now) = match (
            sysctl::integers(root, "net.ipv4.tcp_mem", 3),
            net::sockstat(root, Who::Me).map(|stat| stat.get("sockstat.TCP.mem").copied()),
        ) {
            (Ok(three), Ok(Some(now))) => (three[2], now),
            (Ok(_), Ok(None)) => return reading.unknown("sockstat has no memory of TCP"),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        // A page at each end at least, as soon as anything is on its way.
        let bytes = load.pipeline.saturating_mul(load.payload_bytes);
        let pages = (bytes / PAGE_BYTES)
            .saturating_add(1)
            .saturating_mul(2)
            .saturating_mul(load.open());
        let demand = now.saturating_add(pages);
        reading
            .demand(
                demand,
                format!("{now} pages now + {pages} with every connection busy"),
            )
            .capacity(max)
            .fix(
                format!(
                    "sysctl -w net.ipv4.tcp_mem=\"{demand} {demand} {}\"",
                    demand.saturating_mul(2)
                ),
                format!(
                    "net.ipv4.tcp_mem = {demand} {demand} {} in /etc/sysctl.d/90-tcp-mem.conf",
                    demand.saturating_mul(2)
                ),
                "not namespaced: set it on the host",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "stalls and ENOBUFS when every connection is busy (TCPMemoryPressures grows)".to_owned()
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{demand} of {max} pages")
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn pages_not_bytes() {
        let tree = Tree::new()
            .with("proc/sys/net/ipv4/tcp_mem", "100\t200\t1000\n")
            .with(
                "proc/self/net/sockstat",
                "TCP: inuse 3 orphan 0 tw 0 alloc 3 mem 10\n",
            );
        let check = |n| {
            TcpMem.check(
                &tree.root(),
                &Load {
                    processes: n,
                    ..Load::default()
                },
            )
        };
        assert_eq!(check(100).demand.known(), Some(&210));
        assert_eq!(check(496).verdict, Verdict::Fail);
    }
}
