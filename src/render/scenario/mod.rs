//! What a scenario adds to the table of a bench: counters that a script read too early, and what the
//! article it repeats had printed.

mod shards;
mod usage;

use std::collections::BTreeSet;

use super::bench::{Source, missing};
use super::model::{Align, Cell, Column, Group, Notes, Table};
use super::number::Style;
use super::{noise, shown};
use crate::plan::scenario::published;
use crate::record::label::label;
use crate::record::{PublishedFigure, Record, StrategyResult, stats};

/// The columns that stand behind what was timed; none in a plain bench.
pub(super) fn sources<'a>(rows: &[StrategyResult]) -> Vec<Source<'a>> {
    let any = |has: fn(&StrategyResult) -> bool| rows.iter().any(has);
    let mut sources = Vec::new();
    let printed_counter =
        |row: &StrategyResult| printed(row, |figure| figure.counter.map(|n| n as f64)).is_some();
    if any(|row| !row.experiment.counters.is_empty()) {
        sources.extend(counters());
    } else if rows.iter().any(printed_counter) {
        // Without the script there is no early reading.
        let mut counters = counters();
        counters.drain(1..=2);
        sources.extend(counters);
    }
    if any(|row| printed(row, |figure| figure.ops_per_s).is_some()) {
        sources.push(Source::new(
            Column::number("op/s", "published", Group::Published),
            |row, notes| as_printed(row, notes, |figure| figure.ops_per_s, Style::Rate),
        ));
        sources.push(Source::new(
            Column::number("today", "×published", Group::Published),
            |row, notes| {
                let today = row.speed().known().map(|timed| timed.ops_per_s.median);
                let note = noise::of_row(row).map(|why| notes.number(why));
                match (today, printed(row, |figure| figure.ops_per_s)) {
                    (Some(today), Some(then)) if then > 0.0 => {
                        Cell::number(today / then, Style::Factor).noted(note)
                    }
                    _ => Cell::Missing(None),
                }
            },
        ));
    }
    if any(|row| printed(row, |figure| figure.seconds).is_some()) {
        sources.push(Source::new(
            Column::number("seconds", "today", Group::Published),
            |row, notes| match seconds(row) {
                Some(seconds) => {
                    let note = noise::of_row(row).map(|why| notes.number(why));
                    Cell::number(seconds, Style::Rate).noted(note)
                }
                None => Cell::Missing(None),
            },
        ));
        sources.push(Source::new(
            Column::number("seconds", "published", Group::Published),
            |row, notes| as_printed(row, notes, |figure| figure.seconds, Style::Rate),
        ));
    }
    if any(|row| printed(row, |figure| figure.counter.map(|n| n as f64)).is_some()) {
        sources.push(Source::new(
            Column::number("counter", "published", Group::Published),
            |row, notes| {
                as_printed(
                    row,
                    notes,
                    |figure| figure.counter.map(|n| n as f64),
                    Style::Whole,
                )
            },
        ));
    }
    sources
}

/// The two readings of the counter, and what it should have been.
fn counters<'a>() -> Vec<Source<'a>> {
    let number = |n: Option<u64>| match n {
        Some(n) => Cell::number(n as f64, Style::Whole),
        None => Cell::Missing(None),
    };
    vec![
        Source::new(
            Column::number("increments", "asked", Group::Published),
            move |row, _| number(asked(row)),
        ),
        Source::new(
            Column::number("counter", "early", Group::Published),
            move |row, _| number(row.experiment.counters.last().map(|read| read.early)),
        ),
        Source::new(
            Column::number("still", "running", Group::Published),
            move |row, _| number(row.experiment.counters.last().map(|read| read.running)),
        ),
        Source::new(
            Column::number("counter", "all ended", Group::Published),
            move |row, _| number(ended(row)),
        ),
    ]
}

/// Operations asked for in the last round.
fn asked(row: &StrategyResult) -> Option<u64> {
    let own = row.experiment.counters.last().map(|read| read.expected);
    own.or_else(|| Some(row.timed.known()?.rounds.last()?.asked.0))
}

/// What the counter had grown by when all clients had ended: as the script read it, else as the server
/// counted its commands in the last round.
fn ended(row: &StrategyResult) -> Option<u64> {
    let own = row.experiment.counters.last().map(|read| read.ended);
    own.or_else(|| {
        let round = row.timed.known()?.rounds.last()?;
        Some(round.server.known()?.served(&[row.axes.op.as_str()]))
    })
}

/// Wall time of a round: the median; none where the row failed.
fn seconds(row: &StrategyResult) -> Option<f64> {
    let rounds = &row.speed().known()?.rounds;
    let seconds: Vec<f64> = rounds.iter().map(|round| round.elapsed.as_secs_f64()).collect();
    stats::median(&seconds)
}

