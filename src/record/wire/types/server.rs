//! The servers of a run, and what they saw.

use std::collections::BTreeMap;

use crate::record::NodeView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{is_one, one};

/// The server of a run.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireServer {
    /// What several servers are to each other: `cluster`, `shards` or `twemproxy`; absent for a single one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(in crate::record::wire) place: String,
    /// How many they are.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(in crate::record::wire) servers: u32,
    /// Which program (`redis`, `valkey`, `systally-responder` …).
    pub(in crate::record::wire) kind: String,
    /// Its version as it says.
    pub(in crate::record::wire) version: String,
    /// Whose it is.
    pub(in crate::record::wire) origin: WireOrigin,
    /// Its addresses, never with a password.
    pub(in crate::record::wire) addresses: Vec<String>,
    /// Its settings that matter for a load.
    pub(in crate::record::wire) settings: BTreeMap<String, String>,
}

/// Where a server came from: the user named it, it was started for this run alone, or it is systally's
/// own small one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::record::wire) enum WireOrigin {
    External,
    Private,
    BuiltIn,
}

/// What a server's own counters say about a span of time, without systally's control connection.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireServerView {
    /// Calls that did not fail, by command in lower case.
    pub(in crate::record::wire) commands: BTreeMap<String, u64>,
    /// Calls that failed or were refused, by command.
    pub(in crate::record::wire) failed: BTreeMap<String, u64>,
    /// Time the server spent in commands; null where it does not tell.
    pub(in crate::record::wire) busy_ns: Option<u64>,
    /// Connections accepted.
    pub(in crate::record::wire) connections: u64,
    /// Connections refused because of `maxclients`.
    pub(in crate::record::wire) rejected: u64,
    /// What each server did, by address, where several serve together; absent for a single one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::record::wire) nodes: BTreeMap<String, NodeView>,
}
