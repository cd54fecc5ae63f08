//! The CPU quota of the server's control group: a second server in a new group with the same quota, and
//! with none.

use super::{Case, Plan, Provable, Test};
use crate::proc::process::Who;
use crate::proc::{Root, cgroup};

pub(super) struct CpuQuota;

impl Provable for CpuQuota {
    fn codes(&self) -> &'static [&'static str] {
        &["CPU_THROTTLE"]
    }

    fn limit(&self) -> &'static str {
        "cpu_quota"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let (Some(quota), Some(period)) = (
            case.reading("server.cpu.quota_us"),
            case.reading("server.cpu.period_us"),
        ) else {
            return Plan::NotPossible("the quota of the server's control group could not be read".to_owned());
        };
        // A quota on the clients' own way up would hold the new group as well.
        let ours = cgroup::cpu_quotas(&Root::live(), Who::Me).unwrap_or_default();
        if let Some(bound) = ours.first() {
            return Plan::NotPossible(format!(
                "this process is itself held to {} of {} us by /{}",
                bound.quota, bound.period, bound.folder
            ));
        }
        let setup = |quota| {
            let mut setup = case.base.clone();
            setup.server_cpu = Some((quota, period));
            setup
        };
        Plan::Test(Box::new(Test {
            a: setup(quota),
            b: setup(0),
            alone: Vec::new(),
            opposite: (quota >= 2_000).then(|| setup(quota / 2)),
            counters: &["server.cpu.stat.nr_throttled", "server.cpu.stat.throttled_usec"],
        }))
    }
}
