//! Files whose lines end with a carriage return alone, as old Macs and some exports of spreadsheets write them.

use std::io::{self, Cursor, Read};

/// How much of an input shows how its lines end.
const LOOK: u64 = 16 << 10;

/// The input, with line feeds where its lines end with carriage returns only. Where there are line feeds, a
/// carriage return is what a progress bar or another system left in a line, and stays.
///
/// # Errors
/// What reading says.
pub(super) fn as_line_feeds(mut input: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let mut head = Vec::new();
    input.by_ref().take(LOOK).read_to_end(&mut head)?;
    let whole = (head.len() as u64) < LOOK;
    // The last one may be half of a CR LF.
    let seen = if whole { &head[..] } else { &head[..head.len() - 1] };
    let only_returns = memchr::memchr(b'\r', seen).is_some() && memchr::memchr(b'\n', &head).is_none();
    let input = Cursor::new(head).chain(input);
    Ok(if only_returns {
        Box::new(Returns(input))
    } else {
        Box::new(input)
    })
}

/// Turns carriage returns into line feeds.
struct Returns<R>(R);

impl<R: Read> Read for Returns<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.0.read(out)?;
        for byte in &mut out[..n] {
            if *byte == b'\r' {
                *byte = b'\n';
            }
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let input = Box::new(Cursor::new(text.to_vec()));
        as_line_feeds(input)
            .and_then(|mut input| input.read_to_end(&mut out))
            .expect("memory can be read");
        out
    }

    #[test]
    fn only_returns_without_feeds_are_ends_of_lines() {
        assert_eq!(read(b"a\rb\r"), b"a\nb\n");
        assert_eq!(read(b"a\r"), b"a\n");
        for same in [&b"a\r\nb\r\n"[..], b"10%\r20%\rdone\na\n", b"a\nb", b"a", b""] {
            assert_eq!(read(same), same);
        }
        // What lies beyond the first look is turned too, and a CR LF across its end is none.
        let long = [&b"x".repeat(20_000)[..], b"\r"].concat();
        let both = [&b"y\r"[..], &long].concat();
        assert_eq!(read(&both).iter().filter(|b| **b == b'\n').count(), 2);
        let split = [&b"x".repeat(LOOK as usize - 1)[..], b"\r\n"].concat();
        assert_eq!(read(&split), split);
    }
}
