//! Lines from a reader in bounded memory, without a copy where the reader's own buffer holds them.

use std::io::{self, BufRead};
use std::ops::ControlFlow;

use memchr::memchr;

/// Bytes of the head of an over-long line that are kept.
const HEAD: usize = 256 << 10;
/// Bytes of its tail that are kept: a result stands at the end of a line.
const TAIL: usize = 4 << 10;

/// One line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    /// Its text, without the line feed. Of a line longer than a quarter of a mebibyte, head and tail.
    pub(crate) text: &'a [u8],
    /// Its number, from 1.
    pub(crate) number: u64,
    /// Whether a line feed ended it. Only the last line of a cut file has none.
    pub(crate) ended: bool,
    /// There is certainly no escape character in it; found for many lines at once.
    pub(crate) no_escape: bool,
}

/// A line that did not fit: its head, then a ring of the last bytes.
#[derive(Default)]
struct Long {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Whether the bytes dropped between them end in the middle of an escape (`\` before the tail).
    escaped: bool,
    dropped: bool,
}

impl Long {
    fn push(&mut self, bytes: &[u8]) {
        let room = HEAD.saturating_sub(self.head.len());
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        if rest.is_empty() {
            return;
        }
        self.tail.extend_from_slice(rest);
        // Shortened in steps of at least `TAIL`, so that the work stays linear.
        if self.tail.len() > 4 * TAIL {
            let excess = self.tail.len() - TAIL;
            for byte in &self.tail[..excess] {
                self.escaped = *byte == b'\\' && !self.escaped;
            }
            self.tail.drain(..excess);
            self.dropped = true;
        }
    }

    /// Head and tail as one line. An escape that the cut halved is left out, so that quotes still pair.
    fn line(&mut self) -> &[u8] {
        if self.dropped {
            let backslashes = self.head.iter().rev().take_while(|b| **b == b'\\').count();
            if backslashes % 2 == 1 {
                self.head.pop();
            }
            let skip = usize::from(self.escaped);
            self.head.extend_from_slice(self.tail.get(skip..).unwrap_or(&[]));
        } else {
            self.head.append(&mut self.tail);
        }
        &self.head
    }

    fn clear(&mut self) {
        self.head.clear();
        self.head.shrink_to(2 * HEAD);
        self.tail.clear();
        self.escaped = false;
        self.dropped = false;
    }

    fn is_empty(&self) -> bool {
        self.head.is_empty()
    }
}

/// Hands every line to `each`, until the input or `each` ends it.
///
/// # Errors
/// What reading says.
pub(crate) fn for_each<B>(
    input: &mut dyn BufRead,
    mut each: impl FnMut(Line<'_>) -> ControlFlow<B>,
) -> io::Result<Option<B>> {
    let mut long = Long::default();
    let mut number = 0;
    loop {
        let buffer = match input.fill_buf() {
            Ok(buffer) => buffer,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if buffer.is_empty() {
            break;
        }
        let length = buffer.len();
        let no_escape = memchr(0x1b, buffer).is_none();
        let mut rest = buffer;
        while let Some(end) = memchr(b'\n', rest) {
            number += 1;
            let whole = long.is_empty();
            let text = if whole {
                &rest[..end]
            } else {
                long.push(&rest[..end]);
                long.line()
            };
            if let ControlFlow::Break(value) = each(Line {
                text,
                number,
                ended: true,
                no_escape: no_escape && whole,
            }) {
                return Ok(Some(value));
            }
            if !whole {
                long.clear();
            }
            rest = &rest[end + 1..];
        }
        long.push(rest);
        input.consume(length);
    }
    if !long.is_empty() {
        let text = long.line();
        if let ControlFlow::Break(value) = each(Line {
            text,
            number: number + 1,
            ended: false,
            no_escape: false,
        }) {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn lines(text: &[u8], capacity: usize) -> Vec<(Vec<u8>, u64, bool)> {
        let mut out = Vec::new();
        let mut reader = BufReader::with_capacity(capacity, text);
        for_each::<()>(&mut reader, |line| {
            out.push((line.text.to_vec(), line.number, line.ended));
            ControlFlow::Continue(())
        })
        .unwrap();
        out
    }

    #[test]
    fn the_buffer_size_does_not_matter() {
        let text = b"one\n\ntwo three\nfour";
        for capacity in [1, 2, 3, 7, 64] {
            let got = lines(text, capacity);
            assert_eq!(
                got,
                [
                    (b"one".to_vec(), 1, true),
                    (b"".to_vec(), 2, true),
                    (b"two three".to_vec(), 3, true),
                    (b"four".to_vec(), 4, false),
                ]
            );
        }
    }

    #[test]
    fn a_huge_line_keeps_head_and_tail() {
        let mut text = b"write(1, \"".to_vec();
        for _ in 0..400_000 {
            text.extend_from_slice(b"a\\\"");
        }
        text.extend_from_slice(b"\", 9) = 9\nread(1) = 0\n");
        let got = lines(&text, 8192);
        assert_eq!(got.len(), 2);
        assert!(got[0].0.len() < HEAD + 5 * TAIL);
        assert!(got[0].0.ends_with(b"\", 9) = 9"));
        // Quotes pair up: one opens, one closes, whatever was dropped between them.
        let mut open = 0;
        let mut escaped = false;
        for byte in &got[0].0 {
            match byte {
                b'\\' if !escaped => escaped = true,
                b'"' if !escaped => open += 1,
                _ => escaped = false,
            }
        }
        assert_eq!(open, 2);
        assert_eq!(got[1].0, b"read(1) = 0");
    }
}
