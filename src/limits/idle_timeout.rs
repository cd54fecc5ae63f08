//! `timeout` of Redis: seconds after which it closes an idle client.

use super::facts::ServerKind;
use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::record::LimitReading;

pub(super) struct IdleTimeout;

impl Limit for IdleTimeout {
    fn id(&self) -> &'static str {
        "idle_timeout"
    }

    fn title(&self) -> &'static str {
        "timeout"
    }

    fn unit(&self) -> Unit {
        Unit::Of("seconds")
    }

    fn check(&self, _root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "server", "CONFIG GET timeout").fix(
            "CONFIG SET timeout 0",
            "timeout 0 in redis.conf",
            "the same in the container's configuration",
        );
        if load.server.kind == ServerKind::Memcached {
            return reading.not_applicable("a setting of Redis");
        }
        match (load.server.idle_timeout_s, load.connect_per_op) {
            (None, _) => reading.unknown("the server does not tell its timeout"),
            (Some(0), _) => reading.fine("0: idle clients are never closed"),
            (Some(seconds), true) => {
                reading.fine(format!("{seconds} s, and no connection is kept longer than an operation"))
            }
            (Some(seconds), false) => reading.unknown(format!(
                "a connection idle for {seconds} s is closed: the next command fails, or phpredis connects anew and says \
                 nothing; how long connections idle is not planned"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ServerFacts;
    use crate::proc::testing::Tree;
    use crate::record::Verdict;

    #[test]
    fn only_kept_connections_can_idle() {
        let check = |seconds, per_op| {
            let server = ServerFacts {
                idle_timeout_s: Some(seconds),
                ..ServerFacts::default()
            };
            IdleTimeout
                .check(
                    &Tree::new().root(),
                    &Load {
                        server,
                        connect_per_op: per_op,
                        ..Load::default()
                    },
                )
                .verdict
        };
        assert_eq!(check(0, false), Verdict::Ok);
        assert_eq!(check(5, true), Verdict::Ok);
        assert_eq!(check(5, false), Verdict::Unknown);
    }
}
