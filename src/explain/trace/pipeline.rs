//! PIPELINE_NOT_BATCHED in traces: commands queued together that leave one by one.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Trace, traces};
use crate::record::Record;
use crate::units::{Grouped, total};

pub(super) struct Pipeline;

const DOCS: &[Doc] = &[Doc {
    code: "ROUND_TRIPS",
    means: "Operations, round trips and system calls of a log: the time of a distant server goes with the round trips, the \
            CPU time with the calls.",
    measured: "Commands in the payloads, turns of send and receive, calls; ten operations and more.",
    wrong_when: "strace cut the payloads (-s), so that commands are missed.",
    todo: "Many round trips: pipeline. Many calls per round trip: see the other findings.",
}];

impl Rule for Pipeline {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        let mut out: Vec<Finding> = traces(record).filter_map(|trace| log(&trace)).collect();
        out.extend(traces(record).filter_map(|trace| two_runs(&trace)));
        out.extend(traces(record).filter_map(|trace| three_numbers(&trace)));
        out.extend(
            traces(record)
                .flat_map(|trace| trace.tables().collect::<Vec<_>>())
                .filter_map(|table| {
                    let ops = table.ops().filter(|ops| ops.known && ops.count >= 8)?;
                    if table.trace.facts().is_some() {
                        return None;
                    }
                    let sends = ops.per_op(table.sends());
                    let replies = ops.per_op(table.good_receives());
                    // Few replies are read and every command is sent by itself.
                    ((0.8..=1.3).contains(&sends) && replies <= 0.3).then(|| {
                        table
                            .finding("PIPELINE_NOT_BATCHED", Severity::Warning)
                            .with("sends_per_op", round2(sends))
                            .with("receives_per_op", round2(replies))
                            .says(format!(
                                "{sends:.2} sends and {replies:.2} receives per operation: replies are read together, but \
                                 every command is sent by itself"
                            ))
                            .try_next(NEXT)
                    })
                }),
        );
        out
    }
}

const NEXT: &str = "a client or version that joins the commands of a pipeline into one send";

fn log(trace: &Trace<'_>) -> Option<Finding> {
    let (name, peer) = trace.peers().max_by_key(|(_, peer)| peer.most_sends_in_turn)?;
    let sends = peer.most_sends_in_turn;
    let commands = peer.deepest_pipeline;
    if sends < 4 || commands < 4 || sends.saturating_mul(10) < commands.saturating_mul(8) {
        return None;
    }
    Some(
        trace
            .finding("PIPELINE_NOT_BATCHED", Severity::Warning)
            .with("sends_before_a_reply", sends)
            .with("commands_before_a_reply", commands)
            .says(format!(
                "{commands} commands went to {name} before a reply was read, in {sends} sends: the pipeline is not batched"
            ))
            .try_next(NEXT),
    )
}

/// Operations, round trips and calls: three numbers that are not the same.
fn three_numbers(trace: &Trace<'_>) -> Option<Finding> {
    let ops = trace.imported.ops.filter(|ops| *ops >= 10)?;
    let trips = total(trace.peers().map(|(_, peer)| peer.turns));
    let depth = trace.peers().map(|(_, peer)| peer.deepest_pipeline).max()?;
    let calls: u64 = trace
        .tables()
        .map(|table| table.table.sum_calls())
        .fold(0, u64::saturating_add);
    if trips == 0 || depth == 0 {
        return None;
    }
    let per_trip = ops as f64 / trips as f64;
    let batching = if per_trip < 1.5 {
        "each operation waits for its own reply, none are batched; a pipeline would share the round trips"
            .to_owned()
    } else {
        format!(
            "{per_trip:.0} operations share a round trip, so pipelining works; the deepest pipeline is {depth}"
        )
    };
    Some(
        trace
            .finding("ROUND_TRIPS", Severity::Info)
            .with("operations", ops)
            .with("round_trips", trips)
            .with("calls", calls)
            .with("deepest_pipeline", depth)
            .says(format!(
                "{} operations, {} round trips, {} system calls: {batching}",
                Grouped(ops),
                Grouped(trips),
                Grouped(calls)
            )),
    )
}

/// Two runs in one file that differ in nothing but how often they send: what people compare by hand.
fn two_runs(trace: &Trace<'_>) -> Option<Finding> {
    let tables: Vec<_> = trace.tables().collect();
    let sends = |index: usize| tables.get(index).map(|table| table.sends());
    let most = (0..tables.len()).max_by_key(|i| sends(*i))?;
    let least = (0..tables.len())
        .filter(|i| sends(*i) > Some(0))
        .min_by_key(|i| sends(*i))?;
    let (many, few) = (sends(most)?, sends(least)?);
    if tables.len() < 2 || few == 0 || many < few.saturating_mul(5) || many < 20 {
        return None;
    }
    let name = tables[most].send_names();
    let call = tables[most]
        .rows()
        .iter()
        .find(|row| name.contains(&row.syscall.as_str()))
        .map_or("send", |row| row.syscall.as_str());
    Some(
        trace
            .finding("PIPELINE_NOT_BATCHED", Severity::Warning)
            .with("sends_most", many)
            .with("sends_least", few)
            .says(format!(
                "{many} {call} in {} against {few} in {}: these are two runs and not one table of {}; if both did the same \
                 (for instance 100 queued commands), the first does not batch its pipeline",
                tables[most].table.label,
                tables[least].table.label,
                many.saturating_add(few)
            ))
            .try_next(NEXT),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found_for, has};

    #[test]
    fn many_sends_then_one_receive() {
        let mut text = String::new();
        for _ in 0..10 {
            text.push_str("sendto(4, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 14, 0, NULL, 0) = 14\n");
        }
        text.push_str("recvfrom(4, \"+PONG\\r\\n+PONG\\r\\n\", 8192, 0, NULL, NULL) = 70\n");
        assert!(has(&text, "PIPELINE_NOT_BATCHED"));
    }

    #[test]
    fn a_batched_pipeline_and_single_commands_are_fine() {
        let one = format!(
            "sendto(4, \"{}\", 140, 0, NULL, 0) = 140\nrecvfrom(4, \"+PONG\\r\\n\", 8192, 0, NULL, NULL) = 70\n",
            "*1\\r\\n$4\\r\\nPING\\r\\n".repeat(10)
        );
        assert!(!has(&one, "PIPELINE_NOT_BATCHED"));
        assert!(!has(&clean(20), "PIPELINE_NOT_BATCHED"));
    }

    #[test]
    fn in_a_table_the_operations_must_be_known() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n 99.00    0.000100           1       100           sendto\n\
                     \x20 1.00    0.000001           1         2           recvfrom\n100.00    0.000101           1       102           total\n";
        assert!(find(&found_for(table, 100), "PIPELINE_NOT_BATCHED").is_some());
        assert!(!has(table, "PIPELINE_NOT_BATCHED"));
    }
}
