//! Lines that are no calls: signals, ends, modes, stacks, dumps, and strace's own messages.

use memchr::memmem;

use super::super::{number, text};
use super::{Event, digits, skip_spaces};

/// A frame of a stack (`-k`) without an address.
pub(super) fn is_frame(body: &[u8]) -> bool {
    ["> /", "> [", "> unexpected_backtracing_error"]
        .iter()
        .any(|start| body.starts_with(start.as_bytes()))
}

/// A line of the dumps of `-e read=…` and `-e write=…`.
pub(super) fn is_dump(body: &[u8]) -> bool {
    match body.strip_prefix(b"| ") {
        Some(rest) => {
            let digits = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
            digits >= 5 && rest[digits..].starts_with(b"  ")
        }
        None => body.starts_with(b"* ") && text::contains(body, " bytes in buffer "),
    }
}

/// `+++ exited with 0 +++`, `+++ killed by SIGKILL (core dumped) +++`.
pub(super) fn exit(body: &[u8]) -> Option<Event<'_>> {
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
pub(super) fn signal(body: &[u8]) -> Option<Event<'_>> {
    let inner = body.strip_prefix(b"--- ")?;
    if !inner.starts_with(b"SIG") {
        return inner.starts_with(b"stopped by ").then_some(Event::Aside);
    }
    let end = inner.iter().position(|b| *b == b' ').unwrap_or(inner.len());
    Some(Event::Signal(&inner[..end]))
}

/// `[ Process PID=778 runs in x32 mode. ]`
pub(super) fn mode(body: &[u8]) -> Option<Event<'_>> {
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
