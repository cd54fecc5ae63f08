//! A finding as a value, and what a rule is.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::row::Row;
use crate::record::{Record, StrategyResult};

/// The evidence with the number of lost or slow operations that a finding explains.
pub const EXPLAINS: &str = "explains_operations";

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
    /// The row it is about, by its place among the record's strategies: a name can stand for several rows
    /// (of different clients, pipelines, payloads). `None` where it is about no row, or about all of a name.
    pub row: Option<usize>,
    /// The numbers it rests on, each with its unit in the name where it has one.
    pub evidence: BTreeMap<String, Value>,
    /// The cause in one sentence.
    pub says: String,
    /// What to try.
    pub try_next: String,
    /// Usual suspects that were looked at and are fine, each with the value that clears it.
    pub not_the_cause: Vec<String>,
}

/// What a code stands for, as `systally explain CODE` prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doc {
    /// The code.
    pub code: &'static str,
    /// What it means.
    pub means: &'static str,
    /// From what it is concluded.
    pub measured: &'static str,
    /// When the conclusion can be wrong.
    pub wrong_when: &'static str,
    /// What to do.
    pub todo: &'static str,
}

/// A rule: from a record to what it finds there. Pure; it neither reads the machine nor prints.
pub trait Rule: Sync {
    /// The codes this rule can give, described.
    fn docs(&self) -> &'static [Doc];
    /// What it finds.
    fn check(&self, record: &Record) -> Vec<Finding>;
}

impl Finding {
    /// A finding about one row, to be filled.
    pub(super) fn about(row: &Row<'_>, code: &'static str, severity: Severity) -> Finding {
        Finding {
            strategy: Some(row.name().to_owned()),
            row: row.index(),
            ..Finding::about_all(code, severity)
        }
    }

    /// A finding about the whole run, to be filled.
    pub(super) fn about_all(code: &'static str, severity: Severity) -> Finding {
        Finding {
            code: Cow::Borrowed(code),
            severity,
            strategy: None,
            row: None,
            evidence: BTreeMap::new(),
            says: String::new(),
            try_next: String::new(),
            not_the_cause: Vec::new(),
        }
    }

    /// Whether it is about this row, which stands at `place` in the record.
    pub fn is_about(&self, place: usize, row: &StrategyResult) -> bool {
        self.strategy.as_deref() == Some(row.name.as_str()) && self.row.is_none_or(|own| own == place)
    }

    /// Adds a piece of evidence.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Finding {
        self.evidence.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a piece of evidence when there is one.
    pub(super) fn with_known<T: Into<Value>>(self, name: &str, value: Option<T>) -> Finding {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// How many lost or slow operations it explains; findings of one severity are listed by this.
    pub(super) fn explains(self, operations: u64) -> Finding {
        self.with(EXPLAINS, operations)
    }

    /// The cause, in one sentence.
    pub(super) fn says(mut self, text: impl Into<String>) -> Finding {
        self.says = text.into();
        self
    }

    /// What to try.
    pub(super) fn try_next(mut self, text: impl Into<String>) -> Finding {
        self.try_next = text.into();
        self
    }

    /// What is not the cause.
    pub(super) fn clears(mut self, texts: Vec<String>) -> Finding {
        self.not_the_cause = texts;
        self
    }
}
