//! Values that are there and are no sound measurement: what is said of them, in every format.

use crate::record::{Status, StrategyResult};

/// Of what a client claims and its server does not confirm.
const UNCONFIRMED: &str =
    "unverified: the server does not confirm what this client claims, so its speed is only its word";
/// Of a throughput, a ratio or a slowdown whose rounds differ too much.
const ROUNDS: &str =
    "noise: the timed rounds differ so much that this is no more than an order of size (see ±95%)";
/// Of a slowdown that would make the tracer a help.
const FASTER: &str = "noise: tracing makes no client faster; the untraced rounds were slower than the counted pass by \
                      chance, or by what else this machine did";

/// What is to be said of everything that was timed in a row.
pub(super) fn of_row(row: &StrategyResult) -> Option<&'static str> {
    (row.status == Status::Unverified).then_some(UNCONFIRMED)
}

/// What is to be said of a throughput.
pub(super) fn of_speed(row: &StrategyResult) -> Option<&'static str> {
    let is_noisy = row.timed.known().is_some_and(|timed| timed.is_noisy());
    of_row(row).or_else(|| is_noisy.then_some(ROUNDS))
}

/// What is to be said of a ratio to the baseline.
pub(super) fn of_ratio(row: &StrategyResult) -> Option<&'static str> {
    let is_noisy = row.timed.known().is_some_and(|timed| timed.ratio_is_noisy());
    of_row(row).or_else(|| is_noisy.then_some(ROUNDS))
}

/// What is to be said of a slowdown, which is measured against the timed rounds.
pub(super) fn of_slowdown(row: &StrategyResult) -> Option<&'static str> {
    let slowdown = *row.counted.known()?.slowdown.known()?;
    if slowdown < 1.0 && row.status != Status::Unverified {
        Some(FASTER)
    } else {
        of_speed(row)
    }
}
