//! `--scale F`: the same experiment with F times the work.
//!
//! What a scenario is about is mostly how many clients there are at once, so those stay as long as they
//! can: first each client does fewer operations, down to [`FEWEST`]; only then are there fewer clients.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Operations that a client does at the least, unless the file asks for fewer: below that, start-up and
/// the first connection are most of what is seen.
const FEWEST: u64 = 10;

/// The largest factor: a scenario of a million operations becomes ten.
const LARGEST: f64 = 10.0;

/// The smallest factor.
const SMALLEST: f64 = 1e-6;

/// How much of the work is done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale(f64);

/// A text that is no scale.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: a scale is a number from {SMALLEST} to {LARGEST}, such as 0.1 for a tenth of the work")]
pub struct ScaleError(String);

impl FromStr for Scale {
    type Err = ScaleError;

    fn from_str(text: &str) -> Result<Scale, ScaleError> {
        match text.parse::<f64>() {
            Ok(factor) if (SMALLEST..=LARGEST).contains(&factor) => Ok(Scale(factor)),
            Ok(_) | Err(_) => Err(ScaleError(crate::units::escape(text, 40))),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Default for Scale {
    fn default() -> Scale {
        Scale::ONE
    }
}

impl Scale {
    /// The experiment as its file has it.
    pub const ONE: Scale = Scale(1.0);

    /// Clients, and the operations of each.
    pub fn per_client(self, clients: u32, ops: u64) -> (u32, u64) {
        let wanted = ops as f64 * self.0;
        let ops = self.amount(ops, FEWEST);
        let left = (wanted / ops as f64).min(1.0);
        let clients = (f64::from(clients) * left).round().clamp(1.0, f64::from(clients));
        // Within the range of what it came from.
        (clients as u32, ops)
    }

    /// Operations, `least` at the least unless there were fewer.
    pub fn amount(self, ops: u64, least: u64) -> u64 {
        let scaled = (ops as f64 * self.0).round();
        (scaled as u64).max(least.min(ops)).max(1)
    }

    /// A pause of a replayed script, which stands beside the time that the work takes. It never grows.
    pub fn pause(self, pause: Duration) -> Duration {
        pause.mul_f64(self.0.min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(text: &str) -> Scale {
        text.parse().unwrap()
    }

    #[test]
    fn clients_stay_until_each_would_do_too_little() {
        for (factor, expected) in [
            ("1", (1000, 1000)),
            ("2", (1000, 2000)),
            ("0.1", (1000, 100)),
            ("0.01", (1000, 10)),
            ("0.001", (100, 10)),
            ("0.000001", (1, 10)),
        ] {
            assert_eq!(scale(factor).per_client(1000, 1000), expected, "{factor}");
        }
        assert_eq!(scale("0.1").per_client(4, 3), (1, 3));
    }

    #[test]
    fn what_is_no_sensible_scale_is_refused() {
        for text in [
            "0",
            "-1",
            "NaN",
            "nan",
            "inf",
            "11",
            "1e9",
            "0.0000001",
            "",
            "x",
            "0,1",
        ] {
            let error = text.parse::<Scale>().unwrap_err().to_string();
            assert!(error.contains("from 0.000001 to 10"), "{text}: {error}");
        }
    }

    #[test]
    fn pauses_shrink_and_never_grow() {
        assert_eq!(
            scale("0.1").pause(Duration::from_secs(3)),
            Duration::from_millis(300)
        );
        assert_eq!(scale("2").pause(Duration::from_secs(3)), Duration::from_secs(3));
    }
}
