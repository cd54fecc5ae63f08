//! `maxmemory` of Redis: with the policy noeviction, writes fail with -OOM once it is reached.

use super::facts::ServerKind;
use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::Root;
use crate::record::{LimitReading, Verdict};

pub(super) struct Maxmemory;

impl Limit for Maxmemory {
    fn id(&self) -> &'static str {
        "maxmemory"
    }

    fn title(&self) -> &'static str {
        "maxmemory"
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn check(&self, _root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(self.id(), "server", "CONFIG GET maxmemory, INFO memory");
        if load.server.kind == ServerKind::Memcached {
            return reading.not_applicable("a setting of Redis");
        }
        let max = match load.server.maxmemory {
            None => return reading.unknown("the server does not tell its maxmemory"),
            Some(0) => return reading.fine("0: no limit of its own"),
            Some(max) => max,
        };
        let reading = reading.capacity(max);
        if load.server.evicts == Some(true) {
            return reading.fine("keys are evicted and no write fails; what was evicted is missed later");
        }
        let Some(used) = load.server.used_memory else {
            return reading.unknown("the server does not tell its used_memory");
        };
        let clients = load
            .open()
            .saturating_mul(super::socket_memory::REDIS_CLIENT_BYTES);
        let demand = used.saturating_add(clients);
        reading
            .demand(
                demand,
                format!(
                    "{used} bytes used now + {} connections x {} bytes",
                    load.open(),
                    super::socket_memory::REDIS_CLIENT_BYTES
                ),
            )
            .fix(
                "CONFIG SET maxmemory, or maxmemory-policy allkeys-lru",
                "maxmemory in redis.conf",
                "the same in the container's configuration",
            )
            .decide(|verdict| match verdict {
                Verdict::Fail => "-OOM command not allowed: writes fail, phpredis throws".to_owned(),
                Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                    format!(
                        "{} KiB of {} KiB, and the values that will be written",
                        demand >> 10,
                        max >> 10
                    )
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
    fn writes_fail_only_without_eviction() {
        let check = |max, evicts| {
            let server = ServerFacts {
                maxmemory: Some(max),
                used_memory: Some(1 << 20),
                evicts: Some(evicts),
                ..ServerFacts::default()
            };
            Maxmemory
                .check(
                    &Tree::new().root(),
                    &Load {
                        server,
                        ..Load::default()
                    },
                )
                .verdict
        };
        assert_eq!(check(0, false), Verdict::Ok);
        assert_eq!(check(1 << 20, false), Verdict::Fail);
        assert_eq!(check(1 << 20, true), Verdict::Ok);
    }
}
