//! One line of an strace log, taken apart without copying anything: for the importer of logs, and for the
//! engine that drives strace.

mod call;
mod notice;
mod prefix;

use super::text;
use call::{call, resumed};
use notice::{exit, is_dump, is_frame, mode, signal};

pub(crate) use call::{Outcome, duration_at_end, errno_alone, has_result, rest_of_call};
pub(crate) use notice::{inner_notice, is_notice};
pub(crate) use prefix::{Prefix, Stamp, prefix};

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

/// What the line tells, after its [`prefix()`].
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

fn skip_spaces(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = line {
        line = rest;
    }
    line
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|b| b.is_ascii_digit()).count()
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
