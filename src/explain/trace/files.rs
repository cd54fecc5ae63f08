//! MISSING_FILES, FILE_CALLS: time spent looking for files, not talking to a server.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Table, Trace, bare, traces};
use crate::record::Record;
use crate::units::{self, Grouped};

pub(super) struct Files;

const DOCS: &[Doc] = &[
    Doc {
        code: "MISSING_FILES",
        means: "The program asks again and again for files that do not exist.",
        measured: "Calls with a path that fail with ENOENT, ten and more for one path or a twentieth of all.",
        wrong_when: "The search happens once at the start (library and include paths).",
        todo: "Create the file, or take it out of the configuration; a class map or opcache for PHP.",
    },
    Doc {
        code: "FILE_CALLS",
        means: "Most of the calls are about files (stat, open, access), which belong to starting or loading code rather \
                than to operations on a server.",
        measured: "The share of such calls in a table or log that also has traffic.",
        wrong_when: "Handling files is the program's job.",
        todo: "Count start-up apart from operations; opcache with validate_timestamps off, an optimised class map, fewer \
               include paths; xdebug unloaded.",
    },
];

const PATH_CALLS: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "stat",
    "stat64",
    "lstat",
    "lstat64",
    "newfstatat",
    "fstatat64",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
    "fstat",
    "fstat64",
    "getattrlist",
];

impl Rule for Files {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| {
                let mut out: Vec<Finding> = missing(&trace).into_iter().collect();
                out.extend(trace.tables().filter_map(|table| share(&table)));
                out
            })
            .collect()
    }
}

fn missing(trace: &Trace<'_>) -> Option<Finding> {
    if let Some(facts) = trace.facts() {
        let (path, times) = facts.files.most_missing.iter().max_by_key(|(_, n)| **n)?;
        return (*times >= 10).then(|| {
            trace
                .finding("MISSING_FILES", Severity::Info)
                .with("path", path.as_str())
                .with("times", *times)
                .with("missing_in_all", facts.files.missing)
                .says(format!(
                    "{path} was asked for {times} times and does not exist; {} of {} calls with a path found nothing",
                    Grouped(facts.files.missing),
                    Grouped(facts.files.calls)
                ))
                .try_next("create the file or take it out of the configuration")
        });
    }
    // A table has no paths, only how many of these calls failed.
    let table = trace.tables().next()?;
    let rows = || {
        table
            .rows()
            .iter()
            .filter(|row| PATH_CALLS.contains(&row.syscall.as_str()))
    };
    let calls: u64 = rows().map(|row| row.calls()).fold(0, u64::saturating_add);
    let failed: u64 = rows().filter_map(|row| row.errors).fold(0, u64::saturating_add);
    (failed >= 100 && calls >= 1000).then(|| {
        trace
            .finding("MISSING_FILES", Severity::Info)
            .with("failed", failed)
            .with("calls", calls)
            .says(format!(
                "{} of {} calls with a path failed ({:.1} %), mostly for files that do not exist; strace -e trace=file names \
                 the paths",
                Grouped(failed),
                Grouped(calls),
                failed as f64 * 100.0 / calls.max(1) as f64
            ))
            .try_next("strace -f -e trace=file, sorted by path; create what is missing or take it out of the search")
    })
}

fn share(table: &Table<'_>) -> Option<Finding> {
    let of_files = table.calls(PATH_CALLS);
    let total = table.table.sum_calls();
    let share = of_files as f64 / total.max(1) as f64;
    if of_files < 100 || share < 0.25 {
        return None;
    }
    let facts = table.trace.facts();
    let php = facts.map_or(0, |facts| facts.files.php);
    let xdebug = facts.is_some_and(|facts| facts.files.xdebug > 0);
    let mut what = String::new();
    if php > 0 {
        what.push_str(&format!(
            "; {} of them are about .php files (autoload, include)",
            Grouped(php)
        ));
    }
    if xdebug {
        what.push_str("; xdebug is loaded");
    }
    let enoent = units::total(
        table
            .rows()
            .iter()
            .flat_map(|row| &row.errnos)
            .filter(|(errno, _)| bare(errno) == "ENOENT")
            .map(|(_, n)| *n),
    );
    Some(
        table
            .finding("FILE_CALLS", Severity::Info)
            .with("file_calls", of_files)
            .with("share", round2(share))
            .with("enoent", enoent)
            .says(format!(
                "{} of {} calls ({:.0} %) look at files and not at a server{what}: start-up and loading, to be told apart from \
                 calls per operation",
                Grouped(of_files),
                Grouped(total),
                share * 100.0
            ))
            .try_next("subtract a run with no operations; opcache and an optimised class map for PHP"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    #[test]
    fn a_missing_file_asked_for_at_every_turn() {
        let text = "access(\"/srv/app/config/local.php\", F_OK) = -1 ENOENT (No such file or directory)\n"
            .repeat(120);
        let finding = find(&found(&text), "MISSING_FILES").unwrap();
        assert_eq!(finding.evidence["times"], 120);
        assert!(find(&found(&text), "FILE_CALLS").unwrap().says.contains(".php"));
    }

    #[test]
    fn a_client_that_opens_nothing() {
        assert!(!has(&clean(5), "MISSING_FILES"));
        assert!(!has(&clean(5), "FILE_CALLS"));
    }
}
