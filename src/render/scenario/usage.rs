//! CPU time and context switches of both sides, per timed round.

use crate::record::label::label;
use crate::record::{Spent, StrategyResult};
use crate::render::model::{Cell, Column, Group, Table};
use crate::render::number::Style;
use crate::render::shown;

/// The table; none when nobody asked for it.
pub(super) fn table(rows: &[StrategyResult]) -> Option<Table> {
    let mut lines = Vec::new();
    for row in rows {
        let Some(usage) = row.experiment.usage.filter(|usage| usage.rounds > 0) else {
            continue;
        };
        let rounds = usage.rounds as f64;
        let name = label(row, rows);
        let printed = row
            .experiment
            .published
            .iter()
            .find(|figure| figure.user_s.is_some());
        let mut line = vec![Cell::Text(shown(&name))];
        line.extend(cells(Some(usage.client), rounds));
        line.extend(cells(usage.server, rounds));
        for value in [printed.and_then(|f| f.user_s), printed.and_then(|f| f.system_s)] {
            line.push(match value {
                Some(seconds) => Cell::number(seconds, Style::Rate),
                None => Cell::Missing(None),
            });
        }
        lines.push(line);
    }
    if lines.is_empty() {
        return None;
    }
    let number = |title, unit| Column::number(title, unit, Group::Published);
    let mut columns = vec![
        Column::text("strategy", Group::Key),
        number("client", "user s"),
        number("client", "system s"),
        number("client", "switches"),
        number("server", "user s"),
        number("server", "system s"),
        number("server", "switches"),
        number("published", "user s"),
        number("published", "system s"),
    ];
    // Columns that no row fills say nothing.
    if lines
        .iter()
        .all(|line| line[7..].iter().all(|cell| *cell == Cell::Missing(None)))
    {
        columns.truncate(7);
        lines.iter_mut().for_each(|line| line.truncate(7));
    }
    Some(Table {
        title: "CPU time and context switches of a timed round, client processes and server".to_owned(),
        columns,
        rows: lines,
        ..Table::default()
    })
}

fn cells(spent: Option<Spent>, rounds: f64) -> [Cell; 3] {
    let Some(spent) = spent else {
        return [Cell::Missing(None), Cell::Missing(None), Cell::Missing(None)];
    };
    let switches = spent.voluntary.saturating_add(spent.involuntary);
    [
        Cell::number(spent.user_ns as f64 / 1e9 / rounds, Style::Rate),
        Cell::number(spent.system_ns as f64 / 1e9 / rounds, Style::Rate),
        Cell::number((switches as f64 / rounds).round(), Style::Whole),
    ]
}
