//! `kernel.pid_max`: the largest process id, per pid namespace since Linux 6.14.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, host, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct PidMax;

/// Ids the kernel does not give out again after the first round (RESERVED_PIDS).
const RESERVED: u64 = 300;

impl Limit for PidMax {
    fn id(&self) -> &'static str {
        "pid_max"
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn title(&self) -> &'static str {
        "kernel.pid_max"
    }

    fn unit(&self) -> Unit {
        Unit::Of("process ids")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "pid namespace",
            "/proc/sys/kernel/pid_max, /proc/loadavg",
        );
        let (max, tasks) = match (sysctl::integer(root, "kernel.pid_max"), host::tasks(root)) {
            (Ok(max), Ok(tasks)) => (max, tasks),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        let demand = tasks.saturating_add(load.processes).saturating_add(RESERVED);
        reading
            .demand(
                demand,
                format!(
                    "{tasks} tasks now + {} processes + {RESERVED} reserved",
                    load.processes
                ),
            )
            .capacity(max)
            .fix(
                format!("sysctl -w kernel.pid_max={}", demand.saturating_mul(2)),
                format!(
                    "kernel.pid_max = {} in /etc/sysctl.d/90-pid-max.conf",
                    demand.saturating_mul(2)
                ),
                "the host's value binds too",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => "fork EAGAIN: no process id is left".to_owned(),
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{demand} of {max} process ids")
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn tasks_and_the_reserve_count() {
        let tree = Tree::new()
            .with("proc/sys/kernel/pid_max", "32768\n")
            .with("proc/loadavg", "0.1 0.1 0.1 2/220 999\n");
        let verdict = |n| {
            PidMax
                .check(
                    &tree.root(),
                    &Load {
                        processes: n,
                        ..Load::default()
                    },
                )
                .verdict
        };
        assert_eq!(verdict(1000), Verdict::Ok);
        assert_eq!(verdict(32_300), Verdict::Fail);
    }
}