/// The median of what the article printed.
fn printed(row: &StrategyResult, pick: impl Fn(&PublishedFigure) -> Option<f64>) -> Option<f64> {
    let all: Vec<f64> = row.experiment.published.iter().filter_map(pick).collect();
    stats::median(&all)
}

fn as_printed(
    row: &StrategyResult,
    notes: &mut Notes,
    pick: impl Fn(&PublishedFigure) -> Option<f64>,
    style: Style,
) -> Cell {
    if let Some(value) = printed(row, pick) {
        return Cell::number(value, style);
    }
    let error = row
        .experiment
        .published
        .iter()
        .find_map(|figure| figure.error.as_ref());
    match error {
        Some(error) => missing(row, &format!("published as an error: {}", shown(error)), notes),
        None => Cell::Missing(None),
    }
}

/// The tables beside the one of all rows.
pub(super) fn tables(rows: &[StrategyResult], notes: &mut Notes) -> Vec<Table> {
    let mut tables = shards::tables(rows, notes);
    tables.extend(usage::table(rows));
    tables.extend(calls(rows));
    tables
}

/// System calls per operation as an article printed them, beside today's; none without such figures.
fn calls(rows: &[StrategyResult]) -> Option<Table> {
    let of = |row: &StrategyResult| -> Option<PublishedFigure> {
        let figures = row.experiment.published.iter();
        figures
            .clone()
            .find(|figure| !figure.calls_per_op.is_empty())
            .cloned()
    };
    let with: Vec<(&StrategyResult, PublishedFigure)> =
        rows.iter().filter_map(|row| Some((row, of(row)?))).collect();
    if with.is_empty() {
        return None;
    }
    let mut table = Table {
        title: "System calls per operation, published beside today's".to_owned(),
        columns: vec![
            Column::text("system call", Group::Key),
            Column {
                align: Align::Left,
                ..Column::text("strategy", Group::Published)
            },
            Column::number("published", "/op", Group::Published),
            Column::number("today", "/op", Group::Published),
        ],
        ..Table::default()
    };
    for (row, figure) in with {
        let counted = row.counted.known();
        let today = |name: &str| {
            let counted = counted?;
            let calls = counted
                .phases
                .run_loop
                .syscalls
                .get(name)
                .map_or(0, |call| call.calls);
            counted.ops?.per_op(calls)
        };
        let mut names: BTreeSet<String> = figure.calls_per_op.keys().cloned().collect();
        names.extend(counted.iter().flat_map(|counted| {
            let calls = counted.phases.run_loop.syscalls.keys();
            calls
                .filter(|name| today(name).is_some_and(|rate| rate >= 0.01))
                .cloned()
        }));
        for name in names {
            table.rows.push(vec![
                Cell::Text(shown(&name)),
                Cell::Text(format!(
                    "{} ({})",
                    shown(&label(row, rows)),
                    shown(&figure.strategy)
                )),
                Cell::number(
                    figure.calls_per_op.get(&name).copied().unwrap_or(0.0),
                    Style::PerOp,
                ),
                match today(&name) {
                    Some(rate) => Cell::number(rate, Style::PerOp),
                    None => Cell::Missing(None),
                },
            ]);
        }
    }
    Some(table)
}

/// How to read the columns.
pub(super) fn remarks(record: &Record) -> Vec<String> {
    let rows = &record.strategies;
    let mut remarks = Vec::new();
    if rows.iter().any(|row| !row.experiment.counters.is_empty()) {
        remarks.push(
            "counter early is what the article's script reads: after its first child has ended, and a pause; all ended \
             is read when every client has ended (where no script counts: what the server counted in the round)."
                .to_owned(),
        );
    }
    if shards::are_in(rows) {
        remarks.push(
            "enough servers is the point of diminishing returns: the first number of servers after which the next \
             larger one adds less than 5 % (more: each step was worth it; unclear: the rounds differ by more than that); an even share is 100 % over the servers."
                .to_owned(),
        );
    }
    let mut articles: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| &row.experiment.published)
        .map(|figure| figure.article.as_str())
        .collect();
    let settings = &record.plan.settings;
    articles.extend(settings.get("published").map(String::as_str));
    if articles.is_empty() {
        return remarks;
    }
    let names: Vec<String> = articles.iter().map(|id| shown(id)).collect();
    let mut text = format!(
        "published: {}, another machine and other versions; the median where an article printed several figures.",
        names.join(", ")
    );
    let figures = rows
        .iter()
        .any(|row| printed(row, |figure| figure.seconds).is_some());
    if let Some(scale) = settings.get("scale").filter(|scale| figures && *scale != "1") {
        text.push_str(&format!(
            " Its seconds, counters and CPU times are of the whole work and today's of {} times as much (--scale): those do \
             not compare, rates do.",
            shown(scale)
        ));
    }
    remarks.push(text);
    for id in articles {
        let told = published::what_really_happened(id);
        remarks.extend(
            told.into_iter()
                .map(|text| format!("What {} did not see: {text}", shown(id))),
        );
    }
    remarks
}
