//! Limits that the whole machine has once: described, never changed.

use super::{Case, Plan, Provable};

pub(super) struct MachineWide;

impl Provable for MachineWide {
    fn codes(&self) -> &'static [&'static str] {
        &[
            "SYSTEM_FILE_MAX",
            "FORK_PID_MAX",
            "FORK_THREADS_MAX",
            "CONNTRACK_FULL",
            "CGROUP_OOM",
        ]
    }

    fn limit(&self) -> &'static str {
        "machine"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let (setting, value) = match case.finding.code.as_ref() {
            "SYSTEM_FILE_MAX" => ("fs.file-max", case.evidence("file_max")),
            "FORK_PID_MAX" => ("kernel.pid_max", case.evidence("has")),
            "FORK_THREADS_MAX" => ("kernel.threads-max", case.evidence("has")),
            "CONNTRACK_FULL" => ("net.netfilter.nf_conntrack_max", case.evidence("conntrack_max")),
            _ => ("memory.max of the server's control group", None),
        };
        let now = value.map_or_else(String::new, |value| format!(" ({value} now)"));
        Plan::Describe(format!(
            "{setting}{now} holds for the whole machine, which is never changed: to prove it, run the same load with it \
             as it is and raised, by turns, on a machine of your own"
        ))
    }
}
