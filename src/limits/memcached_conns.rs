//! `-c` of memcached. It sets its own limit of open files to that number, so what it can serve is less by
//! one and by the descriptors it has open.

use super::facts::ServerKind;
use super::reading::{Reading, enough};
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::record::{LimitReading, Verdict};

pub(super) struct MemcachedConns;

impl Limit for MemcachedConns {
    fn id(&self) -> &'static str {
        "memcached_conns"
    }

    fn title(&self) -> &'static str {
        "memcached -c"
    }

    fn unit(&self) -> Unit {
        Unit::Of("connections")
    }

    fn check(&self, _root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "server",
            "stats max_connections, /proc/PID/fd of memcached",
        );
        if load.server.kind != ServerKind::Memcached {
            return reading.not_applicable("the server is not memcached");
        }
        let open = load.open();
        let reading = reading.demand(open, format!("{open} connections"));
        let Some(max) = load.server.maxclients else {
            return reading.unknown("memcached does not tell its max_connections");
        };
        let reading_with = |reading: Reading, fds: u64, usable: u64| {
            let wanted = enough(open, usable).saturating_add(fds).saturating_add(1);
            reading.capacity(usable).fix(
                format!("restart memcached with -c {wanted}"),
                format!("-c {wanted} in /etc/memcached.conf, LimitNOFILE={wanted} in its unit"),
                format!("memcached -c {wanted} as the container's command"),
            )
        };
        let effect = move |verdict: Verdict, usable: u64| match verdict {
            Verdict::Fail => "\"ERROR Too many open connections\" and close; php-memcached says code 11; \
                 rejected_connections grows"
                .to_owned(),
            Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                format!("{open} of {usable} connections")
            }
        };
        match load.server.fds_open {
            Some(fds) => {
                let usable = max.saturating_sub(1).saturating_sub(fds);
                reading_with(reading, fds, usable).decide(|verdict| effect(verdict, usable))
            }
            // Without its descriptors only the upper bound is known.
            None if open >= max => {
                reading_with(reading, 0, max.saturating_sub(1)).decide(|verdict| effect(verdict, max))
            }
            None => reading.unknown(format!(
                "fewer than {max}: how many descriptors memcached has open cannot be read"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ServerFacts;
    use crate::proc::testing::Tree;

    #[test]
    fn the_default_of_1024_serves_998() {
        let check = |n, fds| {
            let server = ServerFacts {
                kind: ServerKind::Memcached,
                maxclients: Some(1024),
                fds_open: fds,
                ..ServerFacts::default()
            };
            MemcachedConns.check(
                &Tree::new().root(),
                &Load {
                    processes: n,
                    server,
                    ..Load::default()
                },
            )
        };
        assert_eq!(check(998, Some(25)).capacity.known(), Some(&998));
        assert_eq!(check(998, Some(25)).verdict, Verdict::Warn);
        assert_eq!(check(999, Some(25)).verdict, Verdict::Fail);
        assert_eq!(check(100, None).verdict, Verdict::Unknown);
        assert_eq!(check(1024, None).verdict, Verdict::Fail);
    }
}
