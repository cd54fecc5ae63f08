//! CGROUP_OOM: the server did not end by itself, the kernel killed it for memory.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use crate::record::{FailureKind, Record};
use crate::units::total;

pub(super) struct CgroupOom;

const DOCS: &[Doc] = &[Doc {
    code: "CGROUP_OOM",
    means: "The out-of-memory killer ended the server; its own log has no line of it.",
    measured: "The server died by SIGKILL or was gone, and oom_kill of a control group or of the machine grew.",
    wrong_when: "Another process was killed for memory, and the server ended for a reason of its own.",
    todo: "Raise memory.max (MemoryMax=, --memory) or set maxmemory of the server well below it; dmesg names the killed process.",
}];

impl Rule for CgroupOom {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let failure = row.failed_by(FailureKind::ServerDied)?;
    let grew = |name: &str| row.record.counters.grew(name).unwrap_or(0);
    let of_group = grew("server.memory.events.oom_kill").max(grew("memory.events.oom_kill"));
    let of_machine = grew("vmstat.oom_kill");
    if of_group.max(of_machine) == 0 {
        return None;
    }
    let (whose, fix) = if of_group > 0 {
        (
            "of its control group",
            "a larger MemoryMax= / --memory / memory.max",
        )
    } else {
        (
            "of a control group or of the machine",
            "a larger memory.max, or memory for the machine",
        )
    };
    Some(
        Finding::about(row, "CGROUP_OOM", Severity::Error)
            .with("killed", of_group.max(of_machine))
            .explains(total(row.symptoms().values().map(|seen| seen.count)))
            .with_known("exit", failure.exit.as_deref())
            .says(format!(
                "the kernel killed the server because the memory {whose} was used up"
            ))
            .try_next(format!(
                "{fix}; and maxmemory of the server well below it; dmesg has the line"
            ))
            .clears(row.cleared(&["server_memory_max"])),
    )
}
