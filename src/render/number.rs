//! How numbers are written in tables: with the digits they deserve, the same in every format.

use std::fmt;

use crate::record::Interval;
use crate::units::{Bytes, Grouped};

/// How a number is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A rate: whole and grouped, with a decimal only when it is small (`25 460`, `8.3`).
    Rate,
    /// Something per operation: two decimals, three below a tenth (`1.00`, `0.063`, `0`).
    PerOp,
    /// A factor (`2.50`, `14.2`, `120`).
    Factor,
    /// A share of 1, in percent with one decimal (`1.2%`).
    Percent,
    /// A share of 1, in hundredths with two decimals, as strace writes it (`65.46`).
    Share,
    /// Nanoseconds, in microseconds with three digits (`38.2`).
    Micros,
    /// Nanoseconds that are known to this place alone (a power of ten of them), in microseconds (`40`, `<10`).
    MicrosBy {
        /// The place of the last digit that says something, in nanoseconds.
        place: u64,
    },
    /// Nanoseconds, in seconds with six decimals, as strace writes them (`0.012345`).
    Seconds,
    /// A whole number in groups of three digits.
    Whole,
    /// Bytes, in the binary unit they deserve (`9.77 GiB`).
    Bytes,
}

/// A number with the style it is written in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// The value, in the unit that the style starts from.
    pub value: f64,
    /// How it is written.
    pub style: Style,
    /// Whether a long one is written in groups of three digits, for eyes, or in plain digits, for programs.
    pub grouped: bool,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        let text = match self.style {
            Style::Rate => three_digits(value),
            Style::PerOp => per_op(value),
            Style::Factor => factor(value),
            Style::Percent => format!("{:.1}%", value * 100.0),
            Style::Share => format!("{:.2}", value * 100.0),
            Style::Micros => three_digits(value / 1e3),
            Style::MicrosBy { place } => micros_by(value, place),
            Style::Seconds => format!("{:.6}", value / 1e9),
            Style::Whole => whole(value),
            Style::Bytes => Bytes(value as u64).to_string(),
        };
        if self.grouped {
            f.write_str(&text)
        } else {
            // The separator is the only space in a number.
            f.write_str(&text.replace(' ', ""))
        }
    }
}

/// A range (`0.97..1.02`); one number where both ends read the same.
pub(super) fn range(low: Number, high: Number) -> String {
    let (low, high) = (low.to_string(), high.to_string());
    if low == high {
        low
    } else {
        format!("{low}..{high}")
    }
}

/// An interval around a factor: the median and how far the farther end is (`0.42 ±0.01`), or the
/// median alone where there is only one value.
pub(super) fn spread(interval: &Interval) -> String {
    let half = interval.half_width();
    let decimals = decimals_of_factor(interval.median);
    // One more where it would read as no width at all.
    let rounds_to_none = half * 10_f64.powi(decimals as i32) < 0.5;
    // A single round has no width to show.
    if half == 0.0 {
        return factor(interval.median);
    }
    let half_decimals = decimals + usize::from(rounds_to_none);
    format!("{} ±{half:.half_decimals$}", factor(interval.median))
}

/// Grouped and whole from 100 on; below, three digits.
fn three_digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if size < 0.005 {
        format!("<{}0.01", if value < 0.0 { "-" } else { "" })
    } else if size < 9.995 {
        format!("{value:.2}")
    } else if size < 99.95 {
        format!("{value:.1}")
    } else {
        whole(value)
    }
}

/// Microseconds with no digit beyond the place, and no more than others have.
fn micros_by(ns: f64, place: u64) -> String {
    let place = place.max(1) as f64;
    let rounded = (ns / place).round() * place;
    let decimals = (1e3 / place).log10().ceil().max(0.0) as usize;
    if ns != 0.0 && rounded == 0.0 {
        return format!("<{:.decimals$}", place / 1e3);
    }
    let usual = three_digits(rounded / 1e3);
    let shown = usual.split_once('.').map_or(0, |(_, digits)| digits.len());
    if shown <= decimals {
        return usual;
    }
    format!("{:.decimals$}", rounded / 1e3)
}

fn per_op(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if size < 0.0005 {
        // Rounded it would read as none at all.
        "<0.001".to_owned()
    } else if size < 0.0995 {
        format!("{value:.3}")
    } else if size < 999.995 {
        format!("{value:.2}")
    } else {
        whole(value)
    }
}

