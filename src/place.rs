//! Places in files that people write by hand, and what is wrong there.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A place in a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    path: PathBuf,
    line: usize,
    column: usize,
}

impl Place {
    /// Where a span of bytes of the file's text begins; the beginning of the file without one.
    pub(crate) fn new(path: &Path, text: &str, span: Option<Range<usize>>) -> Place {
        let before = span.and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Place {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// An error at this place.
    pub(crate) fn error(self, message: impl Into<String>) -> FileError {
        FileError {
            path: self.path,
            line: self.line,
            column: self.column,
            message: message.into(),
        }
    }
}

/// Something wrong in a file that a person wrote: a scenario, a `clients.toml`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {message}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_begin_at_one_and_columns_are_characters() {
        let at = |span| {
            Place::new(Path::new("a.toml"), "ab\nüx = 1\n", span)
                .error("no")
                .to_string()
        };
        assert_eq!(at(None), "a.toml:1:1: no");
        assert_eq!(at(Some(1..2)), "a.toml:1:2: no");
        assert_eq!(at(Some(5..6)), "a.toml:2:2: no");
        // Inside a character, or beyond the end: no place is better than a panic.
        assert_eq!(at(Some(4..5)), "a.toml:1:1: no");
        assert_eq!(at(Some(99..100)), "a.toml:1:1: no");
    }
}
