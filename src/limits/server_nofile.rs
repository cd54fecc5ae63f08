//! The server's own limit of open files.
//!
//! Redis asks for maxclients + 32 at its start and lowers maxclients when it does not get them, so
//! `maxclients` is what binds. Only when the limit was lowered under a running server does accept4() fail:
//! clients then connect and hang, and the server spins. memcached sets its limit to its `-c`.

use super::facts::{REDIS_RESERVED_FDS, ServerKind};
use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::record::{LimitReading, Verdict};

pub(super) struct ServerNofile;

impl Limit for ServerNofile {
    fn id(&self) -> &'static str {
        "server_nofile"
    }

    fn title(&self) -> &'static str {
        "server's ulimit -n"
    }

    fn unit(&self) -> Unit {
        Unit::Of("open files")
    }

    fn check(&self, _root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "server",
            "/proc/PID/limits of the server, Max open files (soft)",
        );
        match load.server.kind {
            ServerKind::Redis => {}
            ServerKind::Memcached => {
                return reading.not_applicable("memcached sets it to its -c, see memcached_conns");
            }
            ServerKind::Other => return reading.unknown("the server is of an unknown kind"),
        }
        let Some(limit) = load.server.nofile else {
            return reading.unknown(
                load.server_process()
                    .err()
                    .unwrap_or("the server's limits cannot be read"),
            );
        };
        let soft = limit.soft.unwrap_or(super::reading::NO_LIMIT);
        let reading = reading.capacity(soft);
        let Some(maxclients) = load.server.maxclients else {
            return reading.unknown("maxclients of the server is not known");
        };
        let reserved = maxclients.saturating_add(REDIS_RESERVED_FDS);
        if reserved <= soft {
            return reading
                .demand(
                    reserved,
                    format!("maxclients {maxclients} + {REDIS_RESERVED_FDS}"),
                )
                .fine(if reserved == soft {
                    format!("maxclients {maxclients} is as much as this limit allows")
                } else {
                    format!("enough for maxclients {maxclients}")
                });
        }
        let counted = load.counted_by_server();
        let demand = load.server.fds_open.unwrap_or(0).saturating_add(counted);
        let open = load
            .server
            .fds_open
            .map_or_else(|| "those".to_owned(), |open| open.to_string());
        let reading = reading.demand(
            demand,
            format!("{open} open now + {counted} connections of the load"),
        );
        if load.server.fds_open.is_none() && demand <= soft {
            return reading.unknown(format!(
                "less than maxclients {maxclients} + {REDIS_RESERVED_FDS}, and how many descriptors the server has open \
                 cannot be read"
            ));
        }
        reading
            .fix(
                format!(
                    "prlimit --nofile={reserved} --pid PID (as root), or restart the server with that limit"
                ),
                format!("LimitNOFILE={reserved} in the server's unit"),
                format!("docker run --ulimit nofile={reserved}"),
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => {
                    "accept4 EMFILE: clients connect and get no reply (phpredis \"read error on \
                     connection\", redis-py \"Timeout reading from socket\"), the server spins at 100 % of a CPU, \
                     rejected_connections stays 0"
                        .to_owned()
                }
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!(
                        "less than maxclients {maxclients} + {REDIS_RESERVED_FDS}, but enough for this load"
                    )
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

    fn load(maxclients: u64, soft: u64, clients: u64) -> Load {
        Load {
            processes: clients,
            server: ServerFacts {
                maxclients: Some(maxclients),
                nofile: Some(Rlimit {
                    soft: Some(soft),
                    hard: Some(soft),
                }),
                fds_open: Some(10),
                ..ServerFacts::default()
            },
            ..Load::default()
        }
    }

    #[test]
    fn a_server_that_raised_its_limit_itself_is_fine() {
        let root = Tree::new().root();
        assert_eq!(
            ServerNofile.check(&root, &load(10_000, 10_032, 5000)).verdict,
            Verdict::Ok
        );
    }

    #[test]
    fn a_limit_lowered_under_the_server_makes_it_spin() {
        let root = Tree::new().root();
        let reading = ServerNofile.check(&root, &load(32, 12, 8));
        assert_eq!(reading.verdict, Verdict::Fail);
        assert!(reading.effect.contains("accept4 EMFILE"));
        assert_eq!(
            ServerNofile.check(&root, &Load::default()).verdict,
            Verdict::Unknown
        );
    }
}
