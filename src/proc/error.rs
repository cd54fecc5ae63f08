//! Why a kernel file gave no value.

use std::io;

use crate::units::{Measured, escape};

/// A kernel file that could not be read, or does not hold what it should.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Opening or reading failed; the message has the path.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It does not hold what the kernel writes there.
    #[error("{path}: expected {expected}, found \"{found}\"")]
    Content {
        /// The path below the root.
        path: String,
        /// What belongs there.
        expected: &'static str,
        /// What is there, escaped and cut.
        found: String,
    },
}

impl ReadError {
    /// An error about the content of `path`.
    pub fn content(path: &str, expected: &'static str, found: &str) -> ReadError {
        ReadError::Content {
            path: escape(path, 120),
            expected,
            found: escape(found.trim_end(), 60),
        }
    }

    /// Whether the file or the process is simply not there.
    pub fn is_absent(&self) -> bool {
        matches!(self, ReadError::Io(e) if e.kind() == io::ErrorKind::NotFound)
    }

    /// Whether reading was refused.
    pub fn is_denied(&self) -> bool {
        matches!(self, ReadError::Io(e) if e.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// The value, or the error as the reason why there is none.
pub fn measured<T>(read: Result<T, ReadError>) -> Measured<T> {
    match read {
        Ok(value) => Measured::Known(value),
        Err(e) => Measured::NotMeasured(e.to_string()),
    }
}
