//! Pieces of lines.

use memchr::memmem;

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
    memmem::find(line, needle.as_bytes()).is_some()
}
