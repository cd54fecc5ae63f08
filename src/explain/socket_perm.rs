//! SOCKET_PERM: this user may not connect to the UNIX socket.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct SocketPerm;

const DOCS: &[Doc] = &[Doc {
    code: "SOCKET_PERM",
    means: "The user of the client may not write to the UNIX socket, or not enter a folder on its path.",
    measured: "EACCES in the client's words or from connect(), for a strategy over a UNIX socket; mode and owner \
               of the path are read at that moment.",
    wrong_when: "A security module (AppArmor, SELinux) refuses although the permissions would allow it.",
    todo: "Set `unixsocketperm 770` in the server's configuration and put the client's user in its group, or open \
           the folder named.",
}];

impl Rule for SocketPerm {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    if row.is_unix() != Some(true) {
        return None;
    }
    let seen = row.met(Symptom::PermissionDenied, &["connect"])?;
    let endpoint = row.endpoint();
    let says = match (row.fact(Fact::SocketBlockedAt), row.fact(Fact::SocketMode)) {
        (Some(folder), _) => {
            format!("the client's user may not enter {folder}, which is on the way to {endpoint}")
        }
        (None, Some(mode)) => format!(
            "{endpoint} has mode {mode} and belongs to user {}: the client's user {} may not write to it",
            row.fact(Fact::SocketOwner).unwrap_or("unknown"),
            row.fact(Fact::Uid).unwrap_or("")
        ),
        (None, None) => format!("the client's user may not connect to {endpoint}"),
    };
    Some(
        Finding::about(row, "SOCKET_PERM", Severity::Error)
            .with("failed", seen.count)
            .with("client_says", seen.text)
            .with_known("mode", row.fact(Fact::SocketMode))
            .with_known("owner_uid", row.fact(Fact::SocketOwner))
            .with_known("blocked_at", row.fact(Fact::SocketBlockedAt))
            .says(says)
            .try_next("unixsocketperm 770 in the server's configuration, and the client's user in the server's group"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, explained, failed, with_fact};

    #[test]
    fn a_socket_of_another_user() {
        let record = failed("phpredis/persistent/unix", "connect", "Permission denied");
        let record = with_fact(
            with_fact(record, Fact::SocketMode, "0755"),
            Fact::SocketOwner,
            "104",
        );
        assert_eq!(codes(&record), ["SOCKET_PERM"]);
        assert!(explained(&record)[0].says.contains("mode 0755"));
    }

    #[test]
    fn a_stale_socket_is_not_a_matter_of_rights() {
        let record = failed("phpredis/persistent/unix", "connect", "Connection refused");
        assert_eq!(codes(&record), ["SOCKET_STALE"]);
    }
}
