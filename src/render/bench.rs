//! The table of a bench: a row for each strategy, what it reached untraced beside what it asked of the
//! kernel for each completed operation.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Cell, Column, Group, Notes, Table};
use super::number::Style;
use super::{View, count_peers, failures, moving, noise, scenario, shown};
use crate::explain::{Split, splits};
use crate::record::label::label;
use crate::record::{Counted, Record, Status, StrategyResult, Timed};
use crate::units::Measured;

/// The calls that every client of a server is compared by: they have a column even where nobody makes them.
const ALWAYS: [&str; 4] = ["sendto", "recvfrom", "poll", "setsockopt"];

/// Other calls have a column when some row makes more of them than this per operation.
const MATTERS_PER_OP: f64 = 0.05;

/// Why user and kernel time are not told apart.
const TOO_SHORT: &str =
    "the rounds were too short to tell user from kernel time, which is counted in ticks of 10 ms";

/// A column and what fills it.
pub(super) struct Source<'a> {
    column: Column,
    fill: Fill<'a>,
}

/// What makes the cell of a row.
type Fill<'a> = Box<dyn Fn(&StrategyResult, &mut Notes) -> Cell + 'a>;

impl<'a> Source<'a> {
    pub(super) fn new(column: Column, fill: impl Fn(&StrategyResult, &mut Notes) -> Cell + 'a) -> Source<'a> {
        Source {
            column,
            fill: Box::new(fill),
        }
    }

    /// A column of what was timed, with a mark where `doubt` has something to say of a row's value.
    fn timed(
        title: &str,
        unit: &str,
        doubt: fn(&StrategyResult) -> Option<&'static str>,
        fill: impl Fn(&Timed) -> Value + 'a,
    ) -> Source<'a> {
        Source::new(Column::number(title, unit, Group::Speed), move |row, notes| {
            cell(row, &row.speed(), notes, |timed, notes| {
                fill(timed).map(|cell| cell.noted(doubt(row).map(|why| notes.number(why))))
            })
        })
    }

    /// A column of what was counted.
    fn counted(
        title: &str,
        unit: &str,
        group: Group,
        fill: impl Fn(&Counted, &mut Notes) -> Value + 'a,
    ) -> Source<'a> {
        Source::new(Column::number(title, unit, group), move |row, notes| {
            cell(row, &row.counted, notes, &fill)
        })
    }
}

/// A cell's value or the reason why there is none.
type Value = Measured<Cell>;

/// The cell of a row for something that is known only when `whole` is.
fn cell<T>(
    row: &StrategyResult,
    whole: &Measured<T>,
    notes: &mut Notes,
    fill: impl Fn(&T, &mut Notes) -> Value,
) -> Cell {
    let value = match whole {
        Measured::Known(known) => fill(known, notes),
        Measured::NotMeasured(reason) => Measured::NotMeasured(reason.clone()),
    };
    match value {
        Measured::Known(cell) => cell,
        Measured::NotMeasured(reason) => missing(row, &reason, notes),
    }
}

/// A dash. The name of the row says why already when it was skipped, or when the reason is the same.
pub(super) fn missing(row: &StrategyResult, reason: &str, notes: &mut Notes) -> Cell {
    if row.status == Status::Skipped || row.reason.as_deref() == Some(reason) {
        return Cell::Missing(None);
    }
    Cell::Missing(Some(notes.number(reason)))
}

