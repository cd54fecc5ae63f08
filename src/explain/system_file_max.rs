//! SYSTEM_FILE_MAX: the machine's table of open files is full.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct SystemFileMax;

const DOCS: &[Doc] = &[Doc {
    code: "SYSTEM_FILE_MAX",
    means: "The whole machine has fs.file-max files open; ENFILE differs from the limit of one process (EMFILE) by \
            one word in its text.",
    measured: "ENFILE from a call or in the client's words; fs.file-nr and fs.file-max at that moment.",
    wrong_when: "A driver returns ENFILE for a table of its own.",
    todo: "Find who holds the files (fs.file-nr), then raise fs.file-max on the host; ulimit -n does not help.",
}];

impl Rule for SystemFileMax {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let seen = row.met(
        Symptom::SystemTooManyFiles,
        &["socket", "openat", "open", "accept4", "accept", "pipe2"],
    )?;
    let (used, max) = (row.number(Fact::FileNr), row.number(Fact::FileMax));
    let of = match (used, max) {
        (Some(used), Some(max)) => format!(" ({used} of {max})"),
        _ => String::new(),
    };
    let own = match (row.number(Fact::FdsOpen), row.number(Fact::NofileSoft)) {
        (Some(open), Some(soft)) => vec![format!("ulimit -n: the process has {open} of {soft} open")],
        _ => Vec::new(),
    };
    Some(
        Finding::about(row, "SYSTEM_FILE_MAX", Severity::Error)
            .with("failed", seen.count)
            .explains(seen.count)
            .with("client_says", seen.text)
            .with_known("file_nr", used)
            .with_known("file_max", max)
            .says(format!(
                "the machine is at fs.file-max{of}: no process can open another file or socket"
            ))
            .try_next(
                "sysctl -w fs.file-max=N on the host, and find who holds the files; ulimit -n does not help",
            )
            .clears(own),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, failed};

    #[test]
    fn in_system_makes_the_difference() {
        let record = failed(
            "redis-rs/persistent/tcp",
            "connect",
            "Too many open files in system (os error 23)",
        );
        assert_eq!(codes(&record), ["SYSTEM_FILE_MAX"]);
        let record = failed(
            "redis-rs/persistent/tcp",
            "connect",
            "Too many open files (os error 24)",
        );
        assert_eq!(codes(&record), ["CLIENT_NOFILE"]);
    }
}
