//! `net.core.somaxconn`: the upper bound of every backlog, applied when a server calls listen() and never
//! after. Once the listener itself is known this value decides nothing.

use super::reading::{Reading, enough};
use super::server_side::shares_netns;
use super::{Limit, Load, Unit, accept_backlog};
use crate::proc::{Root, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct Somaxconn;

impl Limit for Somaxconn {
    fn id(&self) -> &'static str {
        "somaxconn"
    }

    fn title(&self) -> &'static str {
        "somaxconn"
    }

    fn unit(&self) -> Unit {
        Unit::Of("waiting connections")
    }

    fn headline(&self) -> bool {
        true
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "server's netns", "/proc/sys/net/core/somaxconn");
        let somaxconn = match sysctl::integer(root, "net.core.somaxconn") {
            Ok(value) => value,
            Err(e) => return reading.unknown(e.to_string()),
        };
        if let Ok(listener) = accept_backlog::planned_listener(root, load) {
            return reading.not_applicable(format!(
                "{somaxconn} now; counts at the next listen() only, the listener has {}",
                listener.backlog
            ));
        }
        // Without a visible listener only the process can tell whose namespace it is; not knowing it, one
        // on this machine is taken to be in this one.
        if let (Err(why), true) = (
            shares_netns(root, load),
            load.server_pid.is_some() || !load.same_host,
        ) {
            return reading.unknown(why);
        }
        let demand = load.waiting().saturating_sub(1);
        let enough = enough(demand, somaxconn).max(somaxconn);
        reading
            .demand(demand, format!("{} waiting at once - 1", load.waiting()))
            .capacity(somaxconn)
            .fix(
                format!("sysctl -w net.core.somaxconn={enough}, then restart the server"),
                format!("net.core.somaxconn = {enough} in /etc/sysctl.d/90-somaxconn.conf"),
                format!("docker run --sysctl net.core.somaxconn={enough}"),
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    format!("no backlog can be larger than {somaxconn}, and {demand} are needed")
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("allows a backlog of {somaxconn}; the server may have asked for less")
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn without_a_listener_the_sysctl_is_the_bound() {
        let tree = Tree::defaults().with("proc/sys/net/core/somaxconn", "128\n");
        let mut load = Load::default();
        assert_eq!(Somaxconn.check(&tree.root(), &load).verdict, Verdict::Ok);
        load.processes = 1000;
        assert_eq!(Somaxconn.check(&tree.root(), &load).verdict, Verdict::Fail);
    }

    #[test]
    fn a_server_in_another_namespace_is_unknown() {
        let tree = Tree::defaults()
            .with("proc/self/ns/net", "net:[1]")
            .with("proc/9/ns/net", "net:[2]");
        let load = Load {
            server_pid: Some(9),
            ..Load::default()
        };
        assert_eq!(Somaxconn.check(&tree.root(), &load).verdict, Verdict::Unknown);
    }
}
