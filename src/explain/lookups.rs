//! NAME_LOOKUPS and FILES_PER_CONNECTION in a counted pass: what happens before each connect.

use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Row, is_resolver, round2};
use crate::record::{CallCounts, Kind, Record};
use crate::units::{Grouped, total};

pub(super) struct Lookups;

const DOCS: &[Doc] = &[Doc {
    code: "FILES_PER_CONNECTION",
    means: "The client opens files for every connection it makes: the resolver's configuration (resolv.conf, hosts, \
            nsswitch.conf), certificates, or its own settings.",
    measured: "open and openat calls per connection in the counted window. Counts have no paths, so which files it is cannot \
               be told from them.",
    wrong_when: "The program opens files for another reason as often as it connects.",
    todo: "strace -f -e trace=openat names the files; keep the connection, or connect to an address in place of a name.",
}];

const SENDS: &[&str] = &["sendto", "sendmmsg", "sendmsg", "write"];
const OPENS: &[&str] = &["open", "openat", "openat2"];

impl Rule for Lookups {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

/// Calls to a name server, or to anything else.
fn to(row: &Row<'_>, calls: &[&str], resolver: bool) -> u64 {
    let of = |call: &CallCounts| {
        let peers = call.peers.iter();
        let wanted = peers.filter(|(name, _)| is_resolver(name) == resolver);
        total(wanted.map(|(_, n)| *n))
    };
    total(row.loop_counts(calls).map(of))
}

fn check(row: &Row<'_>) -> Option<Finding> {
    let connects = to(row, &["connect"], false);
    let queries = to(row, SENDS, true);
    let opens = row.loop_calls(OPENS);
    if queries >= 2 && queries >= connects {
        return Some(
            Finding::about(row, "NAME_LOOKUPS", Severity::Warning)
                .with("queries", queries)
                .with("connections", connects)
                .with("files_opened", opens)
                .says(format!(
                    "{} queries to port 53 for {} connections: the name is resolved for each of them; this time comes before \
                     connect() and no connect time-out covers it",
                    Grouped(queries),
                    Grouped(connects)
                ))
                .try_next(
                    "an address in place of the name, a name that ends with a dot, a local cache, or a connection that is kept",
                ),
        );
    }
    // The window of a counted program holds its start-up, which opens files too.
    let (least, rate) = match row.record.kind {
        Kind::Count => (20, 2.0),
        Kind::Bench | Kind::Import | Kind::Preflight => (2, 0.9),
    };
    let each = opens as f64 / connects.max(1) as f64;
    if connects < least || each < rate {
        return None;
    }
    Some(
        Finding::about(row, "FILES_PER_CONNECTION", Severity::Info)
            .with("files_opened", opens)
            .with("connections", connects)
            .with("files_per_connection", round2(each))
            .says(format!(
                "{each:.1} files are opened for each connection: the resolver's configuration is the usual reason; counts do not \
                 tell which files"
            ))
            .try_next("strace -f -e trace=openat names them; an address in place of a name, or a connection that is kept"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, row, set_call, set_peers};

    fn with(connects: u64, queries: u64, opens: u64) -> Record {
        let mut record = empty();
        let mut strategy = row("phpredis/connect/tcp");
        set_call(&mut strategy, "connect", connects + queries, &[]);
        set_peers(
            &mut strategy,
            "connect",
            &[("10.0.0.9:6379", connects), ("10.0.0.2:53", queries)],
        );
        set_peers(
            &mut strategy,
            "sendto",
            &[("10.0.0.9:6379", 1000), ("10.0.0.2:53", queries)],
        );
        set_call(&mut strategy, "openat", opens, &[]);
        record.strategies.push(strategy);
        record
    }

    #[test]
    fn names_and_files_for_every_connection() {
        assert_eq!(codes(&with(1000, 2000, 2000)), ["NAME_LOOKUPS"]);
        assert_eq!(codes(&with(1000, 0, 2000)), ["FILES_PER_CONNECTION"]);
    }

    #[test]
    fn one_lookup_at_the_start_and_an_address_are_fine() {
        assert_eq!(codes(&with(1000, 2, 3)), [] as [&str; 0]);
        assert_eq!(codes(&with(1000, 0, 0)), [] as [&str; 0]);
        assert_eq!(codes(&with(1, 0, 40)), [] as [&str; 0]);
    }
}
