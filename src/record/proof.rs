//! A suspected limit put to the test: the same load again, with nothing changed and with only that limit
//! changed, by turns.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What came of testing one finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The code of the finding.
    pub code: String,
    /// The row it is about.
    pub strategy: Option<String>,
    /// The limit that was changed (`accept_backlog`), or would have been.
    pub limit: String,
    /// The outcome.
    pub verdict: ProofVerdict,
    /// The outcome in a sentence with its numbers, or why there was no test.
    pub says: String,
    /// Every run, in order.
    pub runs: Vec<ProofRun>,
}

/// The outcome of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofVerdict {
    /// Raising only this limit made the symptom go away, each time.
    Proven,
    /// It made the symptom smaller.
    Partly,
    /// It changed nothing.
    Refuted,
    /// The symptom did not come again with nothing changed, so there was nothing to cure.
    NotReproduced,
    /// The limit belongs to the whole machine, which is never changed: only described.
    Described,
    /// The test could not be made here.
    NotPossible,
}

impl ProofVerdict {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            ProofVerdict::Proven => "proven",
            ProofVerdict::Partly => "partly",
            ProofVerdict::Refuted => "refuted",
            ProofVerdict::NotReproduced => "not reproduced",
            ProofVerdict::Described => "only described",
            ProofVerdict::NotPossible => "not possible here",
        }
    }
}

/// One run of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProofRun {
    /// Which side of the comparison it is.
    pub arm: ProofArm,
    /// What this run set, by name (`net.core.somaxconn`, `server.tcp-backlog`).
    pub set: BTreeMap<String, String>,
    /// Operations begun.
    pub asked: u64,
    /// Operations done.
    pub done: u64,
    /// Failed, refused or stalled operations that carry the finding's signature.
    pub symptom: u64,
    /// How much the counters that prove it grew.
    pub counters: BTreeMap<String, u64>,
    /// How long the rounds took, in seconds.
    pub seconds: f64,
    /// All codes found in it.
    pub findings: Vec<String>,
    /// Why it gave no result; null when it did.
    pub error: Option<String>,
}

/// The sides of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofArm {
    /// Nothing changed.
    A,
    /// Only the suspected limit raised.
    B,
    /// One of two locks raised alone.
    Alone,
    /// The opposite: the limit lowered below the first value.
    Opposite,
}

impl ProofArm {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            ProofArm::A => "A",
            ProofArm::B => "B",
            ProofArm::Alone => "alone",
            ProofArm::Opposite => "opposite",
        }
    }
}
