//! Parsing requests: arrays of bulk strings, and inline commands, as a Redis server reads them.
//!
//! This is our own code and not a protocol crate's, for three reasons: a server must refuse what is too
//! large with Redis's own error texts, must not start over when a request arrives in pieces, and must not
//! recurse into what a client sends.

use std::ops::Range;

/// The longest inline command, or line of a count.
const MAX_LINE: usize = 64 << 10;
/// The most arguments of a command.
const MAX_ARGS: i64 = 1 << 20;
/// The longest argument (`proto-max-bulk-len`).
const MAX_BULK: i64 = 512 << 20;
/// The most arguments before authentication.
const MAX_ARGS_STRANGER: i64 = 10;
/// The longest argument before authentication.
const MAX_BULK_STRANGER: i64 = 16 << 10;

/// A request that breaks the protocol; the connection is closed after the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProtocolError(pub(super) String);

/// The arguments of one command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Range<usize>],
}

impl<'a> Args<'a> {
    pub(super) fn new(bytes: &'a [u8], spans: &'a [Range<usize>]) -> Args<'a> {
        Args { bytes, spans }
    }

    /// How many there are, the command's name included.
    pub(super) fn len(self) -> usize {
        self.spans.len()
    }

    /// One of them; empty when there are fewer, which an arity check rules out beforehand.
    pub(super) fn get(self, index: usize) -> &'a [u8] {
        self.spans
            .get(index)
            .and_then(|span| self.bytes.get(span.clone()))
            .unwrap_or_default()
    }

    /// Those from `start` on.
    pub(super) fn from(self, start: usize) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.spans
            .iter()
            .skip(start)
            .map(move |span| bytes.get(span.clone()).unwrap_or_default())
    }

    /// Their bytes in all.
    pub(super) fn size(self) -> usize {
        self.spans.iter().map(ExactSizeIterator::len).sum()
    }
}

/// One step of reading a connection's input.
#[derive(Debug)]
pub(super) enum Parsed<'a> {
    /// A command, and how many bytes of the input it took.
    Command(Args<'a>, usize),
    /// Nothing to do (an empty line or array), and how many bytes it took.
    Nothing(usize),
    /// More input is needed.
    Incomplete,
}

/// Reads one command at a time. Between calls it remembers how far it came in an incomplete one, so that
/// every byte is looked at once however the input is cut.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// Arguments still to come; `None` before the count has been read.
    missing: Option<usize>,
    /// Length of the argument that has begun.
    bulk: Option<usize>,
    /// Arguments read, as ranges of the input, or of `inline`.
    spans: Vec<Range<usize>>,
    /// Where the next line or argument begins.
    at: usize,
    /// Up to where its end has been looked for.
    searched: usize,
    /// Arguments of an inline command without their quotes.
    inline: Vec<u8>,
}

