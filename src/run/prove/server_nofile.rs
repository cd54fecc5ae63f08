//! The limit of open files of the server, lowered under it while it runs, or low from its start, when it
//! lowers its own maxclients.

use super::{Case, Plan, Provable, Test, ample};

pub(super) struct ServerNofile;

/// Descriptors that Redis keeps for itself (CONFIG_MIN_RESERVED_FDS in server.h).
const RESERVED: u64 = 32;

/// What Redis takes by default.
const DEFAULT_MAXCLIENTS: u64 = 10_000;

impl Provable for ServerNofile {
    fn codes(&self) -> &'static [&'static str] {
        &["SERVER_EMFILE", "REDIS_MAXCLIENTS_BY_ULIMIT"]
    }

    fn limit(&self) -> &'static str {
        "server_nofile"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let Some(limit) = case
            .evidence("server_nofile")
            .or_else(|| case.reading("server.nofile"))
        else {
            return Plan::NotPossible("the server's limit of open files could not be read".to_owned());
        };
        let demand = case.evidence("demand").unwrap_or(case.clients());
        let wanted = ample(demand.saturating_add(RESERVED)).max(limit.saturating_mul(2));
        let running = case.finding.code == "SERVER_EMFILE";
        let setup = |nofile| {
            let mut setup = case.base.clone();
            if running {
                setup.server_nofile_running = Some(nofile);
            } else {
                // What it was asked for is not known any more; the limit alone shall decide.
                let asked = ample(demand).max(DEFAULT_MAXCLIENTS);
                setup.maxclients = u32::try_from(asked).ok();
                setup.server_nofile = Some(nofile);
            }
            setup
        };
        // Fewer would leave no room for systally's own connections.
        let lowered = (limit / 2).max(RESERVED + 8);
        Plan::Test(Box::new(Test {
            a: setup(limit),
            b: setup(wanted),
            alone: Vec::new(),
            opposite: (!running && lowered < limit).then(|| setup(lowered)),
            counters: &["redis.rejected_connections", "redis.total_connections_received"],
        }))
    }
}
