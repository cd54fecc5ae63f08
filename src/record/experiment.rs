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
