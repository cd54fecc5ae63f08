//! The table of a count, in the shape that `strace -c` made familiar: `% time`, times, calls, errors, name;
//! with both kinds of time, calls per operation, and the errors by name.
//!
//! Imports are shown the same way. Every row of the record and every phase that has calls is a table.

use std::cmp::Ordering;

use super::count_columns::{CountColumn, SortBy, TimeKind};
use super::count_peers;
use super::model::{Cell, Notes, Table};
use super::number::Style;
use super::{View, shown};
use crate::record::{CallCounts, Counted, PhaseCounts, Record, Status, StrategyResult};
use crate::units::{Grouped, Measured, Nanos, Ops};

pub(super) fn tables(record: &Record, view: &View, notes: &mut Notes) -> (Vec<Table>, Vec<String>) {
    let mut tables = Vec::new();
    let mut remarks = Vec::new();
    for row in &record.strategies {
        let counted = match &row.counted {
            Measured::Known(counted) => counted,
            Measured::NotMeasured(reason) => {
                let why = row.reason.as_ref().unwrap_or(reason);
                remarks.push(shown(&format!("{}: {}: {why}", row.name, ended(row.status))));
                continue;
            }
        };
        let phases = [
            ("start-up", &counted.phases.startup),
            ("loop", &counted.phases.run_loop),
            ("shutdown", &counted.phases.shutdown),
        ];
        let with_calls = phases
            .iter()
            .filter(|(_, phase)| !phase.syscalls.is_empty())
            .count();
        for (label, phase) in phases {
            // An empty count is shown all the same: nothing was seen, and that is a result.
            if phase.syscalls.is_empty() && (with_calls > 0 || label != "loop") {
                continue;
            }
            // Operations are done in the loop only.
            let ops = counted.ops.filter(|_| label == "loop");
            let shown = Phase { phase, ops, view };
            let mut table = shown.table(notes);
            table.title = title(record, row, (with_calls > 1).then_some(label));
            if let Some(remark) = shown.other_time()
                && !remarks.contains(&remark)
            {
                remarks.push(remark);
            }
            let mut by_peer = view
                .peers
                .then(|| count_peers::table(phase, ops, notes))
                .flatten();
            if let Some(by_peer) = &mut by_peer {
                by_peer.title = format!("{} by peer", table.title).trim_start().to_owned();
            }
            tables.push(table);
            tables.extend(by_peer);
        }
        remarks.extend(remarks_of(row, counted, record.strategies.len() > 1));
    }
    (tables, remarks)
}

fn ended(status: Status) -> &'static str {
    match status {
        Status::Ok => "not counted",
        Status::Failed | Status::Skipped | Status::Unverified => status.name(),
    }
}

/// Nothing for the only table of a record: what was counted is in the header.
fn title(record: &Record, row: &StrategyResult, phase: Option<&str>) -> String {
    match (record.strategies.len() > 1, phase) {
        (true, Some(phase)) => shown(&format!("{}, {phase}", row.name)),
        (true, None) => shown(&row.name),
        (false, Some(phase)) => phase.to_owned(),
        (false, None) => String::new(),
    }
}

/// One phase on its way to a table.
struct Phase<'a> {
    phase: &'a PhaseCounts,
    ops: Option<Ops>,
    view: &'a View,
}

