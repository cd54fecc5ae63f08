//! The server's own limit of connections.

use super::{Case, Plan, Provable, Test, ample};

pub(super) struct Maxclients;

impl Provable for Maxclients {
    fn codes(&self) -> &'static [&'static str] {
        &["REDIS_MAXCLIENTS"]
    }

    fn limit(&self) -> &'static str {
        "maxclients"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let Some(maxclients) = case.evidence("maxclients") else {
            return Plan::NotPossible("the server does not tell its maxclients".to_owned());
        };
        let demand = case.evidence("demand").unwrap_or(case.clients());
        // systally's own connection is one more.
        let wanted = ample(demand.saturating_add(1)).max(maxclients.saturating_add(1));
        let setup = |maxclients: u64| {
            let mut setup = case.base.clone();
            setup.maxclients = u32::try_from(maxclients).ok();
            setup
        };
        let lowered = (maxclients / 2).max(2);
        Plan::Test(Box::new(Test {
            a: setup(maxclients),
            b: setup(wanted),
            alone: Vec::new(),
            opposite: (lowered < maxclients).then(|| setup(lowered)),
            counters: &["redis.rejected_connections", "redis.total_connections_received"],
        }))
    }
}