fn factor(value: f64) -> String {
    if value.abs() >= 999.5 {
        return whole(value);
    }
    let decimals = decimals_of_factor(value);
    format!("{value:.decimals$}")
}

fn decimals_of_factor(value: f64) -> usize {
    let size = value.abs();
    if size < 0.0995 {
        3
    } else if size < 9.995 {
        2
    } else if size < 99.95 {
        1
    } else {
        0
    }
}

fn whole(value: f64) -> String {
    let rounded = value.round();
    if (0.0..=u64::MAX as f64).contains(&rounded) {
        Grouped(rounded as u64).to_string()
    } else {
        format!("{rounded}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(style: Style, values: &[f64]) -> Vec<String> {
        values
            .iter()
            .map(|value| {
                Number {
                    value: *value,
                    style,
                    grouped: true,
                }
                .to_string()
            })
            .collect()
    }

    #[test]
    fn a_number_of_a_coarse_clock_has_no_digits_beyond_it() {
        let by = |place| {
            written(
                Style::MicrosBy { place },
                &[0.0, 40.0, 1_234.0, 12_345.0, 345_678.0],
            )
        };
        assert_eq!(by(1), ["0", "0.04", "1.23", "12.3", "346"]);
        assert_eq!(by(100), ["0", "<0.1", "1.2", "12.3", "346"]);
        assert_eq!(by(1_000), ["0", "<1", "1", "12", "346"]);
        assert_eq!(by(10_000), ["0", "<10", "<10", "10", "350"]);
    }

    #[test]
    fn per_operation_numbers_keep_small_ones_apart_from_none() {
        assert_eq!(
            written(
                Style::PerOp,
                &[0.0, 0.0001, 0.0004, 0.0625, 0.0994, 0.0996, 1.0, 29.0, 1234.5]
            ),
            [
                "0", "<0.001", "<0.001", "0.062", "0.099", "0.10", "1.00", "29.00", "1 235"
            ]
        );
    }

    #[test]
    fn rates_are_grouped_and_short() {
        assert_eq!(
            written(
                Style::Rate,
                &[0.0, 0.001, 8.3, 9.999, 25.46, 99.96, 25_460.4, 1_234_567.0]
            ),
            ["0", "<0.01", "8.30", "10.0", "25.5", "100", "25 460", "1 234 567"]
        );
        assert_eq!(
            written(Style::Micros, &[38_240.0, 310.0, 1_240_000.0]),
            ["38.2", "0.31", "1 240"]
        );
    }

    #[test]
    fn factors_and_shares() {
        assert_eq!(
            written(Style::Factor, &[0.05, 0.5, 2.5, 14.23, 119.6, 1_500.0]),
            ["0.050", "0.50", "2.50", "14.2", "120", "1 500"]
        );
        assert_eq!(written(Style::Percent, &[0.0, 0.0123]), ["0.0%", "1.2%"]);
        assert_eq!(written(Style::Share, &[0.65456, 1.0]), ["65.46", "100.00"]);
        assert_eq!(written(Style::Seconds, &[12_345_000.0]), ["0.012345"]);
    }

    #[test]
    fn a_spread_shows_both_numbers_with_the_same_digits() {
        let interval = Interval {
            median: 0.421,
            low: 0.4,
            high: 0.43,
        };
        assert_eq!(spread(&interval), "0.42 ±0.02");
        let narrow = Interval {
            low: 0.419,
            high: 0.422,
            ..interval
        };
        assert_eq!(spread(&narrow), "0.42 ±0.002");
    }

    #[test]
    fn absurd_numbers_are_written_too() {
        for style in [
            Style::Rate,
            Style::PerOp,
            Style::Factor,
            Style::Percent,
            Style::Share,
            Style::Micros,
            Style::Seconds,
            Style::Whole,
            Style::Bytes,
        ] {
            for value in [f64::NAN, f64::INFINITY, -1.0, f64::MAX, f64::MIN_POSITIVE] {
                assert!(
                    !Number {
                        value,
                        style,
                        grouped: true
                    }
                    .to_string()
                    .is_empty()
                );
                let plain = Number {
                    value,
                    style,
                    grouped: false,
                }
                .to_string();
                assert!(!plain.contains(' '), "{plain}");
            }
        }
    }
}
