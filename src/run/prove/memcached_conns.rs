//! memcached's own limit of connections, `-c`.

use super::{Case, Plan, Provable, Test, ample};

pub(super) struct MemcachedConns;

/// Of `-c`, memcached itself uses about as many with four threads.
const OWN: u64 = 40;

impl Provable for MemcachedConns {
    fn codes(&self) -> &'static [&'static str] {
        &["MEMCACHED_CONNLIMIT_FAST", "MEMCACHED_LISTEN_DISABLED"]
    }

    fn limit(&self) -> &'static str {
        "memcached_conns"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let servers = case.record.server.iter().chain(&case.record.more_servers);
        let max = servers
            .filter(|server| server.kind == "memcached")
            .find_map(|server| {
                let max = server.settings.get("max_connections");
                max.or_else(|| server.settings.get("maxconns"))?
                    .parse::<u64>()
                    .ok()
            });
        let Some(max) = max else {
            return Plan::NotPossible("memcached does not tell its limit of connections".to_owned());
        };
        let demand = case
            .demand(self.limit())
            .unwrap_or(case.clients())
            .max(case.clients());
        let setup = |max: u64| {
            let mut setup = case.base.clone();
            setup.tcp_backlog = None;
            setup.maxclients = u32::try_from(max).ok();
            setup
        };
        Plan::Test(Box::new(Test {
            a: setup(max),
            b: setup(ample(demand.saturating_add(OWN)).max(max.saturating_mul(2))),
            alone: Vec::new(),
            // A lower one would leave no room for systally's own connection.
            opposite: None,
            counters: &["memcached.rejected_connections", "memcached.listen_disabled_num"],
        }))
    }
}
