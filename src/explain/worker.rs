//! WORKER_DIED, WORKER_HUNG, WORKER_GARBAGE, WORKER_MISCOUNTED, WORKER_NOT_STARTED: a client program did not keep the
//! contract.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use crate::record::{Failure, FailureKind, Record};

pub(super) struct Worker;

const DOCS: &[Doc] = &[
    Doc {
        code: "WORKER_DIED",
        means: "A client program ended before its work was done.",
        measured: "Its exit status or signal, and the end of what it wrote to standard error.",
        wrong_when: "The program was ended from outside (a user, a service manager).",
        todo: "Run the program by hand as tracing-scripts/README.md shows and read its error.",
    },
    Doc {
        code: "WORKER_HUNG",
        means: "A client program did not answer in time and was ended.",
        measured: "The time-out of the stage it was in ran out.",
        wrong_when: "The machine was so loaded that the program had no chance; a longer --timeout tells.",
        todo: "Look what it waits for (a connection without a time-out, a barrier); raise --timeout if it is slow only.",
    },
    Doc {
        code: "WORKER_GARBAGE",
        means: "A client program wrote something to standard output that is not an event of the contract.",
        measured: "The first line that could not be read as an event.",
        wrong_when: "The program speaks a newer protocol than this systally.",
        todo: "Send warnings and debug output to standard error (for PHP: -d display_errors=stderr).",
    },
    Doc {
        code: "WORKER_MISCOUNTED",
        means: "A client program reported a result that cannot be true.",
        measured: "Its `done` line against what it was asked for: operations done and begun, errors, and its own time.",
        wrong_when: "It cannot be: the numbers contradict each other or the specification.",
        todo: "Compare the numbers of its `done` line with tracing-scripts/README.md.",
    },
    Doc {
        code: "WORKER_NOT_STARTED",
        means: "A client program could not be started.",
        measured: "What execve said.",
        wrong_when: "The script exists and its interpreter does not: the kernel's error is the same.",
        todo: "Install the program named, or make the script executable; `systally list` says which of its clients are ready.",
    },
];

impl Rule for Worker {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let failure = row.failure()?;
    let stage = failure.stage.words();
    let (code, says, try_next) = match failure.kind {
        FailureKind::Died => (
            "WORKER_DIED",
            format!("the client program ended {stage}: {}", failure.exit.as_deref().unwrap_or("how is not known")),
            died_hint(failure),
        ),
        FailureKind::Hung => (
            "WORKER_HUNG",
            format!("the client program did not answer {stage} and was ended"),
            "look what it waits for; a client without a time-out waits for ever on a stopped server".to_owned(),
        ),
        FailureKind::Miscounted => (
            "WORKER_MISCOUNTED",
            format!("the client program's result cannot be true: {}", failure.message),
            "let it count what it completed in this round alone, and begin no more operations than it is asked for"
                .to_owned(),
        ),
        FailureKind::Garbage => (
            "WORKER_GARBAGE",
            format!("the client program wrote what is not an event {stage}: {}", failure.message),
            "only events belong on standard output; send the rest to standard error (PHP: -d display_errors=stderr)"
                .to_owned(),
        ),
        // The limit that forbade the process is told by its own rule.
        FailureKind::NotStarted if matches!(failure.errno.as_deref(), Some("EAGAIN" | "EMFILE")) => return None,
        FailureKind::NotStarted => (
            "WORKER_NOT_STARTED",
            format!("the client program could not be started: {}", failure.message),
            "check that the program is there and may be executed (of a script also the interpreter that its first \
             line names); of the clients that systally list knows, it says what installs them"
                .to_owned(),
        ),
        FailureKind::Said | FailureKind::NoPtrace | FailureKind::ServerDied | FailureKind::ServerUnreachable => {
            return None;
        }
    };
    Some(
        Finding::about(row, code, Severity::Error)
            .with("stage", stage)
            .with_known("exit", failure.exit.as_deref())
            .with_known("pid", failure.pid)
            .with_known(
                "stderr",
                Some(failure.stderr_tail.as_str()).filter(|text| !text.is_empty()),
            )
            .says(says)
            .try_next(try_next),
    )
}

fn died_hint(failure: &Failure) -> String {
    if failure.stderr_tail.is_empty() {
        "run it by hand with the same SYSTALLY_SPEC; it wrote nothing to standard error. A program that does not keep the \
         worker contract (tracing-scripts/README.md) is counted as it is by systally count -- CMD"
            .to_owned()
    } else {
        // The tail is escaped, its line breaks too.
        let lines: Vec<&str> = failure
            .stderr_tail
            .split("\\n")
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        format!("its last words: {}", lines.join(" | "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, failed, row};

    #[test]
    fn each_breach_of_the_contract_has_its_code() {
        for (kind, code) in [
            (FailureKind::Died, "WORKER_DIED"),
            (FailureKind::Hung, "WORKER_HUNG"),
            (FailureKind::Garbage, "WORKER_GARBAGE"),
            (FailureKind::Miscounted, "WORKER_MISCOUNTED"),
            (FailureKind::NotStarted, "WORKER_NOT_STARTED"),
        ] {
            let mut record = failed("mine/persistent/tcp", "", "Warning: something");
            record.strategies[0].failure.as_mut().unwrap().kind = kind;
            assert_eq!(codes(&record), [code]);
        }
    }

    #[test]
    fn a_worker_that_works_is_silent() {
        let mut record = empty();
        record.strategies.push(row("mine/persistent/tcp"));
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
