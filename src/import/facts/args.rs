//! The arguments of a call as strace, truss and dtruss print them. No copies: everything borrows.

use memchr::{memchr, memmem};

use super::super::number;
pub(crate) use crate::foreign::quoted::end_of_string;

/// The first top-level argument and the rest after its comma.
pub(crate) fn first(args: &[u8]) -> (&[u8], &[u8]) {
    let mut depth = 0_u32;
    let mut i = 0;
    while let Some(byte) = args.get(i) {
        match byte {
            b'"' => {
                i = end_of_string(args, i);
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return (trim(&args[..i]), trim(&args[i + 1..])),
            _ => {}
        }
        i += 1;
    }
    (trim(args), &[])
}

/// The argument of a number, from 0.
pub(crate) fn nth(args: &[u8], index: usize) -> &[u8] {
    let mut rest = args;
    for _ in 0..index {
        rest = first(rest).1;
    }
    first(rest).0
}

fn trim(text: &[u8]) -> &[u8] {
    super::super::text::trim(text)
}

/// Without `name=` in front (strace -N, perf trace's `fd: 3`).
pub(crate) fn value(arg: &[u8]) -> &[u8] {
    let word = arg
        .iter()
        .position(|b| !b.is_ascii_lowercase() && *b != b'_')
        .unwrap_or(arg.len());
    match arg.get(word) {
        Some(b'=' | b':') if word > 0 => trim(&arg[word + 1..]),
        Some(_) | None => arg,
    }
}

/// The descriptor in an argument: `4`, `4<socket:[1]>`, `0x4`, `fd: 4`.
pub(crate) fn fd(arg: &[u8]) -> Option<u64> {
    let arg = value(arg);
    let end = arg.iter().position(|b| *b == b'<').unwrap_or(arg.len());
    let arg = &arg[..end];
    number::int(arg)
        .and_then(|n| u64::try_from(n).ok())
        .filter(|n| *n < 1 << 31)
}

/// What `-y` and `-yy` put behind a descriptor, without the angle brackets.
pub(crate) fn decoration(arg: &[u8]) -> Option<&[u8]> {
    let open = memchr(b'<', arg)?;
    arg[open + 1..].strip_suffix(b">").or(Some(&arg[open + 1..]))
}

/// The text between two marks, after the first occurrence of `before`.
pub(crate) fn between<'a>(text: &'a [u8], before: &str, after: &[u8]) -> Option<&'a [u8]> {
    let start = memmem::find(text, before.as_bytes())? + before.len();
    let rest = &text[start..];
    let end = rest.iter().position(|b| after.contains(b)).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// A number behind a mark (`tv_sec=5`).
pub(crate) fn number_after(text: &[u8], mark: &str) -> Option<u64> {
    let digits = between(text, mark, b",)}] ")?;
    number::int(digits).and_then(|n| u64::try_from(n).ok())
}

/// A `struct timespec` or `timeval` in nanoseconds.
pub(crate) fn timespec(text: &[u8]) -> Option<u64> {
    let seconds = number_after(text, "tv_sec=")?;
    let rest = number_after(text, "tv_nsec=")
        .or_else(|| Some(number_after(text, "tv_usec=")?.saturating_mul(1_000)));
    Some(
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(rest.unwrap_or(0)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_split_at_the_top_level_only() {
        let args = br#"4, "a, \"b", {x=1, y=[2, 3]}, 16"#;
        assert_eq!(first(args).0, b"4");
        assert_eq!(nth(args, 1), br#""a, \"b""#);
        assert_eq!(nth(args, 2), b"{x=1, y=[2, 3]}");
        assert_eq!(nth(args, 3), b"16");
        assert_eq!(nth(args, 9), b"");
    }

    #[test]
    fn descriptors_in_all_their_forms() {
        for text in [
            "4",
            "0x4",
            "4<socket:[12]>",
            "fd: 4",
            "fd=4",
            "4<TCP:[1.2.3.4:5->6.7.8.9:80]>",
        ] {
            assert_eq!(fd(text.as_bytes()), Some(4), "{text}");
        }
        assert_eq!(fd(b"AT_FDCWD"), None);
        assert_eq!(fd(b"-1"), None);
        assert_eq!(decoration(b"4<socket:[12]>"), Some(&b"socket:[12]"[..]));
    }

    #[test]
    fn times_in_structures() {
        assert_eq!(timespec(b"{tv_sec=1, tv_nsec=20000000}"), Some(1_020_000_000));
        assert_eq!(timespec(b"{tv_sec=0, tv_usec=5}"), Some(5_000));
        assert_eq!(timespec(b"NULL"), None);
    }

    #[test]
    fn an_endless_string_ends_with_the_text() {
        assert_eq!(end_of_string(br#""abc\"#, 0), 5);
        assert_eq!(end_of_string(br#""abc" x"#, 0), 5);
    }
}
