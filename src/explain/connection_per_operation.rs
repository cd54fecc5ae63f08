//! CONNECTION_PER_OPERATION: a strategy that says it keeps its connection, and does not.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Mode, Row, known, round2};
use crate::record::Record;
use crate::units::{Grouped, total};

pub(super) struct ConnectionPerOperation;

const DOCS: &[Doc] = &[Doc {
    code: "CONNECTION_PER_OPERATION",
    means: "The client opens connections inside its loop although it should keep one (persistent, pconnect, a pool).",
    measured: "Connections begun per operation in the counted window; without a counted pass, connections the server \
               accepted in the timed rounds.",
    wrong_when: "Other clients connect to the same server (only where the server's numbers are used).",
    todo: "Look for close() after pconnect(), a client object made anew for each operation, or a pool that is switched \
           off; strategies named connect do it on purpose and are never told.",
}];

impl Rule for ConnectionPerOperation {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    if row.mode() != Mode::Kept {
        return None;
    }
    let counted = row.counted().and_then(|counted| known(&counted.connects_per_op));
    let (connects, source) = match counted {
        Some(connects) => (connects, "connect calls counted"),
        None => (by_server(row)?, "connections the server accepted"),
    };
    let per_batch = connects * f64::from(row.result.axes.pipeline.max(1));
    if per_batch < 0.05 {
        return None;
    }
    let says = if connects >= 0.9 {
        "the connection is kept on paper only: the client connects anew for every operation".to_owned()
    } else if per_batch >= 0.9 {
        "the connection is kept on paper only: the client connects anew for every batch".to_owned()
    } else {
        format!(
            "the connection is kept on paper only: the client makes {} connections per operation, about one for every {}",
            round2(connects).max(0.01),
            in_words(1.0 / connects)
        )
    };
    Some(
        Finding::about(row, "CONNECTION_PER_OPERATION", Severity::Warning)
            .with("connects_per_op", round2(connects))
            .with("connects_per_batch", round2(per_batch))
            .with("source", source)
            .says(says)
            .try_next("make the client object once; do not close() after pconnect(); switch the pool on"),
    )
}

/// So many operations.
fn in_words(ops: f64) -> String {
    if ops < 10.0 && (ops - ops.round()).abs() > 0.05 {
        format!("{ops:.1} operations")
    } else {
        format!("{} operations", Grouped(ops.round() as u64))
    }
}

fn by_server(row: &Row<'_>) -> Option<f64> {
    let rounds = &row.timed()?.rounds;
    let mut connections = 0_u64;
    for round in rounds {
        connections = connections.saturating_add(round.server.known()?.connections);
    }
    let ops = total(rounds.iter().map(|round| round.ops.0));
    (ops > 0).then(|| connections as f64 / ops as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, row, set_counted};
    use crate::units::Measured;

    fn with(name: &str, connects: f64) -> Record {
        let mut record = empty();
        let mut strategy = row(name);
        set_counted(&mut strategy, |counted| {
            counted.connects_per_op = Measured::Known(connects)
        });
        record.strategies.push(strategy);
        record
    }

    #[test]
    fn pconnect_and_close_is_a_connection_per_operation() {
        assert_eq!(
            codes(&with("phpredis/pconnect/tcp", 1.0)),
            ["CONNECTION_PER_OPERATION"]
        );
        assert_eq!(
            codes(&with("phpredis/persistent/tcp", 0.2)),
            ["CONNECTION_PER_OPERATION"]
        );
    }

    #[test]
    fn any_rate_above_what_was_promised_is_told_with_it() {
        for (connects, told) in [
            (
                0.5,
                "0.5 connections per operation, about one for every 2 operations",
            ),
            (
                0.7,
                "0.7 connections per operation, about one for every 1.4 operations",
            ),
            (
                0.0625,
                "0.06 connections per operation, about one for every 16 operations",
            ),
        ] {
            let found = explained(&with("phpredis/pconnect/tcp", connects));
            assert_eq!(found.len(), 1, "{connects}");
            assert!(found[0].says.ends_with(told), "{}", found[0].says);
        }
    }

    #[test]
    fn a_strategy_named_connect_is_meant_to() {
        assert_eq!(codes(&with("phpredis/connect/tcp", 1.0)), [] as [&str; 0]);
        assert_eq!(codes(&with("phpredis/persistent/tcp", 0.0)), [] as [&str; 0]);
    }
}
