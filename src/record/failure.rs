//! What is known of the first failure of a row, readings taken at that moment included. Rules work on
//! this alone, so a failure can be explained long after, on another machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The first failure of a row. A row may have one although it went on (some operations failed).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// When it happened.
    pub stage: Stage,
    /// What kind it is.
    pub kind: FailureKind,
    /// The worker's own class (`connect`, `config` …) or the client's error class; empty when it said
    /// nothing.
    pub class: String,
    /// The message, escaped and cut.
    pub message: String,
    /// The errno name, when the kernel or the message tells one (`ECONNREFUSED`).
    pub errno: Option<String>,
    /// Process id of the worker (or of the server, when that died).
    pub pid: Option<i32>,
    /// How that process ended (`exit status 3`, `killed by SIGKILL`); `None` while it runs.
    pub exit: Option<String>,
    /// The end of what it wrote to standard error, escaped and cut.
    pub stderr_tail: String,
    /// The address it was to reach, never with a password.
    pub endpoint: String,
    /// Readings of that moment, by the names of [`crate::explain::evidence::Fact`].
    pub facts: BTreeMap<String, String>,
}

/// The part of a row's life in which it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Before the worker was ready: start, connect, warm-up.
    Startup,
    /// In a timed round.
    Round,
    /// In the counted pass.
    Counted,
    /// After the last round.
    Shutdown,
}

impl Stage {
    /// The stage in words.
    pub fn words(self) -> &'static str {
        match self {
            Stage::Startup => "before it was ready",
            Stage::Round => "in a timed round",
            Stage::Counted => "in the counted pass",
            Stage::Shutdown => "while ending",
        }
    }
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The worker said so itself: a `fail` line, or failed operations in its `done` line.
    Said,
    /// The worker ended without being asked to.
    Died,
    /// The worker did not answer in time.
    Hung,
    /// The worker wrote something that is not the contract.
    Garbage,
    /// The worker reported a result that cannot be true.
    Miscounted,
    /// The program could not be started at all.
    NotStarted,
    /// Tracing was not permitted.
    NoPtrace,
    /// The server ended during the run.
    ServerDied,
    /// The server could not be reached by systally itself.
    ServerUnreachable,
}
