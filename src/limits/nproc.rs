//! `ulimit -u`: tasks of one user, threads and other sessions included. It binds neither the machine's root
//! nor anybody with CAP_SYS_ADMIN or CAP_SYS_RESOURCE (`copy_process` in kernel/fork.c).

use super::reading::{Reading, amount, enough};
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::proc::process::{
    CAP_SYS_ADMIN, CAP_SYS_RESOURCE, Resource, Who, in_first_user_namespace, rlimit, status, tasks_of_user,
};
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

    fn unit(&self) -> Unit {
        Unit::Of("tasks")
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
        // In a user namespace of its own a process may seem to be root and have all capabilities: they do
        // not count here.
        match in_first_user_namespace(root) {
            Ok(true) if me.uid == 0 => {
                return reading.not_applicable("root (user 0 of the machine) is exempt");
            }
            Ok(true) if me.has(CAP_SYS_ADMIN) || me.has(CAP_SYS_RESOURCE) => {
                return reading
                    .not_applicable("this user has CAP_SYS_ADMIN or CAP_SYS_RESOURCE, which is exempt");
            }
            Ok(_) => {}
            Err(e) => return reading.unknown(e.to_string()),
        }
        let reading = reading.capacity_or_none(limit.soft);
        let tasks = match tasks_of_user(root, me.uid) {
            Ok(tasks) => tasks,
            Err(e) => return reading.unknown(e.to_string()),
        };
        let demand = tasks.saturating_add(load.processes);
        let wanted = enough(demand, limit.soft.unwrap_or(u64::MAX));
        reading
            .demand(
                demand,
                format!("{tasks} tasks of user {} + {} processes", me.uid, load.processes),
            )
            .fix(
                format!("ulimit -u {wanted} (above the hard limit as root)"),
                format!("LimitNPROC={wanted} in the unit (it counts all of the user's tasks; TasksMax= counts the unit's)"),
                format!("docker run --ulimit nproc={wanted}"),
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "fork EAGAIN (\"Resource temporarily unavailable\"), which is no network error; PHP says \
                     \"pcntl_fork(): Error 11\""
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
    fn root_is_exempt_without_capabilities_and_not_in_a_user_namespace() {
        let root = |capabilities| {
            Tree::defaults()
                .with("proc/self/limits", "Max processes 20 20 processes\n")
                .with("systally/uid_tasks", "30")
                .with("proc/self/status", status_with(capabilities).replace("1000", "0"))
        };
        let verdict = |tree: &Tree| Nproc.check(&tree.root(), &Load::default()).verdict;
        assert_eq!(verdict(&root("0000000000000000")), Verdict::NotApplicable);
        let first = root("000001ffffffffff").with("proc/self/ns/user", "user:[4026531837]\n");
        assert_eq!(verdict(&first), Verdict::NotApplicable);
        let own = root("000001ffffffffff").with("proc/self/ns/user", "user:[4026532900]\n");
        assert_eq!(verdict(&own), Verdict::Fail);
        let odd = root("000001ffffffffff").with("proc/self/ns/user", "x");
        assert_eq!(verdict(&odd), Verdict::Unknown);
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
