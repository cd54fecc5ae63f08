//! LISTENER_STALE: the listener still has the queue of the time at which it began to listen.

use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use crate::record::Record;

pub(super) struct ListenerStale;

const DOCS: &[Doc] = &[Doc {
    code: "LISTENER_STALE",
    means: "The server's listener holds fewer waiting connections than its setting and somaxconn would allow now, because somaxconn was raised after it had begun to listen.",
    measured: "The backlog that the kernel holds for the listener, tcp-backlog of the server and net.core.somaxconn of this namespace.",
    wrong_when: "The server listens with a number of its own, not with tcp-backlog.",
    todo: "Make it listen again: CONFIG SET bind to the same addresses does for TCP; a UNIX socket needs a restart.",
}];

impl Rule for ListenerStale {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        check(record)
    }
}

fn check(record: &Record) -> Vec<Finding> {
    let setting = || {
        let server = record.server.as_ref()?;
        server.settings.get("tcp-backlog")?.parse::<u64>().ok()
    };
    let (Some(asked), Some(somaxconn)) = (setting(), kernel::reading(record, "net.core.somaxconn")) else {
        return Vec::new();
    };
    let stale = |(transport, again): &(&str, &str)| {
        let backlog = kernel::reading(record, &format!("listener.{transport}.backlog"))?;
        (backlog < asked.min(somaxconn)).then(|| {
            Finding::about_all("LISTENER_STALE", Severity::Warning)
                .with("backlog", backlog)
                .with("tcp_backlog", asked)
                .with("somaxconn", somaxconn)
                .with("transport", *transport)
                .says(format!(
                    "the {transport} listener's queue is {backlog}, although tcp-backlog {asked} and somaxconn {somaxconn} allow \
                     {} now: somaxconn was raised after the server had begun to listen",
                    asked.min(somaxconn)
                ))
                .try_next(*again)
        })
    };
    [
        (
            "tcp",
            "CONFIG SET bind to the same addresses, which listens again without a restart",
        ),
        (
            "unix",
            "a restart of the server: a UNIX socket is listened on once",
        ),
    ]
    .iter()
    .filter_map(stale)
    .collect()
}
