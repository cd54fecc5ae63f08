//! Tables line by line: where each begins and ends, and its rows and totals.

use super::super::model::{ImportedTable, Row, Stated, TimeKind};
use super::super::rows::Rows;
use super::super::text;
use super::heading::{CLASSIC, Column, Heading};
use super::row::{Cells, RawRow, assign, fragment_row, is_fragment, is_half, split_row, too_large, unmarked};

/// Which tool printed the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::import) enum Flavour {
    /// strace: system calls.
    Strace,
    /// ltrace: functions, whose names may have spaces.
    Ltrace,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::import) enum Took {
    /// It is part of a table.
    Part,
    /// It is a row with a number beyond 64 bits.
    TooLarge,
    /// It is not part of a table.
    Not,
}

/// Reads tables line by line.
#[derive(Debug)]
pub(in crate::import) struct TableParser {
    flavour: Flavour,
    heading: Option<Heading>,
    rows: Rows,
    label: String,
    stated: Option<Stated>,
    /// A total line has ended the current table.
    closed: bool,
    /// The mode that the next heading belongs to (`x32`).
    next_abi: Option<String>,
    abi: Option<String>,
    tables: Vec<ImportedTable>,
    cut: Vec<String>,
    had_time: bool,
    had_wall_only: bool,
    /// The first half of a row.
    held: Option<Vec<u8>>,
    lost: u64,
}

/// What a [`TableParser`] found.
#[derive(Debug)]
pub(in crate::import) struct Parsed {
    /// The tables.
    pub(in crate::import) tables: Vec<ImportedTable>,
    /// Why some are not whole.
    pub(in crate::import) cut: Vec<String>,
    /// What the times can be.
    pub(in crate::import) time_kind: TimeKind,
}

impl TableParser {
    /// A parser before its first line.
    pub(in crate::import) fn new(flavour: Flavour) -> TableParser {
        TableParser {
            flavour,
            heading: None,
            rows: Rows::default(),
            label: String::new(),
            stated: None,
            closed: false,
            next_abi: None,
            abi: None,
            tables: Vec::new(),
            cut: Vec::new(),
            had_time: false,
            had_wall_only: false,
            held: None,
            lost: 0,
        }
    }

    /// Whether a line is the heading of such a table.
    pub(in crate::import) fn is_heading(line: &[u8], flavour: Flavour) -> bool {
        let name = match flavour {
            Flavour::Strace => Column::Name,
            Flavour::Ltrace => Column::Function,
        };
        Heading::parse(line).is_some_and(|heading| heading.columns.contains(&name))
    }

    /// Whether the current table has ended with its total line.
    pub(in crate::import) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a line is a heading whose last word was wrapped to the next line.
    pub(in crate::import) fn is_half_heading(line: &[u8]) -> bool {
        text::trim(line).starts_with(b"% time") && is_half(line)
    }

    /// Whether a closed table goes on with a line: the table of another mode, or rows without a heading.
    pub(in crate::import) fn goes_on(line: &[u8]) -> bool {
        line.starts_with(b"System call usage summary for ") || is_fragment(line)
    }

    /// Takes one line, already unwrapped.
    pub(in crate::import) fn line(&mut self, line: &[u8], number: u64) -> Took {
        if let Some(mode) = line
            .strip_prefix(b"System call usage summary for ")
            .and_then(|rest| text::trim(rest).strip_suffix(b" mode:"))
        {
            self.next_abi = Some(text::name(mode.strip_suffix(b" bit").unwrap_or(mode)));
            return Took::Part;
        }
        if let Some(heading) = Heading::parse(line) {
            self.lost += u64::from(self.held.take().is_some());
            self.begin(number);
            self.heading = Some(heading);
            return Took::Part;
        }
        let line = match &self.heading {
            Some(heading) if !heading.prefix.is_empty() => {
                line.strip_prefix(&heading.prefix[..]).unwrap_or(line)
            }
            Some(_) | None => line,
        };
        if self.heading.as_ref().is_some_and(|h| !h.prefix.is_empty()) && text::is_frame(line) {
            return Took::Part;
        }
        let bare = unmarked(line);
        let line = bare.as_deref().unwrap_or(line);
        if let Some(mut whole) = self.held.take() {
            // A narrow window or a forum has broken the row before its name.
            whole.push(b' ');
            whole.extend_from_slice(line);
            match self.whole_line(&whole, number) {
                Took::Not => self.lost += 1,
                took => return took,
            }
        }
        self.one_line(line, number)
    }

    /// Lines that were held for their second half, which never came, since this was last asked.
    pub(in crate::import) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    fn one_line(&mut self, line: &[u8], number: u64) -> Took {
        let took = self.whole_line(line, number);
        if took == Took::Not && self.flavour == Flavour::Strace && is_half(line) {
            self.held = Some(line.to_vec());
            return Took::Part;
        }
        took
    }

    fn whole_line(&mut self, line: &[u8], number: u64) -> Took {
        if let Some(heading) = Heading::parse(line) {
            self.begin(number);
            self.heading = Some(heading);
            return Took::Part;
        }
        let row = match &self.heading {
            Some(_) => split_row(line, self.flavour),
            None => fragment_row(line),
        };
        match row {
            Some(row) if !row.numbers.is_empty() || self.heading_without_times() => self.row(&row, number),
            Some(_) | None => Took::Not,
        }
    }

    /// A heading of names and errors only has rows that are a name only.
    fn heading_without_times(&self) -> bool {
        self.heading
            .as_ref()
            .is_some_and(|h| h.columns.len() == 2 && h.columns.contains(&Column::Errors))
    }

