//! The machine of a run: what it is, its limits and its counters.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine of a run.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireHost {
    /// Kernel release.
    pub(in crate::record::wire) kernel: Option<String>,
    /// Model name of the CPU.
    pub(in crate::record::wire) cpu: Option<String>,
    /// CPUs that the process could use.
    pub(in crate::record::wire) cores: Option<u64>,
    /// Memory in bytes.
    pub(in crate::record::wire) memory_bytes: Option<u64>,
    /// The kernel's clocksource.
    pub(in crate::record::wire) clocksource: Option<String>,
}

/// One limit, what the load demands of it, and what it can carry.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireLimit {
    /// Stable name.
    pub(in crate::record::wire) id: String,
    /// Whose limit it is.
    pub(in crate::record::wire) scope: String,
    /// Whether the load fits.
    pub(in crate::record::wire) verdict: WireVerdict,
    /// What the load needs.
    pub(in crate::record::wire) demand: Option<u64>,
    /// The demand as a formula with its numbers.
    pub(in crate::record::wire) formula: String,
    /// What there is.
    pub(in crate::record::wire) capacity: Option<u64>,
    /// Where it was read.
    pub(in crate::record::wire) source: String,
    /// What happens beyond it.
    pub(in crate::record::wire) effect: String,
    /// How to raise it.
    pub(in crate::record::wire) fix: WireFix,
}

/// Whether a planned load fits a limit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::record::wire) enum WireVerdict {
    Ok,
    Warn,
    Fail,
    Unknown,
    NotApplicable,
}

/// How to raise a limit, three ways.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireFix {
    /// A command for now.
    pub(in crate::record::wire) now: String,
    /// Configuration that stays.
    pub(in crate::record::wire) kept: String,
    /// In a container.
    pub(in crate::record::wire) container: String,
}

/// Counters before and after a run.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireCounters {
    /// Before.
    pub(in crate::record::wire) before: BTreeMap<String, u64>,
    /// After.
    pub(in crate::record::wire) after: BTreeMap<String, u64>,
}