impl Parser {
    /// Reads on in `input`, which must begin where the last command ended and may only have grown since
    /// the last call that was incomplete.
    pub(super) fn next<'a>(
        &'a mut self,
        input: &'a [u8],
        authenticated: bool,
    ) -> Result<Parsed<'a>, ProtocolError> {
        if self.missing.is_none() {
            self.forget();
            match input.first() {
                None => return Ok(Parsed::Incomplete),
                Some(b'*') => {}
                Some(_) => return self.next_inline(input),
            }
            let Some(line) = self.line(input, "too big mbulk count string")? else {
                return Ok(Parsed::Incomplete);
            };
            let most = if authenticated {
                MAX_ARGS
            } else {
                MAX_ARGS_STRANGER
            };
            let count = integer(&input[line.start + 1..line.end]);
            match count {
                Some(count) if count <= 0 => {
                    let taken = self.at;
                    self.rewind();
                    return Ok(Parsed::Nothing(taken));
                }
                Some(count) if count <= most => self.missing = usize::try_from(count).ok(),
                Some(count) if count <= MAX_ARGS => return Err(broken("unauthenticated multibulk length")),
                _ => return Err(broken("invalid multibulk length")),
            }
        }
        while let Some(missing) = self.missing.filter(|missing| *missing > 0) {
            let Some(length) = self.bulk_length(input, authenticated)? else {
                return Ok(Parsed::Incomplete);
            };
            // Two more bytes end it; Redis does not look at them either.
            if input.len() - self.at < length + 2 {
                return Ok(Parsed::Incomplete);
            }
            self.spans.push(self.at..self.at + length);
            self.at += length + 2;
            self.searched = self.at;
            self.bulk = None;
            self.missing = Some(missing - 1);
        }
        let taken = self.at;
        self.rewind();
        Ok(Parsed::Command(Args::new(input, &self.spans), taken))
    }

    /// The length of the argument that begins here, once its line is complete.
    fn bulk_length(&mut self, input: &[u8], authenticated: bool) -> Result<Option<usize>, ProtocolError> {
        if self.bulk.is_some() {
            return Ok(self.bulk);
        }
        let Some(line) = self.line(input, "too big bulk count string")? else {
            return Ok(None);
        };
        match input[line.start..line.end].split_first() {
            Some((b'$', digits)) => match integer(digits) {
                Some(length) if !authenticated && length > MAX_BULK_STRANGER => {
                    return Err(broken("unauthenticated bulk length"));
                }
                Some(length) if (0..=MAX_BULK).contains(&length) => self.bulk = usize::try_from(length).ok(),
                _ => return Err(broken("invalid bulk length")),
            },
            other => {
                let got = other.map_or(b'\r', |(first, _)| *first);
                return Err(ProtocolError(format!(
                    "Protocol error: expected '$', got '{}'",
                    shown(got)
                )));
            }
        }
        Ok(self.bulk)
    }

    /// The line that begins at `at`, without its `\r\n`, and moves `at` behind it.
    fn line(&mut self, input: &[u8], too_long: &str) -> Result<Option<Range<usize>>, ProtocolError> {
        match input[self.searched..].iter().position(|b| *b == b'\r') {
            // The byte after the \r must be there as well.
            Some(offset) if self.searched + offset + 1 < input.len() => {
                let end = self.searched + offset;
                let line = self.at..end;
                self.at = end + 2;
                self.searched = self.at;
                Ok(Some(line))
            }
            found => {
                self.searched = found.map_or(input.len(), |offset| self.searched + offset);
                if input.len() - self.at > MAX_LINE {
                    Err(broken(too_long))
                } else {
                    Ok(None)
                }
            }
        }
    }

    fn next_inline<'a>(&'a mut self, input: &'a [u8]) -> Result<Parsed<'a>, ProtocolError> {
        let Some(offset) = input[self.searched..].iter().position(|b| *b == b'\n') else {
            self.searched = input.len();
            if input.len() > MAX_LINE {
                return Err(broken("too big inline request"));
            }
            return Ok(Parsed::Incomplete);
        };
        let end = self.searched + offset;
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        split_inline(line, &mut self.inline, &mut self.spans)?;
        self.rewind();
        if self.spans.is_empty() {
            Ok(Parsed::Nothing(end + 1))
        } else {
            Ok(Parsed::Command(Args::new(&self.inline, &self.spans), end + 1))
        }
    }

    /// Ready for the next command; the arguments of this one stay until it begins.
    fn rewind(&mut self) {
        self.missing = None;
        self.bulk = None;
        self.at = 0;
        self.searched = 0;
    }

    /// Drops the arguments of the last command, and the memory of an unusually large one.
    fn forget(&mut self) {
        self.spans.clear();
        self.spans.shrink_to(64);
        self.inline.clear();
        self.inline.shrink_to(1 << 10);
    }
}

fn broken(what: &str) -> ProtocolError {
    ProtocolError(format!("Protocol error: {what}"))
}

/// A byte in a message; a line break would end the reply early.
fn shown(byte: u8) -> char {
    match byte {
        b'\r' | b'\n' => ' ',
        byte if byte.is_ascii() => char::from(byte),
        _ => '?',
    }
}

/// A whole number in its only spelling: no sign but a minus, no leading zero, nothing around it.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if digits.len() == text.len() => Some(0),
        [b'1'..=b'9', rest @ ..] if rest.len() <= 19 && rest.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(text).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// Splits an inline command into words. Words may be quoted: in double quotes `\n \r \t \b \a`, `\xHH` and
/// any escaped character, in single quotes only `\'`.
fn split_inline(line: &[u8], out: &mut Vec<u8>, spans: &mut Vec<Range<usize>>) -> Result<(), ProtocolError> {
    let unbalanced = || broken("unbalanced quotes in request");
    // What isspace(3) takes for white space in the C locale.
    let is_space = |b: u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest
            && is_space(*first)
        {
            rest = tail;
        }
        // A zero byte ends the line, as it does for Redis.
        if matches!(rest, [] | [0, ..]) {
            return Ok(());
        }
        let start = out.len();
        loop {
            match rest {
                [b'"', tail @ ..] => {
                    rest = double_quoted(tail, out).ok_or_else(unbalanced)?;
                    if rest.first().is_some_and(|b| !is_space(*b) && *b != 0) {
                        return Err(unbalanced());
                    }
                }
                [b'\'', tail @ ..] => {
                    rest = single_quoted(tail, out).ok_or_else(unbalanced)?;
                    if rest.first().is_some_and(|b| !is_space(*b) && *b != 0) {
                        return Err(unbalanced());
                    }
                }
                [byte, tail @ ..] if !is_space(*byte) && *byte != 0 => {
                    out.push(*byte);
                    rest = tail;
                    continue;
                }
                _ => {}
            }
            break;
        }
        spans.push(start..out.len());
    }
}