pub(super) fn tables(record: &Record, view: &View, notes: &mut Notes) -> (Vec<Table>, Vec<String>) {
    let rows = &record.strategies;
    if rows.is_empty() {
        return (Vec::new(), vec!["No strategy was run.".to_owned()]);
    }
    let calls = Calls::choose(rows, view.all_syscalls);
    let sources = sources(rows, &calls, view);
    let mut table = Table {
        columns: sources.iter().map(|source| source.column.clone()).collect(),
        ..Table::default()
    };
    for row in rows {
        let cells = sources.iter().map(|source| (source.fill)(row, notes));
        table.rows.push(cells.collect());
    }
    let mut remarks = remarks(rows, &calls, notes);
    remarks.extend(scenario::remarks(record));
    let mut tables: Vec<Table> = [table].into_iter().chain(scenario::tables(rows, notes)).collect();
    if let Some((table, has_rest)) = time(record, notes) {
        let timed = rows
            .iter()
            .filter(|row| row.timed.known().is_some() && !row.is_noop() && row.status == Status::Ok)
            .count();
        let no_result = |row: &StrategyResult| {
            row.timed.known().is_some() && matches!(row.status, Status::Failed | Status::Unverified)
        };
        if rows.iter().any(no_result) {
            remarks
                .push("Time of an operation: rows that failed or are unverified are not there.".to_owned());
        }
        if timed > table.rows.len() {
            remarks.push(format!(
                "Time of an operation: {} of {timed} rows are not there, since too little CPU time could be read in rounds \
                 so short; --duration 1s is long enough.",
                timed - table.rows.len()
            ));
        }
        tables.push(table);
        remarks.push(
            "Time of an operation: user and kernel CPU are told apart by a clock of 10 ms ticks and have only the digits that \
             it gives; CPU, both together, is exact."
                .to_owned(),
        );
        if has_rest {
            remarks.push(
                "Time of an operation: CPU time is read around a round, which is a little longer than the workers' own \
                 time; the rest says by how much the parts miss the whole."
                    .to_owned(),
            );
        }
    }
    if view.peers {
        tables.extend(rows.iter().filter_map(|row| by_peer(row, notes)));
    }
    (tables, remarks)
}

/// What an operation's time is made of, where rounds were long enough to tell, and whether there is a rest.
fn time(record: &Record, notes: &mut Notes) -> Option<(Table, bool)> {
    let splits = splits(record);
    if splits.is_empty() {
        return None;
    }
    // A rest that rounding hides is none.
    let is_whole = |split: &Split| split.rest().abs() < split.wall * 0.005;
    let has_rest = splits.iter().any(|(_, split, _)| !is_whole(split));
    let mut columns = vec![Column::text("strategy", Group::Key)];
    let titles = [
        "time /op",
        "CPU",
        "user CPU",
        "kernel CPU",
        "for server",
        "for else",
    ];
    columns.extend(titles.map(|title| Column::number(title, "µs", Group::Summary)));
    if has_rest {
        columns.push(Column::number("rest", "µs", Group::Summary));
    }
    columns.push(Column::number("server's own", "µs", Group::Summary));
    columns.push(Column::text("most of it", Group::Summary));
    let rows = splits.iter().map(|(row, split, bound)| {
        let micros = |part: f64| Cell::number(part, Style::Micros);
        let mut cells = vec![name(row, &record.strategies, notes), micros(split.wall)];
        cells.push(micros(split.cpu()));
        cells.extend([split.user, split.kernel].map(|part| match split.place() {
            Some(place) => Cell::number(part, Style::MicrosBy { place }),
            None => missing(row, TOO_SHORT, notes),
        }));
        cells.extend([split.for_server, split.for_else].map(micros));
        if has_rest {
            cells.push(micros(if is_whole(split) { 0.0 } else { split.rest() }));
        }
        cells.push(match split.server {
            Some(server) => micros(server),
            None => missing(row, "the server does not tell the time of its commands", notes),
        });
        cells.push(Cell::Text(bound.words().to_owned()));
        cells
    });
    let table = Table {
        rows: rows.collect(),
        title: "Time of an operation, untraced: CPU time, and waiting for the server or something else"
            .to_owned(),
        columns,
        ..Table::default()
    };
    Some((table, has_rest))
}

/// The calls of a row's loop by what their descriptor leads to.
fn by_peer(row: &StrategyResult, notes: &mut Notes) -> Option<Table> {
    let counted = row.counted.known()?;
    let table = count_peers::table(&counted.phases.run_loop, counted.ops, notes)?;
    Some(Table {
        title: shown(&format!("{} by peer", row.name)),
        ..table
    })
}

