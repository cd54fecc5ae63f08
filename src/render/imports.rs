//! The tables of an import: what the file has, in its own order, with the kind of its times in the heading.

use std::collections::BTreeMap;

use super::model::{Cell, Column, Group, Notes, Table};
use super::number::Style;
use super::prose::several_files;
use super::{View, shown};
use crate::import::{Imported, ImportedTable, Row, TimeKind};
use crate::record::{Import, Record};
use crate::units::{Grouped, Nanos, Ops};

/// Up to so many files each have a table of their own; of more, those with equal findings are one row.
pub const FILES_SHOWN_WHOLE: usize = 8;

pub(super) fn tables(record: &Record, view: &View, notes: &mut Notes) -> (Vec<Table>, Vec<String>) {
    if record.imports.len() > FILES_SHOWN_WHOLE && !view.all_syscalls {
        return (vec![grouped(record)], grouped_remarks(record));
    }
    let mut tables = Vec::new();
    let mut remarks = Vec::new();
    let many = record.imports.len() > 1;
    for Import { file, imported } in &record.imports {
        let several = imported.tables.len() > 1;
        for table in &imported.tables {
            let mut shown_table = Calls { imported, table }.table(notes);
            let mut title: Vec<&str> = Vec::new();
            title.extend(many.then_some(file.as_str()));
            title.extend(several.then_some(table.label.as_str()));
            shown_table.title = shown(&title.join(", "));
            tables.push(shown_table);
        }
        if !imported.by_process.is_empty() {
            tables.push(by_process(imported));
        }
        if !imported.values.is_empty() {
            tables.push(values(imported));
        }
        let before = if many { format!("{file}: ") } else { String::new() };
        remarks.extend(
            remarks_of(imported)
                .into_iter()
                .map(|line| shown(&format!("{before}{line}"))),
        );
    }
    (tables, remarks)
}

/// Many files: those of one format with equal findings are one row.
fn grouped(record: &Record) -> Table {
    let codes = |file: &str| {
        let of_file = |name: &str| {
            name.strip_prefix(file)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let found = record
            .findings
            .iter()
            .filter(|finding| finding.strategy.as_deref().is_some_and(of_file));
        let mut codes: Vec<&str> = found.map(|finding| finding.code.as_ref()).collect();
        codes.sort_unstable();
        codes.dedup();
        codes
    };
    let mut known: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut groups: Vec<FileGroup<'_>> = Vec::new();
    let mut index: BTreeMap<(String, bool, Vec<&str>), usize> = BTreeMap::new();
    for import in &record.imports {
        let codes = known
            .entry(import.file.as_str())
            .or_insert_with(|| codes(&import.file))
            .clone();
        let format = import.imported.format.to_string();
        let key = (format.clone(), import.imported.incomplete, codes.clone());
        let at = *index.entry(key).or_insert(groups.len());
        if at == groups.len() {
            groups.push(FileGroup {
                format,
                incomplete: import.imported.incomplete,
                codes,
                imports: Vec::new(),
            });
        }
        groups[at].imports.push(import);
    }
    Table {
        columns: vec![
            Column::text("files", Group::Key),
            Column::number("files", "number", Group::Summary),
            Column::text("read as", Group::Summary),
            Column::number("calls", "in all", Group::Summary),
            Column::number("errors", "in all", Group::Summary),
            Column::text("findings", Group::Summary),
        ],
        rows: groups.iter().map(FileGroup::row).collect(),
        ..Table::default()
    }
}

/// Files that say the same.
struct FileGroup<'a> {
    format: String,
    incomplete: bool,
    codes: Vec<&'a str>,
    imports: Vec<&'a Import>,
}

impl FileGroup<'_> {
    fn row(&self) -> Vec<Cell> {
        let tables = || self.imports.iter().flat_map(|import| &import.imported.tables);
        let calls = tables().map(ImportedTable::total_calls);
        let errors = tables()
            .filter_map(ImportedTable::sum_errors)
            .reduce(u64::saturating_add);
        let names: Vec<&str> = self.imports.iter().map(|import| import.file.as_str()).collect();
        let read = if self.incomplete {
            format!("{}, INCOMPLETE", self.format)
        } else {
            self.format.clone()
        };
        vec![
            Cell::Name {
                name: shown(&several_files(&names)),
                ended: None,
            },
            Cell::number(names.len() as f64, Style::Whole),
            Cell::Text(read),
            Cell::number(crate::units::total(calls) as f64, Style::Whole),
            errors.map_or(Cell::Missing(None), |n| Cell::number(n as f64, Style::Whole)),
            if self.codes.is_empty() {
                Cell::Text("none".to_owned())
            } else {
                Cell::Text(shown(&self.codes.join(", ")))
            },
        ]
    }
}

