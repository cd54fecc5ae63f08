//! `tcp_syn_retries` and `tcp_syn_linear_timeouts`: after how long a connect that is never answered gives
//! up. No amount, and no cure for a full queue.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, sysctl};
use crate::record::LimitReading;

pub(super) struct SynRetries;

impl Limit for SynRetries {
    fn id(&self) -> &'static str {
        "syn_retries"
    }

    fn title(&self) -> &'static str {
        "tcp_syn_retries"
    }

    fn unit(&self) -> Unit {
        Unit::Of("tries")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "client's netns",
            "/proc/sys/net/ipv4/tcp_syn_retries, tcp_syn_linear_timeouts",
        );
        if !load.tcp {
            return reading.not_applicable("UNIX sockets have no handshake");
        }
        let retries = match sysctl::integer(root, "net.ipv4.tcp_syn_retries") {
            Ok(retries) => retries,
            Err(e) => return reading.unknown(e.to_string()),
        };
        // Kernels before 6.5 double from the start.
        let linear = match sysctl::integer(root, "net.ipv4.tcp_syn_linear_timeouts") {
            Ok(linear) => linear,
            Err(e) if e.is_absent() => 0,
            Err(e) => return reading.unknown(e.to_string()),
        };
        reading.not_applicable(format!(
            "an unanswered connect ends with ETIMEDOUT after about {} s, or at the client's own time-out",
            seconds(retries, linear)
        ))
    }
}

/// `linear` waits of one second, then waits of 1, 2, 4 … seconds; a wait is capped at two minutes.
fn seconds(retries: u64, linear: u64) -> u64 {
    const LONGEST: u64 = 120;
    let doubling =
        (0..=retries.min(255)).map(|n| 1_u64.checked_shl(n as u32).unwrap_or(LONGEST).min(LONGEST));
    linear.saturating_add(doubling.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_defaults_give_131_seconds() {
        assert_eq!(seconds(6, 4), 131);
        assert_eq!(seconds(6, 0), 127);
        assert_eq!(seconds(1, 0), 3);
        assert!(seconds(u64::MAX, u64::MAX) > 0);
    }
}
