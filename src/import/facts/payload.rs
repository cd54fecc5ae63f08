//! What goes over a connection, as far as a trace shows it: commands and error replies of RESP and of
//! memcached's text protocol.

pub(crate) use crate::foreign::quoted::strings;
use crate::foreign::text::near;

/// What a payload turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Found {
    /// Commands that begin in it.
    pub(crate) commands: u64,
    /// Whether the last of them goes on beyond what is shown.
    pub(crate) open: bool,
}

fn line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = near(b'\n', b'\n', text)?;
    let body = text[..end].strip_suffix(b"\r").unwrap_or(&text[..end]);
    Some((body, &text[end + 1..]))
}

fn small_number(digits: &[u8]) -> Option<usize> {
    super::super::number::uint(digits)
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| *n <= 1 << 30)
}

/// Walks through the commands of a payload. `each` gets the name in capitals and the first argument.
pub(crate) fn commands(payload: &[u8], mut each: impl FnMut(&str, &[u8])) -> Found {
    let mut found = Found::default();
    let mut rest = payload;
    while !rest.is_empty() {
        let next = match rest[0] {
            b'*' => resp(rest, &mut each),
            b'A'..=b'Z' | b'a'..=b'z' => text(rest, &mut each),
            _ => None,
        };
        match next {
            None => break,
            Some(Walked::Whole(after)) => {
                found.commands += 1;
                rest = after;
            }
            Some(Walked::Open) => {
                found.commands += 1;
                found.open = true;
                break;
            }
        }
    }
    found
}

enum Walked<'a> {
    Whole(&'a [u8]),
    Open,
}

/// `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`
fn resp<'a>(payload: &'a [u8], each: &mut impl FnMut(&str, &[u8])) -> Option<Walked<'a>> {
    let Some((head, mut rest)) = line(&payload[1..]) else {
        // A payload cut in its very first line: a command if the digits are there.
        let digits = &payload[1..];
        if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
            each("?", &[]);
            return Some(Walked::Open);
        }
        return None;
    };
    let parts = small_number(head).filter(|n| (1..=1 << 20).contains(n))?;
    let mut words: [&[u8]; 2] = [b"?", b""];
    for i in 0..parts {
        let Some((head, after)) = line(rest) else {
            name_command(words, each);
            return Some(Walked::Open);
        };
        let length = small_number(head.strip_prefix(b"$")?)?;
        let Some(body) = after.get(..length) else {
            if i == 1 {
                words[1] = after;
            }
            name_command(words, each);
            return Some(Walked::Open);
        };
        if let Some(word) = words.get_mut(i) {
            *word = body;
        }
        rest = after.get(length + 2..).unwrap_or(&[]);
    }
    name_command(words, each);
    Some(Walked::Whole(rest))
}

fn name_command(words: [&[u8]; 2], each: &mut impl FnMut(&str, &[u8])) {
    let plain =
        !words[0].is_empty() && words[0].len() <= 24 && words[0].iter().all(u8::is_ascii_alphanumeric);
    if !plain {
        each("?", words[1]);
        return;
    }
    let mut upper = [0; 24];
    let name = &mut upper[..words[0].len()];
    name.copy_from_slice(words[0]);
    name.make_ascii_uppercase();
    each(std::str::from_utf8(name).unwrap_or("?"), words[1]);
}

/// Commands of memcached's text protocol, and RESP's inline ones.
const TEXT_COMMANDS: [&str; 22] = [
    "get",
    "gets",
    "gat",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "delete",
    "incr",
    "decr",
    "touch",
    "stats",
    "version",
    "flush_all",
    "mg",
    "ms",
    "md",
    "mn",
    "PING",
    "INCR",
];
const STORING: [&str; 6] = ["set", "add", "replace", "append", "prepend", "cas"];

