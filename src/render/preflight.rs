//! The limits of a machine as a table: what a load needs, what there is, and whether it fits; and in words,
//! for each that is not well, what happens and how to raise it.

use super::model::{Cell, Column, Group, Notes, Table};
use super::number::Style;
use super::prose::{AS_GOOD_AS_NONE, amount, needs_of, unit_of};
use super::{View, shown};
use crate::limits::Unit;
use crate::record::{LimitReading, Record, Verdict};

pub(super) fn tables(record: &Record, view: &View, notes: &mut Notes) -> (Vec<Table>, Vec<String>) {
    let columns = vec![
        Column::text("limit", Group::Key),
        Column::text("verdict", Group::Summary),
        Column::number("needs", "", Group::Summary),
        Column::number("has", "", Group::Summary),
        Column::text("unit", Group::Summary),
        Column::number("used", "", Group::Summary),
        Column::text("scope", Group::Summary),
    ];
    let shows = |limit: &&LimitReading| view.all_syscalls || limit.verdict != Verdict::NotApplicable;
    let rows = record
        .limits
        .iter()
        .filter(shows)
        .map(|limit| row(limit, notes))
        .collect();
    let table = Table {
        columns,
        rows,
        ..Table::default()
    };
    (vec![table], hidden(record, view))
}

fn row(limit: &LimitReading, notes: &mut Notes) -> Vec<Cell> {
    let used = match (limit.demand.known(), limit.capacity.known()) {
        (Some(demand), Some(capacity)) if *capacity > 0 => {
            Cell::number(*demand as f64 / *capacity as f64, Style::Percent)
        }
        _ => Cell::Missing(None),
    };
    let unit = unit_of(limit);
    // Memory has its unit in the cell, since a limit of 1 GiB and one of 1 KiB share the column.
    let (style, counts) = match unit {
        Some(Unit::Bytes) => (Style::Bytes, "memory".to_owned()),
        Some(unit) => (Style::Whole, unit.to_string()),
        None => (Style::Whole, String::new()),
    };
    // What has no numbers needs no unit.
    let counts = match (limit.demand.known(), limit.capacity.known()) {
        (None, None) => String::new(),
        _ => counts,
    };
    vec![
        Cell::Name {
            name: shown(&limit.id),
            ended: None,
        },
        Cell::Text(limit.verdict.name().replace('_', " ")),
        notes.cell(&limit.demand, |demand| Cell::number(*demand as f64, style)),
        notes.cell(&limit.capacity, |capacity| {
            if *capacity >= AS_GOOD_AS_NONE {
                Cell::Text(amount(*capacity))
            } else {
                Cell::number(*capacity as f64, style)
            }
        }),
        Cell::Text(counts),
        used,
        Cell::Text(shown(&limit.scope)),
    ]
}

/// A line about the limits that were left out of the table, and one about those of a server that is not
/// there.
fn hidden(record: &Record, view: &View) -> Vec<String> {
    if view.all_syscalls {
        return Vec::new();
    }
    let of_no_server = |limit: &&LimitReading| record.server.is_none() && limit.scope.starts_with("server");
    let left_out = record
        .limits
        .iter()
        .filter(|limit| limit.verdict == Verdict::NotApplicable);
    let (unasked, others): (Vec<&LimitReading>, Vec<&LimitReading>) = left_out.partition(of_no_server);
    let line = |what: &str, limits: &[&LimitReading]| {
        let names: Vec<String> = limits.iter().map(|limit| shown(&limit.id)).collect();
        (!names.is_empty()).then(|| format!("{what} (--all says why): {}", names.join(", ")))
    };
    [
        line(
            "no server is named (-h and -p, -s or -u), so not looked at",
            &unasked,
        ),
        line("not bearing on this load", &others),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A paragraph for each limit that does not fit, nearly does not, or is not known, the gravest first. A
/// line that continues one begins with spaces.
pub(super) fn details(record: &Record) -> Vec<String> {
    let mut limits: Vec<&LimitReading> = record
        .limits
        .iter()
        .filter(|limit| match limit.verdict {
            Verdict::Fail | Verdict::Warn | Verdict::Unknown => true,
            Verdict::Ok | Verdict::NotApplicable => false,
        })
        .collect();
    limits.sort_by_key(|limit| std::cmp::Reverse(limit.verdict));
    let mut lines = Vec::new();
    let mut told: Vec<&str> = Vec::new();
    for limit in &limits {
        // One reason for many limits is told once.
        let alike: Vec<&str> = limits
            .iter()
            .filter(|other| other.verdict == Verdict::Unknown && other.effect == limit.effect)
            .map(|other| other.id.as_str())
            .collect();
        if limit.verdict == Verdict::Unknown && alike.len() > 1 {
            if !told.contains(&limit.effect.as_str()) {
                told.push(&limit.effect);
                lines.push(shown(&format!("unknown {}: {}", alike.join(", "), limit.effect)));
            }
            continue;
        }
        lines.extend(detail(limit));
    }
    let fits = |limit: &&LimitReading| limit.verdict == Verdict::Ok;
    lines.extend(
        record
            .limits
            .iter()
            .filter(fits)
            .filter_map(|limit| fitting(record, limit)),
    );
    lines
}

/// A line for a limit that the load fits: how its need comes about where that is not the number that was
/// asked for, and what nobody can know without the server.
fn fitting(record: &Record, limit: &LimitReading) -> Option<String> {
    let mut parts = Vec::new();
    if limit.demand.known().is_some() && is_worked_out(&limit.formula) {
        parts.push(format!("needs {}: {}", needs_of(limit), limit.formula));
    }
    // One side alone was looked at.
    if record.server.is_none() && limit.scope.starts_with("server") {
        parts.push(limit.effect.clone());
    }
    (!parts.is_empty()).then(|| shown(&format!("ok {}: {}", limit.id, parts.join("; "))))
}

/// Whether a formula works something out; one term alone says only what is counted.
fn is_worked_out(formula: &str) -> bool {
    [" + ", " x ", " - "].iter().any(|sign| formula.contains(sign))
}

fn detail(limit: &LimitReading) -> Vec<String> {
    let mut lines = vec![format!("{} {}: {}", limit.verdict.name(), limit.id, limit.effect)];
    if limit.demand.known().is_some() {
        let mut line = format!("    needs {}", needs_of(limit));
        if !limit.formula.is_empty() {
            line.push_str(&format!(": {}", limit.formula));
        }
        lines.push(line);
    }
    // Of a limit that is not known nobody can say that it must be raised.
    if limit.verdict != Verdict::Unknown {
        for (label, text) in [
            ("now", &limit.fix.now),
            ("to keep", &limit.fix.kept),
            ("in a container", &limit.fix.container),
        ] {
            if !text.is_empty() {
                lines.push(format!("    {label}: {text}"));
            }
        }
    }
    lines.push(format!("    read from: {}", limit.source));
    lines.iter().map(|line| shown(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_worked_out_has_a_formula_to_show() {
        for formula in ["2 x 2000 clients + 1 connected now", "999 waiting at once - 1"] {
            assert!(is_worked_out(formula), "{formula}");
        }
        for formula in ["", "2000 processes", "2000 open"] {
            assert!(!is_worked_out(formula), "{formula}");
        }
    }
}
