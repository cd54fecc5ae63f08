//! CPU_THROTTLE: a control group had used up its CPU quota and stood still.

use super::finding::{Doc, Finding, Rule, Severity};
use super::kernel;
use super::row::{Row, round2};
use crate::record::{Record, sampled};

pub(super) struct CpuThrottle;

const DOCS: &[Doc] = &[Doc {
    code: "CPU_THROTTLE",
    means: "The control group of the server or of the clients used up its CPU quota, and everything in it stood still until the next period.",
    measured: "nr_throttled of the group (or of one above it) grew, and it was throttled for more than 5 % of the run, or for half of some fifth of a second.",
    wrong_when: "Other processes of the same group used the time.",
    todo: "Raise cpu.max (CPUQuota= of the unit, --cpus of the container), or make its period shorter so that stalls are; a queue that holds all clients rides over them.",
}];

impl Rule for CpuThrottle {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        check(record)
    }
}

/// Throttled for so many percent of a run, it matters.
const MATTERS: u64 = 5;

/// And so many percent of a single reading.
const A_STALL: u64 = 50;

fn check(record: &Record) -> Vec<Finding> {
    let server = throttled(record, "server.", "the server");
    // In one group both have the same counters, and it is told once.
    match server {
        Some(finding) => vec![finding],
        None => throttled(record, "", "the clients").into_iter().collect(),
    }
}

fn throttled(record: &Record, prefix: &str, whose: &str) -> Option<Finding> {
    let grew = |name: &str| record.counters.grew(&format!("{prefix}cpu.stat.{name}"));
    let times = grew("nr_throttled").filter(|n| *n > 0)?;
    let us = grew("throttled_usec");
    let seconds = record.sampled.as_ref().map(|sampled| sampled.seconds);
    let percent = match (us, seconds) {
        (Some(us), Some(seconds)) if seconds > 0.0 => Some((us as f64 / 1e4 / seconds).round() as u64),
        _ => None,
    };
    let peak = kernel::highest(record, sampled::THROTTLED).filter(|_| !prefix.is_empty());
    let stalled = peak.is_some_and(|peak| peak.peak >= A_STALL);
    if percent.is_some_and(|percent| percent <= MATTERS) && !stalled {
        return None;
    }
    let share = percent.map_or_else(String::new, |percent| format!(", {percent} % of the run"));
    Some(
        Finding::about_all("CPU_THROTTLE", Severity::Warning)
            .with("periods_throttled", times)
            .with_known("throttled_ms", us.map(|us| us / 1000))
            .with_known("throttled_percent", percent)
            .with_known("longest_stall_at_s", peak.map(|peak| round2(peak.at_s)))
            .with("whose", whose)
            .says(format!(
                "{whose} had used up the CPU quota of the control group in {times} periods and stood still{share}"
            ))
            .try_next(
                "a larger CPUQuota= / --cpus / cpu.max, or a shorter period; and a listen queue that holds all clients",
            )
            .clears(Row::run(record).next().map(|row| row.cleared(&["cpu_quota"])).unwrap_or_default()),
    )
}
