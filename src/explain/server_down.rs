//! SERVER_DOWN, CONNECTION_REFUSED: nothing answered at the TCP address.
//!
//! Linux refuses a connection only when no socket listens there (or a packet filter says so); a full
//! queue makes clients wait, never refuses them.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct ServerDown;

const DOCS: &[Doc] = &[
    Doc {
        code: "SERVER_DOWN",
        means: "Connections were refused, and nothing listens at that address.",
        measured: "ECONNREFUSED in the client's words or from connect(), and no listening socket for the address \
                   in /proc/net/tcp at that moment.",
        wrong_when: "The server listens in another network namespace, or behind a forwarded port that this \
                     machine's socket table does not show.",
        todo: "Start the server, or name the right address; in containers compare the network namespaces.",
    },
    Doc {
        code: "CONNECTION_REFUSED",
        means: "Connections were refused, and it is not known that nothing listens: the server is elsewhere, or \
                it listens again now.",
        measured: "ECONNREFUSED in the client's words or from connect(), with a listener there afterwards or none \
                   that could be looked for.",
        wrong_when: "A client reports a refused connection for another reason in the same words.",
        todo: "Look whether the server restarted (uptime_in_seconds) or a packet filter rejects; a full queue is \
               never refused on Linux.",
    },
];

impl Rule for ServerDown {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    // A socket path has rules of its own, and a server that was seen dying explains its refusals.
    if row.is_unix() == Some(true) || row.server_died() {
        return None;
    }
    let seen = row.met(Symptom::Refused, &["connect"])?;
    let endpoint = row.endpoint();
    let not_the_cause =
        vec!["a full accept queue: Linux lets clients wait then, it does not refuse them".to_owned()];
    let finding = match row.yes(Fact::TcpListener) {
        Some(false) => Finding::about(row, "SERVER_DOWN", Severity::Error)
            .says(format!("nothing listens on {endpoint}: the server is not running there"))
            .try_next("start the server, or give its address with -h and -p (-s for a socket)"),
        Some(true) => Finding::about(row, "CONNECTION_REFUSED", Severity::Error)
            .says(format!(
                "{endpoint} refused connections, yet something listens there now: it started in between, or a \
                 packet filter rejects"
            ))
            .try_next("look at the server's uptime_in_seconds and at the filter rules"),
        None => Finding::about(row, "CONNECTION_REFUSED", Severity::Error)
            .says(format!("{endpoint} refused connections: no server listens there, or a packet filter rejects"))
            .try_next("look on the server's machine whether it listens on that address and port"),
    };
    Some(
        finding
            .with("refused", seen.count)
            .with("client_says", seen.text)
            .with_known("listener_present", row.fact(Fact::TcpListener))
            .with_known("server_process_alive", row.fact(Fact::ServerAlive))
            .clears(not_the_cause),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, failed, with_fact};

    #[test]
    fn a_refused_connection_without_a_listener_is_a_server_that_is_down() {
        let record = failed(
            "redis-rs/persistent/tcp",
            "connect",
            "Connection refused (os error 111)",
        );
        assert_eq!(codes(&record), ["CONNECTION_REFUSED"]);
        assert_eq!(
            codes(&with_fact(record.clone(), Fact::TcpListener, "no")),
            ["SERVER_DOWN"]
        );
        assert_eq!(
            codes(&with_fact(record, Fact::TcpListener, "yes")),
            ["CONNECTION_REFUSED"]
        );
    }

    #[test]
    fn a_timeout_is_not_a_refusal() {
        let record = failed("redis-rs/persistent/tcp", "connect", "Connection timed out");
        assert!(!codes(&record).contains(&"SERVER_DOWN".to_owned()));
        assert!(!codes(&record).contains(&"CONNECTION_REFUSED".to_owned()));
    }
}