/// What is said of many files, sentences that differ in numbers alone as one.
fn grouped_remarks(record: &Record) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>, bool)> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    for Import { file, imported } in &record.imports {
        for line in remarks_of(imported) {
            let at = *index.entry(without_numbers(&line)).or_insert(lines.len());
            match lines.get_mut(at) {
                Some((first, files, differs)) => {
                    *differs |= *first != line;
                    if files.last() != Some(&file.as_str()) {
                        files.push(file);
                    }
                }
                None => lines.push((line, vec![file], false)),
            }
        }
    }
    let left_out = lines.len().saturating_sub(MOST_REMARKS);
    lines.truncate(MOST_REMARKS);
    let mut remarks: Vec<String> = lines
        .into_iter()
        .map(|(line, files, differs)| {
            let others = if differs {
                " (others with numbers of their own)"
            } else {
                ""
            };
            shown(&format!("{}: {line}{others}", several_files(&files)))
        })
        .collect();
    if left_out > 0 {
        remarks.push(format!(
            "{left_out} more remarks of single files are in the record (-o FILE)"
        ));
    }
    remarks.push(format!(
        "files with equal findings are one row; --all shows the table of each of the {}, and the record has them all (-o FILE)",
        Grouped(record.imports.len() as u64)
    ));
    remarks
}

/// Remarks shown of many files.
const MOST_REMARKS: usize = 40;

/// A sentence without what differs from file to file: numbers, and what was quoted.
fn without_numbers(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '“' => quoted = true,
            '”' => quoted = false,
            _ if quoted => {}
            '0'..='9' => {
                if !out.ends_with('#') {
                    out.push('#');
                }
            }
            c => out.push(c),
        }
    }
    out
}

/// One table of calls on its way to be shown.
struct Calls<'a> {
    imported: &'a Imported,
    table: &'a ImportedTable,
}

impl Calls<'_> {
    fn table(&self, notes: &mut Notes) -> Table {
        let rows = &self.table.rows;
        let timed = rows.iter().any(|row| row.time.is_some());
        let sum = self.table.sum_time().unwrap_or_default();
        let longest = rows.iter().any(|row| row.longest.is_some());
        let errnos = rows.iter().any(|row| !row.errnos.is_empty());
        let ops = self.imported.ops.map(Ops);
        let kind = match self.imported.time_kind {
            TimeKind::Cpu => "CPU s",
            TimeKind::Wall => "wall s",
            TimeKind::Unknown => "s, CPU or wall",
            TimeKind::None => "s",
        };
        let mut columns = Vec::new();
        if timed {
            columns.push(Column::number("% time", "", Group::Summary));
            columns.push(Column::number("time", kind, Group::Summary));
            columns.push(Column::number("usecs", "/call", Group::Summary));
        }
        if longest {
            columns.push(Column::number("longest", "µs", Group::Summary));
        }
        columns.push(Column::number("calls", "", Group::Summary));
        if ops.is_some() {
            columns.push(Column::number("calls", "/op", Group::Summary));
        }
        columns.push(Column::number("errors", "", Group::Summary));
        columns.push(Column::text("syscall", Group::Key));
        if errnos {
            columns.push(Column::text("errors by name", Group::Errors));
        }
        let total = self.total();
        let untold = |notes: &mut Notes| Cell::Missing(Some(notes.number("the format does not tell it")));
        let line = |row: &Row, is_total: bool, notes: &mut Notes| {
            let mut cells = Vec::new();
            if timed {
                let share = match row.time {
                    // All zero: a share of nothing is none.
                    Some(_) if sum.0 == 0 => {
                        Cell::Missing(Some(notes.number("every time in the file is zero")))
                    }
                    Some(time) => Cell::number(time.0 as f64 / sum.0.max(time.0) as f64, Style::Share),
                    None => untold(notes),
                };
                cells.push(share);
                cells.push(row.time.map_or_else(|| untold(notes), seconds));
                let mean = row.mean().map(|mean| Cell::number(mean.0 as f64, Style::Micros));
                cells.push(mean.unwrap_or_else(|| untold(notes)));
            }
            if longest {
                let longest = row.longest.map(|span| Cell::number(span.0 as f64, Style::Micros));
                cells.push(longest.unwrap_or(Cell::Text(String::new())));
            }
            let count = row
                .calls
                .map_or_else(|| untold(notes), |n| Cell::number(n as f64, Style::Whole));
            cells.push(match self.doubt(row, is_total) {
                Some(why) => Cell::Marked(Box::new(count), notes.number(why)),
                None => count,
            });
            if let Some(ops) = ops {
                let rate = row.calls.and_then(|calls| ops.per_op(calls));
                cells.push(rate.map_or_else(|| untold(notes), |rate| Cell::number(rate, Style::PerOp)));
            }
            cells.push(
                row.errors
                    .map_or_else(|| untold(notes), |n| Cell::number(n as f64, Style::Whole)),
            );
            cells.push(Cell::Name {
                name: match row.abi.as_deref() {
                    None | Some("64") => shown(&row.syscall),
                    Some(abi) => shown(&format!("{abi}:{}", row.syscall)),
                },
                ended: None,
            });
            if errnos {
                cells.push(match (is_total, errnos_of(row)) {
                    (true, _) => Cell::Text(String::new()),
                    (false, text) if text.is_empty() => Cell::Nothing,
                    (false, text) => Cell::Text(shown(&text)),
                });
            }
            cells
        };
        let mut lines: Vec<Vec<Cell>> = rows.iter().map(|row| line(row, false, notes)).collect();
        lines.push(line(&total, true, notes));
        Table {
            title: String::new(),
            columns,
            rows: lines,
            has_total: true,
        }
    }

    /// Why a count is not what it looks like.
    fn doubt(&self, row: &Row, is_total: bool) -> Option<&'static str> {
        let Imported {
            scaled, not_counted, ..
        } = self.imported;
        match (is_total, scaled.is_empty(), not_counted.is_empty()) {
            (false, ..) => scaled
                .contains(&row.syscall)
                .then_some("an estimate, not exact: perf counted only part of the time and scaled up"),
            (true, true, true) => None,
            (true, false, true) => Some("holds estimates"),
            (true, true, false) => Some("without what could not be counted, which is not zero"),
            (true, false, false) => Some("holds estimates, and is without what could not be counted"),
        }
    }

    /// The sum of the rows; what the file states instead is in the remarks when it differs.
    fn total(&self) -> Row {
        let known = self.table.rows.iter().all(|row| row.calls.is_some());
        Row {
            syscall: "total".to_owned(),
            calls: known.then(|| self.table.sum_calls()),
            errors: self.table.sum_errors(),
            time: self.table.sum_time(),
            ..Row::default()
        }
    }
}

