//! `memory.max` of the server's control groups: over it the kernel kills the server, without a line in its
//! log.

use super::reading::{Reading, gravest};
use super::socket_memory::{REDIS_CLIENT_BYTES, kernel_bytes};
use super::{Limit, Load, Unit};
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

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = || {
            Reading::of(
                self.id(),
                "cgroup",
                "memory.max and memory.current of the server's groups",
            )
        };
        let who = match load.server_process() {
            Ok(who) => who,
            Err(why) => return reading().unknown(why),
        };
        let levels = match cgroup::memory(root, who) {
            Ok(levels) => levels,
            Err(e) => return reading().unknown(e.to_string()),
        };
        let limited = levels.iter().filter_map(|level| Some((level.max?, level)));
        let checked = limited.map(|(max, level)| of_level(reading(), level, max, load));
        gravest(checked).unwrap_or_else(|| reading().fine("no control group limits the server's memory"))
    }
}

/// One group's limit against the load.
fn of_level(reading: Reading, level: &cgroup::Level, max: u64, load: &Load) -> LimitReading {
    let clients = load
        .open()
        .saturating_mul(REDIS_CLIENT_BYTES + kernel_bytes(load.tcp));
    // The group's use holds the server's data too, and perhaps more; where it is not told, the data is known.
    let now = level.current.max(load.server.used_memory);
    let demand = now.unwrap_or(0).saturating_add(clients);
    let room = demand.saturating_mul(2);
    let words = now.map_or_else(|| "the".to_owned(), |now| now.to_string());
    let reading = reading
        .demand(
            demand,
            format!(
                "{words} bytes now + {} connections x {} bytes",
                load.open(),
                REDIS_CLIENT_BYTES + kernel_bytes(load.tcp)
            ),
        )
        .capacity(max);
    if now.is_none() && demand <= max {
        return reading.unknown(format!(
            "/{} allows {max} bytes, and how many the server has now is not told",
            level.folder
        ));
    }
    reading
        .fix(
            format!(
                "echo {room} > /{}/{}; and maxmemory below it",
                level.folder, level.file
            ),
            format!("MemoryMax={room} in the server's unit"),
            format!("docker run --memory {room}"),
        )
        .decide(|verdict| match verdict {
            Verdict::Fail => {
                "the kernel kills the server (oom_kill in memory.events): clients see a lost connection \
                 (phpredis \"read error on connection\"), then ECONNREFUSED, and the server's log has no line of it"
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
