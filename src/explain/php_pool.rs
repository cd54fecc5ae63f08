//! PHP_POOL_LIMIT, PHP_PCONNECT_CLOSED: persistent connections of phpredis that are none.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct PhpPool;

const DOCS: &[Doc] = &[
    Doc {
        code: "PHP_POOL_LIMIT",
        means: "phpredis may keep no more persistent connections: redis.pconnect.connection_limit is reached.",
        measured: "\"Connection limit reached\" in the client's words.",
        wrong_when: "A client library of another kind uses the same words.",
        todo: "Raise redis.pconnect.connection_limit in php.ini, or use fewer objects at once.",
    },
    Doc {
        code: "PHP_PCONNECT_CLOSED",
        means: "A script connects with pconnect() and yet makes a connection for nearly every operation: close() really closes.",
        measured: "Connections that the server accepted from the row in its rounds, against its operations.",
        wrong_when: "Other clients connected to the same server meanwhile.",
        todo: "Leave close() out: the connection is kept for the next pconnect().",
    },
];

impl Rule for PhpPool {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).flat_map(|row| check(&row)).collect()
    }
}

/// Connections per operation from which on it is not persistent.
const AS_GOOD_AS_EACH: f64 = 0.9;

fn check(row: &Row<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(seen) = row.symptoms().remove(&Symptom::PoolLimit) {
        found.push(
            Finding::about(row, "PHP_POOL_LIMIT", Severity::Error)
                .with("failed", seen.count)
                .explains(seen.count)
                .with("client_says", seen.text)
                .says("phpredis may keep no more persistent connections (redis.pconnect.connection_limit)")
                .try_next("a larger redis.pconnect.connection_limit in php.ini, or 0 for none")
                .clears(row.cleared(&[])),
        );
    }
    found.extend(closed(row));
    found
}

fn closed(row: &Row<'_>) -> Option<Finding> {
    let mode = row.name().split('/').nth(1)?;
    if row.result.client.name != "phpredis" || mode != "pconnect" {
        return None;
    }
    let rounds = row
        .timed()?
        .rounds
        .iter()
        .filter_map(|round| Some((round.ops.0, round.server.known()?.connections)));
    let (ops, connections) = rounds.fold((0_u64, 0_u64), |(ops, connections), (more_ops, more)| {
        (ops.saturating_add(more_ops), connections.saturating_add(more))
    });
    if ops == 0 || (connections as f64) < ops as f64 * AS_GOOD_AS_EACH {
        return None;
    }
    Some(
        Finding::about(row, "PHP_PCONNECT_CLOSED", Severity::Warning)
            .with("connections", connections)
            .with("operations", ops)
            .says(format!(
                "{connections} connections for {ops} operations: pconnect() keeps nothing when close() is called after it"
            ))
            .try_next("leave close() out"),
    )
}
