//! The JSON form of a record, schema `systally/1`: serde types of its own, strict on unknown fields.
//!
//! What a reader can rely on: keys and their order are fixed; the same record gives the same bytes; a
//! record read and written again is unchanged, numbers included. What was not measured is `null`, and
//! the map `not_measured` beside it (of the strategy, or of the record) has the reason under the path
//! of the key.

mod decode;
mod encode;
mod pairs;
mod types;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::files::{self, WriteError};
use crate::record::Record;
use crate::units::escape;

/// The schema this build reads and writes.
pub const SCHEMA: &str = "systally/1";

/// The largest record that is read: far beyond any real one, and small enough to hold in memory.
const LARGEST: u64 = 256 << 20;

/// Why a record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Not JSON, or JSON that the schema does not allow.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// JSON without the key `schema`, or with something else there.
    #[error("this is not a record of systally: {found}; a record begins with \"schema\": \"{SCHEMA}\"")]
    NotARecord {
        /// What stands in its place.
        found: String,
    },
    /// A record of another schema version.
    #[error(
        "the record has schema {found}, and this build of systally ({version}) reads {SCHEMA}; \
         read it with the systally that wrote it (its \"tool\" key says which)",
        version = env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The schema it states.
        found: String,
    },
    /// JSON of the right shape that contradicts itself.
    #[error("`{path}`: {what}")]
    Inconsistent {
        /// The key, by its path.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The record could not be turned into JSON.
    #[error("the record cannot be written as JSON: {0}")]
    Encode(String),
    /// A file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file that the user named.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file was read, and is not a record.
    #[error("{}: {source}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<WireError>,
    },
}

/// The record as JSON: indented, keys in a fixed order, ended by a newline.
///
/// # Errors
/// [`WireError::Encode`], which no record made by systally causes.
pub fn to_json(record: &Record) -> Result<String, WireError> {
    let mut text = serde_json::to_string_pretty(&encode::record(record))
        .map_err(|e| WireError::Encode(e.to_string()))?;
    text.push('\n');
    Ok(text)
}

/// Reads a record from JSON.
///
/// # Errors
/// Text that is not JSON or not of the schema (with line and column), another schema version, and keys
/// that contradict each other.
pub fn from_json(text: &str) -> Result<Record, WireError> {
    // The schema first, so that a newer record is called that and not an unknown field.
    let head: Head = serde_json::from_str(text).map_err(|e| syntax(&e))?;
    match head.schema {
        Some(serde_json::Value::String(schema)) if schema == SCHEMA => {}
        Some(serde_json::Value::String(schema)) if schema.starts_with("systally/") => {
            return Err(WireError::Version {
                found: escape(&schema, 40),
            });
        }
        Some(other) => {
            return Err(WireError::NotARecord {
                found: format!("its \"schema\" is {}", escape(&other.to_string(), 60)),
            });
        }
        None => {
            return Err(WireError::NotARecord {
                found: "it has no key \"schema\"".to_owned(),
            });
        }
    }
    decode::record(serde_json::from_str(text).map_err(|e| syntax(&e))?)
}

/// Reads a record from a file.
///
/// # Errors
/// As [`from_json`], and what opening and reading says; each names the path.
pub fn load(path: &Path) -> Result<Record, WireError> {
    use std::io::Read;
    let io = |source| WireError::Io {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text))
        .map_err(io)?;
    if read as u64 > LARGEST {
        return Err(io(std::io::Error::other("it is too large for a record")));
    }
    from_json(&text).map_err(|source| WireError::InFile {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

/// Writes the record to a file, as [`files::write`] does.
///
/// # Errors
/// What writing says, with the path; the old file then stays.
pub fn save(record: &Record, path: &Path) -> Result<(), WireError> {
    Ok(files::write(path, &to_json(record)?)?)
}

/// The JSON Schema of `systally/1`.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(types::WireRecord);
    // Derived from a type, this would allow any text.
    if let Some(stated) = schema.pointer_mut("/properties/schema") {
        stated["const"] = SCHEMA.into();
    }
    schema.to_value()
}

/// Only the key that tells what the rest is.
#[derive(Deserialize)]
struct Head {
    schema: Option<serde_json::Value>,
}

fn syntax(error: &serde_json::Error) -> WireError {
    let message = error.to_string();
    // The library ends its message with the place, which stands in front of ours.
    let place = format!(" at line {} column {}", error.line(), error.column());
    WireError::Syntax {
        line: error.line(),
        column: error.column(),
        message: escape(message.strip_suffix(&place).unwrap_or(&message), 300),
    }
}

#[cfg(test)]
mod tests;
