//! What an importer hands over: tables as the file has them, and what the file says about them.
//!
//! The serde form of [`Imported`] is part of the record (key `import`), so a record made by
//! `systally import` can be explained later without the file it came from.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ImportFormat;
use super::facts::LogFacts;
use crate::units::Nanos;

/// What the time column of a file means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeKind {
    /// System CPU time: waits are not in it.
    Cpu,
    /// Time between entry and return: waits are in it.
    Wall,
    /// There are times, and the file does not say which kind (`strace -c` and `-c -w` look the same).
    Unknown,
    /// No times.
    #[default]
    None,
}

impl TimeKind {
    /// The word in tables and records.
    pub fn name(self) -> &'static str {
        match self {
            TimeKind::Cpu => "cpu",
            TimeKind::Wall => "wall",
            TimeKind::Unknown => "unknown",
            TimeKind::None => "none",
        }
    }
}

/// One line of a table: a system call (or, from ltrace, a library function) and its counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The name as the file has it, escaped.
    pub syscall: String,
    /// Which ABI's table the row stands in (`64`, `32`, `x32`), where the file has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abi: Option<String>,
    /// Calls begun: one per start line of a log, restarted and unfinished ones included. `None` when the
    /// file has only times.
    pub calls: Option<u64>,
    /// Failed calls, restarts included as `strace -c` does; `None` when the format does not tell.
    pub errors: Option<u64>,
    /// Time in the call, of the table's [`TimeKind`]; `None` when the file has no times.
    #[serde(rename = "seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub time: Option<Nanos>,
    /// Failed calls by errno name, where the format tells. A number from another system keeps where it
    /// is from: `EADDRNOTAVAIL (macOS 49)`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errnos: BTreeMap<String, u64>,
    /// Calls begun that never returned in the file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
    /// The shortest single call.
    #[serde(
        default,
        rename = "shortest_seconds",
        with = "seconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub shortest: Option<Nanos>,
    /// The longest single call.
    #[serde(
        default,
        rename = "longest_seconds",
        with = "seconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub longest: Option<Nanos>,
    /// Wall time, where the file has it beside the CPU time (`strace -c -U …,wall-total`).
    #[serde(
        default,
        rename = "wall_seconds",
        with = "seconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub wall: Option<Nanos>,
}

impl Row {
    /// Mean time of one call; `None` without times or calls.
    pub fn mean(&self) -> Option<Nanos> {
        let calls = self.calls.filter(|n| *n > 0)?;
        self.time.map(|time| Nanos(time.0 / calls))
    }

    /// Calls, 0 when the file does not tell them.
    pub fn calls(&self) -> u64 {
        self.calls.unwrap_or(0)
    }

    /// Calls that did not fail; all of them when the format does not tell errors.
    pub fn good(&self) -> u64 {
        self.calls().saturating_sub(self.errors.unwrap_or(0))
    }
}

/// What the total line of a table states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// Calls.
    pub calls: u64,
    /// Errors, when that column is there.
    pub errors: Option<u64>,
    /// Time.
    #[serde(rename = "seconds", with = "seconds")]
    #[schemars(with = "Option<f64>")]
    pub time: Option<Nanos>,
}

/// One table of a file. Several tables are several runs and are never added up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportedTable {
    /// What tells it from its neighbours: `line 12`, or the name the file gives it.
    pub label: String,
    /// The rows, in the order of the file.
    pub rows: Vec<Row>,
    /// The total line, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated: Option<Stated>,
}

impl ImportedTable {
    /// The sum of the rows' calls.
    pub fn sum_calls(&self) -> u64 {
        self.rows.iter().fold(0, |n, row| n.saturating_add(row.calls()))
    }

    /// The calls that the file states, or the sum of the rows.
    pub fn total_calls(&self) -> u64 {
        self.stated
            .map_or_else(|| self.sum_calls(), |stated| stated.calls)
    }

    /// The sum of the rows' errors; `None` when no row tells.
    pub fn sum_errors(&self) -> Option<u64> {
        self.rows
            .iter()
            .filter_map(|row| row.errors)
            .reduce(u64::saturating_add)
    }

    /// The sum of the rows' times; `None` when no row has one.
    pub fn sum_time(&self) -> Option<Nanos> {
        self.rows.iter().filter_map(|row| row.time).reduce(|a, b| a + b)
    }

    /// The row of a call, any ABI.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.syscall == name)
    }

    /// Calls of all the named system calls together.
    pub fn calls_of(&self, names: &[&str]) -> u64 {
        self.rows
            .iter()
            .filter(|row| names.contains(&row.syscall.as_str()))
            .map(Row::calls)
            .fold(0, u64::saturating_add)
    }
}

/// A count per process, which cannot be set beside counts per system call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessCount {
    /// Process id, where the file tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Command name, escaped; empty where the file has only ids.
    pub comm: String,
    /// Calls of all kinds.
    pub calls: u64,
    /// Time in them.
    #[serde(
        default,
        rename = "seconds",
        with = "seconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub time: Option<Nanos>,
}

