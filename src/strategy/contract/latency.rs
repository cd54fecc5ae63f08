//! The histogram of a worker's times.

use serde::{Deserialize, Serialize};

/// A worker's histogram: 16 buckets per power of two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireLatency {
    /// Always `ns`.
    pub unit: String,
    /// `op`, or `batch` when a batch was timed as one.
    pub per: String,
    /// Pairs of a bucket's lower bound in nanoseconds and its count.
    pub hist: Vec<(u64, u64)>,
}

/// The number of the bucket a time falls into: 16 buckets per power of two, exact below 16.
pub fn bucket(ns: u64) -> usize {
    if ns < 16 {
        return ns as usize;
    }
    let exponent = ns.ilog2() as usize;
    (exponent - 3) * 16 + ((ns >> (exponent - 4)) & 15) as usize
}

/// The lower bound of a bucket in nanoseconds.
pub fn bucket_lower(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let exponent = bucket / 16 + 3;
    ((16 + bucket % 16) as u64) << (exponent - 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_within_a_sixteenth() {
        for ns in [
            0,
            1,
            15,
            16,
            17,
            31,
            32,
            33,
            1_000,
            123_456,
            40_000_000,
            u64::from(u32::MAX),
        ] {
            let lower = bucket_lower(bucket(ns));
            assert!(lower <= ns, "{ns}: {lower}");
            assert!(ns - lower <= ns / 16, "{ns}: {lower}");
        }
    }
}
