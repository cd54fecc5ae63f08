//! Calls: name, arguments, and the result behind the equals sign; whole or in two halves.

use memchr::{memchr, memrchr};

use super::super::quoted::end_of_string;
use super::super::{number, text};
use super::{Event, digits, skip_spaces};

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Outcome<'a> {
    /// The value returned; `None` for `?`.
    pub(crate) ret: Option<i64>,
    /// The errno's name (`EAGAIN`), or a bare number.
    pub(crate) errno: Option<&'a [u8]>,
    /// The call failed without a name for why.
    pub(crate) failed: bool,
    /// What stands behind the value.
    pub(crate) tail: &'a [u8],
    /// The duration (`-T`) in nanoseconds.
    pub(crate) took: Option<u64>,
    /// A duration or a value returned that no call can have (`<-1>`, digits beyond 64 bits); else empty.
    pub(crate) unusable: &'a [u8],
}

impl Outcome<'_> {
    /// Whether the call failed, restarts included.
    pub(crate) fn is_error(&self) -> bool {
        self.failed || self.errno.is_some()
    }
}

/// The arguments and the end of a call whose line two halves were joined to.
pub(crate) fn rest_of_call(text: &[u8]) -> Option<(&[u8], Outcome<'_>)> {
    let (args, result) = split_result(text)?;
    Some((args, outcome(result)?))
}

/// The name of an error at the beginning of a line that wrapping broke off (`EAGAIN (Resource …`).
pub(crate) fn errno_alone(line: &[u8]) -> Option<&[u8]> {
    let line = text::trim(line);
    let end = line
        .iter()
        .position(|b| !(b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_'))
        .filter(|end| *end > 2)?;
    (line.starts_with(b"E") && line[end..].starts_with(b" (")).then(|| &line[..end])
}

/// The duration that stands alone on a line or ends one (`<0.000012>`), in nanoseconds.
pub(crate) fn duration_at_end(line: &[u8]) -> Option<u64> {
    let line = text::trim(line).strip_suffix(b">")?;
    let open = memrchr(b'<', line)?;
    number::seconds(&line[open + 1..]).map(|time| time.0)
}

/// Whether a line ends with what can only be a result, as the rest of a cut first line does.
pub(crate) fn has_result(line: &[u8]) -> bool {
    split_result(line).is_some_and(|(_, result)| outcome(result).is_some())
}

/// The bytes that names are made of.
const NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'?';
        byte += 1;
    }
    table
};

/// The length of the name before the bracket; 0 when there is none.
fn name_length(body: &[u8]) -> usize {
    let longest = &body[..body.len().min(65)];
    let length = longest
        .iter()
        .position(|b| !NAME[usize::from(*b)])
        .unwrap_or(longest.len());
    if body.get(length) == Some(&b'(') {
        length
    } else {
        0
    }
}

pub(super) fn call(body: &[u8]) -> Option<Event<'_>> {
    let length = name_length(body);
    if length == 0 {
        return None;
    }
    let name = &body[..length];
    let rest = &body[length + 1..];
    if let Some(args) = unfinished(rest) {
        return Some(Event::Unfinished(name, args));
    }
    match split_result(rest) {
        Some((args, result)) => match outcome(result) {
            Some(outcome) => Some(Event::Call(name, args, outcome)),
            None => Some(Event::Broken(name)),
        },
        None => Some(Event::Broken(name)),
    }
}

/// The arguments of a call whose line ends with a mark instead of a result.
fn unfinished(rest: &[u8]) -> Option<&[u8]> {
    if !rest.ends_with(b" ...>") {
        return None;
    }
    let open = memrchr(b'<', rest)?;
    let mark = &rest[open..];
    let known =
        mark == b"<unfinished ...>" || mark == b"<detached ...>" || mark.starts_with(b"<pid changed to ");
    known.then(|| text::trim(&rest[..open]))
}

