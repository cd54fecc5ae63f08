//! Numbers that carry their unit, and own how they are written.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A span of time in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span in microseconds.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl From<Duration> for Nanos {
    fn from(span: Duration) -> Self {
        Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        Duration::from_nanos(span.0)
    }
}

impl std::ops::Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl std::ops::AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl fmt::Display for Nanos {
    /// Three significant digits with the unit that keeps them readable: `840 ns`, `12.3 µs`, `1.05 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (ns / 1e3, "µs"),
            1_000_000..1_000_000_000 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        let digits = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        write!(f, "{value:.digits$} {unit}")
    }
}

/// Completed operations: commands whose reply the client has checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ops(pub u64);

impl Ops {
    /// Operations per second over `span`; `None` when no time passed.
    pub fn per_second(self, span: Nanos) -> Option<f64> {
        (span.0 > 0).then(|| self.0 as f64 / span.as_secs_f64())
    }

    /// `count` divided by the operations; `None` when there were none.
    pub fn per_op(self, count: u64) -> Option<f64> {
        (self.0 > 0).then(|| count as f64 / self.0 as f64)
    }
}

impl fmt::Display for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Grouped(self.0))
    }
}

/// A whole number written in groups of three digits: `1 234 567`.
#[derive(Debug, Clone, Copy)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut out = String::with_capacity(digits.len() + digits.len() / 3);
        for (i, c) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                out.push(' ');
            }
            out.push(c);
        }
        f.pad(&out)
    }
}

/// An amount of memory, written in the largest binary unit that it fills: `9.77 GiB`, `5 MiB`, `300 B`.
#[derive(Debug, Clone, Copy)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        // A unit more where three digits would round up to a thousand and more of it.
        let step = (0..6).find(|step| (self.0 as f64 / (1_u64 << (10 * step)) as f64) < 1023.5);
        let step: usize = step.unwrap_or(6);
        let one = 1_u64 << (10 * step);
        let value = self.0 as f64 / one as f64;
        let number = if self.0.is_multiple_of(one) {
            (self.0 / one).to_string()
        } else if value < 9.995 {
            format!("{value:.2}")
        } else if value < 99.95 {
            format!("{value:.1}")
        } else {
            format!("{value:.0}")
        };
        f.pad(&format!("{number} {}", UNITS[step]))
    }
}

/// A value, or the reason why there is none. Not measured is not zero: renderers print `–` and put the
/// reason in the notes.
#[derive(Debug, Clone, PartialEq)]
pub enum Measured<T> {
    /// The value was measured.
    Known(T),
    /// It was not, and why (one short clause, plain English, no full stop).
    NotMeasured(String),
}

impl<T> Measured<T> {
    /// The value when there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Measured::Known(value) => Some(value),
            Measured::NotMeasured(_) => None,
        }
    }

    /// The reason when there is no value.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Measured::Known(_) => None,
            Measured::NotMeasured(reason) => Some(reason),
        }
    }

    /// Builds from an option, with the reason for `None`.
    pub fn from_option(value: Option<T>, reason: &str) -> Self {
        match value {
            Some(value) => Measured::Known(value),
            None => Measured::NotMeasured(reason.to_owned()),
        }
    }

    /// Applies `f` to a known value, keeps the reason otherwise.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Measured<U> {
        match self {
            Measured::Known(value) => Measured::Known(f(value)),
            Measured::NotMeasured(reason) => Measured::NotMeasured(reason),
        }
    }
}

/// The sum of counts that may come from outside, where a hostile one must not overflow: it stops at the
/// largest number there is.
pub fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Makes text from outside (a file, a process name, a server's reply) safe to show: control characters,
/// escapes and line breaks become `\u{..}`-style escapes, and it is cut at `limit` characters.
pub fn escape(text: &str, limit: usize) -> String {
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i >= limit {
            out.push('…');
            break;
        }
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Bidirectional and zero-width marks can reorder or hide what a terminal shows.
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
                out.push_str(&c.escape_unicode().to_string());
            }
            c if c.is_control() => out.push_str(&c.escape_default().to_string()),
            c => out.push(c),
        }
    }
    out
}

/// Reads a span of time with its unit: `250ms`, `2s`, `1.5s`, `2m`.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "" => return Err("a unit is needed: 200ms, 2s, 1m".to_owned()),
        other => {
            return Err(format!(
                "unknown unit '{}'; use us, ms, s or m",
                escape(other, 40)
            ));
        }
    };
    let value: f64 = number
        .parse()
        .map_err(|_| format!("'{}' is not a number", escape(number, 40)))?;
    let seconds = value * scale;
    if !(1e-3..=86_400.0).contains(&seconds) {
        return Err("must lie between 1ms and 24 hours".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_its_unit_and_three_digits() {
        let written = [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.50 KiB"),
            (14_100, "13.8 KiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            (5 << 20, "5 MiB"),
            (10_485_760_000, "9.77 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in written {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn a_span_needs_a_unit_and_a_sane_value() {
        assert_eq!(parse_span("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_span("1.5s"), Ok(Duration::from_millis(1500)));
        for bad in ["", "5", "-1s", "1h", "nans", "infs", "0s", "1e9s", "ms"] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nanos_pick_a_readable_unit() {
        let shown: Vec<String> = [999, 1_000, 12_345, 999_000_000, 1_050_000_000]
            .iter()
            .map(|n| Nanos(*n).to_string())
            .collect();
        assert_eq!(shown, ["999 ns", "1.00 µs", "12.3 µs", "999 ms", "1.05 s"]);
    }

    #[test]
    fn grouped_keeps_short_numbers_whole() {
        assert_eq!(Grouped(7).to_string(), "7");
        assert_eq!(Grouped(999).to_string(), "999");
        assert_eq!(Grouped(1_234_567).to_string(), "1 234 567");
    }

    #[test]
    fn nothing_divides_by_zero() {
        assert_eq!(Ops(0).per_op(5), None);
        assert_eq!(Ops(5).per_second(Nanos(0)), None);
    }

    #[test]
    fn escape_leaves_no_control_character() {
        let hostile = "a\u{1b}[31mred\nb\u{202e}c";
        let shown = escape(hostile, 100);
        assert!(!shown.chars().any(char::is_control), "{shown}");
        assert!(!shown.contains('\u{202e}'));
        assert_eq!(escape("abcdef", 3), "abc…");
    }
}
