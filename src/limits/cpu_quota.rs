//! `cpu.max` of the server's control groups. A server that uses up its quota stops for the rest of the
//! period, and everything queues meanwhile.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::cgroup::Version;
use crate::proc::{Root, cgroup};
use crate::record::LimitReading;

pub(super) struct CpuQuota;

impl Limit for CpuQuota {
    fn id(&self) -> &'static str {
        "cpu_quota"
    }

    fn title(&self) -> &'static str {
        "server's CPU quota"
    }

    fn unit(&self) -> Unit {
        Unit::CpuMicros
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "cgroup",
            "cpu.max (cpu.cfs_quota_us) of the server's groups",
        );
        let who = match load.server_process() {
            Ok(who) => who,
            Err(why) => return reading.unknown(why),
        };
        let quotas = match cgroup::cpu_quotas(root, who) {
            Ok(quotas) => quotas,
            Err(e) => return reading.unknown(e.to_string()),
        };
        // Shares compared without dividing: a/b < c/d as a*d < c*b.
        let tightest = quotas.iter().min_by(|a, b| {
            let left = u128::from(a.quota) * u128::from(b.period);
            left.cmp(&(u128::from(b.quota) * u128::from(a.period)))
        });
        let Some(quota) = tightest else {
            return reading.fine("no control group limits the server's CPU time");
        };
        let reading = reading
            .demand(
                quota.period,
                format!("one CPU for a busy server, in each period: {} us", quota.period),
            )
            .capacity(quota.quota)
            .fix(
                match quota.version {
                    Version::V1 => format!("echo -1 > /{}/cpu.cfs_quota_us", quota.folder),
                    Version::V2 => format!("echo \"max {}\" > /{}/cpu.max", quota.period, quota.folder),
                },
                "CPUQuota= in the server's unit (100% is one CPU)",
                "docker run --cpus 1; or a shorter period",
            );
        if quota.quota >= quota.period {
            return reading.fine("at least one whole CPU, as much as a server of one thread can use");
        }
        // What the server will need cannot be known before the run.
        reading.unknown(format!(
            "the server gets {} us of every {} us; if it needs more it stops up to {} us in each period, and what comes \
             meanwhile waits or, over a full queue, is lost",
            quota.quota,
            quota.period,
            quota.period - quota.quota
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;
    use crate::record::Verdict;

    #[test]
    fn less_than_a_cpu_may_stop_the_server() {
        let tree = Tree::new()
            .with("proc/9/cgroup", "0::/a\n")
            .with(
                "proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            )
            .with("sys/fs/cgroup/a/cgroup.controllers", "cpu memory pids\n")
            .with("sys/fs/cgroup/a/cpu.max", "20000 1000000\n");
        let load = Load {
            server_pid: Some(9),
            ..Load::default()
        };
        let reading = CpuQuota.check(&tree.root(), &load);
        assert_eq!(reading.verdict, Verdict::Unknown);
        assert!(reading.effect.contains("980000 us"), "{}", reading.effect);
        let free = tree.with("sys/fs/cgroup/a/cpu.max", "max 100000\n");
        assert_eq!(CpuQuota.check(&free.root(), &load).verdict, Verdict::Ok);
        assert_eq!(
            CpuQuota.check(&free.root(), &Load::default()).verdict,
            Verdict::Unknown
        );
    }
}
