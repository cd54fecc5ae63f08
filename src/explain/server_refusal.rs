//! REDIS_OOM, PROTECTED_MODE: the server says itself why it does not serve.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct ServerRefusal;

const DOCS: &[Doc] = &[
    Doc {
        code: "REDIS_OOM",
        means: "The server is at its maxmemory and may evict nothing, so it refuses commands that write.",
        measured: "The reply -OOM in the client's words.",
        wrong_when: "The memory limit of a script or module was meant, which replies in the same words.",
        todo: "Raise maxmemory, or set a maxmemory-policy that evicts.",
    },
    Doc {
        code: "PROTECTED_MODE",
        means: "The server runs in protected mode and takes clients from 127.0.0.1 and ::1 only.",
        measured: "The reply -DENIED in the client's words; some clients only see a closed connection.",
        wrong_when: "A proxy answers in the server's place.",
        todo: "Set a password and bind the address that clients use; protected-mode no only on a network that nobody else reaches.",
    },
];

impl Rule for ServerRefusal {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).flat_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Vec<Finding> {
    let mut symptoms = row.symptoms();
    let mut found = Vec::new();
    let refused = row.record.counters.grew("redis.error.OOM");
    if let Some(seen) = symptoms.remove(&Symptom::OutOfMemory) {
        let settings = row.record.server.as_ref().map(|server| &server.settings);
        let setting = |name: &str| {
            settings
                .and_then(|settings| settings.get(name))
                .map(String::as_str)
        };
        found.push(
            Finding::about(row, "REDIS_OOM", Severity::Error)
                .with("failed", seen.count)
                .explains(seen.count)
                .with("client_says", seen.text)
                .with_known("maxmemory", setting("maxmemory"))
                .with_known("maxmemory_policy", setting("maxmemory-policy"))
                .with_known("refused_by_server", refused)
                .says("the server has reached its maxmemory and refuses to write (-OOM)")
                .try_next("CONFIG SET maxmemory with a larger number, or a maxmemory-policy that evicts")
                .clears(row.cleared(&["maxmemory"])),
        );
    }
    if let Some(seen) = symptoms.remove(&Symptom::ProtectedMode) {
        found.push(
            Finding::about(row, "PROTECTED_MODE", Severity::Error)
                .with("failed", seen.count)
                .explains(seen.count)
                .with("client_says", seen.text)
                .says(format!(
                    "the server is in protected mode and refuses clients that do not come from exactly 127.0.0.1 or ::1, as \
                     those of {}",
                    row.endpoint()
                ))
                .try_next("a password and `bind` for the address in use; not protected-mode no on an open network")
                .clears(row.cleared(&["protected_mode"])),
        );
    }
    found
}
