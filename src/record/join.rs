//! Several runs as one record: the blocks of a scenario.

use super::{Counters, LimitReading, Peak, Record, Sampled, ServerInfo};
use crate::units::Nanos;

/// Joins the records of runs that followed each other on one machine. Rows stand one after the other; of
/// each limit the reading that fits worst is kept; counters of the machine go from before the first to
/// after the last, those of servers are what each grew by. Findings are left to whoever joins.
///
/// `None` without any record.
pub fn join(records: Vec<Record>) -> Option<Record> {
    let mut records = records.into_iter();
    let mut all = records.next()?;
    let mut counters = grown(&all.counters);
    for one in records {
        let more = grown(&one.counters);
        for (name, after) in more.after {
            if is_of_a_server(&name) {
                let sum = counters.after.entry(name.clone()).or_default();
                *sum = sum.saturating_add(after);
                counters.before.entry(name).or_default();
            } else {
                counters.after.insert(name, after);
            }
        }
        all.complete &= one.complete;
        let rows_before = all.strategies.len();
        all.sampled = sampled(all.sampled, one.sampled, rows_before);
        all.strategies.extend(one.strategies);
        all.server = all.server.or(one.server);
        for server in one.more_servers {
            let known = |other: &ServerInfo| (&other.place, &other.kind) == (&server.place, &server.kind);
            if !all.more_servers.iter().any(known) {
                all.more_servers.push(server);
            }
        }
        worst(&mut all.limits, one.limits);
    }
    all.counters = counters;
    all.findings = Vec::new();
    Some(all)
}

fn is_of_a_server(name: &str) -> bool {
    // `redis.…`, `memcached.…`, and `shards.redis.…` where several serve together.
    name.split('.').any(|part| part == "redis" || part == "memcached")
}

/// The counters with those of servers from zero on, since each run may have had a server of its own.
fn grown(counters: &Counters) -> Counters {
    let mut grown = counters.clone();
    for (name, before) in &counters.before {
        if is_of_a_server(name) {
            grown.before.insert(name.clone(), 0);
            if let Some(after) = grown.after.get_mut(name) {
                *after = after.saturating_sub(*before);
            }
        }
    }
    grown
}

/// The readings of both; the rows of the second stand behind so many others.
fn sampled(first: Option<Sampled>, second: Option<Sampled>, rows_before: usize) -> Option<Sampled> {
    let (mut all, second) = match (first, second) {
        (Some(first), Some(second)) => (first, second),
        (None, Some(second)) => (Sampled::default(), second),
        (first, None) => return first,
    };
    let before = all.seconds;
    all.samples = all.samples.saturating_add(second.samples);
    all.seconds += second.seconds;
    all.cpu_ns = Nanos(all.cpu_ns.0.saturating_add(second.cpu_ns.0));
    for mut peak in second.peaks {
        peak.row = peak.row.map(|row| row.saturating_add(rows_before as u64));
        peak.at_s += before;
        // Readings between rows belong to none of them: the larger one stands for both.
        let same = |known: &&mut Peak| peak.row.is_none() && known.row.is_none() && known.name == peak.name;
        match all.peaks.iter_mut().find(same) {
            Some(known) if known.peak >= peak.peak => {}
            Some(known) => *known = peak,
            None => all.peaks.push(peak),
        }
    }
    Some(all)
}

fn worst(kept: &mut Vec<LimitReading>, others: Vec<LimitReading>) {
    for reading in others {
        let weight = |one: &LimitReading| (one.verdict, one.demand.known().copied());
        match kept.iter_mut().find(|known| known.id == reading.id) {
            Some(known) if weight(known) < weight(&reading) => *known = reading,
            Some(_) => {}
            None => kept.push(reading),
        }
    }
}
