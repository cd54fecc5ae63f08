//! Several runs as one record: the blocks of a scenario.

use super::{Counters, LimitReading, Record, ServerInfo};

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
