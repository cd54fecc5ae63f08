//! Values that are there and are no sound measurement: what is said of them, in every format.

use crate::record::{Counted, Timed};
use crate::units::Measured;

/// Of a throughput, a ratio or a slowdown whose rounds differ too much.
const ROUNDS: &str =
    "noise: the timed rounds differ so much that this is no more than an order of size (see ±95%)";
/// Of a slowdown that would make the tracer a help.
const FASTER: &str = "noise: tracing makes no client faster; the untraced rounds were slower than the counted pass by \
                      chance, or by what else this machine did";

/// What is to be said of a throughput.
pub(super) fn of_speed(timed: &Timed) -> Option<&'static str> {
    timed.is_noisy().then_some(ROUNDS)
}

/// What is to be said of a ratio to the baseline.
pub(super) fn of_ratio(timed: &Timed) -> Option<&'static str> {
    timed.ratio_is_noisy().then_some(ROUNDS)
}

/// What is to be said of a slowdown, which is measured against the timed rounds.
pub(super) fn of_slowdown(counted: &Counted, timed: &Measured<Timed>) -> Option<&'static str> {
    let slowdown = *counted.slowdown.known()?;
    if slowdown < 1.0 {
        Some(FASTER)
    } else {
        timed.known().and_then(of_speed)
    }
}
