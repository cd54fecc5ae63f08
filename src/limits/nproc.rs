//! `ulimit -u`: tasks of one user, threads and other sessions included. It binds nobody with
//! CAP_SYS_ADMIN or CAP_SYS_RESOURCE, so usually not root.

use super::reading::{Reading, amount};
use super::{Limit, Load};
use crate::proc::Root;
use crate::proc::process::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE, Resource, Who, rlimit, status, tasks_of_user};
use crate::record::{LimitReading, Verdict};

pub(super) struct Nproc;

impl Limit for Nproc {
    fn id(&self) -> &'static str {
        "nproc"
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn title(&self) -> &'static str {
        "ulimit -u"
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "user",
            "/proc/self/limits, Max processes (soft); /proc/*/status",
        );
        let (me, limit) = match (status(root, Who::Me), rlimit(root, Who::Me, Resource::Processes)) {
            (Ok(me), Ok(limit)) => (me, limit),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        if me.has(CAP_SYS_ADMIN) || me.has(CAP_SYS_RESOURCE) {
            return reading
                .not_applicable("this user has CAP_SYS_ADMIN or CAP_SYS_RESOURCE, which is exempt");
        }
        let reading = reading.capacity_or_none(limit.soft);
        let tasks = match tasks_of_user(root, me.uid) {
            Ok(tasks) => tasks,
            Err(e) => return reading.unknown(e.to_string()),
        };
        let demand = tasks.saturating_add(load.processes);
        reading
            .demand(
                demand,
                format!("{tasks} tasks of user {} + {} processes", me.uid, load.processes),
            )
            .fix(
                format!("ulimit -u {demand}"),
                format!("TasksMax= and LimitNPROC={demand} in the unit (LimitNPROC counts per user)"),
                format!("docker run --ulimit nproc={demand}"),
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "fork EAGAIN (\"Resource temporarily unavailable\"), which is not a network error"
                        .to_owned()
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!(
                        "{demand} of {} tasks of this user",
                        limit.soft.map_or_else(|| amount(u64::MAX), amount)
                    )
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    fn status_with(capabilities: &str) -> String {
        format!("Name:\tx\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t{capabilities}\nCpus_allowed_list:\t0-1\n")
    }

    #[test]
    fn twenty_tasks_are_few() {
        let tree = Tree::defaults()
            .with("proc/self/limits", "Max processes 20 20 processes\n")
            .with("systally/uid_tasks", "3")
            .with("proc/self/status", status_with("0000000000000000"));
        let verdict = |n| {
            Nproc
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
    }

    #[test]
    fn root_is_exempt() {
        let tree = Tree::defaults()
            .with("proc/self/limits", "Max processes 20 20 processes\n")
            .with("proc/self/status", status_with("000001ffffffffff"));
        assert_eq!(
            Nproc.check(&tree.root(), &Load::default()).verdict,
            Verdict::NotApplicable
        );
    }
}