    /// Closes the current table before a new one, or goes on in it when the new heading is that of
    /// another ABI of the same run.
    fn begin(&mut self, number: u64) {
        if let Some(abi) = self.next_abi.take() {
            if self.abi.is_none() {
                // The first table of a run has no heading of its own: it is the native mode's.
                let mut native = Rows::default();
                for mut row in self.rows.take() {
                    row.abi = Some("64".to_owned());
                    native.add(row);
                }
                self.rows = native;
            }
            self.abi = Some(abi);
            self.closed = false;
        } else {
            self.end();
            self.label = format!("line {number}");
        }
        if self.label.is_empty() {
            self.label = format!("line {number}");
        }
    }

    fn end(&mut self) {
        if self.rows.is_empty() && self.stated.is_none() {
            return;
        }
        if self.heading.is_some() && self.stated.is_none() && !self.closed {
            self.cut.push(format!(
                "{}: the table has no total line: its end is missing",
                self.label
            ));
        }
        self.tables.push(ImportedTable {
            label: std::mem::take(&mut self.label),
            rows: self.rows.take(),
            stated: self.stated.take(),
        });
        self.closed = false;
        self.abi = None;
    }

    fn row(&mut self, row: &RawRow<'_>, number: u64) -> Took {
        let columns: Vec<Column> = match &self.heading {
            Some(heading) => heading.columns.clone(),
            None => CLASSIC.to_vec(),
        };
        let is_total = row.name == b"total";
        let cells = match self.cells(&columns, &row.numbers, is_total) {
            Some(cells) => cells,
            None if row.numbers.iter().any(|n| too_large(n)) => return Took::TooLarge,
            None => return Took::Not,
        };
        // -U without calls.
        let counted = columns.contains(&Column::Calls);
        if counted && cells.calls.is_none() {
            return Took::Not;
        }
        self.had_time |= cells.seconds.is_some();
        self.had_wall_only |= cells.seconds.is_none() && cells.wall.is_some();
        if is_total && !counted {
            self.closed = true;
            return Took::Part;
        }
        if is_total {
            let more = Stated {
                calls: cells.calls.unwrap_or(0),
                errors: columns
                    .contains(&Column::Errors)
                    .then(|| cells.errors.unwrap_or(0)),
                time: cells.seconds.or(cells.wall),
            };
            self.stated = Some(match self.stated {
                // The total of another ABI of the same run.
                Some(have) if self.abi.is_some() && !self.closed => Stated {
                    calls: have.calls.saturating_add(more.calls),
                    errors: have.errors.zip(more.errors).map(|(a, b)| a.saturating_add(b)),
                    time: have.time.zip(more.time).map(|(a, b)| a + b),
                },
                Some(_) | None => more,
            });
            self.closed = true;
            return Took::Part;
        }
        let name = text::name(row.name);
        // A name twice, or a row below a total, begins another run that lost its heading.
        if self.closed || self.rows.has(&name, self.abi.as_deref()) {
            self.end();
            self.label = format!("line {number}");
        }
        if self.label.is_empty() {
            self.label = format!("line {number}");
        }
        let fits = self.rows.add(Row {
            syscall: name,
            abi: self.abi.clone(),
            calls: cells.calls,
            errors: columns
                .contains(&Column::Errors)
                .then(|| cells.errors.unwrap_or(0)),
            time: cells.seconds.or(cells.wall),
            shortest: cells.shortest,
            longest: cells.longest,
            wall: cells.seconds.and(cells.wall),
            ..Row::default()
        });
        if fits { Took::Part } else { Took::Not }
    }

    /// Which number belongs to which column: the errors cell is blank when there were none, and old
    /// versions leave the mean blank in the total line.
    fn cells(&self, columns: &[Column], numbers: &[&[u8]], is_total: bool) -> Option<Cells> {
        let all: Vec<Column> = columns.iter().copied().filter(|c| !c.is_name()).collect();
        let without = |left_out: &[Column]| -> Vec<Column> {
            all.iter().copied().filter(|c| !left_out.contains(c)).collect()
        };
        let attempt = |left_out: &[Column]| assign(&without(left_out), numbers);
        match all.len().checked_sub(numbers.len())? {
            0 => attempt(&[]),
            1 if !is_total => attempt(&[Column::Errors]).or_else(|| attempt(&[Column::Average])),
            1 => {
                let no_errors = attempt(&[Column::Errors]).filter(|cells| cells.plausible());
                let no_mean = attempt(&[Column::Average]).filter(|cells| cells.plausible());
                match (no_errors, no_mean) {
                    (Some(a), Some(b)) => {
                        let sum = self.rows_sum();
                        Some(
                            if b.calls == Some(sum) || !a.mean_fits() && a.calls != Some(sum) {
                                b
                            } else {
                                a
                            },
                        )
                    }
                    (a, b) => a.or(b),
                }
            }
            2 if is_total => attempt(&[Column::Errors, Column::Average]),
            _ => None,
        }
    }

    fn rows_sum(&self) -> u64 {
        self.rows.sum_calls(self.abi.as_deref())
    }

    /// Ends the last table.
    pub(in crate::import) fn finish(mut self) -> Parsed {
        self.end();
        if self.held.is_some() && !self.tables.is_empty() {
            // The file ends in the middle of a row.
            let why = "the file ends in the middle of a row".to_owned();
            self.cut.push(why);
        }
        Parsed {
            time_kind: if self.had_time {
                TimeKind::Unknown
            } else if self.had_wall_only {
                TimeKind::Wall
            } else {
                TimeKind::None
            },
            tables: self.tables,
            cut: self.cut,
        }
    }
}
