//! Calls by what their descriptor leads to: a table of them, and a count of some of them only.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::model::{Cell, Column, Group, Notes, Table};
use super::number::Style;
use super::shown;
use crate::record::{CallCounts, PhaseCounts, Record};
use crate::units::{Measured, Ops, total};

/// Whether a peer is the other end of a connection that the program made: a TCP or UDP address, or the path
/// of a UNIX socket. Pipes, files and the clients of a server are not.
pub fn is_connection(peer: &str) -> bool {
    peer.starts_with("unix:") || peer.parse::<SocketAddr>().is_ok()
}

/// The record with only the calls on these peers. What is not kept apart by peer (errors, times, bytes) is
/// not measured, unless all calls of that name are on them.
pub fn on_peers(record: &Record, wanted: &dyn Fn(&str) -> bool) -> Record {
    let mut record = record.clone();
    for row in &mut record.strategies {
        let Measured::Known(counted) = &mut row.counted else {
            continue;
        };
        let phases = &mut counted.phases;
        for phase in [&mut phases.startup, &mut phases.run_loop, &mut phases.shutdown] {
            for call in phase.syscalls.values_mut() {
                reduce(call, wanted);
            }
            phase.syscalls.retain(|_, call| call.calls > 0);
        }
    }
    record
}

fn reduce(call: &mut CallCounts, wanted: &dyn Fn(&str) -> bool) {
    call.peers.retain(|peer, _| wanted(peer));
    let on_them = total(call.peers.values().copied());
    if on_them == call.calls && call.unfinished == 0 {
        return;
    }
    fn apart<T>() -> Measured<T> {
        Measured::NotMeasured("errors, times and bytes are not kept apart by peer".to_owned())
    }
    call.calls = on_them;
    call.unfinished = 0;
    call.errors = apart();
    call.restarts = BTreeMap::new();
    call.wall = apart();
    call.cpu = apart();
    call.bytes = apart();
    call.peeks = apart();
}

/// The table of a phase: a row for each call and peer, most calls first. `None` when no call has a peer.
pub(super) fn table(phase: &PhaseCounts, ops: Option<Ops>, notes: &mut Notes) -> Option<Table> {
    let mut rows: Vec<(&str, &str, u64)> = phase
        .syscalls
        .iter()
        .flat_map(|(call, counts)| {
            let peers = counts.peers.iter();
            peers.map(move |(peer, n)| (call.as_str(), peer.as_str(), *n))
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    rows.sort_by(|a, b| b.2.cmp(&a.2).then(a.cmp(b)));
    let mut columns = vec![Column::number("calls", "", Group::Summary)];
    if ops.is_some() {
        columns.push(Column::number("per op", "", Group::Summary));
    }
    columns.push(Column::text("syscall", Group::Key));
    columns.push(Column::text("peer", Group::Errors));
    let rows = rows.into_iter().map(|(call, peer, n)| {
        let mut cells = vec![Cell::number(n as f64, Style::Whole)];
        if let Some(ops) = ops {
            let rate =
                Measured::from_option(ops.per_op(n), "nobody knows how many operations were completed");
            cells.push(notes.cell(&rate, |rate| Cell::number(*rate, Style::PerOp)));
        }
        cells.push(Cell::Name {
            name: shown(call),
            ended: None,
        });
        cells.push(Cell::Text(shown(peer)));
        cells
    });
    Some(Table {
        title: String::new(),
        rows: rows.collect(),
        columns,
        has_total: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    fn call(calls: u64, peers: &[(&str, u64)]) -> CallCounts {
        CallCounts {
            calls,
            unfinished: 0,
            errors: Measured::Known([("EAGAIN".to_owned(), 1)].into()),
            restarts: BTreeMap::new(),
            wall: Measured::Known(Nanos(10)),
            cpu: Measured::Known(Nanos(1)),
            bytes: Measured::Known(7),
            peeks: Measured::Known(0),
            peers: peers.iter().map(|(peer, n)| ((*peer).to_owned(), *n)).collect(),
        }
    }

    #[test]
    fn connections_are_addresses() {
        for peer in ["127.0.0.1:6379", "[::1]:6379", "unix:/run/r.sock", "unix:@bus"] {
            assert!(is_connection(peer), "{peer}");
        }
        for peer in [
            "pipe",
            "file",
            "socket",
            "socketpair",
            "clients of 127.0.0.1:1",
            "epoll",
            "netlink",
        ] {
            assert!(!is_connection(peer), "{peer}");
        }
    }

    #[test]
    fn what_is_not_kept_apart_is_not_measured() {
        let server = |peer: &str| peer == "127.0.0.1:6379";
        let mut whole = call(5, &[("127.0.0.1:6379", 5)]);
        reduce(&mut whole, &server);
        assert_eq!(whole, call(5, &[("127.0.0.1:6379", 5)]));
        let mut part = call(5, &[("127.0.0.1:6379", 3), ("pipe", 2)]);
        reduce(&mut part, &server);
        assert_eq!((part.calls, part.peers.len()), (3, 1));
        assert!(
            part.errors.reason().is_some() && part.wall.reason().is_some() && part.bytes.reason().is_some()
        );
        let mut none = call(5, &[("pipe", 5)]);
        reduce(&mut none, &server);
        assert_eq!(none.calls, 0);
    }

    #[test]
    fn the_table_has_a_row_for_each_call_and_peer() {
        let phase = PhaseCounts {
            syscalls: [
                ("read".to_owned(), call(4, &[("pipe", 1), ("127.0.0.1:6379", 3)])),
                ("getpid".to_owned(), call(4, &[])),
            ]
            .into(),
            talk: None,
        };
        let mut notes = Notes::default();
        let table = table(&phase, Some(Ops(2)), &mut notes).unwrap();
        let lines: Vec<String> = table
            .rows
            .iter()
            .map(|row| row.iter().map(Cell::line).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines, ["3 1.50 read 127.0.0.1:6379", "1 0.50 read pipe"]);
        assert!(super::table(&PhaseCounts::default(), None, &mut notes).is_none());
    }
}