impl Phase<'_> {
    fn table(&self, notes: &mut Notes) -> Table {
        let time = self.time_kind();
        let columns = self.columns();
        // strace lists calls that returned; what only never returned has a remark.
        let mut calls: Vec<(&String, &CallCounts)> = self
            .phase
            .syscalls
            .iter()
            .filter(|(_, counts)| counts.calls > 0 || columns.contains(&CountColumn::Unfinished))
            .collect();
        calls.sort_by(|a, b| compare(self.view.sort, time, *a, *b));
        let total = total(calls.iter().map(|(_, counts)| *counts));
        let sum = spent(&total, time).known().copied().unwrap_or_default();
        let rows = calls
            .iter()
            .map(|(name, counts)| (shown(name), *counts))
            .chain([("total".to_owned(), &total)])
            .map(|(name, counts)| {
                let fill = |column: &CountColumn| self.cell(*column, &name, counts, time, sum, notes);
                columns.iter().map(fill).collect()
            })
            .collect();
        Table {
            title: String::new(),
            columns: columns.iter().map(|column| column.column(time)).collect(),
            rows,
            has_total: true,
        }
    }

    /// The time that was asked for, or the other one where that was not measured or is zero throughout (the
    /// kernel's CPU times are too coarse for a short program).
    fn time_kind(&self) -> TimeKind {
        time_kind(self.phase, self.view.time)
    }

    /// Says so when the shares are not of the time that was asked for.
    fn other_time(&self) -> Option<String> {
        match (self.view.time, self.time_kind()) {
            (TimeKind::Cpu, TimeKind::Wall) => Some(
                "% time and usecs/call are of wall time: no CPU time of the calls was measured.".to_owned(),
            ),
            (TimeKind::Wall, TimeKind::Cpu) => Some(
                "% time and usecs/call are of CPU time: no wall time of the calls was measured.".to_owned(),
            ),
            (TimeKind::Cpu, TimeKind::Cpu) | (TimeKind::Wall, TimeKind::Wall) => None,
        }
    }

    fn columns(&self) -> Vec<CountColumn> {
        if self.view.columns.is_empty() {
            let any_error = self
                .phase
                .syscalls
                .values()
                .any(|counts| self.errnos(counts) != Some(String::new()));
            return CountColumn::USUAL
                .into_iter()
                .filter(|column| *column != CountColumn::PerOp || self.ops.is_some())
                .filter(|column| *column != CountColumn::Errnos || any_error)
                .collect();
        }
        let mut columns = self.view.columns.clone();
        if !columns.contains(&CountColumn::Name) {
            columns.push(CountColumn::Name);
        }
        columns
    }

    fn cell(
        &self,
        column: CountColumn,
        name: &str,
        counts: &CallCounts,
        time: TimeKind,
        sum: Nanos,
        notes: &mut Notes,
    ) -> Cell {
        let whole = |value: &u64| Cell::number(*value as f64, Style::Whole);
        let seconds = |span: &Nanos| Cell::number(span.0 as f64, Style::Seconds);
        match column {
            CountColumn::TimePercent => notes.cell(spent(counts, time), |span| {
                let share = if sum.0 == 0 {
                    0.0
                } else {
                    span.0 as f64 / sum.0 as f64
                };
                Cell::number(share, Style::Share)
            }),
            CountColumn::Wall => notes.cell(&counts.wall, seconds),
            CountColumn::Cpu => notes.cell(&counts.cpu, seconds),
            CountColumn::AvgTime => notes.cell(spent(counts, time), |span| {
                let each = if counts.calls == 0 {
                    0.0
                } else {
                    span.0 as f64 / counts.calls as f64
                };
                Cell::number(each, Style::Micros)
            }),
            CountColumn::Calls => whole(&counts.calls),
            CountColumn::Errors => {
                let failed = Measured::from_option(counts.failed(), untold(counts));
                notes.cell(&failed, whole)
            }
            CountColumn::PerOp => {
                let rate = self.ops.and_then(|ops| ops.per_op(counts.calls));
                let rate = Measured::from_option(rate, "nobody knows how many operations were completed");
                notes.cell(&rate, |rate| Cell::number(*rate, Style::PerOp))
            }
            CountColumn::Unfinished => whole(&counts.unfinished),
            CountColumn::Bytes => notes.cell(&counts.bytes, whole),
            CountColumn::Name => Cell::Name {
                name: name.to_owned(),
                ended: None,
            },
            CountColumn::Errnos => match self.errnos(counts) {
                None => Cell::Missing(Some(notes.number(untold(counts)))),
                Some(text) if text.is_empty() => Cell::Nothing,
                Some(text) => Cell::Text(text),
            },
        }
    }

    /// Failures and restarts by name, the most frequent first; `None` when the source does not tell.
    fn errnos(&self, counts: &CallCounts) -> Option<String> {
        let mut errors: Vec<(&String, &u64)> =
            counts.errors.known()?.iter().filter(|(_, n)| **n > 0).collect();
        errors.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let number = |n: u64| {
            if self.view.terminal {
                Grouped(n).to_string()
            } else {
                n.to_string()
            }
        };
        let mut parts: Vec<String> = errors
            .into_iter()
            .map(|(errno, n)| format!("{errno} {}", number(*n)))
            .collect();
        let restarts = counts.restarts.iter().filter(|(_, n)| **n > 0);
        parts.extend(restarts.map(|(code, n)| format!("{code} {} (restarted)", number(*n))));
        Some(shown(&parts.join(", ")))
    }
}

/// The time that was asked for, or the other one where that was not measured or is zero throughout.
pub(super) fn time_kind(phase: &PhaseCounts, asked: TimeKind) -> TimeKind {
    let known = |kind| {
        let mut calls = phase.syscalls.values();
        calls.any(|counts| spent(counts, kind).known().is_some_and(|time| time.0 > 0))
    };
    match asked {
        TimeKind::Cpu if !known(TimeKind::Cpu) && known(TimeKind::Wall) => TimeKind::Wall,
        TimeKind::Wall if !known(TimeKind::Wall) && known(TimeKind::Cpu) => TimeKind::Cpu,
        asked => asked,
    }
}

