//! A row: a strategy, what it ran, and how it ended.

use std::collections::BTreeMap;

use crate::record::{Experiment, Failure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Reasons, WireCounted, WireServerView, WireTimed, WireVaried, WireWitness, is_one, one};

/// A row: a strategy and everything known about it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireStrategy {
    /// Its name, `client/mode/transport`.
    pub(in crate::record::wire) name: String,
    /// What it ran.
    pub(in crate::record::wire) axes: WireAxes,
    /// The client library or program.
    pub(in crate::record::wire) client: WireClient,
    /// How it ended: `unverified` when the server does not confirm what the client claims.
    pub(in crate::record::wire) status: WireStatus,
    /// Why, for every status but `ok`.
    pub(in crate::record::wire) reason: Option<String>,
    /// The first failure of the row, with what was read at that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::record::wire) failure: Option<Failure>,
    /// The untraced rounds.
    pub(in crate::record::wire) timed: Option<WireTimed>,
    /// The counted pass.
    pub(in crate::record::wire) counted: Option<WireCounted>,
    /// Counts of the loop that were not the same in all counted passes; `counted` has the first pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::record::wire) varied: Vec<WireVaried>,
    /// The same work counted once more by an engine that hardly slows it, and what that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::record::wire) witness: Option<WireWitness>,
    /// What the server saw over all rounds of this row, the counted pass included.
    pub(in crate::record::wire) server_view: Option<WireServerView>,
    /// What a scenario adds to the row; left out in a plain bench.
    #[serde(default, skip_serializing_if = "Experiment::is_empty")]
    pub(in crate::record::wire) experiment: Experiment,
    /// Why keys of this row are null, by path (`counted.cpu_ns`, `timed.rounds.0.server_view`).
    #[serde(default)]
    pub(in crate::record::wire) not_measured: Reasons,
}

/// What a row ran: the axes that a run can vary.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireAxes {
    /// The operation; empty for a counted program.
    pub(in crate::record::wire) op: String,
    /// `tcp`, `unix`, or empty.
    pub(in crate::record::wire) transport: String,
    /// Operations per batch.
    pub(in crate::record::wire) pipeline: u32,
    /// Payload length in bytes.
    pub(in crate::record::wire) payload_bytes: u64,
    /// Worker processes, one connection each.
    pub(in crate::record::wire) clients: u32,
    /// What the client speaks to: `redis`, `memcached`, `cluster`, `shards`, `twemproxy` or `none`; absent
    /// where nobody knows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(in crate::record::wire) store: String,
    /// Servers that the client spreads its keys over.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(in crate::record::wire) servers: u32,
}

/// A client as it describes itself.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireClient {
    /// Its name.
    pub(in crate::record::wire) name: String,
    /// Its version; empty when it was never started.
    pub(in crate::record::wire) version: String,
    /// What else it says of itself.
    pub(in crate::record::wire) environment: BTreeMap<String, String>,
}

/// How a row ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::record::wire) enum WireStatus {
    Ok,
    Failed,
    Skipped,
    Unverified,
}
