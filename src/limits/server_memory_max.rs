//! `memory.max` of the server's control groups: over it the kernel kills the server, without a line in its
//! log.

use super::reading::Reading;
use super::socket_memory::{REDIS_CLIENT_BYTES, kernel_bytes};
use super::{Limit, Load};
use crate::proc::{Root, cgroup};
use crate::record::{LimitReading, Verdict};

pub(super) struct ServerMemoryMax;

impl Limit for ServerMemoryMax {
    fn id(&self) -> &'static str {
        "server_memory_max"
    }

    fn title(&self) -> &'static str {
        "server's memory.max"
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "cgroup",
            "memory.max and memory.current of the server's groups",
        );
        let who = match load.server_process() {
            Ok(who) => who,
            Err(why) => return reading.unknown(why),
        };
        let levels = match cgroup::memory(root, who) {
            Ok(levels) => levels,
            Err(e) => return reading.unknown(e.to_string()),
        };
        let limited = levels.iter().filter_map(|level| Some((level.max?, level)));
        let Some((max, level)) = limited.min_by_key(|(max, level)| max.saturating_sub(level.current)) else {
            return reading.fine("no control group limits the server's memory");
        };
        let clients = load
            .open()
            .saturating_mul(REDIS_CLIENT_BYTES + kernel_bytes(load.tcp));
        let demand = level.current.saturating_add(clients);
        reading
            .demand(
                demand,
                format!(
                    "{} bytes now + {clients} for {} connections",
                    level.current,
                    load.open()
                ),
            )
            .capacity(max)
            .fix(
                format!(
                    "echo {} > /{}/memory.max; and maxmemory below it",
                    demand.saturating_mul(2),
                    level.folder
                ),
                "MemoryMax= in the server's unit",
                "docker run --memory",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "the kernel kills the server (oom_kill in memory.events): clients see a lost connection, \
                                  then ECONNREFUSED, and the server's log has no line of it"
                        .to_owned()
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!(
                        "{} KiB of {} KiB; a copy for saving comes on top",
                        demand >> 10,
                        max >> 10
                    )
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn connections_take_memory_of_the_group() {
        let tree = Tree::new()
            .with("proc/9/cgroup", "0::/a\n")
            .with(
                "proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            )
            .with("sys/fs/cgroup/a/cgroup.controllers", "cpu memory pids\n")
            .with("sys/fs/cgroup/a/memory.max", "67108864\n")
            .with("sys/fs/cgroup/a/memory.current", "10000000\n");
        let verdict = |n| {
            let load = Load {
                processes: n,
                server_pid: Some(9),
                ..Load::default()
            };
            ServerMemoryMax.check(&tree.root(), &load).verdict
        };
        assert_eq!(verdict(100), Verdict::Ok);
        assert_eq!(verdict(10_000), Verdict::Fail);
    }
}
