//! CLOCK_SYSCALLS in a counted pass. The code is described in [`super::trace`].

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, round2};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct Clock;

const CALLS: &[&str] = &["clock_gettime", "clock_gettime64", "gettimeofday", "time"];

impl Rule for Clock {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let calls = row.loop_calls(CALLS);
    let total = row.counted()?.phases.run_loop.total();
    if calls < 50 || calls.saturating_mul(20) < total {
        return None;
    }
    let rate = row.per_op(CALLS, |call| call.calls);
    let per_op = rate
        .map(|rate| format!(" ({rate:.1} per operation)"))
        .unwrap_or_default();
    let source = row.record.host.clocksource.known().map(String::as_str);
    let why = match source {
        // These the vDSO reads, so the program asks for a clock that it does not serve.
        Some(fast @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page")) => format!(
            "the clocksource {fast} is one that the vDSO reads, so the program asks for a clock it does not serve (CPU time) or \
             makes the call itself"
        ),
        Some(slow) => format!("the clocksource here is {slow}, which the vDSO does not read"),
        None => "the clocksource of this host could not be read, so the cause is not known".to_owned(),
    };
    Some(
        Finding::about(row, "CLOCK_SYSCALLS", Severity::Warning)
            .with("clock_calls", calls)
            .with_known("clock_calls_per_op", rate.map(round2))
            .with_known("clocksource", source)
            .says(format!("{} clock calls{per_op} entered the kernel: {why}", Grouped(calls)))
            .try_next("do not compare these calls between hosts with different clocksources; tsc makes them disappear"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::testing::{codes, empty, explained, row, set_call};
    use crate::units::Measured;

    #[test]
    fn clock_calls_and_none() {
        let mut record = empty();
        let mut strategy = row("phpredis/persistent/tcp");
        set_call(&mut strategy, "gettimeofday", 4000, &[]);
        record.strategies.push(strategy);
        assert_eq!(codes(&record), ["CLOCK_SYSCALLS"]);
        record.host.clocksource = Measured::Known("hpet".to_owned());
        assert!(explained(&record)[0].says.contains("hpet"));
        set_call(&mut record.strategies[0], "gettimeofday", 2, &[]);
        assert_eq!(codes(&record), [] as [&str; 0]);
    }
}