/// The reason why errors are not known; asked only when they are not.
fn untold(counts: &CallCounts) -> &str {
    counts.errors.reason().unwrap_or_default()
}

pub(super) fn spent(counts: &CallCounts, time: TimeKind) -> &Measured<Nanos> {
    match time {
        TimeKind::Cpu => &counts.cpu,
        TimeKind::Wall => &counts.wall,
    }
}

pub(super) fn compare(
    sort: SortBy,
    time: TimeKind,
    (name_a, a): (&String, &CallCounts),
    (name_b, b): (&String, &CallCounts),
) -> Ordering {
    let span = |counts: &CallCounts| spent(counts, time).known().map(|span| span.0);
    let each = |counts: &CallCounts| {
        let calls = counts.calls.max(1) as f64;
        span(counts).map_or(-1.0, |span| span as f64 / calls)
    };
    let by = match sort {
        SortBy::Time => span(b).cmp(&span(a)),
        SortBy::AvgTime => each(b).total_cmp(&each(a)),
        SortBy::Calls => b.calls.cmp(&a.calls),
        SortBy::Errors => b.failed().cmp(&a.failed()),
        SortBy::Name | SortBy::Nothing => return name_a.cmp(name_b),
    };
    by.then(b.calls.cmp(&a.calls)).then(name_a.cmp(name_b))
}

/// The sum of all calls. A sum with an unknown part is not known either; its reason is that of the part.
pub(super) fn total<'a>(calls: impl Iterator<Item = &'a CallCounts>) -> CallCounts {
    let nothing = CallCounts {
        calls: 0,
        unfinished: 0,
        errors: Measured::Known(Default::default()),
        restarts: Default::default(),
        wall: Measured::Known(Nanos(0)),
        cpu: Measured::Known(Nanos(0)),
        bytes: Measured::Known(0),
        peeks: Measured::Known(0),
        peers: Default::default(),
    };
    calls.fold(nothing, |mut sum, counts| {
        sum.calls = sum.calls.saturating_add(counts.calls);
        sum.unfinished = sum.unfinished.saturating_add(counts.unfinished);
        sum.wall = add(sum.wall, &counts.wall, |a, b| a + b);
        sum.cpu = add(sum.cpu, &counts.cpu, |a, b| a + b);
        sum.bytes = add(sum.bytes, &counts.bytes, u64::saturating_add);
        sum.errors = match (sum.errors, &counts.errors) {
            (Measured::Known(mut sum), Measured::Known(errors)) => {
                for (errno, n) in errors {
                    let known = sum.entry(errno.clone()).or_default();
                    *known = known.saturating_add(*n);
                }
                Measured::Known(sum)
            }
            (Measured::NotMeasured(reason), _) => Measured::NotMeasured(reason),
            (Measured::Known(_), Measured::NotMeasured(reason)) => Measured::NotMeasured(reason.clone()),
        };
        sum
    })
}

fn add<T: Copy>(sum: Measured<T>, part: &Measured<T>, plus: impl Fn(T, T) -> T) -> Measured<T> {
    match (sum, part) {
        (Measured::Known(sum), Measured::Known(part)) => Measured::Known(plus(sum, *part)),
        (Measured::NotMeasured(reason), _) => Measured::NotMeasured(reason),
        (Measured::Known(_), Measured::NotMeasured(reason)) => Measured::NotMeasured(reason.clone()),
    }
}

/// What the table of a row does not say.
fn remarks_of(row: &StrategyResult, counted: &Counted, several: bool) -> Vec<String> {
    let mut line = format!("counted by {}", counted.engine);
    if let Some(ops) = counted.ops {
        line.push_str(&format!(", {ops} operations"));
    }
    if counted.elapsed.0 > 0 {
        line.push_str(&format!(", {} under the engine", counted.elapsed));
    }
    if let Some((user, system)) = counted.cpu.known() {
        line.push_str(&format!(", CPU time {user} user and {system} system"));
    }
    if let Some(slowdown) = counted.slowdown.known() {
        line.push_str(&format!("; untraced it ran {slowdown:.1} times as fast"));
    }
    let phases = [
        &counted.phases.startup,
        &counted.phases.run_loop,
        &counted.phases.shutdown,
    ];
    let unfinished: Vec<String> = phases
        .iter()
        .flat_map(|phase| &phase.syscalls)
        .filter(|(_, counts)| counts.unfinished > 0)
        .map(|(name, counts)| format!("{name} {}", Grouped(counts.unfinished)))
        .collect();
    if !unfinished.is_empty() {
        line.push_str(&format!(
            "; entered and never returned: {}",
            unfinished.join(", ")
        ));
    }
    if several {
        line = format!("{}: {line}", row.name);
    }
    vec![shown(&format!("{line}."))]
}
