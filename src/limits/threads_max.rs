//! `kernel.threads-max`: tasks of the whole machine, set from its memory at boot.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, host, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct ThreadsMax;

impl Limit for ThreadsMax {
    fn id(&self) -> &'static str {
        "threads_max"
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn title(&self) -> &'static str {
        "kernel.threads-max"
    }

    fn unit(&self) -> Unit {
        Unit::Of("tasks")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "machine",
            "/proc/sys/kernel/threads-max, /proc/loadavg",
        );
        let (max, tasks) = match (sysctl::integer(root, "kernel.threads-max"), host::tasks(root)) {
            (Ok(max), Ok(tasks)) => (max, tasks),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        let demand = tasks.saturating_add(load.processes);
        reading
            .demand(
                demand,
                format!("{tasks} tasks now + {} processes", load.processes),
            )
            .capacity(max)
            .fix(
                format!("sysctl -w kernel.threads-max={}", demand.saturating_mul(2)),
                format!(
                    "kernel.threads-max = {} in /etc/sysctl.d/90-threads-max.conf",
                    demand.saturating_mul(2)
                ),
                "not namespaced: set it on the host",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => "fork EAGAIN: the machine has as many tasks as it may".to_owned(),
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{demand} of {max} tasks")
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn the_machine_counts_all_tasks() {
        let tree = Tree::new()
            .with("proc/sys/kernel/threads-max", "1000\n")
            .with("proc/loadavg", "0.1 0.1 0.1 2/220 999\n");
        let verdict = |n| {
            ThreadsMax
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
        assert_eq!(verdict(781), Verdict::Fail);
    }
}
