//! Times of single operations, kept as histograms so that they can be merged and never averaged.
//!
//! Workers count times in buckets, sixteen per power of two, because that is the same in every language.
//! A bucket is known by its lower bound; what is recorded here is its middle, so that no percentile is
//! off by more than half a bucket (3 %) either way. The largest value is a middle too, not the exact
//! maximum.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::strategy::contract::{bucket, bucket_lower};
use crate::units::Nanos;

/// Significant figures that histograms keep.
const FIGURES: u8 = 3;

/// The longest time that histograms tell apart: an hour. No operation is waited for that long.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The most that one histogram counts: whole numbers up to here are exact in JSON readers that know only
/// doubles, and sums stay far from overflow.
const MOST_COUNTED: u64 = 1 << 53;

/// The longest uncompressed histogram that is read back. Ours have at most 34,000 buckets of at most nine
/// bytes.
const LONGEST_ENCODED: u64 = 1 << 20;

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

/// Why a histogram could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LatencyError {
    /// The text is not base64.
    #[error("the histogram is not base64: {0}")]
    Base64(String),
    /// The bytes are not an HDR histogram that systally writes.
    #[error("the histogram cannot be read: {0}")]
    Malformed(String),
}

/// Collects the buckets of all workers and rounds of a row.
#[derive(Debug, Clone)]
pub struct LatencyBuilder {
    histogram: Option<Histogram<u64>>,
    per_batch: bool,
}

impl LatencyBuilder {
    /// An empty collection; `per_batch` when one value is the time of one batch.
    pub fn new(per_batch: bool) -> LatencyBuilder {
        LatencyBuilder {
            // The bounds are constants that satisfy the library, so this is always `Some`.
            histogram: Histogram::new_with_bounds(1, LONGEST_NS, FIGURES).ok(),
            per_batch,
        }
    }

    /// Counts `count` values of the bucket that begins at `lower_ns` (any value inside it will do).
    ///
    /// Values over an hour count as an hour, and a histogram that is full takes no more: what a broken
    /// worker sends must not end the run.
    pub fn add(&mut self, lower_ns: u64, count: u64) {
        let Some(histogram) = &mut self.histogram else {
            return;
        };
        let count = count.min(MOST_COUNTED.saturating_sub(histogram.len()));
        if count > 0 {
            histogram.saturating_record_n(middle(lower_ns), count);
        }
    }

    /// Counts every bucket of a worker's round.
    pub fn add_all(&mut self, buckets: &[(u64, u64)]) {
        for (lower_ns, count) in buckets {
            self.add(*lower_ns, *count);
        }
    }

    /// Adds the histogram of a finished row, so that rows of several hosts or runs can be merged.
    ///
    /// # Errors
    /// When the histogram cannot be read.
    pub fn merge(&mut self, other: &Latency) -> Result<(), LatencyError> {
        let other = decode(&other.hdr)?;
        for value in other.iter_recorded() {
            let Some(histogram) = &mut self.histogram else {
                continue;
            };
            let room = MOST_COUNTED.saturating_sub(histogram.len());
            histogram.saturating_record_n(value.value_iterated_to(), value.count_at_value().min(room));
        }
        Ok(())
    }

    /// The percentiles and the histogram; `None` when nothing was counted.
    pub fn finish(self) -> Option<Latency> {
        let histogram = self.histogram?;
        if histogram.is_empty() {
            return None;
        }
        let at = |quantile: f64| Nanos(histogram.value_at_quantile(quantile));
        Some(Latency {
            per_batch: self.per_batch,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            hdr: encode(&histogram)?,
        })
    }
}

/// The middle of the bucket that `ns` falls into.
fn middle(ns: u64) -> u64 {
    if ns >= LONGEST_NS {
        return LONGEST_NS;
    }
    let number = bucket(ns);
    let (lower, next) = (bucket_lower(number), bucket_lower(number + 1));
    lower + (next - lower) / 2
}

fn encode(histogram: &Histogram<u64>) -> Option<String> {
    let mut bytes = Vec::new();
    // Writing to memory fails only when lengths do not fit the platform's integers.
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).ok()?;
    Some(STANDARD.encode(bytes))
}

