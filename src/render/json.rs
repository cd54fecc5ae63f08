//! The record itself, in the form that [`crate::record::wire`] defines.

use super::RenderError;
use crate::record::{Record, wire};

pub(super) fn write(record: &Record) -> Result<String, RenderError> {
    Ok(wire::to_json(record)?)
}
