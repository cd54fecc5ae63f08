//! What came of putting suspected limits to the test: the verdict, then a line for each run.

use super::shown;
use crate::record::{Proof, ProofRun, Record};
use crate::units::Grouped;

/// A line for each proof, and below it one for each of its runs, which begins with spaces.
pub(super) fn lines(record: &Record) -> Vec<String> {
    record.proofs.iter().flat_map(of).collect()
}

fn of(proof: &Proof) -> Vec<String> {
    let about = proof
        .strategy
        .as_deref()
        .map(|name| format!(" in {name}"))
        .unwrap_or_default();
    let head = format!(
        "proof of {}{about}: {}: {}",
        proof.code,
        proof.verdict.name(),
        proof.says
    );
    let mut lines = vec![shown(&head)];
    lines.extend(proof.runs.iter().map(|run| format!("    {}", shown(&words(run)))));
    lines
}

fn words(run: &ProofRun) -> String {
    let set: Vec<String> = run
        .set
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let head = format!("{} {}", run.arm.name(), set.join(" "));
    if let Some(error) = &run.error {
        return format!("{head}: no result: {error}");
    }
    let counters: Vec<String> = run
        .counters
        .iter()
        .filter(|(_, grown)| **grown > 0)
        .map(|(name, grown)| format!("{name} +{}", Grouped(*grown)))
        .collect();
    let counters = match counters.as_slice() {
        [] => String::new(),
        some => format!("; {}", some.join(", ")),
    };
    format!(
        "{head}: {} showed it, {} of {} operations done in {:.1} s{counters}",
        Grouped(run.symptom),
        Grouped(run.done),
        Grouped(run.asked),
        run.seconds
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::record::{ProofArm, ProofVerdict};

    #[test]
    fn a_proof_is_a_line_and_one_for_each_run() {
        let run = ProofRun {
            arm: ProofArm::A,
            set: BTreeMap::from([("server.tcp-backlog".to_owned(), "8".to_owned())]),
            asked: 1200,
            done: 788,
            symptom: 412,
            counters: BTreeMap::from([("TcpExt.ListenDrops".to_owned(), 0)]),
            seconds: 0.25,
            findings: Vec::new(),
            error: None,
        };
        let proof = Proof {
            code: "UNIX_BACKLOG_EAGAIN".to_owned(),
            strategy: Some("phpredis/connect/unix".to_owned()),
            limit: "accept_backlog".to_owned(),
            verdict: ProofVerdict::Proven,
            says: "412 and 390 with nothing changed".to_owned(),
            runs: vec![
                run.clone(),
                ProofRun {
                    error: Some("gone\u{1b}".to_owned()),
                    ..run
                },
            ],
        };
        assert_eq!(
            of(&proof),
            [
                "proof of UNIX_BACKLOG_EAGAIN in phpredis/connect/unix: proven: 412 and 390 with nothing changed",
                "    A server.tcp-backlog=8: 412 showed it, 788 of 1 200 operations done in 0.2 s",
                "    A server.tcp-backlog=8: no result: gone\\u{1b}",
            ]
        );
    }
}
