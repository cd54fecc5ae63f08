//! The JSON form of a record, schema `systally/1`: serde types of its own, strict on unknown fields.