impl ProcessCount {
    /// How the process is called in text.
    pub fn name(&self) -> String {
        match self.pid {
            Some(pid) if self.comm.is_empty() => format!("process {pid}"),
            Some(pid) => format!("{} ({pid})", self.comm),
            None => self.comm.clone(),
        }
    }
}

/// A thread or process whose table went into the sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// As the file names it, escaped (`php (14313)`).
    pub name: String,
    /// Calls in its table.
    pub total_calls: u64,
}

/// Lines that no part of the format explains.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnknownLines {
    /// How many.
    pub count: u64,
    /// The first ones: line number and text, escaped and cut.
    pub first: Vec<(u64, String)>,
}

impl UnknownLines {
    /// How many lines are kept to be shown.
    pub const KEPT: usize = 5;
    /// How many characters of each.
    pub const WIDTH: usize = 120;

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Notes a line.
    pub fn add(&mut self, number: u64, line: &[u8]) {
        self.count += 1;
        if self.first.len() < Self::KEPT {
            self.first.push((number, super::text::shown(line, Self::WIDTH)));
        }
    }

    /// Adds those of another part of the input.
    pub fn merge(&mut self, other: UnknownLines) {
        self.count += other.count;
        let room = Self::KEPT.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(room));
    }
}

/// A file, read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Imported {
    /// What it was read as.
    pub format: ImportFormat,
    /// What the times mean.
    pub time_kind: TimeKind,
    /// How that is known (`-T`, `CALL and RET stamps`); empty when nothing tells.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time_source: String,
    /// The tables. More than one: several runs, never added up.
    pub tables: Vec<ImportedTable>,
    /// Completed operations: given by the user, or counted in the log's payloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops: Option<u64>,
    /// Where `ops` is from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ops_source: String,
    /// Whether parts of the run are missing from the file.
    pub incomplete: bool,
    /// Why, a clause each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete_because: Vec<String>,
    /// Calls begun and never seen to return, over all rows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfinished: u64,
    /// Processes and threads seen, where the format tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Counts per process instead of per call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_process: Vec<ProcessCount>,
    /// Threads whose tables were merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// Errors seen in the trace lines beside a table of counts that has none (`dtruss -c`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors_from_log: BTreeMap<String, BTreeMap<String, u64>>,
    /// How long the run took, where the file says.
    #[serde(
        default,
        rename = "elapsed_seconds",
        with = "seconds",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub elapsed: Option<Nanos>,
    /// Calls that the tool was asked to count and could not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_counted: Vec<String>,
    /// Calls whose count the tool scaled up: an estimate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaled: Vec<String>,
    /// Whose system call numbers were assumed, where a file has only numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abi_assumed: Option<String>,
    /// Limits and counters read from pasted system state, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, serde_json::Value>,
    /// What a log shows beyond its counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Box<LogFacts>>,
    /// Lines of the file that nothing here understands.
    pub unknown_lines: UnknownLines,
    /// Times and numbers that no run can have (`<-1>`, more than 64 bits hold), by line: they were left out.
    #[serde(default, skip_serializing_if = "UnknownLines::is_empty")]
    pub unusable_values: UnknownLines,
    /// What a reader of the counts must know, one sentence each.
    pub notes: Vec<String>,
}

impl Imported {
    /// An empty import of a format.
    pub fn new(format: ImportFormat) -> Imported {
        Imported {
            format,
            time_kind: TimeKind::None,
            time_source: String::new(),
            tables: Vec::new(),
            ops: None,
            ops_source: String::new(),
            incomplete: false,
            incomplete_because: Vec::new(),
            unfinished: 0,
            processes: None,
            by_process: Vec::new(),
            groups: Vec::new(),
            errors_from_log: BTreeMap::new(),
            elapsed: None,
            not_counted: Vec::new(),
            scaled: Vec::new(),
            abi_assumed: None,
            values: BTreeMap::new(),
            facts: None,
            unknown_lines: UnknownLines::default(),
            unusable_values: UnknownLines::default(),
            notes: Vec::new(),
        }
    }

    /// Marks the import as incomplete.
    pub fn cut(&mut self, because: impl Into<String>) {
        self.incomplete = true;
        self.incomplete_because.push(because.into());
    }

    /// The only table, when there is exactly one.
    pub fn only_table(&self) -> Option<&ImportedTable> {
        match self.tables.as_slice() {
            [table] => Some(table),
            _ => None,
        }
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Spans of time as seconds with nine decimals, the unit of every format read here.
pub(crate) mod seconds {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::units::Nanos;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Nanos>, out: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => out.serialize_f64(time.as_secs_f64()),
            None => out.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Nanos>, D::Error> {
        let seconds = Option::<f64>::deserialize(input)?;
        match seconds {
            None => Ok(None),
            // As long as 2^64 ns, which a file may well claim; the cast stops there.
            Some(s) if s.is_finite() && (0.0..=1.8447e10).contains(&s) => {
                Ok(Some(Nanos((s * 1e9).round() as u64)))
            }
            Some(s) => Err(serde::de::Error::custom(format!("{s} is not a span of seconds"))),
        }
    }
}
