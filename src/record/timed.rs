//! The timed half of a row: its rounds, and what the server saw of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Interval, Latency};
use crate::units::{Measured, Nanos, Ops, total};

/// The untraced rounds of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// Every round, in order.
    pub rounds: Vec<Round>,
    /// Throughput: median of the rounds with a 95 % bootstrap interval.
    pub ops_per_s: Interval,
    /// Ratio to the baseline row, computed round by round; `NotMeasured` for the baseline itself.
    pub vs_baseline: Measured<Interval>,
    /// Times of single operations, or of batches, over all rounds.
    pub latency: Measured<Latency>,
}

impl Timed {
    /// Fewer rounds have no interval to speak of.
    const FEWEST_ROUNDS: usize = 3;

    /// Whether the rounds differ so much that the throughput is no more than an order of size.
    pub fn is_noisy(&self) -> bool {
        self.rounds.len() >= Timed::FEWEST_ROUNDS && self.ops_per_s.is_noisy()
    }

    /// Whether the same is so of the ratio to the baseline. Noise that both rows share cancels in it, so it can
    /// also be sounder than the throughput; a row that is noisy by itself is never taken for sound.
    pub fn ratio_is_noisy(&self) -> bool {
        let ratio = self.vs_baseline.known();
        let wide = self.rounds.len() >= Timed::FEWEST_ROUNDS && ratio.is_some_and(Interval::is_noisy);
        ratio.is_some() && (wide || self.is_noisy())
    }
}

/// One timed round of all workers of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Operations the clients say they completed.
    pub ops: Ops,
    /// Operations begun.
    pub asked: Ops,
    /// The longest of the workers' own times.
    pub elapsed: Nanos,
    /// Failed operations by the client's own words, `class:message`, escaped.
    pub errors: BTreeMap<String, u64>,
    /// What the server saw in this round.
    pub server: Measured<ServerView>,
    /// User and kernel CPU time of all workers in this round; `None` when it could not be read.
    pub cpu: Option<(Nanos, Nanos)>,
}

/// What a server's own counters say about a span of time, without systally's own control connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerView {
    /// Calls that did not fail, by command in lower case.
    pub commands: BTreeMap<String, u64>,
    /// Calls that failed or were refused, by command.
    pub failed: BTreeMap<String, u64>,
    /// Time the server spent in commands (its `usec`), where it tells.
    pub busy: Option<Nanos>,
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused because of `maxclients`.
    pub rejected: u64,
    /// What each server did, by address, where several serve together; empty for a single one.
    pub nodes: BTreeMap<String, NodeView>,
}

/// What one of several servers did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeView {
    /// Calls that did not fail, by command in lower case.
    pub commands: BTreeMap<String, u64>,
    /// Connections accepted.
    pub connections: u64,
}

impl ServerView {
    /// How many of the named commands it served.
    pub fn served(&self, commands: &[&str]) -> u64 {
        total(
            commands
                .iter()
                .filter_map(|name| self.commands.get(*name).copied()),
        )
    }

    /// Adds another span.
    pub fn merge(&mut self, other: &ServerView) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        for (name, n) in &other.commands {
            add(self.commands.entry(name.clone()).or_default(), *n);
        }
        for (name, n) in &other.failed {
            add(self.failed.entry(name.clone()).or_default(), *n);
        }
        self.busy = match (self.busy, other.busy) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        add(&mut self.connections, other.connections);
        add(&mut self.rejected, other.rejected);
        for (address, node) in &other.nodes {
            let sum = self.nodes.entry(address.clone()).or_default();
            for (name, n) in &node.commands {
                add(sum.commands.entry(name.clone()).or_default(), *n);
            }
            add(&mut sum.connections, node.connections);
        }
    }
}
