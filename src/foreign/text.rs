//! Pieces of lines.

use memchr::{memchr, memchr2};

/// Without spaces and tabs at both ends.
pub(crate) fn trim(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r', rest @ ..] = line {
        line = rest;
    }
    while let [rest @ .., b' ' | b'\t' | b'\r'] = line {
        line = rest;
    }
    line
}

/// Where the first of two bytes is. What the lines of a log are searched for is mostly a few bytes away,
/// where calling a vectorised search costs more than it saves.
#[inline]
pub(crate) fn near(a: u8, b: u8, text: &[u8]) -> Option<usize> {
    const NEAR: usize = 16;
    let (head, rest) = text.split_at(text.len().min(NEAR));
    match head.iter().position(|byte| *byte == a || *byte == b) {
        None if rest.is_empty() => None,
        None => memchr2(a, b, rest).map(|at| head.len() + at),
        found => found,
    }
}

/// Whether `needle` is somewhere in `line`.
pub(crate) fn contains(line: &[u8], needle: &str) -> bool {
    // Needles are words and most lines are short: preparing a searcher would cost more than the search.
    let Some((first, rest)) = needle.as_bytes().split_first() else {
        return true;
    };
    let mut line = line;
    while let Some(at) = memchr(*first, line) {
        line = &line[at + 1..];
        if line.starts_with(rest) {
            return true;
        }
    }
    false
}
