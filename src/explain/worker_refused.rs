//! WORKER_REFUSED: the client program says that it cannot do what it was asked for.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::{FailureKind, Record, Stage};

pub(super) struct WorkerRefused;

const DOCS: &[Doc] = &[Doc {
    code: "WORKER_REFUSED",
    means: "The client program understood what it was asked for and said that it cannot do that.",
    measured: "A fail line of class spec, or of class config whose message names no failure of a connection or call.",
    wrong_when: "A client program uses the classes of the contract for something else.",
    todo: "Choose a mode, operation or payload that this client offers; `systally list` says which.",
}];

impl Rule for WorkerRefused {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let failure = row.failed_by(FailureKind::Said)?;
    let refused = match failure.class.as_str() {
        "spec" => true,
        "config" => failure.errno.is_none() && Symptom::of(&failure.message) == Symptom::Other,
        _ => false,
    };
    if !refused || failure.stage != Stage::Startup {
        return None;
    }
    Some(
        Finding::about(row, "WORKER_REFUSED", Severity::Error)
            .with("class", failure.class.as_str())
            .with("client_says", failure.message.as_str())
            .says(format!(
                "the client program cannot do what it was asked for: {}",
                failure.message
            ))
            .try_next("another mode, operation or payload; `systally list` says what this client offers"),
    )
}
