//! CONNECTION_PER_OPERATION: a strategy that says it keeps its connection, and does not.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Mode, Row, is_lookup, is_resolver, known, round2};
use crate::record::{Kind, Record};
use crate::units::{Grouped, total};

pub(super) struct ConnectionPerOperation;

const DOCS: &[Doc] = &[Doc {
    code: "CONNECTION_PER_OPERATION",
    means: "The client opens connections inside its loop although it should keep one (persistent, pconnect, a pool).",
    measured: "Connections begun per operation in the counted window; without a counted pass, connections the server \
               accepted in the timed rounds.",
    wrong_when: "Other clients connect to the same server (only where the server's numbers are used).",
    todo: "Look for close() after pconnect(), a client object made anew for each operation, or a pool that is switched \
           off; strategies named connect do it on purpose and are never told. A counted program is told from 20 \
           connections on, by its operations or its replies.",
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
    if row.record.kind == Kind::Count {
        return program(row);
    }
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

/// A counted program, which has promised nothing: its connects are held against its operations or, where
/// those are not known, against its turns of send and reply.
fn program(row: &Row<'_>) -> Option<Finding> {
    // The few of a start are no habit.
    const LEAST: u64 = 20;
    let connects = total(row.loop_counts(&["connect"]).map(|call| {
        let lookups = call
            .peers
            .iter()
            .filter(|(peer, _)| is_lookup(peer) || is_resolver(peer));
        call.calls.saturating_sub(total(lookups.map(|(_, n)| *n)))
    }));
    let counted = row.counted()?;
    let (of, what) = match counted.ops {
        Some(ops) => (ops.0, "operation"),
        None => (row.talk()?.turns(), "reply"),
    };
    if connects < LEAST || of == 0 {
        return None;
    }
    let rate = connects as f64 / of as f64;
    if rate < 0.05 {
        return None;
    }
    let says = if rate >= 0.9 {
        format!(
            "the program connects anew for every {what}: {} connections",
            Grouped(connects)
        )
    } else {
        format!(
            "the program connects anew all the time: {} connections, {} per {what}",
            Grouped(connects),
            round2(rate)
        )
    };
    Some(
        Finding::about(row, "CONNECTION_PER_OPERATION", Severity::Warning)
            .with("connects", connects)
            .with(if counted.ops.is_some() { "connects_per_op" } else { "connects_per_reply" }, round2(rate))
            .with("source", "connect calls counted")
            .says(says)
            .try_next("keep one connection for many operations: make the client object once (in PHP pconnect without close)"),
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
    use crate::explain::testing::{codes, empty, explained, row, set_call, set_counted, set_peers, set_talk};
    use crate::units::{Measured, Ops};

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
    fn a_counted_program_that_reconnects_is_told_by_its_operations_or_replies() {
        let program = |connects: u64, peer: &str| {
            let mut record = empty();
            record.kind = Kind::Count;
            let mut counted = row("php");
            set_call(&mut counted, "connect", connects, &[]);
            set_peers(&mut counted, "connect", &[(peer, connects)]);
            set_counted(&mut counted, |counted| counted.ops = Some(Ops(1_000)));
            record.strategies.push(counted);
            record
        };
        let says = |record: &Record| explained(record)[0].says.clone();
        assert_eq!(
            says(&program(500, "127.0.0.1:6379")),
            "the program connects anew all the time: 500 connections, 0.5 per operation"
        );
        assert!(
            says(&program(1_000, "unix:/run/r.sock")).contains("anew for every operation: 1 000 connections")
        );
        // A start, and a service of names.
        assert_eq!(codes(&program(19, "127.0.0.1:6379")), [] as [&str; 0]);
        assert_eq!(codes(&program(500, "unix:/var/run/nscd/socket")), [] as [&str; 0]);
        assert!(!codes(&program(500, "127.0.0.53:53")).contains(&"CONNECTION_PER_OPERATION".to_owned()));

        let mut by_replies = program(500, "127.0.0.1:6379");
        set_counted(&mut by_replies.strategies[0], |counted| counted.ops = None);
        assert_eq!(codes(&by_replies), [] as [&str; 0]);
        set_talk(&mut by_replies.strategies[0], |talk| {
            talk.waits.insert(10, 500);
        });
        assert!(says(&by_replies).contains("anew for every reply"));
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
