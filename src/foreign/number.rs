//! Numbers as tools print them: with a decimal point or comma, wider than any integer type, in hex.

use crate::units::Nanos;

/// A whole number in decimal; `None` for anything else, overflow included.
pub(crate) fn uint(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    // So many digits always fit.
    if text.len() <= 19 {
        let mut n = 0;
        for byte in text {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            n = n * 10 + u64::from(digit);
        }
        return Some(n);
    }
    text.iter().try_fold(0_u64, |n, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A whole number in decimal, or in hex after `0x`, with an optional minus sign.
pub(crate) fn int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let magnitude = match digits.strip_prefix(b"0x").or_else(|| digits.strip_prefix(b"0X")) {
        Some(hex) if !hex.is_empty() && hex.len() <= 16 => hex.iter().try_fold(0_u64, |n, byte| {
            let digit = char::from(*byte).to_digit(16)?;
            Some((n << 4) | u64::from(digit))
        })?,
        Some(_) => return None,
        None => uint(digits)?,
    };
    if negative {
        i64::try_from(magnitude).ok().map(|n| -n)
    } else if digits.len() != text.len() {
        None
    } else {
        // Addresses above 2^63 are negative here, as the kernel returns them.
        Some(magnitude as i64)
    }
}

/// Whether the text is digits (a number too large for [`uint`] is still one).
pub(crate) fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Whether the text is meant as a number: digits with a sign, a point or an exponent, or what programs
/// print for a quotient by zero. Of use where reading it as a number has failed.
pub(crate) fn is_odd(text: &[u8]) -> bool {
    let digits = text.iter().filter(|b| b.is_ascii_digit()).count();
    let rest_ok = text
        .iter()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b',' | b'-' | b'+' | b'e' | b'E'));
    let first = text.first().is_some_and(|b| !b.eq_ignore_ascii_case(&b'e'));
    (digits > 0 && rest_ok && first) || {
        let word = text.strip_prefix(b"-").unwrap_or(text);
        word.eq_ignore_ascii_case(b"nan") || word.eq_ignore_ascii_case(b"inf")
    }
}

/// Whether the text looks like a decimal number: digits with at most one point or comma.
pub(crate) fn is_decimal(text: &[u8]) -> bool {
    let marks = text.iter().filter(|b| matches!(b, b'.' | b',')).count();
    marks <= 1
        && text.iter().any(u8::is_ascii_digit)
        && text
            .iter()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b','))
}

/// A decimal number of units of `unit` nanoseconds each, exact to the nanosecond (further digits are cut
/// off); `None` for anything else, overflow included.
pub(crate) fn span(text: &[u8], unit: u64) -> Option<Nanos> {
    let mark = text.iter().position(|b| matches!(b, b'.' | b','));
    let (whole, fraction) = match mark {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[][..]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Every line of a log has one or two of these, and almost all are so short.
    if whole.len() <= 10 && fraction.len() <= 9 && unit == 1_000_000_000 {
        let mut nanos = 0;
        for digits in [whole, fraction] {
            for byte in digits {
                let digit = byte.wrapping_sub(b'0');
                if digit > 9 {
                    return None;
                }
                nanos = nanos * 10 + u64::from(digit);
            }
        }
        return nanos
            .checked_mul(10_u64.pow(9 - fraction.len() as u32))
            .map(Nanos);
    }
    let whole = if whole.is_empty() { 0 } else { uint(whole)? };
    let mut nanos = u128::from(whole) * u128::from(unit);
    // In 10^-9 units of the unit, so that a microsecond's thousandths stay whole.
    let mut scale = u128::from(unit) * 1_000_000_000;
    let mut rest = 0_u128;
    for byte in fraction {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        scale /= 10;
        rest += scale * u128::from(digit);
    }
    nanos += rest / 1_000_000_000;
    u64::try_from(nanos).ok().map(Nanos)
}

/// Seconds.
pub(crate) fn seconds(text: &[u8]) -> Option<Nanos> {
    span(text, 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(seconds(b"0.001821"), Some(Nanos(1_821_000)));
        assert_eq!(seconds(b"0,029455"), Some(Nanos(29_455_000)));
        assert_eq!(seconds(b"123456.789012"), Some(Nanos(123_456_789_012_000)));
        assert_eq!(seconds(b".000"), Some(Nanos(0)));
        assert_eq!(span(b"1902458.009", 1_000), Some(Nanos(1_902_458_009)));
        assert_eq!(span(b"40.148", 1_000_000), Some(Nanos(40_148_000)));
        assert_eq!(seconds(b"1.0000000009"), Some(Nanos(1_000_000_000)));
        assert_eq!(seconds(b"."), None);
        assert_eq!(seconds(b"1.2.3"), None);
        assert_eq!(seconds(b"99999999999999999999"), None);
        assert_eq!(seconds(b"18446744073.8"), None);
    }

    #[test]
    fn integers_do_not_wrap() {
        assert_eq!(uint(b"9876543210"), Some(9_876_543_210));
        assert_eq!(uint(b"99999999999999999999"), None);
        assert_eq!(uint(b""), None);
        assert_eq!(int(b"-1"), Some(-1));
        assert_eq!(int(b"0x10"), Some(16));
        assert_eq!(int(b"0x"), None);
        assert_eq!(int(b"--1"), None);
        assert!(is_digits(b"99999999999999999999"));
        for odd in ["99999999999999999999", "-1", "1e400", "+1.5", "NaN", "-inf"] {
            assert!(is_odd(odd.as_bytes()), "{odd}");
        }
        for plain in ["", "unavailable", "socket:[1]", "-", "e4", "0x1"] {
            assert!(!is_odd(plain.as_bytes()), "{plain}");
        }
    }
}
