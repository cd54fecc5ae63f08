//! The table itself: heading, rows, total, and which number belongs to which column.

use super::super::model::{ImportedTable, Row, Stated, TimeKind};
use super::super::rows::Rows;
use super::super::{number, text};
use crate::units::Nanos;

/// What the columns of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Percent,
    Seconds,
    Shortest,
    Longest,
    Average,
    Calls,
    Errors,
    Name,
    Function,
    WallTotal,
    WallMin,
    WallMax,
    WallAverage,
}

impl Column {
    fn named(word: &[u8]) -> Option<Column> {
        Some(match word {
            b"seconds" => Column::Seconds,
            b"shortest" => Column::Shortest,
            b"longest" => Column::Longest,
            b"usecs/call" => Column::Average,
            b"calls" => Column::Calls,
            b"errors" => Column::Errors,
            b"syscall" => Column::Name,
            b"function" => Column::Function,
            b"wall-total" => Column::WallTotal,
            b"wall-min" => Column::WallMin,
            b"wall-max" => Column::WallMax,
            b"wall-avg" => Column::WallAverage,
            _ => return None,
        })
    }

    fn is_name(self) -> bool {
        matches!(self, Column::Name | Column::Function)
    }

    fn is_count(self) -> bool {
        matches!(
            self,
            Column::Average | Column::Calls | Column::Errors | Column::WallAverage
        )
    }
}

/// A heading line.
#[derive(Debug)]
struct Heading {
    columns: Vec<Column>,
    /// What stands before it on every line (`php_1  | `).
    prefix: Vec<u8>,
}

impl Heading {
    fn parse(line: &[u8]) -> Option<Heading> {
        // A heading names its columns in a few words; prose that mentions them is longer.
        if line.len() > 400 || !text::contains(line, "syscall") && !text::contains(line, "function") {
            return None;
        }
        Heading::columns_of(line)
            .map(|columns| Heading {
                columns,
                prefix: Vec::new(),
            })
            .or_else(|| {
                let at = memchr::memmem::find(line, b"% time")?;
                Some(Heading {
                    columns: Heading::columns_of(&line[at..])?,
                    prefix: line[..at].to_vec(),
                })
            })
    }

    fn columns_of(line: &[u8]) -> Option<Vec<Column>> {
        let bare: Vec<u8> = line.iter().map(|b| if *b == b'|' { b' ' } else { *b }).collect();
        let mut words = text::fields(&bare).into_iter().peekable();
        let mut columns = Vec::new();
        while let Some(word) = words.next() {
            let column = if word == b"%" && words.peek() == Some(&&b"time"[..]) {
                words.next();
                Column::Percent
            } else {
                Column::named(word)?
            };
            if columns.contains(&column) {
                return None;
            }
            columns.push(column);
        }
        let names = columns.iter().filter(|c| c.is_name()).count();
        (names == 1 && columns.len() >= 2).then_some(columns)
    }
}

const CLASSIC: [Column; 6] = [
    Column::Percent,
    Column::Seconds,
    Column::Average,
    Column::Calls,
    Column::Errors,
    Column::Name,
];

/// Numbers of one row by column.
#[derive(Debug, Default, Clone)]
struct Cells {
    seconds: Option<Nanos>,
    shortest: Option<Nanos>,
    longest: Option<Nanos>,
    wall: Option<Nanos>,
    average: Option<u64>,
    calls: Option<u64>,
    errors: Option<u64>,
}

/// A row before it is known which table it belongs to.
#[derive(Debug)]
struct RawRow<'a> {
    numbers: Vec<&'a [u8]>,
    name: &'a [u8],
}

/// A line without the marks of Markdown and forums that can stand around it or its cells.
fn unmarked(line: &[u8]) -> Option<Vec<u8>> {
    let trimmed = text::trim(line);
    let piped = trimmed.starts_with(b"|");
    let marked = piped
        || matches!(trimmed.first(), Some(b'`' | b'*'))
        || matches!(trimmed.last(), Some(b'`' | b'*' | b']'))
        || line.contains(&b'\\');
    if !marked {
        return None;
    }
    let mut bare: Vec<u8> = line
        .iter()
        .filter(|b| **b != b'\\')
        .map(|b| match b {
            b'|' if piped => b' ',
            b'`' | b'*' => b' ',
            other => *other,
        })
        .collect();
    // `total[/code]`
    if bare.trim_ascii_end().ends_with(b"]")
        && let Some(open) = memchr::memmem::rfind(&bare, b"[/")
    {
        bare.truncate(open);
    }
    Some(bare)
}

