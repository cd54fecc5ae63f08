//! Getting a line of a trace out of what people wrap it in: mail quotes, Markdown, HTML, terminal
//! colours; and showing foreign text safely.

use std::borrow::Cow;

use memchr::memchr;

pub(crate) use crate::foreign::text::{contains, trim};
use crate::units::escape;

/// Text from a file, safe to show: bytes that are not UTF-8 become `\xNN`, control characters are
/// escaped, and it is cut at `limit` characters.
pub(crate) fn shown(bytes: &[u8], limit: usize) -> String {
    // Four bytes a character at most; more cannot be shown anyway.
    let cut = bytes.len().min(limit.saturating_mul(4).saturating_add(4));
    let mut text = String::with_capacity(cut);
    for chunk in bytes[..cut].utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if cut < bytes.len() {
        text.push('…');
    }
    escape(&text, limit)
}

/// The name of a call, escaped. Names are short; a longer one is somebody's joke.
pub(crate) fn name(bytes: &[u8]) -> String {
    shown(bytes, 64)
}

/// Without carriage returns at the end.
pub(crate) fn trim_cr(mut line: &[u8]) -> &[u8] {
    while let [rest @ .., b'\r'] = line {
        line = rest;
    }
    line
}

/// The fields between runs of spaces and tabs.
pub(crate) fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(|b| matches!(b, b' ' | b'\t' | b'\r'))
        .filter(|field| !field.is_empty())
        .collect()
}

/// The fields with the byte offset of their ends.
pub(crate) fn fields_at(line: &[u8]) -> Vec<(&[u8], usize)> {
    let mut out = Vec::new();
    let mut start = None;
    for (i, byte) in line.iter().enumerate() {
        match (byte, start) {
            (b' ' | b'\t' | b'\r', Some(from)) => {
                out.push((&line[from..i], i));
                start = None;
            }
            (b' ' | b'\t' | b'\r', None) | (_, Some(_)) => {}
            (_, None) => start = Some(i),
        }
    }
    if let Some(from) = start {
        out.push((&line[from..], line.len()));
    }
    out
}

