//! One line of an strace log, taken apart without copying anything: for the importer of logs, and for the
//! engine that drives strace.

use memchr::{memchr, memmem, memrchr};

use super::quoted::end_of_string;
use super::{number, text};

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

/// What a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A whole call.
    Call(&'a [u8], &'a [u8], Outcome<'a>),
    /// The beginning of a call that another thread's line cut short.
    Unfinished(&'a [u8], &'a [u8]),
    /// The end of such a call.
    Resumed(&'a [u8], &'a [u8], Outcome<'a>),
    /// A call that the line breaks off in the middle of, with its name.
    Broken(&'a [u8]),
    /// A signal was delivered.
    Signal(&'a [u8]),
    /// The thread ended; the signal that killed it, if one did.
    Gone(Option<&'a [u8]>),
    /// The process was replaced by an exec of another of its threads, which goes on under the number of
    /// this line; the other one's number.
    Superseded(u32),
    /// The process runs in another mode from here on (`32 bit`, `x32`).
    Mode(Option<u32>, &'a [u8]),
    /// A message of strace, a stack line: known, and no call.
    Aside,
    /// A complaint of strace's own.
    Complaint(&'a [u8]),
    /// Not a line of a log.
    Unknown,
}

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

fn skip_spaces(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = line {
        line = rest;
    }
    line
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|b| b.is_ascii_digit()).count()
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

/// What the line tells, after its [`prefix`].
pub(crate) fn event(body: &[u8]) -> Event<'_> {
    match body.first() {
        Some(b'<') => resumed(body).unwrap_or(Event::Unknown),
        Some(b'+') => exit(body).unwrap_or(Event::Unknown),
        Some(b'-') => signal(body).unwrap_or(Event::Unknown),
        Some(b'[') => mode(body).unwrap_or(Event::Unknown),
        Some(b'>') if text::contains(body, " [0x") || is_frame(body) => Event::Aside,
        Some(b'|' | b'*') if is_dump(body) => Event::Aside,
        Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'?') => {
            if let Some(event) = call(body) {
                return event;
            }
            if let Some(message) = body.strip_prefix(b"strace: ") {
                return match mode(message) {
                    Some(event) => event,
                    None if is_notice(body) => Event::Aside,
                    None => Event::Complaint(message),
                };
            }
            if body.starts_with(b"Process ") && is_notice(body) {
                return Event::Aside;
            }
            Event::Unknown
        }
        Some(_) | None => Event::Unknown,
    }
}

/// A frame of a stack (`-k`) without an address.
fn is_frame(body: &[u8]) -> bool {
    ["> /", "> [", "> unexpected_backtracing_error"]
        .iter()
        .any(|start| body.starts_with(start.as_bytes()))
}

/// A line of the dumps of `-e read=…` and `-e write=…`.
fn is_dump(body: &[u8]) -> bool {
    match body.strip_prefix(b"| ") {
        Some(rest) => {
            let digits = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
            digits >= 5 && rest[digits..].starts_with(b"  ")
        }
        None => body.starts_with(b"* ") && text::contains(body, " bytes in buffer "),
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

fn call(body: &[u8]) -> Option<Event<'_>> {
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
fn resumed(body: &[u8]) -> Option<Event<'_>> {
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

/// `+++ exited with 0 +++`, `+++ killed by SIGKILL (core dumped) +++`.
fn exit(body: &[u8]) -> Option<Event<'_>> {
    let inner = body.strip_prefix(b"+++ ")?;
    if let Some(rest) = inner.strip_prefix(b"killed by ") {
        let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
        return Some(Event::Gone(Some(&rest[..end])));
    }
    if let Some(rest) = inner.strip_prefix(b"superseded by execve in pid ")
        && let Some(pid) = number::uint(&rest[..digits(rest)]).and_then(|n| u32::try_from(n).ok())
    {
        return Some(Event::Superseded(pid));
    }
    Some(Event::Gone(None))
}

/// `--- SIGUSR1 {…} ---`, `--- stopped by SIGSTOP ---`, and old `--- SIGCHLD (Child exited) @ 0 (0) ---`.
fn signal(body: &[u8]) -> Option<Event<'_>> {
    let inner = body.strip_prefix(b"--- ")?;
    if !inner.starts_with(b"SIG") {
        return inner.starts_with(b"stopped by ").then_some(Event::Aside);
    }
    let end = inner.iter().position(|b| *b == b' ').unwrap_or(inner.len());
    Some(Event::Signal(&inner[..end]))
}

/// `[ Process PID=778 runs in x32 mode. ]`
fn mode(body: &[u8]) -> Option<Event<'_>> {
    let rest = body.strip_prefix(b"[ Process PID=")?;
    let rest = skip_spaces(rest);
    let length = digits(rest);
    let pid = number::uint(&rest[..length]).and_then(|n| u32::try_from(n).ok());
    let mode = rest[length..].strip_prefix(b" runs in ")?;
    let end = memmem::find(mode, b" mode")?;
    let mode = &mode[..end];
    Some(Event::Mode(pid, mode.strip_suffix(b" bit").unwrap_or(mode)))
}

/// Where in a line a message of strace breaks into it: `clone3(…strace: Process 102 attached`,
/// `clone(Process 15 attached`.
#[inline]
pub(crate) fn inner_notice(line: &[u8]) -> Option<usize> {
    if line.last() != Some(&b'd') {
        return None;
    }
    if !line.ends_with(b"ttached") && !line.ends_with(b"etached") {
        return None;
    }
    let at = memmem::rfind(line, b"Process ")?;
    let rest = &line[at + 8..];
    let length = digits(rest);
    if length == 0 || !matches!(&rest[length..], b" attached" | b" detached") {
        return None;
    }
    Some(
        line[..at]
            .strip_suffix(b"strace: ")
            .map_or(at, |before| before.len()),
    )
}

/// strace's own messages about processes and modes.
pub(crate) fn is_notice(line: &[u8]) -> bool {
    let line = text::trim(line);
    let line = line.strip_prefix(b"strace: ").unwrap_or(line);
    let digits_then = |rest: &[u8]| {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        digits > 0
            && [
                " attached",
                " detached",
                " resumed",
                " suspended",
                " runs in ",
                " exited",
            ]
            .iter()
            .any(|word| rest[digits..].starts_with(word.as_bytes()))
    };
    match line.strip_prefix(b"Process ") {
        Some(rest) => digits_then(rest),
        None => line
            .strip_prefix(b"[ Process PID=")
            .is_some_and(|rest| rest.starts_with(b" ") || digits_then(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> (Prefix, Event<'_>) {
        let (prefix, body) = prefix(line.as_bytes());
        (prefix, event(body))
    }

    #[test]
    fn columns_before_the_call() {
        for (line, pid, stamp) in [
            ("close(1) = 0", None, None),
            ("[pid   102] close(1) = 0", Some(102), None),
            ("[pid 300<php-fpm8.2>] close(1) = 0", Some(300), None),
            ("102   close(1) = 0", Some(102), None),
            ("102<a b> close(1) = 0", Some(102), None),
            ("00:16:23 close(1) = 0", None, Some(Stamp::OfDay(983_000_000_000))),
            (
                "00:16:23.5 close(1) = 0",
                None,
                Some(Stamp::OfDay(983_500_000_000)),
            ),
            (
                "7 1700000000.000001 close(1) = 0",
                Some(7),
                Some(Stamp::Epoch(1_700_000_000_000_001_000)),
            ),
            (
                "1700000000 close(1) = 0",
                None,
                Some(Stamp::Epoch(1_700_000_000_000_000_000)),
            ),
            (
                "     0.000441 [  44] close(1) = 0",
                None,
                Some(Stamp::Delta(441_000)),
            ),
            (
                "00:16:23 (+     0.000441) close(1) = 0",
                None,
                Some(Stamp::OfDay(983_000_000_000)),
            ),
            ("[00007f12ab340000] close(1) = 0", None, None),
            (
                "[pid 7] 00:16:23 [????????????????] close(1) = 0",
                Some(7),
                Some(Stamp::OfDay(983_000_000_000)),
            ),
            ("[user_u:role_r:type_t] close(1) = 0", None, None),
        ] {
            let (prefix, event) = parsed(line);
            assert_eq!((prefix.pid, prefix.stamp), (pid, stamp), "{line}");
            assert!(
                matches!(event, Event::Call(b"close", b"1", _)),
                "{line}: {event:?}"
            );
        }
    }

    #[test]
    fn results_of_every_kind() {
        let outcome = |line| match parsed(line).1 {
            Event::Call(_, _, outcome) => outcome,
            other => panic!("{line}: {other:?}"),
        };
        let again = outcome(
            "recvfrom(4, 0x7f, 1, MSG_PEEK, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable) <0.000011>",
        );
        assert_eq!((again.errno, again.took), (Some(&b"EAGAIN"[..]), Some(11_000)));
        let restart =
            outcome("read(3, 0x7f, 1)              = ? ERESTARTSYS (To be restarted if SA_RESTART is set)");
        assert_eq!((restart.ret, restart.errno), (None, Some(&b"ERESTARTSYS"[..])));
        assert!(!outcome("exit_group(0)                 = ?").is_error());
        assert!(!outcome("exit_group(0) = ? <unavailable>").is_error());
        assert_eq!(outcome("open(\"/a b\", 0) = 3</a b>").ret, Some(3));
        assert_eq!(outcome("mmap(0) = 0x7f41e497f6d0").ret, Some(0x7f41_e497_f6d0));
        assert_eq!(outcome("x(1) = -1 (errno 4000)").errno, Some(&b"4000"[..]));
        assert_eq!(
            outcome("fcntl(3, F_GETFL) = 0x8002 (flags O_RDWR)").tail,
            b"(flags O_RDWR)"
        );
        assert!(outcome("brk(NULL) = -1").is_error());
        assert!(!outcome("mmap(0) = 0xffffffffffffffff").is_error());
        assert_eq!(
            outcome("write(1, \"x\", 1) = 1 (INJECTED) <1.5>").took,
            Some(1_500_000_000)
        );
    }

    #[test]
    fn text_in_strings_is_no_result() {
        let line = r#"sendto(4, "a) = -1 EAGAIN (x) <1.2>\r\n", 40, 0, NULL, 0) = 40 <0.000031>"#;
        match parsed(line).1 {
            Event::Call(b"sendto", _, outcome) => {
                assert_eq!((outcome.ret, outcome.took), (Some(40), Some(31_000)))
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            parsed(r#"sendto(4, "a) = 5"#).1,
            Event::Broken(b"sendto")
        ));
        assert!(matches!(
            parsed(r#"sendto(4, "a\") = 5"#).1,
            Event::Broken(b"sendto")
        ));
    }

    #[test]
    fn halves_and_asides() {
        assert!(matches!(
            parsed("[pid 1] futex(0x7f, FUTEX_WAIT, 1, NULL <unfinished ...>").1,
            Event::Unfinished(b"futex", b"0x7f, FUTEX_WAIT, 1, NULL")
        ));
        assert!(matches!(
            parsed("read(0, <detached ...>").1,
            Event::Unfinished(b"read", _)
        ));
        assert!(matches!(
            parsed("<... futex resumed>) = 0").1,
            Event::Resumed(b"futex", b"", _)
        ));
        assert!(matches!(
            parsed("<... resumed> <unfinished ...>) = ?").1,
            Event::Resumed(b"", _, _)
        ));
        assert!(matches!(parsed("+++ exited with 0 +++").1, Event::Gone(None)));
        assert_eq!(
            parsed("+++ superseded by execve in pid 27044 +++").1,
            Event::Superseded(27_044)
        );
        assert!(matches!(
            parsed("+++ killed by SIGKILL (core dumped) +++").1,
            Event::Gone(Some(b"SIGKILL"))
        ));
        assert!(matches!(
            parsed("--- SIGCHLD (Child exited) @ 0 (0) ---").1,
            Event::Signal(b"SIGCHLD")
        ));
        assert!(matches!(
            parsed("strace: [ Process PID=778 runs in x32 mode. ]").1,
            Event::Mode(Some(778), b"x32")
        ));
        assert!(matches!(
            parsed("[ Process PID=778 runs in 32 bit mode. ]").1,
            Event::Mode(Some(778), b"32")
        ));
        assert!(matches!(parsed("strace: Process 7 attached").1, Event::Aside));
        assert!(matches!(
            parsed(" > /lib/libc.so.6(read+0x14) [0x10e1b2]").1,
            Event::Aside
        ));
        assert!(matches!(parsed("i=3 ok").1, Event::Unknown));
        assert!(matches!(
            parsed("restart_syscall(<... resuming interrupted poll ...>) = 1").1,
            Event::Call(..)
        ));
    }

    #[test]
    fn notices_inside_lines() {
        assert_eq!(
            inner_notice(b"clone3({flags=X}strace: Process 102 attached"),
            Some(16)
        );
        assert_eq!(inner_notice(b"clone(Process 15 attached"), Some(6));
        assert_eq!(inner_notice(b"strace: Process 15 attached"), Some(0));
        assert_eq!(inner_notice(b"close(1) = 0"), None);
    }
}