/// Reads a histogram of nanoseconds, V2 or V2 deflate in base64.
///
/// The text may come from anywhere, so lengths and counts are checked before the library sees them.
///
/// # Errors
/// When the text is no base64, or not a histogram that fits the bounds above.
pub fn decode(text: &str) -> Result<Histogram<u64>, LatencyError> {
    let malformed = |what: &str| LatencyError::Malformed(what.to_owned());
    let bytes = STANDARD
        .decode(text)
        .map_err(|e| LatencyError::Base64(e.to_string()))?;
    let plain = match bytes.get(..4) {
        Some(cookie) if cookie == V2_COMPRESSED_COOKIE.to_be_bytes() => {
            let mut plain = Vec::new();
            flate2::read::ZlibDecoder::new(bytes.get(8..).unwrap_or_default())
                .take(LONGEST_ENCODED)
                .read_to_end(&mut plain)
                .map_err(|e| LatencyError::Malformed(e.to_string()))?;
            plain
        }
        Some(_) => bytes,
        None => return Err(malformed("it is too short")),
    };
    check(&plain)?;
    Deserializer::new()
        .deserialize(&mut plain.as_slice())
        .map_err(|e| LatencyError::Malformed(e.to_string()))
}

/// Cookies of the two encodings (HdrHistogram's EncodableHistogram: base cookie, with the word size 1 in
/// the third nibble).
const V2_COOKIE: u32 = 0x1c84_9313;
const V2_COMPRESSED_COOKIE: u32 = 0x1c84_9314;

/// Checks the header and walks the counts of a plain V2 histogram: the library trusts the lengths it
/// reads, and adds the counts without looking.
fn check(plain: &[u8]) -> Result<(), LatencyError> {
    let malformed = |what: &str| LatencyError::Malformed(what.to_owned());
    let word = |at: usize| -> Option<u32> {
        let bytes = plain.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_be_bytes)
    };
    let long = |at: usize| -> Option<u64> {
        let bytes = plain.get(at..at + 8)?;
        bytes.try_into().ok().map(u64::from_be_bytes)
    };
    const HEADER: usize = 40;
    if word(0) != Some(V2_COOKIE) {
        return Err(malformed("it is not a V2 histogram"));
    }
    let counts = plain.get(HEADER..).ok_or_else(|| malformed("it is too short"))?;
    if word(4).map(u64::from) != Some(counts.len() as u64) {
        return Err(malformed("its length is not the one it states"));
    }
    if word(12).is_none_or(|figures| figures > u32::from(FIGURES)) {
        return Err(malformed("it keeps more than three significant figures"));
    }
    // Small enough that the library's arithmetic on the bounds cannot overflow.
    let bounds = (long(16), long(24));
    if !matches!(bounds, (Some(low), Some(high)) if low <= 1 << 32 && high <= 1 << 62) {
        return Err(malformed("its bounds are not times"));
    }
    let mut rest = counts;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (raw, after) = varint(rest).ok_or_else(|| malformed("it ends within a count"))?;
        rest = after;
        // Zigzag: odd numbers are runs of empty buckets, even ones are twice a count.
        let steps = raw.div_ceil(2);
        if raw % 2 == 1 && steps > LONGEST_ENCODED {
            return Err(malformed("it skips past its end"));
        }
        if raw % 2 == 0 {
            total = total
                .checked_add(steps)
                .filter(|total| *total <= MOST_COUNTED)
                .ok_or_else(|| malformed("it counts more than can be"))?;
        }
    }
    Ok(())
}