/// Whether a line can be a row or a heading whose last word stands on the next line.
fn is_half(line: &[u8]) -> bool {
    let fields = text::fields(line);
    let row = fields.len() >= 3
        && fields.iter().all(|f| is_number(f))
        && fields.iter().any(|f| !number::is_digits(f));
    let heading = text::trim(line).starts_with(b"% time") && fields.contains(&b"calls".as_slice());
    line.len() < 200 && (row || heading)
}

fn is_number(field: &[u8]) -> bool {
    number::is_decimal(field) || matches!(field, b"nan" | b"-nan")
}

fn split_row(line: &[u8], flavour: Flavour) -> Option<RawRow<'_>> {
    let fields = text::fields_at(line);
    let name_at = fields.iter().position(|(f, _)| !is_number(f))?;
    let numbers_before = fields[..name_at].iter().map(|(f, _)| *f);
    let (name, name_end) = fields[name_at];
    match flavour {
        // C++ names have spaces in them, and the name stands last.
        Flavour::Ltrace => Some(RawRow {
            numbers: numbers_before.collect(),
            name: text::trim(&line[name_end - name.len()..]),
        }),
        Flavour::Strace => {
            let after = &fields[name_at + 1..];
            if after.iter().any(|(f, _)| !is_number(f)) {
                return None;
            }
            Some(RawRow {
                numbers: numbers_before.chain(after.iter().map(|(f, _)| *f)).collect(),
                name,
            })
        }
    }
}

/// A row that can stand without a heading: a share with two decimals, seconds with six, whole numbers,
/// and a name.
fn fragment_row(line: &[u8]) -> Option<RawRow<'_>> {
    let row = split_row(line, Flavour::Strace)?;
    let decimals = |field: &[u8]| {
        field
            .iter()
            .position(|b| matches!(b, b'.' | b','))
            .map(|at| field.len() - at - 1)
    };
    let shape = (4..=5).contains(&row.numbers.len())
        && decimals(row.numbers[0]) == Some(2)
        && decimals(row.numbers[1]) == Some(6)
        && row.numbers[2..].iter().all(|f| number::is_digits(f))
        && is_syscall_name(row.name);
    shape.then_some(row)
}

/// Whether a line can be a row of a table that lost its heading.
pub(super) fn is_fragment(line: &[u8]) -> bool {
    fragment_row(line).is_some()
}

fn is_syscall_name(name: &[u8]) -> bool {
    name.first()
        .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

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

fn too_large(field: &[u8]) -> bool {
    if number::is_digits(field) {
        number::uint(field).is_none()
    } else {
        number::is_decimal(field) && number::seconds(field).is_none()
    }
}

fn assign(columns: &[Column], numbers: &[&[u8]]) -> Option<Cells> {
    if columns.len() != numbers.len() {
        return None;
    }
    let mut cells = Cells::default();
    for (column, field) in columns.iter().zip(numbers) {
        if column.is_count() && !number::is_digits(field) {
            return None;
        }
        match column {
            Column::Percent => {}
            Column::Seconds => cells.seconds = Some(number::seconds(field)?),
            Column::Shortest | Column::WallMin => cells.shortest = Some(number::seconds(field)?),
            Column::Longest | Column::WallMax => cells.longest = Some(number::seconds(field)?),
            Column::WallTotal => cells.wall = Some(number::seconds(field)?),
            Column::Average => cells.average = Some(number::uint(field)?),
            Column::WallAverage => {
                number::uint(field)?;
            }
            Column::Calls => cells.calls = Some(number::uint(field)?),
            Column::Errors => cells.errors = Some(number::uint(field)?),
            Column::Name | Column::Function => return None,
        }
    }
    Some(cells)
}

impl Cells {
    fn plausible(&self) -> bool {
        self.errors.unwrap_or(0) <= self.calls.unwrap_or(0)
    }

    /// Whether the mean is what time and calls make it, to a microsecond.
    fn mean_fits(&self) -> bool {
        let (Some(mean), Some(time), Some(calls)) = (self.average, self.seconds, self.calls) else {
            return false;
        };
        calls > 0 && (time.0 / calls / 1_000).abs_diff(mean) <= 1
    }
}
