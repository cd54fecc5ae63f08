//! Times of single operations, kept as histograms so that they can be merged and never averaged.

use crate::units::Nanos;

/// Merged times of operations (or batches) of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    /// Whether one value is one operation or one batch.
    pub per_batch: bool,
    /// Median.
    pub p50: Nanos,
    /// 90th percentile.
    pub p90: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// 99.9th percentile.
    pub p999: Nanos,
    /// Largest.
    pub max: Nanos,
    /// HDR histogram of nanoseconds, V2 deflate or V2, base64.
    pub hdr: String,
}
