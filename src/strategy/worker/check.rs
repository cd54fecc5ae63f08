//! Judges what workers write: a result is kept only if it can be true.

use std::collections::BTreeMap;

use crate::strategy::contract::{Done, Event, LatencyMode, Spec, Stop, WireLatency, bucket};
use crate::units::{Nanos, escape};

/// Kinds of failures that are kept apart.
const MAX_KINDS: usize = 64;

/// How much of a text is kept: the list of PHP's extensions and its settings need some hundred characters.
const MAX_TEXT: usize = 1_500;

/// A line of a worker's standard output.
#[derive(Debug)]
pub(super) enum Line {
    /// An event of the contract.
    Event(Event),
    /// Something to read: a warning, a banner.
    Text(String),
    /// Neither, and why.
    Garbage(&'static str),
}

/// What a line is.
pub(super) fn line(bytes: &[u8]) -> Line {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Line::Garbage("bytes that are not UTF-8");
    };
    if text.starts_with('{') {
        return match serde_json::from_str(text) {
            Ok(event) => Line::Event(event),
            Err(_) => Line::Garbage("JSON that is no event of the worker contract"),
        };
    }
    // Colours are text; other control characters are not.
    let is_text = |c: char| !c.is_control() || matches!(c, '\t' | '\r' | '\u{1b}');
    if text.chars().all(is_text) {
        Line::Text(text.to_owned())
    } else {
        Line::Garbage("control characters")
    }
}

/// What a worker says of its environment, as text; what is `null` is left out.
pub(super) fn shown(versions: BTreeMap<String, serde_json::Value>) -> BTreeMap<String, String> {
    versions
        .into_iter()
        .take(MAX_KINDS)
        .filter_map(|(name, value)| {
            let text = match value {
                serde_json::Value::Null => return None,
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            Some((escape(&name, 60), escape(&text, MAX_TEXT)))
        })
        .collect()
}

/// Checks the result of a round against what was asked for and the time that passed, and makes its texts
/// safe to show.
///
/// # Errors
/// Why it cannot be true.
pub(super) fn done(done: Done, spec: &Spec, wall: Nanos) -> Result<Done, String> {
    let failed: u64 = done.errors.values().fold(0, |sum, n| sum.saturating_add(*n));
    let Done { ops, asked, .. } = done;
    let wanted = match spec.stop {
        Stop::Ops(wanted) => Some(wanted),
        Stop::Seconds(_) => None,
    };
    match wanted {
        Some(wanted) if asked > wanted => {
            return Err(format!("it began {asked} operations, and was asked for {wanted}"));
        }
        Some(wanted) if asked < wanted && failed == 0 => {
            return Err(format!(
                "it began {asked} operations of the {wanted} it was asked for, and names no failure"
            ));
        }
        _ => {}
    }
    if ops > asked {
        return Err(format!("it completed {ops} operations, and began {asked}"));
    }
    if ops.checked_add(failed) != Some(asked) {
        return Err(format!(
            "it began {asked} operations, but {ops} were completed and {failed} failed"
        ));
    }
    // The worker's clock starts after `go` was sent and stops before its result came.
    if done.elapsed_ns.0 > wall.0.saturating_add(1_000_000) {
        return Err(format!(
            "its round took {}, but only {wall} went by",
            done.elapsed_ns
        ));
    }
    let latency = match (spec.latency, done.latency) {
        (LatencyMode::Hist, Some(latency)) => Some(histogram(latency, asked)?),
        (LatencyMode::Hist | LatencyMode::None, _) => None,
    };
    Ok(Done {
        errors: kinds(done.errors, spec),
        latency,
        ..done
    })
}

fn histogram(latency: WireLatency, asked: u64) -> Result<WireLatency, String> {
    if latency.unit != "ns" || !matches!(latency.per.as_str(), "op" | "batch") {
        return Err(format!(
            "its times are in {} per {}, and must be in ns per op or batch",
            escape(&latency.unit, 20),
            escape(&latency.per, 20)
        ));
    }
    let times = latency
        .hist
        .iter()
        .fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
    if times > asked || latency.hist.len() > bucket(u64::MAX) + 1 {
        return Err(format!("it timed {times} operations, and began {asked}"));
    }
    Ok(latency)
}

fn kinds(errors: BTreeMap<String, u64>, spec: &Spec) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for (kind, n) in errors {
        let mut kind = escape(&spec.redact(&kind), 200);
        if out.len() >= MAX_KINDS && !out.contains_key(&kind) {
            kind = "other:failures of more kinds than are kept apart".to_owned();
        }
        let sum: &mut u64 = out.entry(kind).or_default();
        *sum = sum.saturating_add(n);
    }
    out
}