/// Copies up to the closing quote; `None` when there is none.
fn double_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'"', tail @ ..] => return Some(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |b: &u8| char::from(*b).to_digit(16).unwrap_or(0) as u8;
                out.push(digit(high) * 16 + digit(low));
                rest = tail;
            }
            [b'\\', byte, tail @ ..] => {
                out.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = tail;
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
            [] => return None,
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\'', tail @ ..] => return Some(tail),
            [b'\\', b'\'', tail @ ..] => {
                out.push(b'\'');
                rest = tail;
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses everything in `input`, given in pieces of `step` bytes.
    fn parse(input: &[u8], step: usize, authenticated: bool) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let mut parser = Parser::default();
        let (mut commands, mut start, mut end) = (Vec::new(), 0, 0);
        loop {
            match parser.next(&input[start..end], authenticated)? {
                Parsed::Command(args, taken) => {
                    commands.push(args.from(0).map(<[u8]>::to_vec).collect());
                    start += taken;
                }
                Parsed::Nothing(taken) => start += taken,
                Parsed::Incomplete if end == input.len() => return Ok(commands),
                Parsed::Incomplete => end = (end + step).min(input.len()),
            }
        }
    }

    fn words(input: &str) -> Vec<Vec<String>> {
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        let commands = parse(input.as_bytes(), 4096, true).unwrap();
        commands
            .iter()
            .map(|command| command.iter().map(text).collect())
            .collect()
    }

    fn error(input: &str, authenticated: bool) -> String {
        parse(input.as_bytes(), 4096, authenticated).expect_err(input).0
    }

    #[test]
    fn arrays_and_inline_commands_mix() {
        let input =
            "*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n\r\n*0\r\n*-1\r\n  set k  \"a\\x41 b\\n\" 'it\\'s'\n";
        assert_eq!(
            words(input),
            [vec!["GET", "a"], vec!["PING"], vec!["set", "k", "aA b\n", "it's"]]
        );
    }

    #[test]
    fn what_breaks_the_protocol_has_the_words_of_redis() {
        let long = "x".repeat(MAX_LINE + 1);
        for (input, expected) in [
            ("*x\r\n", "invalid multibulk length"),
            ("*1048577\r\n", "invalid multibulk length"),
            ("*01\r\n", "invalid multibulk length"),
            ("*1\r\nGET\r\n", "expected '$', got 'G'"),
            ("*1\r\n\r\n\r\n", "expected '$', got ' '"),
            ("*1\r\n$-1\r\n", "invalid bulk length"),
            ("*1\r\n$536870913\r\n", "invalid bulk length"),
            ("*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
            ("set \"a\r\n", "unbalanced quotes in request"),
            ("set \"a\"b\r\n", "unbalanced quotes in request"),
            (&long, "too big inline request"),
            (&format!("*{long}"), "too big mbulk count string"),
            (&format!("*1\r\n${long}"), "too big bulk count string"),
        ] {
            assert_eq!(error(input, true), format!("Protocol error: {expected}"));
        }
        assert!(error("*11\r\n", false).contains("unauthenticated multibulk length"));
        assert!(error("*1\r\n$16385\r\n", false).contains("unauthenticated bulk length"));
    }

    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(text.as_bytes()), Some(value));
        }
        assert_eq!(integer(i64::MIN.to_string().as_bytes()), Some(i64::MIN));
        for bad in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            " 1",
            "1 ",
            "1x",
            "9223372036854775808",
            "1e3",
        ] {
            assert_eq!(integer(bad.as_bytes()), None, "{bad}");
        }
    }

    fn encode(command: &[Vec<u8>]) -> Vec<u8> {
        use redis_protocol::resp2::encode::encode;
        use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};
        let frame = OwnedFrame::Array(
            command
                .iter()
                .map(|arg| OwnedFrame::BulkString(arg.clone()))
                .collect(),
        );
        let mut bytes = vec![0; frame.encode_len(false)];
        let n = encode(&mut bytes, &frame, false).unwrap();
        bytes.truncate(n);
        bytes
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same(input in prop::collection::vec(any::<u8>(), 0..300), step in 1usize..40) {
            prop_assert_eq!(parse(&input, step, true), parse(&input, 4096, true));
            let _ = parse(&input, step, false);
        }

        #[test]
        fn near_requests_in_any_pieces_give_the_same(
            input in "([*$][0-9-]{0,3}(\r\n)?|PING|\"|'|\\\\|[a-z ]{0,5}|\r\n|\n){0,20}", step in 1usize..8
        ) {
            let input = input.as_bytes();
            prop_assert_eq!(parse(input, step, true), parse(input, 4096, true));
        }

        #[test]
        fn every_binary_argument_arrives_whole(
            commands in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..6), 1..6),
            step in 1usize..64,
        ) {
            let input: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
            prop_assert_eq!(parse(&input, step, true), Ok(commands));
        }
    }
}
