//! NO_PTRACE: this process may not trace, so nothing could be counted.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::Row;
use crate::record::{FailureKind, Record};

pub(super) struct NoPtrace;

const DOCS: &[Doc] = &[Doc {
    code: "NO_PTRACE",
    means: "The system does not let this process trace others, so there are no counts; the timed rounds are valid.",
    measured: "The kernel refused ptrace; kernel.yama.ptrace_scope, CAP_SYS_PTRACE and the seccomp mode are read to \
               say why.",
    wrong_when: "A security module refuses that none of the three shows.",
    todo: "In docker: --cap-add SYS_PTRACE (or --security-opt seccomp=unconfined on kernels before 4.8); with \
           ptrace_scope 3 only a reboot with another setting helps.",
}];

impl Rule for NoPtrace {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        // The machine forbids it for all rows alike: told once.
        Row::run(record).find_map(|row| check(&row)).into_iter().collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let failure = row.failed_by(FailureKind::NoPtrace)?;
    let (why, todo) = match (
        row.number(Fact::PtraceScope),
        row.yes(Fact::CapPtrace),
        row.number(Fact::Seccomp),
    ) {
        (Some(3), _, _) => (
            "kernel.yama.ptrace_scope is 3, which forbids it until the next boot",
            "boot with kernel.yama.ptrace_scope=1",
        ),
        (Some(2), Some(false), _) => (
            "kernel.yama.ptrace_scope is 2 and this process lacks CAP_SYS_PTRACE",
            "run as root, or sysctl -w kernel.yama.ptrace_scope=1",
        ),
        (_, _, Some(2)) => (
            "a seccomp filter is in force, as in a container without SYS_PTRACE",
            "docker run --cap-add SYS_PTRACE",
        ),
        _ => (
            "the system refused it",
            "docker run --cap-add SYS_PTRACE, or run as root",
        ),
    };
    let mut finding = Finding::about_all("NO_PTRACE", Severity::Error)
        .with("said", failure.message.as_str())
        .with_known("ptrace_scope", row.number(Fact::PtraceScope))
        .with_known("cap_sys_ptrace", row.fact(Fact::CapPtrace))
        .with_known("seccomp", row.number(Fact::Seccomp))
        .says(format!(
            "system calls could not be counted: {why}; the timed rounds are valid"
        ))
        .try_next(todo);
    finding.strategy = None;
    finding.row = None;
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, failed, row, with_fact};

    #[test]
    fn told_once_with_the_setting_that_forbids() {
        let mut record = failed("raw/persistent/tcp", "", "ptrace: Operation not permitted");
        record.strategies[0].failure.as_mut().unwrap().kind = FailureKind::NoPtrace;
        let mut record = with_fact(record, Fact::PtraceScope, "3");
        record.strategies.push(record.strategies[0].clone());
        assert_eq!(codes(&record), ["NO_PTRACE"]);
        assert!(explained(&record)[0].says.contains("ptrace_scope is 3"));
    }

    #[test]
    fn a_counted_row_is_silent() {
        let mut record = empty();
        record.strategies.push(row("raw/persistent/tcp"));
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
