//! SERVER_DIED: the server ended while clients were working.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::{FailureKind, Record};

pub(super) struct ServerDied;

const DOCS: &[Doc] = &[Doc {
    code: "SERVER_DIED",
    means: "The server's process ended during the run.",
    measured: "systally saw its own server end, or a client lost its connection and the process of the server was \
               gone at that moment; the kernel's count of out-of-memory kills before and after.",
    wrong_when: "The process id known for the server was that of a launcher that ended by itself.",
    todo: "Read the server's log; a process killed for want of memory leaves no line there, but the kernel's log \
           has one.",
}];

impl Rule for ServerDied {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        // One death fails every row after it: it is told once, at the first.
        Row::run(record).find_map(|row| check(&row)).into_iter().collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let seen = row.failed_by(FailureKind::ServerDied);
    let symptoms = row.symptoms();
    let lost = [
        Symptom::Closed,
        Symptom::Reset,
        Symptom::BrokenPipe,
        Symptom::Refused,
        Symptom::ReadError,
    ]
    .iter()
    .any(|symptom| symptoms.contains_key(symptom));
    if seen.is_none() && !(lost && row.yes(Fact::ServerAlive) == Some(false)) {
        return None;
    }
    let failure = row.failure()?;
    let exit = failure.exit.as_deref().filter(|_| seen.is_some());
    let killed = row
        .record
        .counters
        .grew("memory.events.oom_kill")
        .filter(|n| *n > 0);
    let how = match (exit, killed) {
        (_, Some(_)) => {
            "killed by the kernel for want of memory (memory.max of its control group)".to_owned()
        }
        (Some(exit), None) => exit.to_owned(),
        (None, None) => "how is not known".to_owned(),
    };
    Some(
        Finding::about(row, "SERVER_DIED", Severity::Error)
            .with_known("exit", exit)
            .with_known("pid", failure.pid)
            .with_known("oom_kills", killed)
            .with("stage", failure.stage.words())
            .with_known(
                "stderr",
                Some(failure.stderr_tail.as_str()).filter(|text| !text.is_empty()),
            )
            .says(format!("the server ended {}: {how}", failure.stage.words()))
            .try_next(
                "read the server's log and the kernel's (dmesg); what follows in this run has no server",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, explained, failed, with_fact};
    use crate::record::Stage;

    #[test]
    fn a_server_killed_in_mid_run_is_told_once() {
        let mut record = failed(
            "redis-rs/persistent/tcp",
            "io",
            "Connection reset by peer (os error 104)",
        );
        let failure = record.strategies[0].failure.as_mut().unwrap();
        failure.kind = FailureKind::ServerDied;
        failure.stage = Stage::Round;
        failure.exit = Some("killed by SIGKILL".to_owned());
        record.strategies.push(record.strategies[0].clone());
        assert_eq!(codes(&record), ["SERVER_DIED"]);
        assert!(explained(&record)[0].says.contains("killed by SIGKILL"));
    }

    #[test]
    fn a_lost_connection_with_a_living_server_is_not_its_death() {
        let record = failed("redis-rs/persistent/tcp", "io", "unexpected end of file");
        assert_eq!(
            codes(&with_fact(record.clone(), Fact::ServerAlive, "yes")),
            ["UNEXPLAINED"]
        );
        assert_eq!(
            codes(&with_fact(record, Fact::ServerAlive, "no")),
            ["SERVER_DIED"]
        );
    }
}
