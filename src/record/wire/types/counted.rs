//! The counted passes of a row: calls by phase, and how far the engine changed them.

use std::collections::BTreeMap;

use crate::tally::Talk;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The counted pass of a row.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireCounted {
    /// The engine that counted.
    pub(in crate::record::wire) engine: String,
    /// Operations done in the window; null when nobody can know.
    pub(in crate::record::wire) ops: Option<u64>,
    /// Length of the window under the engine, which is not the client's speed.
    pub(in crate::record::wire) seconds: f64,
    /// Untraced throughput over throughput under the engine.
    pub(in crate::record::wire) slowdown: Option<f64>,
    /// The calls, apart by part of the worker's life.
    pub(in crate::record::wire) phases: WirePhases,
    /// Connections begun per operation, in the loop.
    pub(in crate::record::wire) connects_per_op: Option<f64>,
    /// Turns of send, wait, receive per operation, in the loop.
    pub(in crate::record::wire) round_trips_per_op: Option<f64>,
    /// Sends per batch, in the loop.
    pub(in crate::record::wire) sends_per_batch: Option<f64>,
    /// Calls per operation over the least that a client can make: one send and one receive per batch.
    pub(in crate::record::wire) floor_ratio: Option<f64>,
    /// Failed operations in the counted pass, by the client's words.
    pub(in crate::record::wire) client_errors: BTreeMap<String, u64>,
    /// CPU time of the whole counted process tree.
    pub(in crate::record::wire) cpu_ns: Option<WireCpu>,
    /// What a reader of the counts must know.
    pub(in crate::record::wire) notes: Vec<String>,
}

/// A count of the loop that was not the same in all counted passes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireVaried {
    /// The system call.
    pub(in crate::record::wire) syscall: String,
    /// The errno of the failures that are meant; null for all calls of that name.
    pub(in crate::record::wire) errno: Option<String>,
    /// Per operation, over the passes.
    pub(in crate::record::wire) per_op: WireSpan,
}

/// The least and the greatest of a count over passes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireSpan {
    /// The least.
    pub(in crate::record::wire) low: f64,
    /// The greatest.
    pub(in crate::record::wire) high: f64,
}

/// The second count of a row, at nearly native speed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireWitness {
    /// The engine that made it.
    pub(in crate::record::wire) engine: String,
    /// How many passes it made.
    pub(in crate::record::wire) passes: u32,
    /// The calls that it counted; null for all.
    pub(in crate::record::wire) calls: Option<Vec<String>>,
    /// Untraced throughput over throughput under this engine.
    pub(in crate::record::wire) slowdown: Option<f64>,
    /// The counts of the loop that the slower engine changed; empty when it changed none.
    pub(in crate::record::wire) moved: Vec<WireMoved>,
}

/// A count that came out differently at nearly native speed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireMoved {
    /// The system call.
    pub(in crate::record::wire) syscall: String,
    /// The errno of the failures that are meant; null for all calls of that name.
    pub(in crate::record::wire) errno: Option<String>,
    /// Per operation in the counted passes.
    pub(in crate::record::wire) counted: WireSpan,
    /// Per operation at nearly native speed.
    pub(in crate::record::wire) native: WireSpan,
}

/// CPU time in nanoseconds.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireCpu {
    /// In user mode.
    pub(in crate::record::wire) user: u64,
    /// In the kernel.
    pub(in crate::record::wire) system: u64,
}

/// The phases of a counted pass.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WirePhases {
    /// Up to `go`.
    pub(in crate::record::wire) startup: WirePhase,
    /// The measured window; a program without markers is all loop.
    #[serde(rename = "loop")]
    pub(in crate::record::wire) run_loop: WirePhase,
    /// After `done`.
    pub(in crate::record::wire) shutdown: WirePhase,
}

/// The calls of one phase. `per_op` and the totals are for readers: they follow from the other keys, and
/// systally computes them anew.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WirePhase {
    /// By name of the system call.
    pub(in crate::record::wire) syscalls: BTreeMap<String, WireCall>,
    /// All calls that returned.
    pub(in crate::record::wire) total_calls: u64,
    /// The same per operation; null outside the loop, or when the operations are not known.
    pub(in crate::record::wire) total_per_op: Option<f64>,
    /// Turns and waits, where the engine looks at single calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::record::wire) talk: Option<Talk>,
}

/// One system call over one phase.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::record::wire) struct WireCall {
    /// Calls that returned.
    pub(in crate::record::wire) calls: u64,
    /// The same per operation; null outside the loop, or when the operations are not known.
    pub(in crate::record::wire) per_op: Option<f64>,
    /// Calls that were entered and never returned.
    pub(in crate::record::wire) unfinished: u64,
    /// Failed calls by errno name.
    pub(in crate::record::wire) errors: Option<BTreeMap<String, u64>>,
    /// Calls that the kernel restarted after a signal, by code; they are not failures.
    pub(in crate::record::wire) restarts: BTreeMap<String, u64>,
    /// Wall time in the call, tracing included.
    pub(in crate::record::wire) time_ns: Option<u64>,
    /// System CPU time in the call.
    pub(in crate::record::wire) cpu_ns: Option<u64>,
    /// Bytes moved.
    pub(in crate::record::wire) bytes: Option<u64>,
    /// Receives that only peeked.
    pub(in crate::record::wire) peeks: Option<u64>,
    /// Calls by what the descriptor leads to.
    pub(in crate::record::wire) peers: BTreeMap<String, u64>,
}