/// Cuts arguments from result at the last `) = ` that is not inside a string.
fn split_result(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut found = None;
    let mut i = 0;
    while let Some(at) = rest.get(i..).and_then(|tail| text::near(b'"', b')', tail)) {
        i += at;
        if rest[i] == b'"' {
            let end = end_of_string(rest, i);
            if end == rest.len() && rest.last() != Some(&b'"') {
                // The string never ends: the line was cut inside it.
                return None;
            }
            i = end;
            continue;
        }
        let mut after = i + 1;
        // Tabs where a paste has them in place of spaces.
        while matches!(rest.get(after), Some(b' ' | b'\t')) {
            after += 1;
        }
        if after > i + 1 && rest.get(after) == Some(&b'=') && rest.get(after + 1) == Some(&b' ') {
            found = Some((i, after + 2));
            i = after + 2;
        } else {
            i += 1;
        }
    }
    found.map(|(end, from)| (&rest[..end], &rest[from..]))
}

/// The value, errno and duration behind the equals sign.
fn outcome(result: &[u8]) -> Option<Outcome<'_>> {
    let mut result = text::trim(result);
    let mut took = None;
    let mut unusable: &[u8] = &[];
    if result.last() == Some(&b'>')
        && let Some(open) = memrchr(b'<', result)
    {
        let inner = &result[open + 1..result.len() - 1];
        if let Some(time) = number::seconds(inner) {
            took = Some(time.0);
            result = text::trim(&result[..open]);
        } else if result[..open].ends_with(b" ") && number::is_odd(inner) {
            unusable = inner;
            result = text::trim(&result[..open]);
        }
    }
    let end = result.iter().position(|b| *b == b' ').unwrap_or(result.len());
    let mut value = &result[..end];
    let mut tail = skip_spaces(&result[end..]);
    // -y decorates a returned descriptor: 3</etc/passwd>, 4<socket:[1]>; the path may have spaces.
    if let Some(open) = memchr(b'<', value) {
        value = &value[..open];
        tail = &[];
    }
    if value == b"?" {
        let word = tail.iter().position(|b| *b == b' ').unwrap_or(tail.len());
        let errno = Some(&tail[..word]).filter(|w| w.starts_with(b"E"));
        return Some(Outcome {
            errno,
            tail,
            took,
            unusable,
            ..Outcome::default()
        });
    }
    let ret = match number::int(value) {
        Some(ret) => Some(ret),
        None if number::is_digits(value.strip_prefix(b"-").unwrap_or(value)) => {
            unusable = value;
            None
        }
        None => return None,
    };
    let mut outcome = Outcome {
        ret,
        tail,
        took,
        unusable,
        ..Outcome::default()
    };
    // Hex values above 2^63 are addresses.
    if value.starts_with(b"-") {
        let word = tail.iter().position(|b| *b == b' ').unwrap_or(tail.len());
        if tail.starts_with(b"E") {
            outcome.errno = Some(&tail[..word]);
            outcome.ret = Some(-1);
        } else if let Some(rest) = tail.strip_prefix(b"(errno ") {
            outcome.errno = Some(&rest[..digits(rest)]);
            outcome.failed = true;
        } else if ret == Some(-1) && tail.is_empty() {
            outcome.failed = true;
        }
    }
    Some(outcome)
}

/// `<... poll resumed>…) = 1`, also `<... resumed>`.
pub(super) fn resumed(body: &[u8]) -> Option<Event<'_>> {
    let rest = body.strip_prefix(b"<... ")?;
    let (name, after) = match rest.strip_prefix(b"resumed>") {
        Some(after) => (&[][..], after),
        None => {
            let length = rest.iter().position(|b| *b == b' ').filter(|n| *n <= 64)?;
            (&rest[..length], rest[length..].strip_prefix(b" resumed>")?)
        }
    };
    match split_result(after).and_then(|(args, result)| Some((args, outcome(result)?))) {
        Some((args, outcome)) => Some(Event::Resumed(name, args, outcome)),
        // Cut in the middle, or interrupted once more: a return that is not told.
        None => Some(Event::Resumed(
            name,
            unfinished(after).unwrap_or(&[]),
            Outcome::default(),
        )),
    }
}
