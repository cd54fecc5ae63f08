//! The shapes of the JSON. Names and units here are a contract with whoever reads records; they may gain
//! keys only together with a new schema name, because unknown keys are refused.
//!
//! A doc comment here is what the published JSON Schema says of the key.

mod counted;
mod finding;
mod server;
mod strategy;
mod system;
mod timed;

use std::collections::BTreeMap;

use crate::record::{Import, Proof, Sampled};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use counted::*;
pub(super) use finding::*;
pub(super) use server::*;
pub(super) use strategy::*;
pub(super) use system::*;
pub(super) use timed::*;

/// Reasons for nulls, by the path of the key they stand in.
pub(super) type Reasons = BTreeMap<String, String>;

/// A result of systally: what was planned, measured, counted, read and found. Numbers that were not
/// measured are null, and `not_measured` of the record or of the strategy says why, by path.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "systally record")]
pub(super) struct WireRecord {
    /// Always `systally/1`.
    pub(super) schema: String,
    /// The command that made the record.
    pub(super) kind: WireKind,
    /// False while strategies are still to come, or when the run was cut short.
    pub(super) complete: bool,
    /// What wrote it.
    pub(super) tool: WireTool,
    /// The machine.
    pub(super) host: WireHost,
    /// The server, the Redis one where there are several kinds; null where there was none.
    pub(super) server: Option<WireServer>,
    /// The other kinds of servers that rows ran against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) more_servers: Vec<WireServer>,
    /// What was asked for: long flag names without dashes and their values.
    pub(super) plan: BTreeMap<String, String>,
    /// A row each.
    pub(super) strategies: Vec<WireStrategy>,
    /// The limits that bear on the run.
    pub(super) limits: Vec<WireLimit>,
    /// Kernel and server counters around the whole run, by dotted name.
    pub(super) counters: WireCounters,
    /// What was read many times during the run: queues and pressures that no counter keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sampled: Option<Sampled>,
    /// What the rules found, the gravest first.
    pub(super) findings: Vec<WireFinding>,
    /// Findings that were put to the test, each with all its runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) proofs: Vec<Proof>,
    /// The foreign files that an import was made of, with what was read from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) imports: Vec<Import>,
    /// Why keys of `host` and `limits` are null, by path (`host.cpu`, `limits.0.demand`).
    #[serde(default)]
    pub(super) not_measured: Reasons,
}

/// The command that made a record.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireKind {
    Bench,
    Count,
    Import,
    Preflight,
}

/// What wrote a record.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireTool {
    /// systally's version.
    pub(super) version: String,
}

/// What a number of servers is when it is left out.
fn one() -> u32 {
    1
}

fn is_one(servers: &u32) -> bool {
    *servers == 1
}
