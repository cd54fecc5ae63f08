//! STARTUP_SHARE: what the clients do before their loop, which no figure per operation contains.

use serde_json::json;

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{FILE_CALLS, Row};
use crate::record::{Kind, Record, Status};
use crate::units::Grouped;

pub(super) struct StartupShare;

const DOCS: &[Doc] = &[Doc {
    code: "STARTUP_SHARE",
    means: "Starting the client (the run-time, its libraries, autoloading, the first connection) takes as many calls as many \
            operations; a program that does only a few operations per start pays mostly for that.",
    measured: "Calls up to the worker's `go`, apart from the loop; of them those about files. For a counted program the two \
               cannot be told apart, and only the share of calls about files is given.",
    wrong_when: "A long-lived process: its start does not matter.",
    todo: "PHP: opcache with validate_timestamps off, an optimised class map, xdebug unloaded, a process manager that keeps \
           processes; elsewhere: keep the process.",
}];

/// Fewer calls than this is what any C program needs.
const MANY: u64 = 300;

impl Rule for StartupShare {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        match record.kind {
            Kind::Bench => bench(record).into_iter().collect(),
            Kind::Count => Row::run(record).filter_map(|row| counted(&row)).collect(),
            Kind::Import | Kind::Preflight => Vec::new(),
        }
    }
}

fn bench(record: &Record) -> Option<Finding> {
    let mut finding = Finding::about_all("STARTUP_SHARE", Severity::Info);
    let mut texts: Vec<String> = Vec::new();
    for row in Row::run(record) {
        let Some(counted) = row.counted() else { continue };
        // What a client makes per operation is known only where it did them.
        if row.result.status != Status::Ok {
            continue;
        }
        let workers = u64::from(row.result.axes.clients.max(1));
        let startup = &counted.phases.startup;
        let calls = startup.total() / workers;
        let client = row.name().split('/').next().unwrap_or_default();
        // One row stands for its client: the start is the same in all of them.
        if calls < MANY || finding.evidence.contains_key(client) {
            continue;
        }
        let files = startup
            .syscalls
            .iter()
            .filter(|(name, _)| FILE_CALLS.contains(&name.as_str()));
        let files = crate::units::total(files.map(|(_, call)| call.calls)) / workers;
        let loop_calls = counted.phases.run_loop.total();
        let worth = counted
            .ops
            .filter(|_| loop_calls > 0)
            .and_then(|ops| Some((calls as f64 / ops.per_op(loop_calls)?).round() as u64));
        finding = finding.with(
            client,
            json!({"calls": calls, "of_them_about_files": files, "operations_worth": worth}),
        );
        let worth = worth.map_or_else(String::new, |n| {
            format!(", as many as {} operations make", Grouped(n))
        });
        texts.push(format!(
            "{client} {} calls ({} of them about files{worth})",
            Grouped(calls),
            Grouped(files)
        ));
    }
    if texts.is_empty() {
        return None;
    }
    Some(
        finding
            .says(format!(
                "before the loop, and not in the figures per operation: {}",
                texts.join("; ")
            ))
            .try_next(
                "it matters only to programs that do few operations per start; then keep the process, or make loading cheaper \
                 (opcache, a class map)",
            ),
    )
}

fn counted(row: &Row<'_>) -> Option<Finding> {
    let total = row.counted()?.phases.run_loop.total();
    let files = row.loop_calls(FILE_CALLS);
    // A program that talks to nobody is about files by trade.
    let turns = row.talk()?.turns();
    if turns == 0 || files < MANY || files.saturating_mul(2) < total {
        return None;
    }
    Some(
        Finding::about(row, "STARTUP_SHARE", Severity::Info)
            .with("calls_about_files", files)
            .with("calls", total)
            .with("replies", turns)
            .says(format!(
                "{} of {} calls are about files and {} replies came in: most of this is loading code, not talking to a server",
                Grouped(files),
                Grouped(total),
                Grouped(turns)
            ))
            .try_next("count a longer run, or take the counts of a run without operations off"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, row, set_call, set_startup, set_talk};

    #[test]
    fn a_php_start_is_told_and_a_small_one_is_not() {
        let mut record = empty();
        let mut php = row("phpredis/persistent/tcp");
        set_startup(&mut php, "newfstatat", 816);
        set_startup(&mut php, "mmap", 600);
        record.strategies.push(php.clone());
        php.name = "phpredis/pconnect/tcp".to_owned();
        record.strategies.push(php);
        let found = explained(&record);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].evidence["phpredis"]["calls"], 1416);
        assert_eq!(found[0].evidence["phpredis"]["operations_worth"], 708);
        // A row that did not do what it says is no measure of an operation.
        record.strategies.truncate(1);
        record.strategies[0].status = Status::Unverified;
        assert!(!codes(&record).iter().any(|code| code == "STARTUP_SHARE"));
        let mut record = empty();
        let mut raw = row("raw/persistent/tcp");
        set_startup(&mut raw, "mmap", 60);
        record.strategies.push(raw);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }

    #[test]
    fn a_counted_program_that_mostly_loads() {
        let mut record = empty();
        record.kind = Kind::Count;
        let mut php = row("php");
        set_talk(&mut php, |talk| talk.waits = [(12, 5)].into());
        set_call(&mut php, "newfstatat", 8000, &[]);
        record.strategies.push(php);
        assert_eq!(codes(&record), ["STARTUP_SHARE"]);
        set_call(&mut record.strategies[0], "newfstatat", 80, &[]);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
