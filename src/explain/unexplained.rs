//! UNEXPLAINED: operations failed and no rule says why. An honest answer with what was read, never a
//! guess.

use super::finding::{Doc, Finding, Severity};
use super::kernel;
use super::row::{Row, round2};
use super::symptom::Symptom;
use crate::record::{FailureKind, Record, Status, sampled};

/// What the code stands for.
pub(super) const DOCS: &[Doc] = &[Doc {
    code: "UNEXPLAINED",
    means: "The row failed or lost operations, and no rule of this version explains it.",
    measured: "Errors in the client's words for which no other finding names this strategy.",
    wrong_when: "Another finding about the whole run explains it.",
    todo: "Read the client's words below; run again with -o FILE and report the file if a rule is missing.",
}];

/// One finding per row whose errors no other finding covers. It runs after all rules, since it has to know
/// what they found.
pub(super) fn check(record: &Record, found: &[Finding]) -> Vec<Finding> {
    Row::run(record)
        .filter(|row| {
            !found.iter().any(|finding| {
                let covers = match finding.strategy {
                    Some(_) => {
                        row.index()
                            .is_some_and(|place| finding.is_about(place, row.result))
                            || row.server_died()
                    }
                    // Only a missing right is told of the whole run.
                    None => row.failed_by(FailureKind::NoPtrace).is_some(),
                };
                covers && finding.severity == Severity::Error
            })
        })
        .filter_map(|row| unexplained(&row))
        .collect()
}

fn unexplained(row: &Row<'_>) -> Option<Finding> {
    let symptoms = row.symptoms();
    if symptoms.is_empty() && row.result.status != Status::Failed {
        return None;
    }
    let total = crate::units::total(symptoms.values().map(|seen| seen.count));
    let words: Vec<String> = symptoms
        .values()
        .map(|seen| format!("{} x {}", seen.count, seen.text))
        .collect();
    let reason = row.result.reason.clone().unwrap_or_default();
    let says = match words.as_slice() {
        [] => format!("the row failed and nothing that was read explains it: {reason}"),
        words => format!(
            "nothing that was read explains these errors of the client: {}",
            words.join("; ")
        ),
    };
    let late = symptoms.contains_key(&Symptom::ReadError) || symptoms.contains_key(&Symptom::TimedOut);
    let mut finding = Finding::about(row, "UNEXPLAINED", Severity::Error)
        .with("failed", total)
        .with("client_says", words)
        .with_known("lost_share", row.lost_share().map(round2));
    for (name, queue) in [
        ("longest_tcp_queue_seen", sampled::TCP_QUEUED),
        ("longest_unix_queue_seen", sampled::UNIX_QUEUED),
    ] {
        finding = finding.with_known(name, kernel::peak(row, queue).map(|peak| peak.peak));
    }
    if let Some(failure) = row.failure() {
        for (name, value) in &failure.facts {
            finding = finding.with(name, value.as_str());
        }
    }
    Some(
        finding
            .says(says)
            .try_next(if late {
                "a time-out: look at SLOWLOG and the server's load, and raise the client's time-out to see whether it \
                 disappears"
            } else {
                "run again with -o FILE; the record has all that was read"
            })
            .clears(row.cleared(&[])),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, explained, failed, row};

    #[test]
    fn an_unknown_error_is_said_to_be_one() {
        let record = failed("mine/persistent/tcp", "Strange", "the cat sat on the cable");
        let found = explained(&record);
        assert_eq!(found[0].code, "UNEXPLAINED");
        assert!(found[0].says.contains("the cat sat on the cable"));
    }

    #[test]
    fn nothing_failed_nothing_said() {
        let mut record = empty();
        record.strategies.push(row("mine/persistent/tcp"));
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
