//! Findings: what made a client slow or made it fail, in words and with the numbers behind them.
//!
//! A rule is a pure function over a [`Record`], one file each, listed in [`RULES`]. It works the same on
//! a run that has just ended, a record read from a file, and an imported log.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::record::Record;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know; nothing is wrong.
    Info,
    /// Costs time, or makes a number less certain.
    Warning,
    /// Operations failed, or a claim is not true.
    Error,
}

impl Severity {
    /// The word in records and tables.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// One thing found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The stable code, in capitals (`UNIX_BACKLOG_EAGAIN`).
    pub code: Cow<'static, str>,
    /// How much it matters.
    pub severity: Severity,
    /// The strategy it is about; `None` for the whole run.
    pub strategy: Option<String>,
    /// The numbers it rests on, each with its unit in the name where it has one.
    pub evidence: BTreeMap<String, serde_json::Value>,
    /// The cause in one sentence.
    pub says: String,
    /// What to try.
    pub try_next: String,
    /// Usual suspects that were looked at and are fine, each with the value that clears it.
    pub not_the_cause: Vec<String>,
}

/// A rule: from a record to what it finds there. Pure; it neither reads the machine nor prints.
pub trait Rule: Sync {
    /// The stable codes this rule can give.
    fn codes(&self) -> &'static [&'static str];
    /// What it finds.
    fn check(&self, record: &Record) -> Vec<Finding>;
}

/// All rules, in the order in which their findings are listed when they matter equally.
pub const RULES: &[&dyn Rule] = &[];

/// What all rules find in a record, the gravest first.
pub fn explain(record: &Record) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule.check(record)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}
