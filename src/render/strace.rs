//! The table of `strace -c`, as strace 6 prints it: the same columns, widths and total line, so that what reads
//! strace's table reads this one.
//!
//! Nothing else is in it: no remarks and no notes. A column that was not measured at all is left out, as `strace
//! -U` leaves it out; strace's own zero would be taken for a measurement. Where several rows or phases have
//! counts, a line with the name stands above each table.

use super::count::{compare, spent, time_kind, total};
use super::{RenderError, View, shown};
use crate::record::{CallCounts, Kind, PhaseCounts, Record};

/// Least widths of the columns before the name, in their order (count.c of strace).
const WIDTHS: [usize; 5] = [6, 11, 11, 9, 9];
/// Least length of the dashes above and below the names.
const NAME_WIDTH: usize = 16;

pub(super) fn write(record: &Record, view: &View) -> Result<String, RenderError> {
    let mut tables = Vec::new();
    for row in &record.strategies {
        let Some(counted) = row.counted.known() else {
            continue;
        };
        let phases = [
            ("start-up", &counted.phases.startup),
            ("loop", &counted.phases.run_loop),
            ("shutdown", &counted.phases.shutdown),
        ];
        for (label, phase) in phases {
            // Of a bench only the loop is compared; an empty one is a result all the same.
            let shown = label == "loop" || record.kind != Kind::Bench && !phase.syscalls.is_empty();
            if shown {
                tables.push((format!("{}, {label}:", row.name), table(phase, view)));
            }
        }
    }
    match tables.as_slice() {
        [] => Err(RenderError::NoCounts),
        [(_, table)] => Ok(table.clone()),
        several => {
            let parts: Vec<String> = several
                .iter()
                .map(|(name, table)| format!("{}\n{table}", shown(name)))
                .collect();
            Ok(parts.join("\n"))
        }
    }
}

fn table(phase: &PhaseCounts, view: &View) -> String {
    let time = time_kind(phase, view.time);
    // strace lists calls that returned.
    let mut calls: Vec<(&String, &CallCounts)> = phase
        .syscalls
        .iter()
        .filter(|(_, counts)| counts.calls > 0)
        .collect();
    calls.sort_by(|a, b| compare(view.sort, time, *a, *b));
    let all = total(calls.iter().map(|(_, counts)| *counts));
    let sum = spent(&all, time).known().map(|span| span.0);
    let errors = all.errors.known().is_some();
    let mut rows: Vec<(Vec<String>, String)> = vec![head(sum.is_some(), errors)];
    for (name, counts) in calls {
        rows.push((
            numbers(counts, spent(counts, time).known().map(|t| t.0), sum, errors),
            shown(name),
        ));
    }
    let mut of_all = numbers(&all, sum, sum, errors);
    if let (Some(_), Some(share)) = (sum, of_all.first_mut()) {
        *share = "100.00".to_owned();
    }
    rows.push((of_all, "total".to_owned()));

    let columns = rows[0].0.len();
    let of_columns = match (sum.is_some(), errors) {
        (true, _) => &WIDTHS[..],
        (false, _) => &WIDTHS[3..],
    };
    let widths: Vec<usize> = (0..columns)
        .map(|i| {
            let widest = rows
                .iter()
                .map(|(cells, _)| cells[i].len())
                .max()
                .unwrap_or_default();
            widest.max(of_columns[i])
        })
        .collect();
    let name_width = rows
        .iter()
        .map(|(_, name)| name.chars().count())
        .max()
        .unwrap_or_default()
        .max(NAME_WIDTH);
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let rule = format!("{} {}\n", rule.join(" "), "-".repeat(name_width));
    let last = rows.len() - 1;
    let mut text = String::new();
    for (i, (cells, name)) in rows.iter().enumerate() {
        if i == last {
            text.push_str(&rule);
        }
        for (cell, width) in cells.iter().zip(&widths) {
            text.push_str(&format!("{cell:>width$} "));
        }
        text.push_str(name);
        text.push('\n');
        if i == 0 {
            text.push_str(&rule);
        }
    }
    text
}

fn head(times: bool, errors: bool) -> (Vec<String>, String) {
    let mut words: Vec<&str> = Vec::new();
    if times {
        words.extend(["% time", "seconds", "usecs/call"]);
    }
    words.push("calls");
    if errors {
        words.push("errors");
    }
    (
        words.into_iter().map(str::to_owned).collect(),
        "syscall".to_owned(),
    )
}

/// The cells before the name; `time` and `sum` are in nanoseconds.
fn numbers(counts: &CallCounts, time: Option<u64>, sum: Option<u64>, errors: bool) -> Vec<String> {
    let mut cells = Vec::new();
    if let (Some(time), Some(sum)) = (time, sum) {
        let share = if sum == 0 {
            0.0
        } else {
            100.0 * time as f64 / sum as f64
        };
        cells.push(format!("{share:.2}"));
        cells.push(format!("{:.6}", time as f64 / 1e9));
        // strace cuts, and does not round.
        cells.push((time / 1_000).checked_div(counts.calls).unwrap_or(0).to_string());
    }
    cells.push(counts.calls.to_string());
    if errors {
        // strace leaves the place empty where there was none.
        let failed = counts.failed().filter(|n| *n > 0);
        cells.push(failed.map(|n| n.to_string()).unwrap_or_default());
    }
    cells
}