/// One number in the encoding of V2 histograms (LEB128 of at most nine bytes, the ninth taken whole), and
/// what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (i, byte) in bytes.iter().enumerate().take(9) {
        if i == 8 {
            return Some((value | u64::from(*byte) << 56, &bytes[9..]));
        }
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_counted_is_no_latency() {
        assert_eq!(LatencyBuilder::new(false).finish(), None);
        let mut builder = LatencyBuilder::new(false);
        builder.add(1000, 0);
        assert_eq!(builder.finish(), None);
    }

    #[test]
    fn percentiles_are_within_half_a_bucket() {
        let mut builder = LatencyBuilder::new(false);
        for ns in (1..=1000_u64).map(|i| i * 100) {
            builder.add(bucket_lower(bucket(ns)), 1);
        }
        let latency = builder.finish().unwrap();
        for (shown, true_value) in [
            (latency.p50, 50_000.0),
            (latency.p90, 90_000.0),
            (latency.p99, 99_000.0),
            (latency.p999, 99_900.0),
        ] {
            let off = (shown.0 as f64 - true_value).abs() / true_value;
            assert!(off < 0.04, "{shown:?} for {true_value}: off by {off}");
        }
        assert!(latency.max >= latency.p999);
    }

    #[test]
    fn a_histogram_survives_its_text() {
        let mut builder = LatencyBuilder::new(true);
        builder.add_all(&[(32, 5), (40_960, 7), (1 << 30, 1)]);
        let latency = builder.finish().unwrap();
        assert!(latency.hdr.len() < 200, "{} characters", latency.hdr.len());
        let histogram = decode(&latency.hdr).unwrap();
        assert_eq!(histogram.len(), 13);
        assert_eq!(histogram.count_at(33), 5);
        let mut again = LatencyBuilder::new(true);
        again.merge(&latency).unwrap();
        assert_eq!(again.finish(), Some(latency));
    }

    #[test]
    fn merging_adds_buckets() {
        let mut one = LatencyBuilder::new(false);
        one.add(1024, 99);
        let mut two = LatencyBuilder::new(false);
        two.add(1 << 20, 1);
        let (one, two) = (one.finish().unwrap(), two.finish().unwrap());
        let mut both = LatencyBuilder::new(false);
        both.merge(&one).unwrap();
        both.merge(&two).unwrap();
        let both = both.finish().unwrap();
        assert_eq!(both.p99, one.p99);
        assert_eq!(both.max, two.max);
    }

    #[test]
    fn absurd_values_are_held_at_the_ends() {
        let mut builder = LatencyBuilder::new(false);
        builder.add_all(&[(u64::MAX, u64::MAX), (0, u64::MAX), (5, 1)]);
        let latency = builder.finish().unwrap();
        assert!(latency.max.0 >= LONGEST_NS && latency.max.0 < LONGEST_NS * 2);
        assert_eq!(decode(&latency.hdr).unwrap().len(), MOST_COUNTED);
    }

    #[test]
    fn a_plain_v2_histogram_is_read_too() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3).unwrap();
        histogram.record_n(777, 3).unwrap();
        let mut bytes = Vec::new();
        hdrhistogram::serialization::V2Serializer::new()
            .serialize(&histogram, &mut bytes)
            .unwrap();
        assert_eq!(decode(&STANDARD.encode(&bytes)).unwrap(), histogram);
        // The most negative run, which the library would negate.
        bytes.splice(40.., [0xff; 9]);
        bytes[4..8].copy_from_slice(&9_u32.to_be_bytes());
        assert!(decode(&STANDARD.encode(&bytes)).is_err());
    }

    #[test]
    fn foreign_text_is_an_error() {
        for text in ["", "AAAA", "!", "HISTFAAAAAB4", "HIST"] {
            assert!(decode(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&STANDARD.encode(&bytes));
            // The same behind a header that passes the first checks.
            let mut plain = V2_COOKIE.to_be_bytes().to_vec();
            plain.extend((bytes.len() as u32).to_be_bytes());
            plain.extend([0, 0, 0, 0, 0, 0, 0, 3]);
            plain.extend(1_u64.to_be_bytes());
            plain.extend(LONGEST_NS.to_be_bytes());
            plain.extend(1.0_f64.to_be_bytes());
            plain.extend(&bytes);
            if let Ok(histogram) = decode(&STANDARD.encode(&plain)) {
                let _ = histogram.value_at_quantile(0.99);
                let _ = histogram.iter_recorded().count();
            }
        }
    }
}
