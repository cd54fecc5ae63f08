//! The untraced rounds of a row.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{WireCpu, WireServerView};

/// The untraced rounds of a row.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireTimed {
    /// Every round, in order.
    pub(in crate::record::wire) rounds: Vec<WireRound>,
    /// Throughput: median of the rounds with a 95 % bootstrap interval.
    pub(in crate::record::wire) ops_per_s: WireInterval,
    /// Ratio to the baseline row, computed round by round.
    pub(in crate::record::wire) vs_baseline: Option<WireInterval>,
    /// Times of operations or batches over all rounds, in nanoseconds.
    pub(in crate::record::wire) latency_ns: Option<WireLatencies>,
}

/// One timed round of all workers of a row.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireRound {
    /// Operations the clients say they completed.
    pub(in crate::record::wire) ops: u64,
    /// Operations begun.
    pub(in crate::record::wire) asked: u64,
    /// The longest of the workers' own times.
    pub(in crate::record::wire) seconds: f64,
    /// Failed operations by the client's own words, `class:message`.
    pub(in crate::record::wire) errors: BTreeMap<String, u64>,
    /// What the server saw in this round.
    pub(in crate::record::wire) server_view: Option<WireServerView>,
    /// CPU time of all workers in this round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::record::wire) cpu_ns: Option<WireCpu>,
}

/// A median with its 95 % interval.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireInterval {
    /// The median.
    pub(in crate::record::wire) median: f64,
    /// Lower end.
    pub(in crate::record::wire) low: f64,
    /// Upper end.
    pub(in crate::record::wire) high: f64,
}

/// Percentiles in nanoseconds and the histogram they come from.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireLatencies {
    /// Whether one value is one operation or one batch.
    pub(in crate::record::wire) per: WirePer,
    /// Median.
    pub(in crate::record::wire) p50: u64,
    /// 90th percentile.
    pub(in crate::record::wire) p90: u64,
    /// 99th percentile.
    pub(in crate::record::wire) p99: u64,
    /// 99.9th percentile.
    pub(in crate::record::wire) p999: u64,
    /// Largest.
    pub(in crate::record::wire) max: u64,
    /// HDR histogram of nanoseconds, V2 deflate or V2, base64.
    pub(in crate::record::wire) hdr: String,
}

/// What one timed value is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::record::wire) enum WirePer {
    Op,
    Batch,
}
