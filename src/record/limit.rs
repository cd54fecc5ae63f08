//! A limit as a record keeps it: what the load needs of what there is, and what to do where it does not fit.

use crate::units::Measured;

/// Whether a planned load fits a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It does not bear on this load.
    NotApplicable,
    /// The load fits.
    Ok,
    /// It could not be read.
    Unknown,
    /// Over 80 % of the capacity, or a term of the demand is a guess.
    Warn,
    /// The load does not fit.
    Fail,
}

impl Verdict {
    /// The word in records and tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
            Verdict::Unknown => "unknown",
            Verdict::NotApplicable => "not_applicable",
        }
    }

    /// The word in a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
            Verdict::Unknown => "unknown",
            Verdict::NotApplicable => "not applicable",
        }
    }
}

/// One limit, what the load demands of it, and what it can carry.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitReading {
    /// Stable name (`client_nofile`).
    pub id: String,
    /// Whose limit it is: `process`, `user`, `cgroup`, `client's netns`, `server`, `machine` …
    pub scope: String,
    /// Whether the load fits.
    pub verdict: Verdict,
    /// What the load needs.
    pub demand: Measured<u64>,
    /// The demand as a formula with its numbers.
    pub formula: String,
    /// What there is.
    pub capacity: Measured<u64>,
    /// Where it was read.
    pub source: String,
    /// What happens beyond it, and what the limit means for this run.
    pub effect: String,
    /// How to raise it; empty where it fits or does not bear on the load.
    pub fix: Fix,
}

/// How to raise a limit, three ways.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fix {
    /// A command for now.
    pub now: String,
    /// Configuration that stays.
    pub kept: String,
    /// In a container.
    pub container: String,
}
