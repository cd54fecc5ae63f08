//! CLIENT_NOFILE: the client process used up its descriptors.
//!
//! phpredis has no text for it ("Redis server went away") and predis an empty one, so the descriptors are
//! counted as well.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, round2};
use super::symptom::Symptom;
use crate::record::{FailureKind, Record, Verdict};

pub(super) struct ClientNofile;

const DOCS: &[Doc] = &[Doc {
    code: "CLIENT_NOFILE",
    means: "A client process reached its limit of open files (ulimit -n), so it could make no more sockets.",
    measured: "EMFILE from socket(), open() or accept(), or in the client's words; or phpredis' \"went away\" while \
               the process has as many descriptors open as its soft limit.",
    wrong_when: "The descriptors were counted after the client had closed some.",
    todo: "Raise the soft limit (a process may do so itself, up to the hard limit), and look for connections that \
           are never closed.",
}];

const OPENERS: &[&str] = &[
    "socket",
    "openat",
    "open",
    "accept4",
    "accept",
    "dup",
    "dup2",
    "pipe2",
    "epoll_create1",
];

impl Rule for ClientNofile {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let soft = row.number(Fact::NofileSoft);
    let open = row.number(Fact::FdsOpen);
    let at_limit = matches!((open, soft), (Some(open), Some(soft)) if open >= soft.saturating_sub(1));
    let too_small = row
        .record
        .limits
        .iter()
        .any(|reading| reading.id == "client_nofile" && reading.verdict == Verdict::Fail);
    let seen = row.met(Symptom::TooManyFiles, OPENERS).or_else(|| {
        let mut symptoms = row.symptoms();
        let silent = symptoms.remove(&Symptom::WentAway);
        // With no descriptor left, a failure without words (predis) or a plain `false` is that.
        let wordless = symptoms.remove(&Symptom::Other).filter(|_| at_limit);
        silent.filter(|_| at_limit || too_small).or(wordless)
    })?;
    let limit = soft.map_or_else(|| "its limit".to_owned(), |soft| format!("its limit of {soft}"));
    let hard = row.number(Fact::NofileHard);
    let raise = match (soft, hard) {
        (Some(soft), Some(hard)) if hard > soft => {
            format!("ulimit -Sn {hard} before the run (the hard limit allows {hard})")
        }
        _ => "ulimit -n with a larger number before the run, LimitNOFILE= in a unit, --ulimit nofile= in docker".to_owned(),
    };
    Some(
        Finding::about(row, "CLIENT_NOFILE", Severity::Error)
            .with("failed", seen.count)
            .explains(seen.count)
            .with("client_says", seen.text)
            .with_known("soft_limit", soft)
            .with_known("hard_limit", hard)
            .with_known("descriptors_open", open)
            .with_known("lost_share", row.lost_share().map(round2))
            .says(if row.failed_by(FailureKind::NotStarted).is_some() {
                format!("systally itself has used up {limit} of open files before it could start the clients")
            } else {
                format!(
                    "a client process has used up {limit} of open files: socket() fails with EMFILE and the server \
                     never hears of it"
                )
            })
            .try_next(raise)
            .clears(row.cleared(&["client_nofile"])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, failed, row, set_errno, with_fact};

    #[test]
    fn emfile_in_words_or_from_socket() {
        let record = failed(
            "redis-rs/persistent/tcp",
            "connect",
            "Too many open files (os error 24)",
        );
        assert_eq!(codes(&record), ["CLIENT_NOFILE"]);
        let mut record = empty();
        let mut strategy = row("phpredis/persistent/tcp");
        set_errno(&mut strategy, "socket", 3, "EMFILE");
        record.strategies.push(strategy);
        assert_eq!(codes(&record), ["CLIENT_NOFILE"]);
    }

    #[test]
    fn went_away_with_all_descriptors_used() {
        let record = failed("phpredis/persistent/unix", "connect", "Redis server went away");
        assert_eq!(codes(&record), ["UNEXPLAINED"]);
        let full = with_fact(
            with_fact(record.clone(), Fact::NofileSoft, "64"),
            Fact::FdsOpen,
            "64",
        );
        assert_eq!(codes(&full), ["CLIENT_NOFILE"]);
        let free = with_fact(with_fact(record, Fact::NofileSoft, "1024"), Fact::FdsOpen, "9");
        assert_eq!(codes(&free), ["UNEXPLAINED"]);
    }
}
