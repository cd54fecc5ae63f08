//! The limits of a machine as a table: what a load needs, what there is, and where that was read.

use super::model::{Cell, Column, Group, Notes, Table};
use super::number::Style;
use super::prose::amount;
use super::shown;
use crate::record::{LimitReading, Record};

pub(super) fn tables(record: &Record, notes: &mut Notes) -> (Vec<Table>, Vec<String>) {
    let columns = vec![
        Column::text("limit", Group::Key),
        Column::text("verdict", Group::Summary),
        Column::number("needs", "", Group::Summary),
        Column::number("has", "", Group::Summary),
        Column::number("used", "", Group::Summary),
        Column::text("read from", Group::Summary),
    ];
    let rows = record.limits.iter().map(|limit| row(limit, notes)).collect();
    let table = Table {
        columns,
        rows,
        ..Table::default()
    };
    (vec![table], Vec::new())
}

fn row(limit: &LimitReading, notes: &mut Notes) -> Vec<Cell> {
    let used = match (limit.demand.known(), limit.capacity.known()) {
        (Some(demand), Some(capacity)) if *capacity > 0 => {
            Cell::number(*demand as f64 / *capacity as f64, Style::Percent)
        }
        _ => Cell::Missing(None),
    };
    vec![
        Cell::Name {
            name: shown(&limit.id),
            ended: None,
        },
        Cell::Text(limit.verdict.name().replace('_', " ")),
        notes.cell(&limit.demand, |demand| Cell::number(*demand as f64, Style::Whole)),
        notes.cell(&limit.capacity, |capacity| Cell::Text(amount(*capacity))),
        used,
        Cell::Text(shown(&limit.source)),
    ]
}
