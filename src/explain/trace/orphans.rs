//! TCP_ORPHANS in pasted state: sockets whose program is gone, and which still have something to send.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::state::share;
use super::{Trace, plural, traces};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct Orphans;

const DOCS: &[Doc] = &[Doc {
    code: "TCP_ORPHANS",
    means: "There are as many sockets that were closed with unsent data as tcp_max_orphans allows, or nearly: the kernel then \
            resets them, and the data is lost.",
    measured: "orphan of TCP in /proc/net/sockstat (or ss -s) beside tcp_max_orphans, or \"too many orphaned sockets\" in the \
               kernel's log.",
    wrong_when: "The log line is old; it is also written when memory for sockets is short.",
    todo: "Find the peers that stopped reading (ss -t state fin-wait-1); raise tcp_max_orphans on the host.",
}];

impl Rule for Orphans {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| orphans(&trace)).collect()
    }
}

fn orphans(trace: &Trace<'_>) -> Option<Finding> {
    let lines = trace.value("orphans_lines");
    let now = trace.value("orphaned");
    let most = trace.value("tcp_max_orphans").filter(|most| *most > 0);
    let near = now.zip(most).is_some_and(|(now, most)| share(now, most) >= 0.8);
    if lines.is_none() && !near {
        return None;
    }
    let mut parts = Vec::new();
    if let (Some(now), Some(most)) = (now, most) {
        parts.push(format!(
            "{} of {} sockets without a program that tcp_max_orphans allows",
            Grouped(now),
            Grouped(most)
        ));
    }
    if let Some(lines) = lines {
        parts.push(format!(
            "the kernel's log says \"too many orphaned sockets\" ({})",
            plural(lines, "line")
        ));
    }
    Some(
        trace
            .finding("TCP_ORPHANS", Severity::Error)
            .with_known("orphaned", now)
            .with_known("tcp_max_orphans", most)
            .with_known("lines", lines)
            .says(format!(
                "{}: sockets that are closed with unsent data are reset, and their data is lost",
                parts.join("; ")
            ))
            .try_next(
                "see which peers do not read (ss -t state fin-wait-1); sysctl -w net.ipv4.tcp_max_orphans=N on the host",
            ),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::has;

    #[test]
    fn many_and_few() {
        let state = |n: u64| {
            format!(
                "TCP:   300 (estab 12, closed 220, orphaned {n}, timewait 8)\nnet.ipv4.tcp_max_orphans = 1000\n"
            )
        };
        assert!(has(&state(990), "TCP_ORPHANS"));
        assert!(!has(&state(3), "TCP_ORPHANS"));
        assert!(has("TCP: too many orphaned sockets\n", "TCP_ORPHANS"));
    }
}
