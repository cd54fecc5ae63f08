//! The counted half of a row: system calls by phase, with their errors, times and peers.

use std::collections::BTreeMap;

use crate::tally::Talk;
use crate::units::{Measured, Nanos, Ops};

/// The counted pass of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// The engine's name.
    pub engine: String,
    /// Operations done in the window; `None` when nobody can know (a counted program).
    pub ops: Option<Ops>,
    /// Length of the window under the engine.
    pub elapsed: Nanos,
    /// Untraced throughput over throughput under the engine.
    pub slowdown: Measured<f64>,
    /// The calls.
    pub phases: Phases,
    /// Per operation, in the window.
    pub connects_per_op: Measured<f64>,
    /// Turns of send, wait, receive per operation, in the window.
    pub round_trips_per_op: Measured<f64>,
    /// Sends per batch, in the window.
    pub sends_per_batch: Measured<f64>,
    /// Calls per operation as a multiple of the least a client can make: one send and one receive per
    /// batch (what the `raw` strategy makes).
    pub floor_ratio: Measured<f64>,
    /// Failed operations in the counted pass, by the client's words.
    pub client_errors: BTreeMap<String, u64>,
    /// User and system CPU time of the whole counted process tree.
    pub cpu: Measured<(Nanos, Nanos)>,
    /// What a reader of the counts must know, one sentence each.
    pub notes: Vec<String>,
}

/// The phases of a counted pass.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Phases {
    /// Up to `go`.
    pub startup: PhaseCounts,
    /// The measured window.
    pub run_loop: PhaseCounts,
    /// After `done`.
    pub shutdown: PhaseCounts,
}

/// The calls of one phase, by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PhaseCounts {
    /// By system call name; the name is escaped when it came from a file.
    pub syscalls: BTreeMap<String, CallCounts>,
    /// Turns and waits; `None` when the engine does not look at single calls.
    pub talk: Option<Talk>,
}

impl PhaseCounts {
    /// All calls that returned.
    pub fn total(&self) -> u64 {
        // Saturating: a record may come from a file that somebody made.
        self.syscalls
            .values()
            .fold(0, |sum, call| sum.saturating_add(call.calls))
    }
}

/// Stands in the place of an errno name where a table says how many calls failed and not how
/// (`strace -c`).
pub const UNNAMED_ERRNO: &str = "unnamed";

/// One system call over one phase.
#[derive(Debug, Clone, PartialEq)]
pub struct CallCounts {
    /// Calls that returned.
    pub calls: u64,
    /// Calls that were entered and never returned.
    pub unfinished: u64,
    /// Failed calls by errno name; under [`UNNAMED_ERRNO`] those of a source that counts failures without
    /// saying which.
    pub errors: Measured<BTreeMap<String, u64>>,
    /// Calls restarted by the kernel after a signal, by code.
    pub restarts: BTreeMap<String, u64>,
    /// Wall time in the call, tracing included.
    pub wall: Measured<Nanos>,
    /// System CPU time in the call.
    pub cpu: Measured<Nanos>,
    /// Bytes moved.
    pub bytes: Measured<u64>,
    /// Receives that only peeked.
    pub peeks: Measured<u64>,
    /// Calls by what the descriptor leads to.
    pub peers: BTreeMap<String, u64>,
}

impl CallCounts {
    /// Failed calls, restarts apart; `None` when the source does not tell.
    pub fn failed(&self) -> Option<u64> {
        let errors = self.errors.known()?;
        Some(errors.values().fold(0, |sum: u64, n| sum.saturating_add(*n)))
    }
}