fn sources<'a>(rows: &'a [StrategyResult], calls: &'a Calls, view: &View) -> Vec<Source<'a>> {
    let mut sources = vec![Source::new(Column::text("strategy", Group::Key), |row, notes| {
        name(row, rows, notes)
    })];
    if rows.iter().any(|row| row.timed.known().is_some()) {
        sources.extend(speed(rows));
    }
    sources.extend(scenario::sources(rows));
    if rows.iter().any(|row| row.counted.known().is_some()) {
        sources.extend(work(view));
        for call in &calls.shown {
            let title = shown(call);
            sources.push(Source::new(
                Column::number(&title, "/op", Group::Calls),
                move |row, notes| {
                    cell(row, &row.counted, notes, |counted, notes| {
                        calls_per_op(counted, call).map(|rate| moving::cell(row, call, rate, notes))
                    })
                },
            ));
        }
    }
    if rows.iter().any(failures::any) {
        let all = view.all_syscalls;
        sources.push(Source::new(
            Column::text("errors", Group::Errors),
            move |row, notes| errors(row, all, notes),
        ));
    }
    sources
}

fn speed<'a>(rows: &[StrategyResult]) -> Vec<Source<'a>> {
    let mut sources = Vec::new();
    let batches: BTreeSet<u32> = rows.iter().map(|row| row.axes.pipeline).collect();
    if batches.len() > 1 {
        sources.push(Source::new(
            Column::number("batch", "ops", Group::Speed),
            |row, _| Cell::number(f64::from(row.axes.pipeline), Style::Whole),
        ));
    }
    sources.push(Source::timed("op/s", "median", noise::of_speed, |timed| {
        Measured::Known(Cell::number(timed.ops_per_s.median, Style::Rate))
    }));
    sources.push(Source::timed("±95%", "", noise::of_row, |timed| {
        if timed.rounds.len() < 2 {
            return Measured::NotMeasured("one round alone has no spread".to_owned());
        }
        let error = timed.ops_per_s.relative_error();
        Measured::from_option(error, "the median is zero, so the interval is no share of it")
            .map(|error| Cell::number(error, Style::Percent))
    }));
    sources.push(Source::timed("vs base", "ratio", noise::of_ratio, |timed| {
        timed.vs_baseline.clone().map(Cell::Spread)
    }));
    for (title, pick) in [
        (
            "p50",
            (|l| l.p50) as fn(&crate::record::Latency) -> crate::units::Nanos,
        ),
        ("p99", |l| l.p99),
    ] {
        sources.push(Source::timed(title, "µs", noise::of_row, move |timed| {
            let picked = timed.latency.known().map(pick);
            let reason = timed.latency.reason().unwrap_or_default();
            Measured::from_option(picked, reason).map(|ns| Cell::number(ns.0 as f64, Style::Micros))
        }));
    }
    sources
}

fn work<'a>(view: &View) -> Vec<Source<'a>> {
    let ratio = |title: &str, unit: &str, style, pick: fn(&Counted) -> &Measured<f64>| {
        Source::counted(title, unit, Group::Work, move |counted, _| {
            pick(counted).clone().map(|value| Cell::number(value, style))
        })
    };
    let mut sources = vec![
        Source::new(Column::number("calls", "/op", Group::Work), |row, notes| {
            cell(row, &row.counted, notes, |counted, notes| {
                // Where the ratio to the floor is not known, not all calls were counted.
                match counted.floor_ratio.reason().filter(|_| counted.ops.is_some()) {
                    Some(why) => Measured::NotMeasured(why.to_owned()),
                    None => per_op(counted, counted.phases.run_loop.total())
                        .map(|rate| moving::total(row, rate, notes)),
                }
            })
        }),
        ratio("conns", "/op", Style::PerOp, |c| &c.connects_per_op),
        ratio("trips", "/op", Style::PerOp, |c| &c.round_trips_per_op),
    ];
    if view.all_syscalls {
        sources.push(ratio("sends", "/batch", Style::PerOp, |c| &c.sends_per_batch));
    }
    sources.push(ratio("calls", "×floor", Style::Factor, |c| &c.floor_ratio));
    sources.push(Source::new(
        Column::number("slowdown", "×", Group::Work),
        |row, notes| {
            cell(row, &row.counted, notes, |counted, notes| {
                let note = noise::of_slowdown(row).map(|why| notes.number(why));
                // It compares with the timed rounds.
                let slowdown = match row.speed() {
                    Measured::NotMeasured(why) if row.timed.known().is_some() => Measured::NotMeasured(why),
                    Measured::Known(_) | Measured::NotMeasured(_) => counted.slowdown.clone(),
                };
                slowdown.map(|value| Cell::number(value, Style::Factor).noted(note))
            })
        },
    ));
    sources
}

