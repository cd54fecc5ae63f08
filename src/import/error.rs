//! Why an input could not be imported.

use std::io;

use super::{ImportFormat, UnknownLines};

/// Why an input could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Nothing in it.
    #[error("the input is empty: was the trace written to another file (strace -o), or is it still running?")]
    Empty,
    /// Not text.
    #[error(
        "this is not text: there is a zero byte at offset {offset}; perf.data, ktrace.out and recordings must be \
         printed first (perf trace -i, perf script, kdump)"
    )]
    Binary {
        /// Where the first zero byte is.
        offset: usize,
    },
    /// Packed in a way that is not unpacked here.
    #[error("this is packed with {packing}: unpack it first ({command} FILE | systally import -)")]
    Packed {
        /// How.
        packing: &'static str,
        /// What unpacks it.
        command: &'static str,
    },
    /// Packed data within packed data, which may grow without end.
    #[error(
        "this is packed twice, {inner} within {outer}: unpack it once ({command} FILE | systally import -)"
    )]
    PackedTwice {
        /// What it is at first sight.
        outer: &'static str,
        /// What was found in it.
        inner: &'static str,
        /// What unpacks the outer one.
        command: &'static str,
    },
    /// Text in two-byte units.
    #[error("this is UTF-16 text: convert it first (iconv -f UTF-16 -t UTF-8 FILE)")]
    Utf16,
    /// No importer takes it.
    #[error(
        "line {line} is of no format that systally knows: “{text}”; --from FORMAT names the format, and \
         systally import --help lists them"
    )]
    Unrecognised {
        /// The first line with text.
        line: u64,
        /// That line, escaped.
        text: String,
    },
    /// The importer that was asked for finds nothing of its format.
    #[error("nothing here is of the format {format}; the first line that is not: line {line}, “{text}”")]
    NotThisFormat {
        /// The format.
        format: ImportFormat,
        /// The first line that does not fit.
        line: u64,
        /// That line, escaped.
        text: String,
    },
    /// The input is damaged in a way that makes its counts worthless.
    #[error("line {line}: {what}: “{text}”")]
    Damaged {
        /// Where.
        line: u64,
        /// What is wrong.
        what: &'static str,
        /// The line, escaped.
        text: String,
    },
    /// Reading failed.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
}

/// The first line that an importer could not use, for [`ImportError::NotThisFormat`].
pub(super) fn nothing_of(format: ImportFormat, unknown: &UnknownLines) -> ImportError {
    match unknown.first.first() {
        Some((line, text)) => ImportError::NotThisFormat {
            format,
            line: *line,
            text: text.clone(),
        },
        None => ImportError::Empty,
    }
}
