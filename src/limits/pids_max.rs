//! `pids.max` of the control group of the clients and of every group above it; the tightest binds.

use super::reading::{NO_LIMIT, Reading, amount};
use super::{Limit, Load};
use crate::proc::process::Who;
use crate::proc::{Root, cgroup};
use crate::record::{LimitReading, Verdict};

pub(super) struct PidsMax;

impl Limit for PidsMax {
    fn id(&self) -> &'static str {
        "pids_max"
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn title(&self) -> &'static str {
        "pids.max"
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "cgroup",
            "pids.max and pids.current of the own group and those above",
        );
        let levels = match cgroup::pids(root, Who::Me) {
            Ok(levels) => levels,
            Err(e) => return reading.unknown(e.to_string()),
        };
        // The level with the least room; groups without a limit have all.
        let room = |level: &&cgroup::Level| {
            level
                .max
                .map_or(NO_LIMIT, |max| max.saturating_sub(level.current))
        };
        let Some(level) = levels.iter().min_by_key(room) else {
            return reading
                .demand(load.processes, format!("{} processes", load.processes))
                .capacity(NO_LIMIT)
                .fine("no control group limits the number of tasks");
        };
        let demand = level.current.saturating_add(load.processes);
        let folder = level.folder.clone();
        reading
            .demand(demand, format!("{} tasks in the group now + {} processes", level.current, load.processes))
            .capacity_or_none(level.max)
            .fix(
                format!("echo {demand} > /{folder}/pids.max"),
                format!("TasksMax={demand} in the unit or slice"),
                format!("docker run --pids-limit {demand}; podPidsLimit of the kubelet"),
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => format!(
                    "fork EAGAIN (\"Resource temporarily unavailable\"): refused by the pids controller of /{folder}"
                ),
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{demand} of {} tasks in the control group", level.max.map_or_else(|| amount(NO_LIMIT), amount))
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn a_group_above_binds() {
        let tree = Tree::new()
            .with("proc/self/cgroup", "0::/a/b\n")
            .with(
                "proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            )
            .with("sys/fs/cgroup/a/b/cgroup.controllers", "cpu memory pids\n")
            .with("sys/fs/cgroup/a/b/pids.max", "max\n")
            .with("sys/fs/cgroup/a/b/pids.current", "2\n")
            .with("sys/fs/cgroup/a/pids.max", "20\n")
            .with("sys/fs/cgroup/a/pids.current", "3\n");
        let verdict = |n| {
            PidsMax
                .check(
                    &tree.root(),
                    &Load {
                        processes: n,
                        ..Load::default()
                    },
                )
                .verdict
        };
        assert_eq!(verdict(10), Verdict::Ok);
        assert_eq!(verdict(18), Verdict::Fail);
        let free = tree.with("sys/fs/cgroup/a/pids.max", "max\n");
        assert_eq!(
            PidsMax
                .check(
                    &free.root(),
                    &Load {
                        processes: 1 << 40,
                        ..Load::default()
                    }
                )
                .verdict,
            Verdict::Ok
        );
    }
}
