//! MEMCACHED_CONNLIMIT_FAST, MEMCACHED_LISTEN_DISABLED: memcached turned connections away at its `-c`.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use crate::record::Record;

pub(super) struct MemcachedLimit;

const DOCS: &[Doc] = &[
    Doc {
        code: "MEMCACHED_CONNLIMIT_FAST",
        means: "memcached had as many connections as -c leaves it, and answered others with an error and closed them.",
        measured: "rejected_connections of stats grew over the run.",
        wrong_when: "Another client's connections were the rejected ones.",
        todo: "Start memcached with a larger -c; about 26 of it are used by memcached itself.",
    },
    Doc {
        code: "MEMCACHED_LISTEN_DISABLED",
        means: "memcached had no descriptor left for another connection and stopped accepting for moments; clients wait and time out.",
        measured: "listen_disabled_num of stats grew over the run.",
        wrong_when: "Another client's connections were the ones that waited.",
        todo: "Start memcached with a larger -c, and with a limit of open files that allows it.",
    },
];

impl Rule for MemcachedLimit {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        check(record)
    }
}

fn check(record: &Record) -> Vec<Finding> {
    let grew = |name: &str| {
        record
            .counters
            .grew(&format!("memcached.{name}"))
            .filter(|n| *n > 0)
    };
    let settings = record.server.as_ref().map(|server| &server.settings);
    let max = settings.and_then(|settings| {
        settings
            .get("max_connections")
            .or_else(|| settings.get("maxconns"))
    });
    let clients = Row::run(record)
        .map(|row| u64::from(row.result.axes.clients))
        .max()
        .unwrap_or(1);
    let finding = |code, count: u64, says: String| {
        Finding::about_all(code, Severity::Error)
            .with("connections", count)
            .explains(count)
            .with_known("max_connections", max.map(String::as_str))
            .with("clients", clients)
            .says(says)
            .try_next(format!(
                "memcached -c {} or more; or keep connections",
                clients.saturating_mul(2) + 30
            ))
            .clears(
                Row::run(record)
                    .next()
                    .map(|row| row.cleared(&["memcached_conns"]))
                    .unwrap_or_default(),
            )
    };
    let rejected = grew("rejected_connections").map(|n| {
        let says = format!("memcached turned {n} connections away at its limit (-c)");
        finding("MEMCACHED_CONNLIMIT_FAST", n, says)
    });
    let disabled = grew("listen_disabled_num").map(|n| {
        let says =
            format!("memcached stopped accepting {n} times, because its connections (-c) were used up");
        finding("MEMCACHED_LISTEN_DISABLED", n, says)
    });
    rejected.into_iter().chain(disabled).collect()
}
