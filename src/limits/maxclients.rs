//! `maxclients` of Redis. With a connection per operation it must hold twice the clients: the server still
//! counts the connection just closed when the next one comes.

use super::facts::{REDIS_RESERVED_FDS, ServerKind};
use super::reading::{Reading, enough};
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::record::{LimitReading, Verdict};

pub(super) struct Maxclients;

impl Limit for Maxclients {
    fn id(&self) -> &'static str {
        "maxclients"
    }

    fn title(&self) -> &'static str {
        "maxclients"
    }

    fn unit(&self) -> Unit {
        Unit::Of("clients")
    }

    fn headline(&self) -> bool {
        true
    }

    fn check(&self, _root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "server", "CONFIG GET maxclients, or INFO clients");
        match load.server.kind {
            ServerKind::Redis => {}
            ServerKind::Memcached => return reading.not_applicable("a setting of Redis"),
            ServerKind::Other => return reading.unknown("the server is of an unknown kind"),
        }
        let counted = load.counted_by_server();
        // What is not told may be anything: it can only make matters worse.
        let present = load.server.connected_clients;
        let demand = counted.saturating_add(present.unwrap_or(0));
        let term = match (load.connect_per_op, load.server_closes_first) {
            (true, false) => format!(
                "2 x {} clients (each counts twice: the connection just closed and the new one)",
                load.processes
            ),
            (true, true) => format!("{} clients", load.processes),
            (false, _) => format!(
                "{} clients x {} connections each",
                load.processes, load.connections_per_process
            ),
        };
        let now = match present {
            Some(present) => format!("{present} connected now (the one that asked is among them)"),
            None => "those connected now".to_owned(),
        };
        let reading = reading.demand(demand, format!("{term} + {now}"));
        let Some(maxclients) = load.server.maxclients else {
            return reading.unknown("the server does not tell its maxclients");
        };
        let target = enough(demand, maxclients);
        let wanted = target.saturating_add(REDIS_RESERVED_FDS);
        let lowered = load.server.lowered_by_ulimit();
        let mut now = if lowered {
            format!(
                "LimitNOFILE / ulimit -n >= {target}+{REDIS_RESERVED_FDS} for redis-server and a restart, then maxclients \
                 {target}; its ulimit lowered it to {maxclients}"
            )
        } else {
            format!("CONFIG SET maxclients {target} (needs ulimit -n of {wanted})")
        };
        if load.connect_per_op && !load.server_closes_first {
            now.push_str("; or QUIT before close: demand falls to N+1");
        }
        let reading = reading.capacity(maxclients);
        if present.is_none() && demand <= maxclients {
            return reading.unknown(format!(
                "the server does not tell how many clients it has now; {} would be too many",
                (maxclients - demand).saturating_add(1)
            ));
        }
        reading
            .fix(
                now,
                format!("maxclients {target} in redis.conf, LimitNOFILE={wanted} in its unit"),
                format!("docker run --ulimit nofile={wanted}, and maxclients {target} in the configuration"),
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "-ERR reply then close; phpredis returns false and reports nothing, predis and redis-py say \"max number \
                     of clients reached\", redis-rs sees a reset"
                        .to_owned()
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!("{demand} of {maxclients} clients")
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ServerFacts;
    use crate::proc::process::Rlimit;
    use crate::proc::testing::Tree;

    fn load(maxclients: u64) -> Load {
        Load {
            processes: 1000,
            connect_per_op: true,
            server: ServerFacts {
                maxclients: Some(maxclients),
                connected_clients: Some(1),
                nofile: Some(Rlimit {
                    soft: Some(1024),
                    hard: Some(1024),
                }),
                ..ServerFacts::default()
            },
            ..Load::default()
        }
    }

    #[test]
    fn a_connection_per_operation_needs_twice_the_clients() {
        let root = Tree::new().root();
        let reading = Maxclients.check(&root, &load(10_000));
        assert_eq!(
            (reading.demand.known(), reading.verdict),
            (Some(&2001), Verdict::Ok)
        );
        let quits = Load {
            server_closes_first: true,
            ..load(10_000)
        };
        assert_eq!(Maxclients.check(&root, &quits).demand.known(), Some(&1001));
    }

    #[test]
    fn clients_that_are_not_counted_are_not_none() {
        let mut load = load(10_000);
        load.server.connected_clients = None;
        let root = Tree::new().root();
        let reading = Maxclients.check(&root, &load);
        assert_eq!(reading.verdict, Verdict::Unknown);
        assert!(
            reading.effect.ends_with("8001 would be too many"),
            "{}",
            reading.effect
        );
        load.processes = 5001;
        assert_eq!(Maxclients.check(&root, &load).verdict, Verdict::Fail);
    }

    #[test]
    fn a_limit_lowered_by_ulimit_is_raised_there_first() {
        let reading = Maxclients.check(&Tree::new().root(), &load(992));
        assert_eq!(reading.verdict, Verdict::Fail);
        assert!(
            reading
                .effect
                .starts_with("-ERR reply then close; phpredis returns false")
        );
        for words in [
            "LimitNOFILE / ulimit -n >= 2001+32 for redis-server",
            "maxclients",
            "or QUIT before close: demand falls to N+1",
        ] {
            assert!(reading.fix.now.contains(words), "{words}: {}", reading.fix.now);
        }
    }
}