/// The name of a row. Where several rows share one, the axes that tell them apart stand behind it.
fn name(row: &StrategyResult, rows: &[StrategyResult], notes: &mut Notes) -> Cell {
    let name = shown(&label(row, rows));
    let ended = match row.status {
        Status::Ok => None,
        Status::Failed | Status::Skipped | Status::Unverified => {
            let note = row.reason.as_deref().map(|reason| notes.number(reason));
            Some((row.status, note))
        }
    };
    Cell::Name { name, ended }
}

fn per_op(counted: &Counted, calls: u64) -> Measured<f64> {
    let rate = counted.ops.and_then(|ops| ops.per_op(calls));
    Measured::from_option(rate, "no operation was completed in the counted pass")
}

fn calls_per_op(counted: &Counted, name: &str) -> Measured<f64> {
    match (
        counted.phases.run_loop.syscalls.get(name),
        counted.floor_ratio.reason(),
    ) {
        (Some(counts), _) => per_op(counted, counts.calls),
        // Where not all calls were counted, one that is not there may have been made all the same.
        (None, Some(why)) if counted.ops.is_some() && counted.phases.run_loop.total() > 0 => {
            Measured::NotMeasured(why.to_owned())
        }
        (None, _) => per_op(counted, 0),
    }
}

/// Which calls have a column.
struct Calls {
    shown: Vec<String>,
    /// Those that occur and have none.
    left_out: Vec<String>,
}

impl Calls {
    fn choose(rows: &[StrategyResult], all: bool) -> Calls {
        // The highest rate of any row, by name.
        let mut highest: BTreeMap<&str, f64> = BTreeMap::new();
        for counted in rows.iter().filter_map(|row| row.counted.known()) {
            for (name, counts) in &counted.phases.run_loop.syscalls {
                let rate = counted.ops.and_then(|ops| ops.per_op(counts.calls));
                let known = highest.entry(name).or_default();
                *known = known.max(rate.unwrap_or_default());
            }
        }
        let moved = rows.iter().flat_map(moving::moved);
        for moved in moved.filter(|moved| moved.errno.is_none()) {
            let known = highest.entry(&moved.syscall).or_default();
            *known = known.max(moved.fast.high);
        }
        let mut others: Vec<(&str, f64)> = highest
            .into_iter()
            .filter(|(name, _)| !ALWAYS.contains(name))
            .collect();
        others.sort_by(|(a, rate_a), (b, rate_b)| rate_b.total_cmp(rate_a).then(a.cmp(b)));
        let (shown, left_out): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|(_, rate)| all || *rate > MATTERS_PER_OP);
        let names = |list: Vec<(&str, f64)>| list.into_iter().map(|(name, _)| name.to_owned()).collect();
        let mut left_out: Vec<String> = names(left_out);
        left_out.sort();
        Calls {
            shown: ALWAYS
                .iter()
                .map(|name| (*name).to_owned())
                .chain::<Vec<String>>(names(shown))
                .collect(),
            left_out,
        }
    }
}

fn errors(row: &StrategyResult, all: bool, notes: &mut Notes) -> Cell {
    if failures::any(row) {
        return Cell::Text(failures::in_words(row, all));
    }
    match failures::untold(row) {
        Some(reason) => missing(row, reason, notes),
        None => Cell::Nothing,
    }
}

