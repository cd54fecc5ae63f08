//! SERVER_SIDE: the trace is of a server, not of a client.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Table, WAITS, traces};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct ServerSide;

const DOCS: &[Doc] = &[Doc {
    code: "SERVER_SIDE",
    means: "The traced program serves requests: its reads are requests and its writes replies, and one wait can bring many \
            of them.",
    measured: "Accepted connections or received commands in a log; in a table reads and writes in equal numbers with far \
               fewer waits.",
    wrong_when: "A load generator with many connections looks the same in a table.",
    todo: "Divide by requests; a server with more than one read and one write per request is worth a look.",
}];

impl Rule for ServerSide {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| trace.tables().collect::<Vec<_>>())
            .filter_map(|table| server(&table))
            .collect()
    }
}

fn server(table: &Table<'_>) -> Option<Finding> {
    let reads = table.row("read")?;
    let writes = table.calls(&["write", "writev", "sendmsg"]);
    let good = reads.good();
    let (served, sure) = match table.trace.facts() {
        Some(facts) => (
            facts.accepts.accepted > 0 || !facts.commands.received.is_empty(),
            true,
        ),
        None => {
            let equal = writes.abs_diff(good).saturating_mul(20) <= writes.max(good);
            let busy = table.waits().saturating_mul(10) <= good && table.calls(WAITS) > 0;
            (equal && busy && good >= 100, false)
        }
    };
    if !served || good == 0 {
        return None;
    }
    let requests = table.trace.imported.ops.unwrap_or(good.min(writes)).max(1);
    let per = |count: u64| count as f64 / requests as f64;
    let failed = reads.errors.unwrap_or(0);
    let errors = if failed > 0 {
        format!(
            "; {} read errors are {:.2} per request (EAGAIN after a drained connection)",
            Grouped(failed),
            per(failed)
        )
    } else {
        String::new()
    };
    // Apart from the requests: what a new connection costs before it carries any.
    let accepted = table.trace.facts().map_or(0, |facts| facts.accepts.accepted);
    let set_up: Vec<String> = ["accept", "accept4", "fcntl", "setsockopt", "ioctl", "getpeername"]
        .iter()
        .filter(|_| accepted > 0)
        .filter_map(|call| {
            let each = table.calls(&[*call]) as f64 / accepted as f64;
            (each >= 0.5).then(|| format!("{each:.1} {call}"))
        })
        .collect();
    let new = if set_up.is_empty() {
        String::new()
    } else {
        format!("; {} per new connection", set_up.join(", "))
    };
    let waits = table.waits();
    let batch = if waits > 0 {
        format!("; one wait brings {:.0} requests", good as f64 / waits as f64)
    } else {
        String::new()
    };
    Some(
        table
            .finding("SERVER_SIDE", Severity::Info)
            .with("reads_per_request", round2(per(good)))
            .with("writes_per_request", round2(per(writes)))
            .with("requests", requests)
            .says(format!(
                "{}: {:.1} read and {:.1} write per request{batch}{new}{errors}",
                if sure {
                    "server side"
                } else {
                    "server side by its shape"
                },
                per(good),
                per(writes)
            )),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, has};

    #[test]
    fn a_server_and_a_client() {
        let text = "accept4(3, NULL, NULL, 0) = 7\nread(7, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 16384) = 14\nwrite(7, \"+PONG\\r\\n\", 7) = 7\n";
        assert!(has(text, "SERVER_SIDE"));
        assert!(!has(&clean(5), "SERVER_SIDE"));
    }
}
