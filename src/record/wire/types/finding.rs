//! What the rules found.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One thing found.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireFinding {
    /// The stable code, in capitals.
    pub(in crate::record::wire) code: String,
    /// How much it matters.
    pub(in crate::record::wire) severity: WireSeverity,
    /// The strategy it is about; null for the whole run.
    pub(in crate::record::wire) strategy: Option<String>,
    /// The row it is about, by its place in `strategies`, from 0: several rows can have one name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::record::wire) row: Option<usize>,
    /// The numbers it rests on.
    pub(in crate::record::wire) evidence: BTreeMap<String, serde_json::Value>,
    /// The cause in one sentence.
    pub(in crate::record::wire) says: String,
    /// What to try.
    pub(in crate::record::wire) try_next: String,
    /// Usual suspects that were looked at and are fine.
    pub(in crate::record::wire) not_the_cause: Vec<String>,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::record::wire) enum WireSeverity {
    Info,
    Warning,
    Error,
}