/// How to read the table, what was left out of it, and why a part of it is not there.
fn remarks(rows: &[StrategyResult], calls: &Calls, notes: &mut Notes) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    let timed: Vec<&Timed> = rows
        .iter()
        .filter_map(|row| row.speed().known().copied())
        .collect();
    let counted: Vec<&Counted> = rows.iter().filter_map(|row| row.counted.known()).collect();
    if let Some(rounds) = timed.iter().map(|timed| timed.rounds.len()).max() {
        let mut line = format!(
            "op/s is the median of {rounds} untraced {}; ±95% reaches to the farther end of its bootstrap \
             interval; vs base is taken round by round.",
            if rounds == 1 { "round" } else { "rounds" },
        );
        if rounds < 3 {
            line.push_str(" With fewer than 3 rounds ±95% is only the spread that was seen.");
        }
        if timed
            .iter()
            .any(|timed| timed.latency.known().is_some_and(|l| l.per_batch))
        {
            line.push_str(" p50 and p99 are per batch where batches were timed.");
        }
        remarks.push(line);
    } else {
        let reasons: Vec<Measured<&Timed>> = rows.iter().map(StrategyResult::speed).collect();
        remarks.extend(absent(
            "No row has a speed",
            reasons.iter().map(Measured::reason),
            notes,
        ));
    }
    if counted.is_empty() {
        remarks.extend(absent(
            "Nothing was counted",
            rows.iter().map(|row| row.counted.reason()),
            notes,
        ));
        return remarks;
    }
    let engines: BTreeSet<String> = counted.iter().map(|counted| shown(&counted.engine)).collect();
    let engines: Vec<String> = engines.into_iter().collect();
    remarks.push(format!(
        "Calls were counted in a pass of their own by {}, in the loop, per completed operation; slowdown is \
         how many times slower the loop ran there. ×floor compares with one send and one receive per batch.",
        engines.join(" and ")
    ));
    remarks.extend(recounted(rows, notes));
    if !calls.left_out.is_empty() {
        remarks.push(shown(&format!(
            "No column (at most {MATTERS_PER_OP} per operation in every row, --all shows them): {}.",
            calls.left_out.join(", ")
        )));
    }
    if !rows.iter().any(failures::any) {
        // An engine that sees no returns cannot say that none failed.
        let mut seen = rows.iter().filter(|row| row.counted.known().is_some());
        remarks.push(if seen.all(|row| failures::untold(row).is_none()) {
            "No call that was counted failed.".to_owned()
        } else {
            "The engine that counted did not see which calls failed.".to_owned()
        });
    }
    remarks
}

/// What the second count says of the first.
fn recounted(rows: &[StrategyResult], notes: &mut Notes) -> Option<String> {
    let counted = rows.iter().filter(|row| row.counted.known().is_some());
    let (with, without): (Vec<&StrategyResult>, Vec<_>) =
        counted.partition(|row| row.witness.known().is_some());
    let ranges = rows
        .iter()
        .any(|row| !row.varied.is_empty())
        .then(|| "low..high is the range over the counted passes.".to_owned());
    if with.is_empty() {
        return ranges;
    }
    let engines: BTreeSet<String> = with
        .iter()
        .filter_map(|row| row.witness.known())
        .map(|witness| shown(&witness.engine))
        .collect();
    let engines: Vec<String> = engines.into_iter().collect();
    let all = with
        .iter()
        .all(|row| row.witness.known().is_some_and(|witness| witness.calls.is_none()));
    let mut line = format!(
        "{} counted once more at native speed by {}; ",
        if all {
            "Everything was"
        } else {
            "The calls made most were"
        },
        engines.join(" and ")
    );
    line.push_str(if with.iter().all(|row| moving::moved(row).is_empty()) {
        "tracing changed no count."
    } else {
        "counts that tracing changed are marked, with both values."
    });
    if let Some(row) = without.first() {
        let reason = row.witness.reason().unwrap_or_default();
        line.push_str(&format!(" Not in every row [{}].", notes.number(reason)));
    }
    if let Some(ranges) = ranges {
        line.push_str(&format!(" {ranges}"));
    }
    Some(line)
}

/// Why a whole part of the table is not there; silent when no row was run at all, for that is said by row.
fn absent<'a>(
    what: &str,
    reasons: impl Iterator<Item = Option<&'a str>>,
    notes: &mut Notes,
) -> Option<String> {
    let reason = reasons.flatten().next()?;
    Some(format!("{what} [{}].", notes.number(reason)))
}
