//! Replies of a Redis server at the byte level, just enough to check them where they lie.

/// A whole reply at the start of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    /// `+OK`.
    Simple(&'a [u8]),
    /// `-ERR …`.
    Error(&'a [u8]),
    /// `:1`.
    Integer(&'a [u8]),
    /// A string of bytes.
    Bulk(&'a [u8]),
    /// Nothing there.
    Null,
}

/// What some received bytes begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A reply, and its length in bytes.
    Whole(Reply<'a>, usize),
    /// The beginning of one; `need` bytes at least are missing.
    Part {
        /// More bytes to receive before it is worth looking again.
        need: usize,
    },
    /// No reply that any of our commands has.
    Broken,
}

/// Longest line (a status, an error, a length) that is waited for.
const MAX_LINE: usize = 64 << 10;

/// Longest bulk string that is waited for.
const MAX_BULK: usize = 1 << 30;

/// Reads the first reply in `bytes`.
pub(super) fn frame(bytes: &[u8]) -> Frame<'_> {
    let Some((kind, rest)) = bytes.split_first() else {
        return Frame::Part { need: 1 };
    };
    if !b"+-:$_".contains(kind) {
        return Frame::Broken;
    }
    let window = &rest[..rest.len().min(MAX_LINE)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if rest.len() >= MAX_LINE {
            Frame::Broken
        } else {
            Frame::Part { need: 1 }
        };
    };
    let line = &rest[..end];
    let head = 1 + end + 2;
    match kind {
        b'+' => Frame::Whole(Reply::Simple(line), head),
        b'-' => Frame::Whole(Reply::Error(line), head),
        b':' => Frame::Whole(Reply::Integer(line), head),
        b'_' => Frame::Whole(Reply::Null, head),
        _ if line == b"-1" => Frame::Whole(Reply::Null, head),
        _ => {
            let length = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
            match length {
                Some(length) if length <= MAX_BULK => bulk(bytes, head, length),
                _ => Frame::Broken,
            }
        }
    }
}

fn bulk(bytes: &[u8], head: usize, length: usize) -> Frame<'_> {
    let whole = head + length + 2;
    match bytes.get(head..whole) {
        None => Frame::Part {
            need: whole - bytes.len(),
        },
        Some(body) if body.ends_with(b"\r\n") => Frame::Whole(Reply::Bulk(&body[..length]), whole),
        Some(_) => Frame::Broken,
    }
}

/// Appends a command as clients send it: an array of bulk strings.
pub(super) fn encode(out: &mut Vec<u8>, args: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends a string as servers send it.
pub(super) fn encode_bulk(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_replies() {
        let cases: [(&[u8], Reply<'_>); 7] = [
            (b"+OK\r\n", Reply::Simple(b"OK")),
            (b"-ERR x\r\n", Reply::Error(b"ERR x")),
            (b":42\r\n", Reply::Integer(b"42")),
            (b"$4\r\nxx\r\n\r\n", Reply::Bulk(b"xx\r\n")),
            (b"$0\r\n\r\n", Reply::Bulk(b"")),
            (b"$-1\r\n", Reply::Null),
            (b"_\r\n", Reply::Null),
        ];
        for (bytes, reply) in cases {
            assert_eq!(frame(bytes), Frame::Whole(reply, bytes.len()), "{bytes:?}");
            let mut longer = bytes.to_vec();
            longer.extend_from_slice(b"+more");
            assert_eq!(frame(&longer), Frame::Whole(reply, bytes.len()), "{bytes:?}");
            for cut in 0..bytes.len() {
                assert!(
                    matches!(frame(&bytes[..cut]), Frame::Part { .. }),
                    "{bytes:?} at {cut}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_broken_and_never_waited_for() {
        let long_line = [b"+".as_slice(), &vec![b'a'; MAX_LINE]].concat();
        for bytes in [
            b"HTTP/1.1 400 Bad Request\r\n".as_slice(),
            b"*1\r\n",
            b"$-2\r\n",
            b"$+\r\n",
            b"$99999999999999999999\r\n",
            b"$2147483648\r\n",
            b"$1\r\nabc",
            b"\0",
            &long_line,
        ] {
            assert_eq!(frame(bytes), Frame::Broken, "{:?}", &bytes[..bytes.len().min(30)]);
        }
    }

    #[test]
    fn a_part_says_how_much_is_missing() {
        assert_eq!(frame(b"$10\r\nabc"), Frame::Part { need: 9 });
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_judged_without_panic(bytes: Vec<u8>) {
            let _ = frame(&bytes);
        }
    }
}
