//! CONNTRACK_FULL in pasted state: the packet filter's table of connections is full.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::state::share;
use super::{Trace, plural, traces};
use crate::record::Record;
use crate::units::Grouped;

pub(super) struct Conntrack;

impl Rule for Conntrack {
    fn docs(&self) -> &'static [Doc] {
        // Described where the rule for live runs stands.
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| full(&trace)).collect()
    }
}

fn full(trace: &Trace<'_>) -> Option<Finding> {
    let lines = trace.value("conntrack_full_lines");
    let (count, max) = (trace.value("conntrack_count"), trace.value("conntrack_max"));
    let filled = count
        .zip(max.filter(|max| *max > 0))
        .map(|(count, max)| share(count, max));
    if lines.is_none() && filled.is_none_or(|filled| filled < 0.95) {
        return None;
    }
    let state = match (count, max) {
        (Some(count), Some(max)) => format!(" ({} of {} now)", Grouped(count), Grouped(max)),
        _ => String::new(),
    };
    let logged = lines.map_or_else(String::new, |lines| {
        format!(
            "; the kernel's log says so ({}, of which it leaves most out)",
            plural(lines, "line")
        )
    });
    Some(
        trace
            .finding("CONNTRACK_FULL", Severity::Error)
            .with_known("conntrack_count", count)
            .with_known("conntrack_max", max)
            .with_known("lines", lines)
            .says(format!(
                "the table of followed connections (nf_conntrack_max) is or was full{state}{logged}: new connections are \
                 dropped without an error, so connects stall and time out"
            ))
            .try_next(format!(
                "sysctl -w net.netfilter.nf_conntrack_max={} on the host; or a notrack rule for the server's port; or keep \
                 connections: each closed one stays in the table for 120 s",
                max.or(count).map_or_else(|| "N".to_owned(), |n| n.saturating_mul(2).to_string())
            ))
            .clears(vec![
                "the server's accept queue, as long as ListenOverflows does not grow: the packets never get there".to_owned(),
            ]),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::has;

    #[test]
    fn the_log_or_the_count_tells() {
        assert!(has(
            "[1234.5] nf_conntrack: nf_conntrack: table full, dropping packet\n",
            "CONNTRACK_FULL"
        ));
        let state = |count: u64| {
            format!("net.netfilter.nf_conntrack_count = {count}\nnet.netfilter.nf_conntrack_max = 262144\n")
        };
        assert!(has(&state(262_000), "CONNTRACK_FULL"));
        assert!(!has(&state(26_000), "CONNTRACK_FULL"));
        assert!(!has(
            "nf_conntrack version 0.5.0 (16384 buckets, 65536 max)\nnet.core.somaxconn = 4096\n",
            "CONNTRACK_FULL"
        ));
    }
}