fn text<'a>(payload: &'a [u8], each: &mut impl FnMut(&str, &[u8])) -> Option<Walked<'a>> {
    let (head, rest) = match line(payload) {
        Some((head, rest)) => (head, Some(rest)),
        None => (payload, None),
    };
    let mut words = head.split(|b| *b == b' ');
    let name = words.next()?;
    let name = *TEXT_COMMANDS.iter().find(|command| command.as_bytes() == name)?;
    name_command([name.as_bytes(), words.next().unwrap_or(&[])], each);
    let Some(rest) = rest else {
        return Some(Walked::Open);
    };
    if !STORING.contains(&name) {
        return Some(Walked::Whole(rest));
    }
    // set KEY FLAGS EXPIRY LENGTH
    let length = words.nth(2).and_then(small_number)?;
    Some(match rest.get(length.saturating_add(2)..) {
        Some(after) => Walked::Whole(after),
        None => Walked::Open,
    })
}

/// The first words of an error reply, when the payload begins with one.
pub(crate) fn error_reply(payload: &[u8]) -> Option<&[u8]> {
    let is_error = match payload {
        [b'-', b'A'..=b'Z', ..] => true,
        _ => ["ERROR", "SERVER_ERROR", "CLIENT_ERROR"]
            .iter()
            .any(|word| payload.starts_with(word.as_bytes())),
    };
    if !is_error {
        return None;
    }
    let end = payload
        .iter()
        .position(|b| matches!(b, b'\r' | b'\n'))
        .unwrap_or(payload.len());
    Some(&payload[..end.min(60)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(args: &str) -> (Vec<String>, Found, bool) {
        let mut payload = Vec::new();
        let cut = strings(args.as_bytes(), &mut payload);
        let mut names = Vec::new();
        let found = commands(&payload, |name, first| {
            names.push(format!("{name} {}", String::from_utf8_lossy(first)));
        });
        (names, found, cut)
    }

    #[test]
    fn commands_in_strings() {
        let (names, found, cut) = seen(r#"4, "*2\r\n$3\r\nGET\r\n$2\r\nk0\r\n*1\r\n$4\r\nping\r\n", 35"#);
        assert_eq!(names, ["GET k0", "PING "]);
        assert_eq!((found.commands, found.open, cut), (2, false, false));
        let (names, found, cut) = seen(r#"4, "*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n$100\r\nxxx"..., 135"#);
        assert_eq!(names, ["SET k1"]);
        assert!(found.open && cut);
        let (names, ..) = seen(
            r#"4, [{iov_base="*2\r\n$3\r\nGET\r\n", iov_len=13}, {iov_base="$1\r\na\r\n", iov_len=7}], 2"#,
        );
        assert_eq!(names, ["GET a"]);
    }

    #[test]
    fn memcached_text_and_foreign_payloads() {
        let (names, found, _) = seen(r#"4, "set k 0 0 2\r\nab\r\nget k\r\n", 9"#);
        assert_eq!(names, ["SET k", "GET k"]);
        assert_eq!(found.commands, 2);
        assert_eq!(seen(r#"1, "hello world\n", 12"#).1.commands, 0);
        assert_eq!(seen(r#"4, "\26\3\1\2\0", 5"#).1.commands, 0);
        assert_eq!(seen(r#"4, "*99999999999999999999\r\n", 5"#).1.commands, 0);
        assert_eq!(seen(r#"4, "*1000000\r\n$1\r\na", 5"#).1.commands, 1);
    }

    #[test]
    fn escapes_of_every_kind() {
        let mut out = Vec::new();
        strings(r#""\x2a\61\r\n\"\\\0""#.as_bytes(), &mut out);
        assert_eq!(out, b"*1\r\n\"\\\0");
    }

    #[test]
    fn error_replies() {
        assert_eq!(
            error_reply(b"-ERR max number of clients reached\r\n"),
            Some(&b"-ERR max number of clients reached"[..])
        );
        assert_eq!(error_reply(b"-1\r\n"), None);
        assert_eq!(error_reply(b"+OK\r\n"), None);
        assert!(error_reply(b"SERVER_ERROR out of memory\r\n").is_some());
    }
}
