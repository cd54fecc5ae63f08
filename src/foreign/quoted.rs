//! Strings in quotes with the escapes of C, as strace and its like print them.

use memchr::{memchr, memchr2};

/// Bytes of one payload that are looked at.
pub(crate) const SEEN: usize = 4096;

/// Undoes the escapes of the strings in a call's arguments, one behind the other, into `out`. Says
/// whether strace cut one of them (`"..."...`).
pub(crate) fn strings(args: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut rest = args;
    while let Some(open) = memchr(b'"', rest) {
        let end = end_of_string(rest, open);
        let body = rest.get(open + 1..end.saturating_sub(1)).unwrap_or(&[]);
        unescape(body, out);
        rest = &rest[end..];
        if rest.starts_with(b"...") {
            return true;
        }
        if out.len() >= SEEN {
            return true;
        }
    }
    false
}

fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut i = 0;
    while i < text.len() && out.len() < SEEN {
        let byte = text[i];
        if byte != b'\\' {
            out.push(byte);
            i += 1;
            continue;
        }
        i += 1;
        match text.get(i) {
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'v') => out.push(0x0b),
            Some(b'f') => out.push(0x0c),
            Some(b'x') => {
                let digit = |at: usize| text.get(at).and_then(|b| char::from(*b).to_digit(16));
                if let (Some(high), Some(low)) = (digit(i + 1), digit(i + 2)) {
                    out.push((high * 16 + low) as u8);
                    i += 2;
                }
            }
            Some(b'0'..=b'7') => {
                let mut value = 0_u32;
                let mut length = 0;
                while let Some(digit @ b'0'..=b'7') = text.get(i + length).filter(|_| length < 3) {
                    value = value * 8 + u32::from(digit - b'0');
                    length += 1;
                }
                out.push(value as u8);
                i += length - 1;
            }
            Some(other) => out.push(*other),
            None => {}
        }
        i += 1;
    }
}

/// The index after a string that begins at `at` with a quote; the length when it never ends.
pub(crate) fn end_of_string(text: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while let Some(found) = text.get(i..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        i += found;
        if text[i] == b'"' {
            return i + 1;
        }
        i += 2;
    }
    text.len()
}
