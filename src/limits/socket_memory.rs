//! Kernel and server memory that connections take, by what one was measured to take.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, host};
use crate::record::{LimitReading, Verdict};

pub(super) struct SocketMemory;

/// Kernel memory of a connection with both ends on this machine, measured on Linux 6.18.
const TCP_PAIR_BYTES: u64 = 8700;
/// The same over a UNIX socket, the larger of what was measured.
const UNIX_PAIR_BYTES: u64 = 4800;
/// What Redis 7.0 keeps per client in its first seconds (`mem_clients_normal`).
pub(super) const REDIS_CLIENT_BYTES: u64 = 14_100;

impl Limit for SocketMemory {
    fn id(&self) -> &'static str {
        "socket_memory"
    }

    fn title(&self) -> &'static str {
        "memory for connections"
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "machine", "/proc/meminfo MemAvailable");
        let available = match host::meminfo(root, "MemAvailable") {
            Ok(available) => available,
            Err(e) => return reading.unknown(e.to_string()),
        };
        let each = kernel_bytes(load.tcp) + if load.same_host { REDIS_CLIENT_BYTES } else { 0 };
        let demand = load.open().saturating_mul(each);
        reading
            .demand(demand, format!("{} connections x {each} bytes", load.open()))
            .capacity(available)
            .fix("fewer connections", "more memory", "docker run --memory")
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "the machine runs out of memory: ENOBUFS, or the out-of-memory killer".to_owned()
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{} KiB of {} KiB available", demand >> 10, available >> 10)
                }
            })
    }
}

/// Kernel memory of one connection.
pub(super) fn kernel_bytes(tcp: bool) -> u64 {
    if tcp { TCP_PAIR_BYTES } else { UNIX_PAIR_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn a_million_connections_take_22_gigabytes() {
        let tree = Tree::new().with("proc/meminfo", "MemAvailable: 8000000 kB\n");
        let verdict = |n| {
            SocketMemory
                .check(
                    &tree.root(),
                    &Load {
                        processes: n,
                        ..Load::default()
                    },
                )
                .verdict
        };
        assert_eq!(verdict(10_000), Verdict::Ok);
        assert_eq!(verdict(1_000_000), Verdict::Fail);
    }
}