fn seconds(span: Nanos) -> Cell {
    Cell::number(span.0 as f64, Style::Seconds)
}

fn errnos_of(row: &Row) -> String {
    let mut errnos: Vec<(&String, &u64)> = row.errnos.iter().collect();
    errnos.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let parts: Vec<String> = errnos
        .into_iter()
        .map(|(errno, n)| {
            let restarted = if errno.starts_with("ERESTART") {
                " (restarted)"
            } else {
                ""
            };
            format!("{errno} {}{restarted}", Grouped(*n))
        })
        .collect();
    parts.join(", ")
}

fn by_process(imported: &Imported) -> Table {
    let rows = imported.by_process.iter().map(|process| {
        vec![
            Cell::number(process.calls as f64, Style::Whole),
            Cell::Name {
                name: shown(&process.name()),
                ended: None,
            },
        ]
    });
    Table {
        title: "calls per process, of all kinds".to_owned(),
        columns: vec![
            Column::number("calls", "", Group::Summary),
            Column::text("process", Group::Key),
        ],
        rows: rows.collect(),
        has_total: false,
    }
}

fn values(imported: &Imported) -> Table {
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(list) => list
            .iter()
            .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join(" "),
        other => other.to_string(),
    };
    let rows = imported.values.iter().map(|(name, value)| {
        vec![
            Cell::Name {
                name: shown(name),
                ended: None,
            },
            Cell::Text(shown(&text(value))),
        ]
    });
    Table {
        title: "settings and counters".to_owned(),
        columns: vec![
            Column::text("name", Group::Key),
            Column::text("value", Group::Summary),
        ],
        rows: rows.collect(),
        has_total: false,
    }
}

fn remarks_of(imported: &Imported) -> Vec<String> {
    let mut lines = Vec::new();
    let mut read = format!("read as {}", imported.format);
    if imported.time_kind != TimeKind::None {
        read.push_str(&format!("; times: {}", imported.time_kind.name()));
        if !imported.time_source.is_empty() {
            read.push_str(&format!(" ({})", imported.time_source));
        }
    }
    if let Some(ops) = imported.ops {
        read.push_str(&format!("; {} operations ({})", Ops(ops), imported.ops_source));
    }
    if let Some(processes) = imported.processes {
        read.push_str(&format!("; {processes} threads or processes"));
    }
    if let Some(elapsed) = imported.elapsed {
        read.push_str(&format!("; the run took {elapsed}"));
    }
    lines.push(read);
    for because in &imported.incomplete_because {
        lines.push(format!("INCOMPLETE: {because}"));
    }
    if imported.unfinished > 0 {
        lines.push(format!(
            "{} calls began and did not return in the file; they are counted as calls",
            Grouped(imported.unfinished)
        ));
    }
    for (call, errors) in &imported.errors_from_log {
        let errors: Vec<String> = errors.iter().map(|(error, n)| format!("{error} {n}")).collect();
        lines.push(format!(
            "errors of {call} in the trace lines: {}",
            errors.join(", ")
        ));
    }
    lines.extend(imported.notes.iter().cloned());
    for (what, left_out, one, more) in [
        (
            "not understood and not counted",
            &imported.unknown_lines,
            "line",
            "lines",
        ),
        (
            "not used, because no run can have them",
            &imported.unusable_values,
            "value",
            "values",
        ),
    ] {
        if left_out.is_empty() {
            continue;
        }
        let first: Vec<String> = left_out
            .first
            .iter()
            .map(|(number, text)| format!("line {number} “{text}”"))
            .collect();
        lines.push(format!(
            "{what}: {} {}: {}",
            Grouped(left_out.count),
            if left_out.count == 1 { one } else { more },
            first.join("; ")
        ));
    }
    lines
}
