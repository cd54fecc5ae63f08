//! SOCKET_STALE: the socket's file exists and nobody listens on it.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct SocketStale;

const DOCS: &[Doc] = &[Doc {
    code: "SOCKET_STALE",
    means: "The file of the UNIX socket exists, but no process listens on it.",
    measured: "ECONNREFUSED from a strategy over a UNIX socket; whether a listener owns the path is looked up in \
               /proc/net/unix at that moment.",
    wrong_when: "The listener is in another network namespace, whose table cannot be seen from here.",
    todo: "Restart the server, which makes the socket anew; a file left behind by a killed server does no harm \
           to that.",
}];

impl Rule for SocketStale {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    if row.is_unix() != Some(true) || row.server_died() {
        return None;
    }
    let seen = row.met(Symptom::Refused, &["connect"])?;
    let endpoint = row.endpoint();
    let says = match (row.fact(Fact::SocketKind), row.yes(Fact::SocketListener)) {
        (Some(kind), _) if kind != "socket" => format!("{endpoint} is a {kind}, not a socket"),
        (_, Some(true)) => {
            format!("{endpoint} refused connections, yet a process listens there now: it restarted")
        }
        (_, Some(false) | None) => {
            format!("{endpoint} exists, but no process listens on it: left behind by a server that is gone")
        }
    };
    Some(
        Finding::about(row, "SOCKET_STALE", Severity::Error)
            .with("refused", seen.count)
            .with("client_says", seen.text)
            .with_known("listener_present", row.fact(Fact::SocketListener))
            .with_known("path_is_a", row.fact(Fact::SocketKind))
            .says(says)
            .try_next("restart the server; if it runs in a container, mount the folder of its socket and not the file"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, explained, failed, with_fact};

    #[test]
    fn a_refused_path_is_stale() {
        let record = failed(
            "predis/connect/unix",
            "connect",
            "Connection refused [unix:/run/r.sock]",
        );
        let record = with_fact(record, Fact::SocketListener, "no");
        assert_eq!(codes(&record), ["SOCKET_STALE"]);
        let record = with_fact(record, Fact::SocketKind, "file");
        assert!(explained(&record)[0].says.contains("is a file, not a socket"));
    }

    #[test]
    fn a_refused_port_is_not() {
        let record = failed("predis/connect/tcp", "connect", "Connection refused");
        assert_eq!(codes(&record), ["CONNECTION_REFUSED"]);
    }
}
