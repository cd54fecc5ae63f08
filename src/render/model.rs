//! What is shown, before it is a table, Markdown or anything else: built once from a record, the same for
//! every format.
//!
//! All text in here is safe for a terminal already: whatever came from outside has gone through
//! [`crate::units::escape`]. A format adds only what its own syntax demands.

use super::number::{Number, Style};
use crate::explain::Severity;
use crate::record::{Interval, Status};
use crate::units::Measured;

/// Everything that is shown of a record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Said first and last when the run is not complete.
    pub banner: Option<String>,
    /// Server, host and plan, a line each.
    pub header: Vec<String>,
    /// What a reader wants first, in a few lines; none where the tables are short and sound.
    pub summary: Vec<String>,
    /// The tables, in reading order.
    pub tables: Vec<Table>,
    /// How to read the tables, and what was left out of them.
    pub remarks: Vec<String>,
    /// Limits: all in one line, and a line for each that does not fit.
    pub limits: Vec<String>,
    /// Findings, the gravest first.
    pub findings: Vec<FoundText>,
    /// Findings that were put to the test; a line that begins with spaces belongs to the one above.
    pub proofs: Vec<String>,
    /// Why a cell is a dash; note `n` of a cell is entry `n - 1` here.
    pub notes: Vec<String>,
}

/// A finding in words. Equal findings about several strategies are one.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundText {
    /// How much it matters.
    pub severity: Severity,
    /// The stable code.
    pub code: String,
    /// The strategies it is about; none for the whole run.
    pub strategies: Vec<String>,
    /// The cause.
    pub says: String,
    /// What to try; may be empty.
    pub try_next: String,
    /// What was looked at and is fine.
    pub not_the_cause: Vec<String>,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// What it is about; may be empty.
    pub title: String,
    /// The columns. One of them is the key, which names the row.
    pub columns: Vec<Column>,
    /// Rows with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Whether the last row sums up the others.
    pub has_total: bool,
}

impl Table {
    /// The position of the column that names the rows.
    pub fn key(&self) -> usize {
        let found = self.columns.iter().position(|column| column.group == Group::Key);
        found.unwrap_or_default()
    }

    /// Writes its numbers in plain digits.
    pub(super) fn ungroup(&mut self) {
        for cell in self.rows.iter_mut().flatten() {
            cell.ungroup();
        }
    }
}

/// One column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// What it holds, short.
    pub title: String,
    /// The unit, shown under the title; may be empty.
    pub unit: String,
    /// On which side its cells stand.
    pub align: Align,
    /// What it belongs to: when a table is too wide it is folded between groups first.
    pub group: Group,
}

impl Column {
    /// A column of numbers.
    pub fn number(title: &str, unit: &str, group: Group) -> Column {
        Column {
            title: title.to_owned(),
            unit: unit.to_owned(),
            align: Align::Right,
            group,
        }
    }

    /// A column of text, which may be wrapped.
    pub fn text(title: &str, group: Group) -> Column {
        Column {
            title: title.to_owned(),
            unit: String::new(),
            align: Align::Left,
            group,
        }
    }

    /// Title and unit in one line.
    pub fn heading(&self) -> String {
        match self.unit.as_str() {
            "" => self.title.clone(),
            // `/op`, `/call`: reads on from the title.
            unit if unit.starts_with('/') => format!("{}{unit}", self.title),
            unit => format!("{} ({unit})", self.title),
        }
    }
}

/// On which side of a column its cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers. They are never wrapped or cut.
    Right,
}

/// What columns belong together, in the order in which they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The name of the row, repeated when the table is folded.
    Key,
    /// Measured without a tracer.
    Speed,
    /// What a scenario adds: counters, and what an article printed.
    Published,
    /// Counted: totals per operation, and what the tracer cost.
    Work,
    /// Counted: one column for each system call.
    Calls,
    /// Counted, as strace lists it.
    Summary,
    /// What failed, in words; may be wrapped.
    Errors,
}

impl Group {
    /// What stands above a folded table that shows this group.
    pub fn caption(self) -> &'static str {
        match self {
            Group::Key | Group::Summary => "",
            Group::Speed => "Speed, untraced",
            Group::Published => "Beside what was published",
            Group::Work => "Work per operation",
            Group::Calls => "System calls per operation",
            Group::Errors => "Errors",
        }
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text, possibly none.
    Text(String),
    /// The name of a row, and how the row ended when that was not well.
    Name {
        /// The name.
        name: String,
        /// How it ended, with the number of the note that says why.
        ended: Option<(Status, Option<usize>)>,
    },
    /// A number.
    Number(Number),
    /// A count that depends on timing: its range over passes, and the number of the note that says what it
    /// is at native speed.
    Moving {
        /// The least.
        low: Number,
        /// The greatest.
        high: Number,
        /// The note; none when nobody knows it at another speed.
        note: Option<usize>,
    },
    /// A factor with its interval.
    Spread(Interval),
    /// A value that is not what it looks like, with the number of the note that says why.
    Marked(Box<Cell>, usize),
    /// Looked for, and there was nothing.
    Nothing,
    /// No value: printed as a dash, with the number of the note that says why. A row that was not run has
    /// no note in every cell: its own says it.
    Missing(Option<usize>),
}

impl Cell {
    /// A number in a style.
    pub fn number(value: f64, style: Style) -> Cell {
        Cell::Number(Number {
            value,
            style,
            grouped: true,
        })
    }

    /// Writes its number in plain digits.
    fn ungroup(&mut self) {
        match self {
            Cell::Number(number) => number.grouped = false,
            Cell::Marked(cell, _) => cell.ungroup(),
            _ => {}
        }
    }

    /// The cell with a note, where there is one.
    pub fn noted(self, note: Option<usize>) -> Cell {
        match note {
            Some(note) => Cell::Marked(Box::new(self), note),
            None => self,
        }
    }

    /// The cell in one line.
    pub fn line(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Name { name, ended: None } => name.clone(),
            Cell::Name {
                name,
                ended: Some((status, note)),
            } => format!("{name} {}{}", status.name(), mark(*note)),
            Cell::Number(number) => number.to_string(),
            Cell::Moving { low, high, note } => {
                format!("{}{}", super::number::range(*low, *high), mark(*note))
            }
            Cell::Spread(interval) => super::number::spread(interval),
            Cell::Marked(cell, note) => format!("{}{}", cell.line(), mark(Some(*note))),
            Cell::Nothing => "none".to_owned(),
            Cell::Missing(note) => format!("–{}", mark(*note)),
        }
    }
}

/// The reference to a note, as it stands behind what it explains.
pub fn mark(note: Option<usize>) -> String {
    note.map(|n| format!("[{n}]")).unwrap_or_default()
}

/// Collects the reasons for dashes; the same reason is one note.
#[derive(Debug, Default)]
pub struct Notes {
    reasons: Vec<String>,
}

impl Notes {
    /// The number of the note with this reason.
    pub fn number(&mut self, reason: &str) -> usize {
        let reason = super::shown(reason);
        if let Some(at) = self.reasons.iter().position(|known| *known == reason) {
            return at + 1;
        }
        self.reasons.push(reason);
        self.reasons.len()
    }

    /// A cell for a value that may not have been measured.
    pub fn cell<T>(&mut self, value: &Measured<T>, known: impl FnOnce(&T) -> Cell) -> Cell {
        match value {
            Measured::Known(value) => known(value),
            Measured::NotMeasured(reason) => Cell::Missing(Some(self.number(reason))),
        }
    }

    /// The notes in the order of their numbers.
    pub fn into_texts(self) -> Vec<String> {
        self.reasons
    }
}
