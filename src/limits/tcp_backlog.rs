//! The backlog that the server asks for (`tcp-backlog`, used for its UNIX socket too). What it got is the
//! listener's own, so this decides only where no listener can be seen.

use super::facts::ServerKind;
use super::reading::{Reading, enough};
use super::{Limit, Load, Unit, accept_backlog};
use crate::proc::Root;
use crate::record::{LimitReading, Verdict};

pub(super) struct TcpBacklog;

impl Limit for TcpBacklog {
    fn id(&self) -> &'static str {
        "tcp_backlog"
    }

    fn title(&self) -> &'static str {
        "tcp-backlog"
    }

    fn unit(&self) -> Unit {
        Unit::Of("waiting connections")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "server", "CONFIG GET tcp-backlog");
        if load.server.kind != ServerKind::Redis {
            return reading.not_applicable("a setting of Redis");
        }
        let asked = load.server.tcp_backlog;
        if let Ok(listener) = accept_backlog::planned_listener(root, load) {
            return reading.not_applicable(match asked {
                Some(asked) => format!(
                    "{asked} asked for; the listener has {}, see accept_backlog",
                    listener.backlog
                ),
                None => format!("the listener has {}, see accept_backlog", listener.backlog),
            });
        }
        let Some(asked) = asked else {
            return reading.unknown("the server does not tell its tcp-backlog");
        };
        let demand = load.waiting().saturating_sub(1);
        let wanted = enough(demand, asked);
        reading
            .demand(demand, format!("{} waiting at once - 1", load.waiting()))
            .capacity(asked)
            .fix(
                format!("restart the server with --tcp-backlog {wanted} (it is immutable)"),
                format!("tcp-backlog {wanted} in redis.conf"),
                "the same in the container's configuration",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => format!("the server asks for a queue of {asked} and {demand} are needed"),
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{asked} asked for; somaxconn of its namespace may have cut it")
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ServerFacts;
    use crate::proc::testing::Tree;

    #[test]
    fn without_a_listener_the_setting_is_an_upper_bound() {
        let load = |n| Load {
            processes: n,
            server: ServerFacts {
                tcp_backlog: Some(511),
                ..ServerFacts::default()
            },
            ..Load::default()
        };
        let root = Tree::new().root();
        assert_eq!(TcpBacklog.check(&root, &load(100)).verdict, Verdict::Ok);
        assert_eq!(TcpBacklog.check(&root, &load(1000)).verdict, Verdict::Fail);
    }
}
