//! What a scenario adds to a row: settings beside the usual axes, readings of its own, and what the
//! article it repeats had printed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a scenario adds to a row. Rows of a plain bench have none of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Settings beside the axes, by name: `variant`, `payload`, `serializer`, `network`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// What a script that counts for itself read, a reading for each timed round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CounterReading>,
    /// CPU time and context switches over the timed rounds, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Commands of the timed rounds that the server got after the client had stopped its clock: it had queued
    /// them, and the server's view of a round has none of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub served_late: u64,
    /// What the article printed for this row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedFigure>,
}

impl Experiment {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Experiment::default()
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What the two sides of a row spent in its timed rounds together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Timed rounds that are in here.
    pub rounds: u64,
    /// The processes that talk to the server.
    pub client: Spent,
    /// The servers; null where they are not on this machine.
    pub server: Option<Spent>,
}

/// CPU time and context switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    /// In user mode, in nanoseconds.
    pub user_ns: u64,
    /// In the kernel, in nanoseconds.
    pub system_ns: u64,
    /// Context switches because it waited.
    pub voluntary: u64,
    /// Context switches because its time was up.
    pub involuntary: u64,
}

impl Spent {
    /// Adds what somebody else spent, or the same in another round.
    pub fn add(&mut self, other: Spent) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut self.user_ns, other.user_ns);
        add(&mut self.system_ns, other.system_ns);
        add(&mut self.voluntary, other.voluntary);
        add(&mut self.involuntary, other.involuntary);
    }

    /// What was spent since an earlier reading.
    pub fn since(self, earlier: Spent) -> Spent {
        Spent {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// A counter on the server that a script's clients add to, read twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CounterReading {
    /// What the clients were to add.
    pub expected: u64,
    /// What it had grown by when the script read it, before all clients had ended.
    pub early: u64,
    /// The same when every client had ended.
    pub ended: u64,
    /// Clients that had not ended at the early reading.
    pub running: u64,
    /// From the first fork to the early reading, in nanoseconds.
    pub early_ns: u64,
}

/// A figure of an article. What it did not print is left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// The article's id.
    pub article: String,
    /// What it calls the strategy.
    pub strategy: String,
    /// Operations per second, as printed or from its operations and seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// Wall time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The counter that it read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<u64>,
    /// What the counter should have been, where it was not that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
    /// The error that it shows in place of a figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// User time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_s: Option<f64>,
    /// System time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_s: Option<f64>,
    /// Voluntary and involuntary context switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// System calls per operation, by the names of its own system.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls_per_op: BTreeMap<String, f64>,
}
