//! The columns in front of a call: pid, stamps, and what else strace can be told to write there.

use memchr::{memchr, memmem};

use super::super::number;
use super::{digits, skip_spaces};

/// When a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// Nanoseconds since midnight (`-t`, `-tt`).
    OfDay(u64),
    /// Nanoseconds since 1970 (`-ttt`).
    Epoch(u64),
    /// Nanoseconds since the line before (`-r`).
    Delta(u64),
}

/// What stands before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Prefix {
    /// Thread id, from `[pid 7]` or from the first column of a `-o` file.
    pub(crate) pid: Option<u32>,
    /// Time stamp; with `-r -t` the absolute one.
    pub(crate) stamp: Option<Stamp>,
}

/// Takes the columns before the call off a line.
pub(crate) fn prefix(line: &[u8]) -> (Prefix, &[u8]) {
    let mut prefix = Prefix::default();
    if line.first().is_some_and(u8::is_ascii_lowercase) {
        return (prefix, line);
    }
    let mut rest = skip_spaces(line);
    // Five columns at most: pid, security context, two stamps, instruction pointer or call number.
    for _ in 0..6 {
        let after = match rest.first() {
            Some(b'0'..=b'9') => number_column(&mut prefix, rest),
            Some(b'[') => bracket_column(&mut prefix, rest),
            Some(b'(') if rest.starts_with(b"(+") => {
                rest.iter().position(|b| *b == b')').map(|at| &rest[at + 1..])
            }
            Some(_) | None => None,
        };
        match after {
            Some(after) => rest = skip_spaces(after),
            None => break,
        }
    }
    (prefix, rest)
}

/// A pid or a time stamp.
fn number_column<'a>(prefix: &mut Prefix, line: &'a [u8]) -> Option<&'a [u8]> {
    let whole = digits(line);
    match line.get(whole)? {
        b' ' => {
            let value = number::uint(&line[..whole])?;
            // Process ids end at 2^22.
            if value <= 1 << 22 && prefix.pid.is_none() && prefix.stamp.is_none() {
                prefix.pid = u32::try_from(value).ok();
            } else if prefix.stamp.is_none() {
                prefix.stamp = Some(Stamp::Epoch(value.checked_mul(1_000_000_000)?));
            } else {
                return None;
            }
            Some(&line[whole..])
        }
        // 300<php-fpm8.2> from --decode-pids=comm; a comm may hold anything but a line feed.
        b'<' if prefix.pid.is_none() => {
            let end = memmem::find(&line[whole..line.len().min(whole + 40)], b"> ")?;
            prefix.pid = number::uint(&line[..whole]).and_then(|n| u32::try_from(n).ok());
            Some(&line[whole + end + 1..])
        }
        b':' => {
            let (nanos, length) = time_of_day(line)?;
            // With -r and -t together the relative one follows in brackets.
            prefix.stamp = Some(Stamp::OfDay(nanos));
            Some(&line[length..])
        }
        b'.' | b',' => {
            let length = whole + 1 + digits(&line[whole + 1..]);
            if line.get(length) != Some(&b' ') {
                return None;
            }
            let value = number::seconds(&line[..length])?.0;
            if prefix.stamp.is_none() {
                // Relative stamps are gaps between lines; epoch ones have ten digits.
                prefix.stamp = Some(if whole >= 9 {
                    Stamp::Epoch(value)
                } else {
                    Stamp::Delta(value)
                });
            }
            Some(&line[length..])
        }
        _ => None,
    }
}

fn time_of_day(line: &[u8]) -> Option<(u64, usize)> {
    let two = |at: usize| -> Option<u64> {
        let pair = line.get(at..at + 2)?;
        number::uint(pair)
    };
    let (hours, minutes, seconds) = (two(0)?, two(3)?, two(6)?);
    if line.get(2) != Some(&b':') || line.get(5) != Some(&b':') || hours > 24 || minutes > 59 || seconds > 60
    {
        return None;
    }
    let whole = (hours * 3600 + minutes * 60 + seconds) * 1_000_000_000;
    match line.get(8)? {
        b' ' => Some((whole, 8)),
        b'.' | b',' => {
            let length = 9 + digits(&line[9..]);
            let fraction = number::span(&line[8..length], 1_000_000_000)?.0;
            (line.get(length) == Some(&b' ')).then_some((whole + fraction, length))
        }
        _ => None,
    }
}

/// `[pid 7]`, `[pid 7<comm>]`, `[  42]` (-n), `[00007f12…]` (-i), `[user_u:role_r:type_t]` (--secontext).
fn bracket_column<'a>(prefix: &mut Prefix, line: &'a [u8]) -> Option<&'a [u8]> {
    if let Some(rest) = line.strip_prefix(b"[pid ") {
        let rest = skip_spaces(rest);
        let length = digits(rest);
        let pid = number::uint(&rest[..length]).and_then(|n| u32::try_from(n).ok())?;
        let after = match rest.get(length)? {
            b']' => length + 1,
            b'<' => length + memmem::find(&rest[length..rest.len().min(length + 40)], b">]")? + 2,
            _ => return None,
        };
        prefix.pid = Some(pid);
        return Some(&rest[after..]);
    }
    let end = memchr(b']', &line[..line.len().min(80)])?;
    let inner = skip_spaces(&line[1..end]);
    let plain = !inner.is_empty()
        && (inner
            .iter()
            .all(|b| b.is_ascii_hexdigit() || matches!(b, b'?' | b'x'))
            || inner
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b':' | b'_' | b'.' | b',' | b'-')));
    (plain && line.get(end + 1) == Some(&b' ')).then(|| &line[end + 1..])
}
