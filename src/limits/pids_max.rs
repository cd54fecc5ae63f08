//! `pids.max` of the control group of the clients and of every group above it; the tightest binds.

use super::reading::{NO_LIMIT, Reading, amount, enough, gravest};
use super::{Limit, Load, Unit};
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

    fn unit(&self) -> Unit {
        Unit::Of("tasks")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = || {
            Reading::of(
                self.id(),
                "cgroup",
                "pids.max and pids.current of the own group and those above",
            )
        };
        let levels = match cgroup::pids(root, Who::Me) {
            Ok(levels) => levels,
            Err(e) => return reading().unknown(e.to_string()),
        };
        // The level with the least room is not always the one that is used up most.
        let checked = levels
            .iter()
            .map(|level| of_level(reading(), level, load.processes));
        gravest(checked).unwrap_or_else(|| {
            reading()
                .demand(load.processes, format!("{} processes", load.processes))
                .capacity(NO_LIMIT)
                .fine("no control group limits the number of tasks")
        })
    }
}

/// One group's limit against the load.
fn of_level(reading: Reading, level: &cgroup::Level, processes: u64) -> LimitReading {
    let folder = &level.folder;
    let demand = level.current.unwrap_or(0).saturating_add(processes);
    let wanted = enough(demand, level.max.unwrap_or(NO_LIMIT));
    let now = level
        .current
        .map_or_else(|| "the".to_owned(), |current| current.to_string());
    let reading = reading
        .demand(
            demand,
            format!("{now} tasks in the group now + {processes} processes"),
        )
        .capacity_or_none(level.max);
    if let (Some(max), None) = (level.max, level.current)
        && demand <= max
    {
        return reading.unknown(format!(
            "/{folder} allows {max} tasks and does not tell how many it has"
        ));
    }
    reading
        .fix(
            format!("echo {wanted} > /{folder}/pids.max"),
            format!("TasksMax={wanted} in the unit or slice"),
            format!("docker run --pids-limit {wanted}; podPidsLimit of the kubelet"),
        )
        .decide(|verdict| match verdict {
            Verdict::Fail => format!(
                "fork EAGAIN (\"Resource temporarily unavailable\"; PHP says \"pcntl_fork(): Error 11\"): refused by the pids \
                 controller of /{folder}"
            ),
            Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                format!(
                    "{demand} of {} tasks in the control group",
                    level.max.map_or_else(|| amount(NO_LIMIT), amount)
                )
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    /// Of a process in the group b of a, by version 2.
    fn in_group_a_b() -> Tree {
        Tree::new()
            .with("proc/self/cgroup", "0::/a/b\n")
            .with(
                "proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            )
            .with("sys/fs/cgroup/a/b/cgroup.controllers", "cpu memory pids\n")
    }

    #[test]
    fn a_group_above_binds() {
        let tree = in_group_a_b()
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

    /// Little room in a small group, and a large one nearly full.
    #[test]
    fn the_group_that_is_used_up_most_speaks() {
        let tree = in_group_a_b()
            .with("sys/fs/cgroup/a/b/pids.max", "1000\n")
            .with("sys/fs/cgroup/a/b/pids.current", "90\n")
            .with("sys/fs/cgroup/a/pids.max", "100000\n")
            .with("sys/fs/cgroup/a/pids.current", "85000\n");
        let load = Load {
            processes: 50,
            ..Load::default()
        };
        let reading = PidsMax.check(&tree.root(), &load);
        assert_eq!(reading.verdict, Verdict::Warn);
        assert_eq!(reading.capacity.known(), Some(&100_000));
    }
}
