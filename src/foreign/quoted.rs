//! Strings in quotes with the escapes of C, as strace and its like print them.

use super::text::near;

/// Bytes of one payload that are looked at.
pub(crate) const SEEN: usize = 4096;

/// Undoes the escapes of the strings in a call's arguments, one behind the other, into `out`. Says
/// whether strace cut one of them (`"..."...`), or they are longer than [`SEEN`].
pub(crate) fn strings(args: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut rest = args;
    while let Some(open) = near(b'"', b'"', rest) {
        rest = unescape(&rest[open + 1..], out);
        if out.len() >= SEEN || rest.starts_with(b"...") {
            return true;
        }
    }
    false
}

/// Undoes the escapes up to the quote that ends the string, or until there is enough; what is left then.
fn unescape<'a>(text: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let mut rest = text;
    while out.len() < SEEN {
        let plain = near(b'"', b'\\', rest).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain.min(SEEN - out.len())]);
        rest = &rest[plain..];
        rest = match rest {
            [b'"', after @ ..] => return after,
            [b'\\', b'n', after @ ..] => put(out, b'\n', after),
            [b'\\', b'r', after @ ..] => put(out, b'\r', after),
            [b'\\', b't', after @ ..] => put(out, b'\t', after),
            [b'\\', b'v', after @ ..] => put(out, 0x0b, after),
            [b'\\', b'f', after @ ..] => put(out, 0x0c, after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                put(out, hex(*high) << 4 | hex(*low), after)
            }
            // Not as strace writes it.
            [b'\\', b'x', after @ ..] => after,
            [b'\\', after @ ..] => match after {
                [b'0'..=b'7', ..] => octal(after, out),
                [other, after @ ..] => put(out, *other, after),
                [] => after,
            },
            // The string never ends.
            _ => return &[],
        };
    }
    rest
}

fn put<'a>(out: &mut Vec<u8>, byte: u8, rest: &'a [u8]) -> &'a [u8] {
    out.push(byte);
    rest
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Up to three octal digits.
fn octal<'a>(text: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let mut value = 0_u32;
    let mut rest = text;
    for _ in 0..3 {
        let [digit @ b'0'..=b'7', after @ ..] = rest else {
            break;
        };
        value = value * 8 + u32::from(digit - b'0');
        rest = after;
    }
    put(out, value as u8, rest)
}

/// The index after a string that begins at `at` with a quote; the length when it never ends.
pub(crate) fn end_of_string(text: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while let Some(found) = text.get(i..).and_then(|rest| near(b'"', b'\\', rest)) {
        i += found;
        if text[i] == b'"' {
            return i + 1;
        }
        i += 2;
    }
    text.len()
}
