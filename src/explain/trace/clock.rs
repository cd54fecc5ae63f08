//! CLOCK_SYSCALLS: clock calls that enter the kernel.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Table, Trace, traces};
use crate::import::ImportFormat;
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct Clock;

const DOCS: &[Doc] = &[Doc {
    code: "CLOCK_SYSCALLS",
    means: "clock_gettime and gettimeofday are real system calls on this machine; normally the vDSO answers them without \
            entering the kernel, and a trace shows none.",
    measured: "Such calls in a table or log; or a clocksource other than tsc (hpet, acpi_pm, xen on some machines), which \
               the vDSO cannot read; in a counted pass one call in twenty, beside the host's clocksource.",
    wrong_when: "The program asks for a clock that the vDSO never answers (CPU-time clocks), or makes the call itself.",
    todo: "Look at /sys/devices/system/clocksource/clocksource0/current_clocksource; do not compare these two calls between \
           hosts with different clocksources.",
}];

const CALLS: &[&str] = &["clock_gettime", "clock_gettime64", "gettimeofday", "time"];

impl Rule for Clock {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| {
                let mut out: Vec<Finding> = source(&trace).into_iter().collect();
                out.extend(trace.tables().filter_map(|table| calls(&table)));
                out
            })
            .collect()
    }
}

fn source(trace: &Trace<'_>) -> Option<Finding> {
    let current = trace.word("current")?;
    let fast = matches!(
        current,
        "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page"
    );
    let others: Vec<&str> = trace
        .imported
        .values
        .get("available")
        .and_then(|list| list.as_array())
        .into_iter()
        .flatten()
        .filter_map(|one| one.as_str())
        .collect();
    if fast {
        return None;
    }
    let tsc = if others.contains(&"tsc") {
        "tsc is available: the kernel found it unstable or was told otherwise"
    } else {
        "tsc is not available here"
    };
    Some(
        trace
            .finding("CLOCK_SYSCALLS", Severity::Warning)
            .with("clocksource", current)
            .says(format!(
                "the clocksource is {current}: clock_gettime and gettimeofday are real system calls on this host, and on a host \
                 with tsc the same program shows none of them; {tsc}"
            ))
            .try_next(
                "do not compare the counts of these two calls between such hosts; dmesg says why tsc was given up; in a virtual \
                 machine the host decides",
            ),
    )
}

fn calls(table: &Table<'_>) -> Option<Finding> {
    // ltrace counts the library's function, which the vDSO answers.
    if table.trace.imported.format == ImportFormat::LtraceC {
        return None;
    }
    let calls = table.calls(CALLS);
    let total = table.table.sum_calls();
    if calls < 50 || calls.saturating_mul(20) < total {
        return None;
    }
    let rate = table.ops().filter(|ops| ops.known).map(|ops| ops.per_op(calls));
    let per_op = rate
        .map(|rate| format!(" ({rate:.1} per operation)"))
        .unwrap_or_default();
    Some(
        table
            .finding("CLOCK_SYSCALLS", Severity::Warning)
            .with("clock_calls", calls)
            .with_known("clock_calls_per_op", rate.map(round2))
            .says(format!(
                "{} clock calls{per_op} entered the kernel: the vDSO does not answer them here, as with the clocksources hpet and \
                 acpi_pm",
                Grouped(calls)
            ))
            .try_next("cat /sys/devices/system/clocksource/clocksource0/current_clocksource; tsc makes these calls disappear"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, has};

    #[test]
    fn clock_calls_in_a_log_and_a_clocksource() {
        assert!(has(
            &"clock_gettime(CLOCK_MONOTONIC, {tv_sec=1, tv_nsec=2}) = 0\n".repeat(60),
            "CLOCK_SYSCALLS"
        ));
        let tsc = "# cat /sys/devices/system/clocksource/clocksource0/current_clocksource\ntsc\n";
        assert!(!has(tsc, "CLOCK_SYSCALLS"));
        assert!(!has(&clean(5), "CLOCK_SYSCALLS"));
    }
}
