//! EXPECTED_ERRORS and UNEXPECTED_ERRORS in a counted pass. The codes are described in [`super::trace`].

use std::collections::BTreeMap;

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{RECEIVES, Row};
use super::trace::{Doubt, normal_error};
use crate::record::{Kind, Record};
use crate::tally::Errno;
use crate::units::Grouped;

pub(super) struct Errors;

impl Rule for Errors {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).flat_map(|row| check(&row)).collect()
    }
}

/// Errors that a rule of their own speaks of.
fn told_elsewhere(call: &str, errno: &str) -> bool {
    match errno {
        "EMFILE" | "ENFILE" | "EADDRNOTAVAIL" => true,
        "ECONNREFUSED" | "ETIMEDOUT" | "EAGAIN" | "ENOENT" | "EACCES" => call == "connect",
        _ => false,
    }
}

fn check(row: &Row<'_>) -> Vec<Finding> {
    let Some(counted) = row.counted() else {
        return Vec::new();
    };
    let mut normal: BTreeMap<String, u64> = BTreeMap::new();
    let mut bad: Vec<(String, u64)> = Vec::new();
    for (call, counts) in &counted.phases.run_loop.syscalls {
        for (errno, n) in counts.errors.known().into_iter().flatten() {
            // How often a client looks in vain has rules of its own, which know more about it.
            let looks =
                row.record.kind == Kind::Bench && errno == "EAGAIN" && RECEIVES.contains(&call.as_str());
            // Nor can a failure be judged whose errno the engine did not see.
            if looks || told_elsewhere(call, errno) || *errno == *Errno::OTHER.name() {
                continue;
            }
            match normal_error(call, errno, Doubt::default()) {
                Some(why) => *normal.entry(format!("{call} {errno} ({why})")).or_default() += n,
                None => bad.push((format!("{call} {errno}"), *n)),
            }
        }
    }
    let mut out = Vec::new();
    if !normal.is_empty() {
        let texts: Vec<&str> = normal.keys().map(String::as_str).collect();
        let mut finding = Finding::about(row, "EXPECTED_ERRORS", Severity::Info)
            .says(format!(
                "errors of the counted calls that are normal traffic and no failures: {}",
                texts.join("; ")
            ))
            .try_next("nothing, unless another finding names them");
        for (what, n) in &normal {
            finding = finding.with(what, *n);
        }
        out.push(finding);
    }
    // A row whose operations failed has its reasons told already.
    if !bad.is_empty() && row.failure().is_none() {
        let texts: Vec<String> = bad
            .iter()
            .map(|(what, n)| format!("{what} {}", Grouped(*n)))
            .collect();
        let mut finding = Finding::about(row, "UNEXPECTED_ERRORS", Severity::Warning)
            .says(format!(
                "errors that are not normal traffic: {}",
                texts.join("; ")
            ))
            .try_next("a trace of those calls with their arguments (strace -f -e trace=NAME -y)");
        for (what, n) in bad {
            finding = finding.with(&what, n);
        }
        out.push(finding);
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, row, set_call};

    #[test]
    fn what_is_normal_and_what_is_not() {
        let mut record = empty();
        let mut strategy = row("phpredis/connect/tcp");
        set_call(&mut strategy, "connect", 1000, &[("EINPROGRESS", 1000)]);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), ["EXPECTED_ERRORS"]);
        set_call(&mut record.strategies[0], "sendto", 1000, &[("EPIPE", 3)]);
        assert_eq!(codes(&record), ["UNEXPECTED_ERRORS", "EXPECTED_ERRORS"]);
    }

    #[test]
    fn failures_without_an_errno_are_not_judged() {
        let mut record = empty();
        let mut strategy = row("phpredis/connect/tcp");
        set_call(&mut strategy, "openat", 1000, &[("other", 1000)]);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }

    #[test]
    fn no_errors_no_finding() {
        let mut record = empty();
        record.strategies.push(row("raw/persistent/tcp"));
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
