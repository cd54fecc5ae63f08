//! DIMINISHING_RETURNS: from some number of servers on, one more adds nothing.

use std::collections::BTreeMap;

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, round2};
use crate::record::stats::{self, Enough};
use crate::record::{Interval, Record, Status};
use crate::units::Grouped;

pub(super) struct DiminishingReturns;

const DOCS: &[Doc] = &[Doc {
    code: "DIMINISHING_RETURNS",
    means: "The same clients over more servers get no faster from this number of servers on.",
    measured: "Median throughput of rows that differ in the number of servers alone: the first number after which one \
               more adds less than 5 %.",
    wrong_when: "The intervals of the two overlap (the evidence has them): more rounds tell.",
    todo: "Look for what is full: the clients' CPUs when they run on the servers' machine, the network, the client's \
           own hashing. More clients, or clients on other hosts, move the point.",
}];

impl Rule for DiminishingReturns {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        // By what the rows have in common.
        let mut groups: BTreeMap<_, BTreeMap<u32, (Row<'_>, Interval)>> = BTreeMap::new();
        for row in Row::run(record).filter(|row| row.result.status == Status::Ok) {
            let Some(timed) = row.timed() else { continue };
            let axes = &row.result.axes;
            groups
                .entry((row.name(), axes.clients, axes.pipeline, axes.payload_bytes))
                .or_default()
                .insert(axes.servers, (row, timed.ops_per_s));
        }
        groups.values().filter_map(check).collect()
    }
}

fn check(by_servers: &BTreeMap<u32, (Row<'_>, Interval)>) -> Option<Finding> {
    let rates: Vec<(u32, Interval)> = by_servers
        .iter()
        .map(|(servers, (_, rate))| (*servers, *rate))
        .collect();
    if rates.len() < 2 {
        return None;
    }
    let point = match stats::enough(&rates) {
        Enough::Point(point) => point,
        Enough::More => return None,
        Enough::Unclear => return unclear(by_servers),
    };
    let mut from = by_servers.range(point..);
    let ((enough, (row, rate)), (more, (_, next))) = (from.next()?, from.next()?);
    let change = next.median / rate.median - 1.0;
    let clients = row.result.axes.clients;
    let whole = |rate: f64| Grouped(rate.round().max(0.0) as u64);
    let sure = next.high < rate.low * 1.05;
    let what = if change < 0.0 { "lower" } else { "higher" };
    Some(
        Finding::about(row, "DIMINISHING_RETURNS", Severity::Info)
            .with("servers", *enough)
            .with("more_servers", *more)
            .with("clients", clients)
            .with("ops_per_s", rate.median.round())
            .with("ops_per_s_low", rate.low.round())
            .with("ops_per_s_high", rate.high.round())
            .with("ops_per_s_with_more", next.median.round())
            .with("ops_per_s_with_more_low", next.low.round())
            .with("ops_per_s_with_more_high", next.high.round())
            .with("change", round2(change))
            .says(format!(
                "{enough} servers are the point of diminishing returns for {clients} clients here: with {more} the \
                 throughput is {:.0} % {what} ({} to {} op/s){}",
                (change * 100.0).abs(),
                whole(rate.median),
                whole(next.median),
                if sure { "" } else { "; the intervals overlap, so more rounds may move it" }
            ))
            .try_next("clients on hosts of their own, or more of them; look at the CPU first")
            .clears(row.cleared(&[])),
    )
}

/// The rounds say nothing of where the point is.
fn unclear(by_servers: &BTreeMap<u32, (Row<'_>, Interval)>) -> Option<Finding> {
    let (row, _) = by_servers.values().next()?;
    Some(
        Finding::about(row, "DIMINISHING_RETURNS", Severity::Info)
            .with("clients", row.result.axes.clients)
            .says(
                "the rounds differ by more than one more server would change, so no point of diminishing returns can be \
                 told from this run",
            )
            .try_next("end what else runs on this machine; more rounds (--runs), or more work in each (--scale)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, round, row, set_rounds};

    fn record(rates: &[(u32, u32, f64)]) -> Record {
        let mut record = empty();
        for (clients, servers, rate) in rates {
            let mut one = row("predis/shards/tcp");
            (one.axes.clients, one.axes.servers) = (*clients, *servers);
            set_rounds(&mut one, vec![round(1000, 1000, 1000)], *rate);
            record.strategies.push(one);
        }
        record
    }

    #[test]
    fn the_first_server_too_many_is_named_for_each_number_of_clients() {
        let found = explained(&record(&[
            (20, 2, 50_000.0),
            (20, 3, 70_000.0),
            (20, 4, 80_000.0),
            (20, 5, 76_000.0),
            (40, 2, 60_000.0),
            (40, 3, 61_000.0),
        ]));
        let points: Vec<_> = found
            .iter()
            .map(|one| (one.evidence["clients"].as_u64(), one.evidence["servers"].as_u64()))
            .collect();
        assert_eq!(points, [(Some(20), Some(4)), (Some(40), Some(2))]);
        assert!(
            found[0]
                .says
                .contains("with 5 the throughput is 5 % lower (80 000 to 76 000 op/s)"),
            "{}",
            found[0].says
        );
    }

    #[test]
    fn rounds_that_differ_more_than_servers_name_no_point() {
        let mut record = record(&[(20, 2, 50_000.0), (20, 3, 40_000.0)]);
        for row in &mut record.strategies {
            let mut interval = row.timed.known().unwrap().ops_per_s;
            (interval.low, interval.high) = (10_000.0, 90_000.0);
            let rounds = row.timed.known().unwrap().rounds.clone();
            set_rounds(row, rounds, interval.median);
            if let crate::units::Measured::Known(timed) = &mut row.timed {
                timed.ops_per_s = interval;
            }
        }
        let found = explained(&record);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].says.contains("no point of diminishing returns"),
            "{}",
            found[0].says
        );
    }

    #[test]
    fn growth_and_single_numbers_are_silent() {
        assert_eq!(
            codes(&record(&[(20, 2, 50_000.0), (20, 3, 70_000.0)])),
            [] as [&str; 0]
        );
        assert_eq!(
            codes(&record(&[(20, 2, 50_000.0), (40, 3, 10_000.0)])),
            [] as [&str; 0]
        );
    }
}
