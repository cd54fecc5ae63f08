//! `protected-mode` of Redis: without a password it answers only clients from exactly 127.0.0.1 or ::1.

use super::facts::ServerKind;
use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::record::LimitReading;
use crate::strategy::contract::Endpoint;

pub(super) struct ProtectedMode;

impl Limit for ProtectedMode {
    fn id(&self) -> &'static str {
        "protected_mode"
    }

    fn title(&self) -> &'static str {
        "protected-mode"
    }

    fn unit(&self) -> Unit {
        Unit::Of("clients")
    }

    fn check(&self, _root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "server", "CONFIG GET protected-mode").fix(
            "give the server a password (requirepass), or bind it and CONFIG SET protected-mode no",
            "requirepass and bind in redis.conf",
            "the same in the container's configuration",
        );
        if !load.tcp || load.server.kind == ServerKind::Memcached {
            return reading.not_applicable("it concerns Redis over TCP");
        }
        if load.server.answered {
            return reading.fine("the server answered from here, so it does not turn this machine away");
        }
        match (load.server.protected_mode, &load.endpoint) {
            (Some(false), _) => reading.fine("off"),
            (Some(true), Some(Endpoint::Tcp { host, .. })) if host == "127.0.0.1" || host == "::1" => {
                reading.fine("on, and clients come from 127.0.0.1 or ::1")
            }
            (Some(true), _) => reading.unknown(
                "on: without a password a client from another address gets -DENIED and is closed; whether there is a \
                 password is not known",
            ),
            (None, _) => reading.unknown("the server did not answer"),
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
    fn exactly_two_addresses_are_exempt() {
        let check = |host: &str| {
            let endpoint = Endpoint::Tcp {
                host: host.into(),
                port: 6379,
                user: None,
                password: None,
            };
            let server = ServerFacts {
                protected_mode: Some(true),
                ..ServerFacts::default()
            };
            ProtectedMode
                .check(
                    &Tree::new().root(),
                    &Load {
                        server,
                        ..Load::to(&endpoint)
                    },
                )
                .verdict
        };
        assert_eq!(check("127.0.0.1"), Verdict::Ok);
        assert_eq!(check("127.0.0.2"), Verdict::Unknown);
    }
}
