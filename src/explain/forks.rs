//! FORK_NPROC, FORK_PIDS_MAX, FORK_PID_MAX, FORK_THREADS_MAX: no process could be made any more.
//!
//! One errno, EAGAIN of clone(), for four limits; the words are those of a full UNIX queue.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::{FailureKind, Record};

pub(super) struct Forks;

const DOCS: &[Doc] = &[
    Doc {
        code: "FORK_NPROC",
        means: "The user has as many processes and threads as RLIMIT_NPROC (ulimit -u) allows.",
        measured: "EAGAIN from clone or fork, and the user's tasks with the processes of this row come to the limit; the user is not exempt by a capability.",
        wrong_when: "The tasks were counted when some had ended already, or processes in another pid namespace count too and cannot be seen.",
        todo: "Raise ulimit -u; in a unit TasksMax= is the better limit, since LimitNPROC= counts all sessions of the user.",
    },
    Doc {
        code: "FORK_PIDS_MAX",
        means: "A control group has as many tasks as its pids.max allows.",
        measured: "EAGAIN from clone or fork, or a script that says it could not fork, and pids.events of the group or of one above it grew.",
        wrong_when: "Another process of the same group was refused.",
        todo: "Raise pids.max, TasksMax= of the unit, or docker run --pids-limit.",
    },
    Doc {
        code: "FORK_PID_MAX",
        means: "The process ids of this pid namespace are used up (kernel.pid_max).",
        measured: "EAGAIN from clone or fork, and the tasks with the processes of this row come within 300 of kernel.pid_max.",
        wrong_when: "The tasks were counted when some had ended already.",
        todo: "Raise kernel.pid_max.",
    },
    Doc {
        code: "FORK_THREADS_MAX",
        means: "The machine has kernel.threads-max threads.",
        measured: "EAGAIN from clone or fork, and the machine's threads with the processes of this row come to kernel.threads-max.",
        wrong_when: "The threads were counted when some had ended already.",
        todo: "Raise kernel.threads-max on the host.",
    },
];

impl Rule for Forks {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).flat_map(|row| check(&row)).collect()
    }
}

/// Process ids that the kernel keeps free at the end of a round (RESERVED_PIDS in kernel/pid.c).
const RESERVED_PIDS: u64 = 300;

fn check(row: &Row<'_>) -> Vec<Finding> {
    let refused = row.kernel(&["clone", "clone3", "fork", "vfork"], "EAGAIN");
    let not_started = row
        .failed_by(FailureKind::NotStarted)
        .is_some_and(|failure| failure.errno.as_deref() == Some("EAGAIN"));
    let count = refused.max(u64::from(not_started));
    // A script that forks its clients itself tells what those would have done.
    let said = row.symptoms().remove(&Symptom::NotForked);
    if count == 0 && said.is_none() {
        return Vec::new();
    }
    let lost = said.map_or(0, |seen| seen.count);
    let clients = u64::from(row.result.axes.clients);
    // By the time of reading, processes that had been started are gone again.
    let with_clients = |now: Option<u64>| now.map(|now| now.saturating_add(clients));
    let tasks = with_clients(row.number(Fact::Tasks));
    let of_user = with_clients(row.number(Fact::UidTasks));
    let finding = |code, limit: &str, needs: Option<u64>, has: Option<u64>, says: String, fix: &str| {
        Finding::about(row, code, Severity::Error)
            .with_known("refused", (count > 0).then_some(count))
            .with_known("operations_of_clients_not_forked", (lost > 0).then_some(lost))
            .explains(count.max(lost))
            .with_known("needs", needs)
            .with_known("has", has)
            .with("limit", limit)
            .with_known(
                "client_says",
                row.failure().map(|failure| failure.message.as_str()),
            )
            .says(says)
            .try_next(fix)
            .clears(row.cleared(&[limit]))
    };
    let over = |needs: Option<u64>, has: Option<u64>| matches!((needs, has), (Some(needs), Some(has)) if needs >= has);
    let mut found = Vec::new();
    let events = row.record.counters.grew("pids.events.max").unwrap_or(0);
    let (group_now, group_max) = (row.number(Fact::GroupTasks), row.number(Fact::GroupPidsMax));
    if events > 0 || over(group_now, group_max) {
        let says = match group_max {
            Some(max) => format!(
                "the control group allows {max} tasks (pids.max), and {events} forks were refused there"
            ),
            None => format!("a control group refused {events} forks (pids.max)"),
        };
        let fix = "TasksMax= of the unit, --pids-limit of the container, or pids.max of the group";
        let one = finding(
            "FORK_PIDS_MAX",
            "pids_max",
            with_clients(group_now),
            group_max,
            says,
            fix,
        );
        found.push(one.with("pids_events_max", events));
    }
    let nproc = row.number(Fact::Nproc);
    if row.yes(Fact::NprocExempt) == Some(false) && over(of_user, nproc) {
        let says = format!(
            "the user may have {} processes (ulimit -u) and has {} without the {clients} of this row",
            nproc.unwrap_or_default(),
            row.number(Fact::UidTasks).unwrap_or_default()
        );
        let fix = "ulimit -u with a larger number before the run; LimitNPROC= or better TasksMax= in a unit";
        found.push(finding("FORK_NPROC", "nproc", of_user, nproc, says, fix));
    }
    let pid_max = row.number(Fact::PidMax);
    if over(tasks.map(|tasks| tasks.saturating_add(RESERVED_PIDS)), pid_max) {
        let says = format!(
            "kernel.pid_max is {}, and {} tasks run",
            pid_max.unwrap_or_default(),
            tasks.unwrap_or_default()
        );
        found.push(finding(
            "FORK_PID_MAX",
            "pid_max",
            tasks,
            pid_max,
            says,
            "sysctl -w kernel.pid_max=4194304",
        ));
    }
    let threads_max = row.number(Fact::ThreadsMax);
    if over(tasks, threads_max) {
        let says = format!(
            "kernel.threads-max is {}, and {} threads run",
            threads_max.unwrap_or_default(),
            tasks.unwrap_or_default()
        );
        let fix = "sysctl -w kernel.threads-max=N on the host";
        found.push(finding(
            "FORK_THREADS_MAX",
            "threads_max",
            tasks,
            threads_max,
            says,
            fix,
        ));
    }
    found
}
