//! Pieces of lines.

use memchr::memchr;

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
