//! `ulimit -n` of the client processes. Read from this process, whose limits they inherit.

use super::reading::{Reading, amount, enough};
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::proc::process::{Resource, Who, rlimit};
use crate::record::{LimitReading, Verdict};

pub(super) struct ClientNofile;

impl Limit for ClientNofile {
    fn id(&self) -> &'static str {
        "client_nofile"
    }

    fn needs_server(&self) -> bool {
        false
    }

    fn title(&self) -> &'static str {
        "ulimit -n"
    }

    fn unit(&self) -> Unit {
        Unit::Of("open files per client")
    }

    fn headline(&self) -> bool {
        true
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "process", "/proc/self/limits, Max open files (soft)");
        let limit = match rlimit(root, Who::Me, Resource::OpenFiles) {
            Ok(limit) => limit,
            Err(e) => return reading.unknown(e.to_string()),
        };
        let held = load.held();
        let demand = load.client_fds();
        let soft = limit.soft.unwrap_or(u64::MAX);
        let hard = limit.hard.unwrap_or(u64::MAX);
        let wanted = enough(demand, soft);
        let now = if wanted <= hard {
            format!(
                "ulimit -n >= {wanted} (raise soft; hard already {}): ulimit -Sn {wanted}",
                amount(hard)
            )
        } else {
            format!(
                "ulimit -n {wanted} as root (the hard limit is {} too)",
                amount(hard)
            )
        };
        reading
            .demand(
                demand,
                format!("{} base descriptors + {held} connections per process", load.client_base_fds),
            )
            .capacity(soft)
            .fix(
                now,
                format!("LimitNOFILE={wanted} in the unit, or \"* soft nofile {wanted}\" in /etc/security/limits.conf"),
                format!("docker run --ulimit nofile={wanted}"),
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => format!(
                    "socket EMFILE after {} connections in a process; phpredis then says \"Redis server went \
                     away\", predis an empty message, redis-py \"Error 24 connecting to\"",
                    soft.saturating_sub(load.client_base_fds)
                ),
                Verdict::Warn => format!("{demand} of {} descriptors per client: close", amount(soft)),
                Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{demand} of {} descriptors per client: fits", amount(soft))
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn a_hundred_connections_do_not_fit_in_64_descriptors() {
        let tree = Tree::defaults().with(
            "proc/self/limits",
            "Max open files            64                   524288               files\n",
        );
        let load = Load {
            processes: 50,
            connections_per_process: 100,
            tcp: false,
            ..Load::default()
        };
        let reading = ClientNofile.check(&tree.root(), &load);
        assert_eq!(
            (reading.demand.known(), reading.capacity.known()),
            (Some(&105), Some(&64))
        );
        assert_eq!(reading.verdict, Verdict::Fail);
        assert!(
            reading
                .fix
                .now
                .contains("ulimit -n >= 105 (raise soft; hard already 524288)")
        );
        assert!(
            reading.effect.contains("after 59 connections"),
            "{}",
            reading.effect
        );
    }

    #[test]
    fn a_connection_per_operation_holds_one() {
        let load = Load {
            connections_per_process: 5000,
            connect_per_op: true,
            ..Load::default()
        };
        let reading = ClientNofile.check(&Tree::defaults().root(), &load);
        assert_eq!(reading.demand.known(), Some(&6));
        assert_eq!(reading.verdict, Verdict::Ok);
    }
}
