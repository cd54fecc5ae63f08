//! `systally schema`: the JSON Schema of the record.

use anyhow::Context;

use crate::record::wire;

use super::{Code, CommandResult, print};

/// Prints it.
///
/// # Errors
/// When standard output cannot be written.
pub fn run() -> CommandResult {
    let text = serde_json::to_string_pretty(&wire::schema()).context("writing the schema")?;
    print(&format!("{text}\n"))?;
    Ok(Code::Ok)
}
