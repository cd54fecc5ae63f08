//! SOCKET_MISSING: the path of the UNIX socket does not exist.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::{FailureKind, Record};

pub(super) struct SocketMissing;

const DOCS: &[Doc] = &[Doc {
    code: "SOCKET_MISSING",
    means: "There is no file at the path of the UNIX socket.",
    measured: "ENOENT in the client's words or from connect(), for a strategy over a UNIX socket; the path is \
               looked at again at that moment.",
    wrong_when: "The client runs in another file system (a container, a chroot) and sees another path.",
    todo: "Look at `unixsocket` in the server's configuration (it is off by default) and mount its folder where \
           the client runs.",
}];

impl Rule for SocketMissing {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    // What is missing when a program cannot be started is the program.
    if row.is_unix() != Some(true) || row.failed_by(FailureKind::NotStarted).is_some() {
        return None;
    }
    let seen = row.met(Symptom::NoSuchFile, &["connect"])?;
    let endpoint = row.endpoint();
    let says = match row.yes(Fact::SocketExists) {
        Some(true) => format!("{endpoint} did not exist when the client connected; it does now"),
        Some(false) | None => format!("{endpoint} does not exist"),
    };
    Some(
        Finding::about(row, "SOCKET_MISSING", Severity::Error)
            .with("failed", seen.count)
            .with("client_says", seen.text)
            .with_known("path_exists", row.fact(Fact::SocketExists))
            .says(says)
            .try_next("redis-cli CONFIG GET unixsocket says where it is; then give that path with -s"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, failed, row, set_errno, set_peers, with_fact};
    use crate::record::Kind;

    #[test]
    fn a_path_that_is_not_there() {
        let record = failed("phpredis/persistent/unix", "connect", "No such file or directory");
        assert_eq!(
            codes(&with_fact(record, Fact::SocketExists, "no")),
            ["SOCKET_MISSING"]
        );
    }

    #[test]
    fn a_name_looked_up_in_vain_is_no_missing_server() {
        // A shell without HOME asks nscd who it is, as often as it is started.
        let mut record = empty();
        record.kind = Kind::Count;
        let mut result = row("python3");
        set_errno(&mut result, "connect", 32, "ENOENT");
        set_peers(&mut result, "connect", &[("unix:/var/run/nscd/socket", 32)]);
        record.strategies.push(result);
        assert_eq!(codes(&record), [] as [&str; 0]);
        set_peers(
            &mut record.strategies[0],
            "connect",
            &[("unix:/var/run/nscd/socket", 30), ("unix:/run/redis.sock", 2)],
        );
        assert_eq!(codes(&record), ["SOCKET_MISSING"]);
    }

    #[test]
    fn a_connect_that_cost_no_operation_is_not_the_servers() {
        let mut record = empty();
        let mut result = row("redis-py/persistent/unix");
        set_errno(&mut result, "connect", 32, "ENOENT");
        record.strategies.push(result);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }

    #[test]
    fn a_missing_file_of_a_tcp_client_is_another_matter() {
        let record = failed("phpredis/persistent/tcp", "config", "No such file or directory");
        assert_eq!(codes(&record), ["UNEXPLAINED"]);
    }
}