/// Without terminal colours and other escape sequences (ECMA-48 CSI and OSC).
pub(crate) fn strip_ansi(line: &[u8]) -> Cow<'_, [u8]> {
    if memchr(0x1b, line).is_none() {
        return Cow::Borrowed(line);
    }
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = memchr(0x1b, rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        rest = match rest.first() {
            Some(b'[') => {
                let end = rest.iter().skip(1).position(|b| (0x40..=0x7e).contains(b));
                end.map_or(&[][..], |end| &rest[end + 2..])
            }
            Some(b']') => {
                let end = rest.iter().position(|b| *b == 0x07 || *b == b'\\');
                end.map_or(&[][..], |end| &rest[end + 1..])
            }
            Some(_) => &rest[1..],
            None => rest,
        };
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Tags that a browser or a forum puts around a paste. Others (`<unfinished ...>`, `<0.000012>`,
/// `<php-fpm>`) belong to the trace.
const TAGS: [&str; 24] = [
    "p",
    "br",
    "pre",
    "code",
    "div",
    "span",
    "td",
    "th",
    "tr",
    "table",
    "tbody",
    "thead",
    "blockquote",
    "b",
    "i",
    "em",
    "strong",
    "font",
    "tt",
    "a",
    "li",
    "ul",
    "samp",
    "small",
];

fn tag_at(text: &[u8]) -> Option<usize> {
    let body = text.strip_prefix(b"<")?;
    let end = memchr(b'>', &body[..body.len().min(200)])?;
    let inner = &body[..end];
    let inner = inner.strip_prefix(b"/").unwrap_or(inner);
    let length = inner
        .iter()
        .position(|b| !b.is_ascii_alphanumeric())
        .unwrap_or(inner.len());
    let known = TAGS
        .iter()
        .any(|tag| tag.as_bytes().eq_ignore_ascii_case(&inner[..length]));
    let rest_ok = matches!(inner.get(length), None | Some(b' ' | b'/'));
    (known && rest_ok).then_some(end + 2)
}

const ENTITIES: [(&str, &[u8]); 9] = [
    ("&nbsp;", b" "),
    ("&#160;", b" "),
    ("&lt;", b"<"),
    ("&gt;", b">"),
    ("&amp;", b"&"),
    ("&quot;", b"\""),
    ("&#34;", b"\""),
    ("&#39;", b"'"),
    ("&apos;", b"'"),
];

/// The length of a space that is not ASCII's: hard, thin, wide and ideographic ones.
fn wide_space(text: &[u8]) -> Option<usize> {
    match text {
        [0xc2, 0xa0, ..] => Some(2),
        [0xe2, 0x80, 0x80..=0x8b | 0xaf, ..] | [0xe2, 0x81, 0x9f, ..] | [0xe3, 0x80, 0x80, ..] => Some(3),
        _ => None,
    }
}

/// Without HTML tags and entities, with plain spaces for hard ones.
fn strip_html(line: &[u8]) -> Cow<'_, [u8]> {
    let special = |b: &u8| matches!(b, b'<' | b'&' | 0xc2 | 0xe2 | 0xe3);
    if !line.iter().any(special) {
        return Cow::Borrowed(line);
    }
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.iter().position(special) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        // [pid 7<tr>] is a process.
        let named =
            |length: usize| rest.get(length) == Some(&b']') && out.last().is_some_and(u8::is_ascii_digit);
        if let Some(length) = tag_at(rest).filter(|length| !named(*length)) {
            // Cells of a table must not run together.
            if matches!(rest, [b'<', b't' | b'T', ..] | [b'<', b'/', b't' | b'T', ..]) {
                out.push(b' ');
            }
            rest = &rest[length..];
        } else if let Some((entity, plain)) = ENTITIES.iter().find(|(e, _)| rest.starts_with(e.as_bytes())) {
            out.extend_from_slice(plain);
            rest = &rest[entity.len()..];
        } else if let Some(length) = wide_space(rest) {
            out.push(b' ');
            rest = &rest[length..];
        } else {
            out.push(rest[0]);
            rest = &rest[1..];
        }
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Without leading mail or Markdown quotes.
fn strip_quotes(line: &[u8]) -> &[u8] {
    let mut line = line;
    let mut unquoted = line;
    loop {
        while let [b' ' | b'\t', rest @ ..] = unquoted {
            unquoted = rest;
        }
        match unquoted {
            [b'>', rest @ ..] => {
                line = rest;
                unquoted = rest;
            }
            _ => return line,
        }
    }
}

/// A table's line without everything that people and tools put around it. Positions inside the line
/// stay comparable between lines of one paste.
pub(crate) fn unwrap_line(line: &[u8]) -> Cow<'_, [u8]> {
    let line = trim_cr(line);
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let plain = strip_ansi(line);
    let html = match plain {
        Cow::Borrowed(plain) => strip_html(plain),
        Cow::Owned(plain) => Cow::Owned(strip_html(&plain).into_owned()),
    };
    let unquoted = match html {
        Cow::Borrowed(html) => Cow::Borrowed(strip_quotes(html)),
        Cow::Owned(html) => Cow::Owned(strip_quotes(&html).to_vec()),
    };
    let mut rest: &[u8] = &unquoted;
    while let Some(after) = rest.strip_prefix(b"^C") {
        rest = after;
    }
    if rest.len() == unquoted.len() {
        unquoted
    } else {
        Cow::Owned(rest.to_vec())
    }
}

/// Whether a line is only a frame around a table: empty, a rule of dashes, a code fence.
pub(crate) fn is_frame(line: &[u8]) -> bool {
    line.iter().all(|b| {
        matches!(
            b,
            b' ' | b'\t' | b'-' | b'=' | b'|' | b'+' | b':' | b'`' | b'~' | b'_' | b'*' | b'\r'
        )
    })
}

/// Lines that terminals and shells leave in a paste and that say nothing about the run.
pub(crate) fn is_noise(line: &[u8]) -> bool {
    let line = trim(line);
    is_frame(line)
        || line == b"^C"
        || line == b"^C^C"
        || line.starts_with(b"Script started on ")
        || line.starts_with(b"Script done on ")
        || line.starts_with(b"```")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwrapped(line: &str) -> String {
        String::from_utf8_lossy(&unwrap_line(line.as_bytes())).into_owned()
    }

    #[test]
    fn wrappings_come_off() {
        assert_eq!(unwrapped("> > 1 read\r"), " 1 read");
        assert_eq!(unwrapped("^C% time"), "% time");
        assert_eq!(unwrapped("\u{1b}[1;31m 9\u{1b}[0m read"), " 9 read");
        assert_eq!(unwrapped("<p>x &lt;0.1&gt;&nbsp;y<br>"), "x <0.1> y");
        assert_eq!(
            unwrapped("<tr><td>1</td><td>read</td></tr>")
                .split_whitespace()
                .count(),
            2
        );
    }

    #[test]
    fn marks_of_the_trace_stay() {
        assert_eq!(
            unwrapped("read(3,  <unfinished ...>"),
            "read(3,  <unfinished ...>"
        );
        assert_eq!(unwrapped("read(3) = 1 <0.000012>"), "read(3) = 1 <0.000012>");
        assert_eq!(unwrapped("<... read resumed>) = 1"), "<... read resumed>) = 1");
        assert_eq!(unwrapped("a\\\"b<c"), "a\\\"b<c");
    }

    #[test]
    fn foreign_bytes_are_shown_and_cut() {
        assert_eq!(shown(b"caf\xe9\x1b[2J", 50), "caf\\xe9\\u{1b}[2J");
        assert_eq!(shown(&[b'x'; 100_000], 3), "xxx…");
    }
}
