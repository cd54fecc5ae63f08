//! What a scenario asks of a machine at its heaviest, for whoever wants to know before it is run.

use super::{Scale, Scenario};
use crate::plan::rows::Row;
use crate::strategy::contract::{Connect, Transport};
use crate::strategy::{Registry, SelectError};

/// The heaviest load of a scenario, in plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// Client processes at once.
    pub processes: u64,
    /// Connections that each holds at one time.
    pub connections_per_process: u64,
    /// Whether some row connects anew for each operation.
    pub connect_per_op: bool,
    /// Whether some row goes over TCP.
    pub tcp: bool,
    /// Whether some row goes over a UNIX socket.
    pub unix: bool,
    /// Server addresses that a client's keys are spread over.
    pub servers: u64,
    /// Commands sent before the first reply is read.
    pub pipeline: u64,
    /// Bytes of a value.
    pub payload_bytes: u64,
    /// Operations of its longest round.
    pub requests: u64,
    /// Length of the listeners' queues that its private server is started with, when it says one.
    pub tcp_backlog: Option<u32>,
}

/// The largest value of each term over all rows of a scenario. They need not come from one row: a load
/// within these fits whatever the scenario runs.
///
/// # Errors
/// The first selector of the scenario that picks nothing.
pub fn heaviest(scenario: &Scenario, scale: Scale, registry: &Registry) -> Result<Terms, SelectError> {
    let mut terms = Terms::default();
    for block in scenario.blocks(scale) {
        terms.requests = terms.requests.max(block.requests);
        terms.servers = terms.servers.max(u64::from(block.servers));
        // The shortest queue is the one that fills first.
        terms.tcp_backlog = match (terms.tcp_backlog, block.server.tcp_backlog) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        for row in block.rows(registry)? {
            terms.add(&row);
        }
    }
    terms.connections_per_process = terms.servers.max(1);
    Ok(terms)
}

impl Terms {
    fn add(&mut self, row: &Row) {
        // A script that forks its clients is one process more.
        let parent = u64::from(row.strategy.mode.forks);
        self.processes = self.processes.max(u64::from(row.clients) + parent);
        self.connect_per_op |= row.strategy.mode.connect == Connect::PerOp;
        self.tcp |= row.strategy.transport == Transport::Tcp;
        self.unix |= row.strategy.transport == Transport::Unix;
        self.pipeline = self.pipeline.max(u64::from(row.batch));
        self.payload_bytes = self.payload_bytes.max(row.payload_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::ScriptSource;

    #[test]
    fn the_terms_of_a_published_scenario() {
        let source = ScriptSource {
            executable: "/usr/bin/systally".into(),
            scripts: None,
            clients: None,
        };
        let registry = Registry::load(&source).unwrap();
        let scenario = Scenario::find("forked-connections").unwrap();
        let terms = heaviest(&scenario, Scale::ONE, &registry).unwrap();
        assert_eq!((terms.processes, terms.connections_per_process), (1001, 1));
        assert_eq!(terms.requests, 1_000_000);
        assert!(terms.connect_per_op && terms.tcp && terms.unix);
        let tenth = heaviest(&scenario, "0.1".parse().unwrap(), &registry).unwrap();
        assert_eq!((tenth.processes, tenth.requests), (1001, 100_000));
    }
}
