//! Tables of rows that differ in the number of servers: throughput by servers and clients, and how evenly
//! the keys lay on them.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::stats::{self, Enough};
use crate::record::{Interval, StrategyResult};
use crate::render::model::{Cell, Column, Group, Notes, Table};
use crate::render::noise;
use crate::render::number::Style;
use crate::render::shown;
use crate::units::total;

/// What belongs together in one line of the throughput table.
type Line = (String, u32, u32, u64);

fn line(row: &StrategyResult) -> Line {
    let axes = &row.axes;
    (row.name.clone(), axes.clients, axes.pipeline, axes.payload_bytes)
}

/// The rows that were run over several numbers of servers: a cluster beside a single server is no series.
fn series(rows: &[StrategyResult]) -> Vec<&StrategyResult> {
    let several = |row: &&StrategyResult| {
        rows.iter().any(|other| {
            other.name == row.name
                && other.axes.servers != row.axes.servers
                && other.speed().known().is_some()
        })
    };
    rows.iter().filter(several).collect()
}

/// Whether there are tables of them.
pub(super) fn are_in(rows: &[StrategyResult]) -> bool {
    !series(rows).is_empty()
}

/// Throughput by servers and clients, and the balance; none unless the number of servers varies.
pub(super) fn tables(rows: &[StrategyResult], notes: &mut Notes) -> Vec<Table> {
    let rows = series(rows);
    let numbers: BTreeSet<u32> = rows.iter().map(|row| row.axes.servers).collect();
    if numbers.len() < 2 {
        return Vec::new();
    }
    let rows = rows.as_slice();
    [Some(throughput(rows, &numbers, notes)), balance(rows)]
        .into_iter()
        .flatten()
        .collect()
}

fn throughput(rows: &[&StrategyResult], numbers: &BTreeSet<u32>, notes: &mut Notes) -> Table {
    let mut columns = vec![
        Column::text("op/s by servers", Group::Key),
        Column::number("clients", "", Group::Published),
    ];
    columns.extend(numbers.iter().map(|n| {
        Column::number(
            &n.to_string(),
            if *n == 1 { "server" } else { "servers" },
            Group::Published,
        )
    }));
    columns.push(Column::number("enough", "servers", Group::Published));
    let mut lines: Vec<Line> = Vec::new();
    let mut cells: BTreeMap<(Line, u32), (Interval, Option<usize>)> = BTreeMap::new();
    for row in rows {
        let line = line(row);
        if let Some(timed) = row.speed().known() {
            let note = noise::of_row(row).map(|why| notes.number(why));
            cells.insert((line.clone(), row.axes.servers), (timed.ops_per_s, note));
        }
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let rows = lines.into_iter().map(|line| {
        let mut row = vec![
            Cell::Text(shown(&line.0)),
            Cell::number(f64::from(line.1), Style::Whole),
        ];
        row.extend(numbers.iter().map(|n| match cells.get(&(line.clone(), *n)) {
            Some((rate, note)) => Cell::number(rate.median, Style::Rate).noted(*note),
            None => Cell::Missing(None),
        }));
        let rates: Vec<(u32, Interval)> = numbers
            .iter()
            .filter_map(|n| Some((*n, *cells.get(&(line.clone(), *n))?)))
            // A claim that nobody confirms decides nothing.
            .filter_map(|(n, (rate, note))| note.is_none().then_some((n, rate)))
            .collect();
        row.push(match stats::enough(&rates) {
            Enough::Point(point) => Cell::number(f64::from(point), Style::Whole),
            Enough::More => Cell::Text("more".to_owned()),
            Enough::Unclear => Cell::Text("unclear".to_owned()),
        });
        row
    });
    Table {
        title: "Throughput by servers and clients".to_owned(),
        rows: rows.collect(),
        columns,
        ..Table::default()
    }
}

/// The share of each server, by what the servers counted over all rounds.
fn balance(rows: &[&StrategyResult]) -> Option<Table> {
    let mut lines = Vec::new();
    for row in rows {
        let Some(view) = row.server_view.known().filter(|view| view.nodes.len() > 1) else {
            continue;
        };
        let served: Vec<u64> = view
            .nodes
            .values()
            .map(|node| total(node.commands.values().copied()))
            .collect();
        let all = total(served.iter().copied());
        let (Some(least), Some(most)) = (served.iter().min(), served.iter().max()) else {
            continue;
        };
        if all == 0 {
            continue;
        }
        let share = |n: u64| Cell::number(n as f64 / all as f64, Style::Percent);
        let each: Vec<String> = served
            .iter()
            .map(|n| format!("{:.1}", *n as f64 / all as f64 * 100.0))
            .collect();
        lines.push(vec![
            Cell::Text(shown(&row.name)),
            Cell::number(f64::from(row.axes.clients), Style::Whole),
            Cell::number(served.len() as f64, Style::Whole),
            Cell::number(1.0 / served.len() as f64, Style::Percent),
            share(*least),
            share(*most),
            Cell::Text(each.join(" ")),
        ]);
    }
    if lines.is_empty() {
        return None;
    }
    Some(Table {
        title: "Balance: commands by server, as the servers counted them".to_owned(),
        columns: vec![
            Column::text("strategy", Group::Key),
            Column::number("clients", "", Group::Published),
            Column::number("servers", "", Group::Published),
            Column::number("even", "share", Group::Published),
            Column::number("least", "share", Group::Published),
            Column::number("most", "share", Group::Published),
            Column::text("each server, %", Group::Published),
        ],
        rows: lines,
        ..Table::default()
    })
}
