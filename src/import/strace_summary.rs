//! Tables of `strace -c`, of every version, and the parser that `ltrace -c` shares.
//!
//! Columns are taken from the heading, never by position in a fixed layout: `-U` chooses and orders
//! them, numbers grow out of their columns, and the errors cell of a row is blank when there were none.

use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::{Imported, ImportedTable, Row, Stated, TimeKind};
use super::rows::Rows;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};
use crate::units::Nanos;

/// The importer.
pub(super) struct StraceSummary;

impl Importer for StraceSummary {
    fn format(&self) -> ImportFormat {
        ImportFormat::StraceSummary
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        let table = |line: &[u8]| {
            Heading::parse(line).is_some_and(|h| !h.columns.contains(&Column::Function))
                || fragment_row(line).is_some()
                || line.starts_with(b"System call usage summary for ")
        };
        match head.any(table) {
            // strace that saw no call finish prints its notices and no table.
            Sniff::No if head.any(|l| is_notice(l) || complaint(l).is_some()) == Sniff::Yes => Sniff::Yes,
            answer => answer,
        }
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut parser = TableParser::new(Flavour::Strace);
        let mut imported = Imported::new(self.format());
        let mut notices = 0_u64;
        let mut complaints = 0_u64;
        let mut wall_hint = None;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            if is_notice(&clean) {
                notices += 1;
            } else if let Some(message) = complaint(&clean) {
                complaints += 1;
                if complaints <= 5 {
                    imported.notes.push(complaint_note(message));
                }
            } else {
                match parser.line(&clean, line.number) {
                    Took::Part => {}
                    Took::TooLarge => imported.notes.push(format!(
                        "line {}: a number does not fit in 64 bits; the row is not counted",
                        line.number
                    )),
                    Took::Not if text::is_noise(&clean) => {}
                    Took::Not => imported.unknown_lines.add(line.number, line.text),
                }
                if let Some(wall) = command_line(&clean) {
                    wall_hint = Some((wall, line.number));
                }
            }
            ControlFlow::Continue(())
        })?;
        let parsed = parser.finish();
        if parsed.tables.is_empty() && notices + complaints == 0 {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        if parsed.tables.is_empty() && complaints > 0 {
            imported.cut("strace complained and printed no table");
            return Ok(imported);
        }
        if parsed.tables.is_empty() {
            imported.notes.push(
                "no system call finished during the capture: the process was blocked in one call the whole time, \
                 which is not the same as no work; /proc/PID/syscall or strace without -c shows the call it is in"
                    .to_owned(),
            );
            return Ok(imported);
        }
        imported.time_kind = parsed.time_kind;
        imported.tables = parsed.tables;
        for because in parsed.cut {
            imported.cut(because);
        }
        if parsed.time_kind == TimeKind::Unknown {
            imported.notes.push(
                "strace -c and strace -c -w print the same heading: the time column may be CPU time (without -w, \
                 waits are not in it) or wall time (with -w)"
                    .to_owned(),
            );
        }
        if let Some((wall, line)) = wall_hint {
            imported.notes.push(format!(
                "line {line} shows a strace command {}",
                if wall {
                    "with -w: the times are then wall time"
                } else {
                    "with -c and without -w: the times are then system CPU time"
                }
            ));
        }
        if imported
            .tables
            .iter()
            .flat_map(|t| &t.rows)
            .any(|row| row.abi.is_some())
        {
            imported.notes.push(
                "calls of more than one ABI: the same name in another mode is another call, and a 32-bit or x32 \
                 process took part"
                    .to_owned(),
            );
        }
        Ok(imported)
    }
}

/// Whether a pasted shell line runs `strace -c`, and if so whether with `-w`.
fn command_line(line: &[u8]) -> Option<bool> {
    let fields = text::fields(line);
    let at = fields
        .iter()
        .position(|f| f.ends_with(b"strace") && f.len() < 40)?;
    // A prompt, sudo, time, variables; prose is something else.
    let prompt = |f: &&[u8]| {
        f.ends_with(b"$")
            || f.ends_with(b"#")
            || f.contains(&b'=')
            || f.starts_with(b"-")
            || matches!(*f, b"sudo" | b"time")
    };
    if !fields[..at].iter().all(prompt) {
        return None;
    }
    let mut summary = false;
    let mut wall = false;
    for field in &fields[at + 1..] {
        match field.strip_prefix(b"-") {
            Some(b"-summary-only" | b"-summary") => summary = true,
            Some(b"-summary-wall-clock") => wall = true,
            Some(flags) if !flags.starts_with(b"-") => {
                // Letters up to the first option that takes a value.
                for flag in flags.iter().take_while(|f| !b"eopsSUaEIObPuX".contains(f)) {
                    summary |= matches!(flag, b'c' | b'C');
                    wall |= *flag == b'w';
                }
            }
            Some(_) | None => {}
        }
    }
    summary.then_some(wall)
}

/// strace's own messages about processes and modes.
pub(super) fn is_notice(line: &[u8]) -> bool {
    let line = text::trim(line);
    let line = line.strip_prefix(b"strace: ").unwrap_or(line);
    let digits_then = |rest: &[u8]| {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        digits > 0
            && [
                " attached",
                " detached",
                " resumed",
                " suspended",
                " runs in ",
                " exited",
            ]
            .iter()
            .any(|word| rest[digits..].starts_with(word.as_bytes()))
    };
    match line.strip_prefix(b"Process ") {
        Some(rest) => digits_then(rest),
        None => line
            .strip_prefix(b"[ Process PID=")
            .is_some_and(|rest| rest.starts_with(b" ") || digits_then(rest)),
    }
}

/// What else strace says on its own behalf (`strace: attach: ptrace(PTRACE_SEIZE, 7): Operation not permitted`).
pub(super) fn complaint(line: &[u8]) -> Option<&[u8]> {
    let message = text::trim(line).strip_prefix(b"strace: ")?;
    (!message.is_empty() && !is_notice(message)).then_some(message)
}

/// What a complaint means for the counts.
pub(super) fn complaint_note(message: &[u8]) -> String {
    let shown = text::shown(message, 120);
    if text::contains(message, "not permitted") {
        format!(
            "strace was not allowed to trace (“{shown}”): as another user, without CAP_SYS_PTRACE in a container, \
             under a seccomp or AppArmor profile, with kernel.yama.ptrace_scope above 0, or because something else \
             traces the process already"
        )
    } else {
        format!("strace said: “{shown}”")
    }
}

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

fn is_syscall_name(name: &[u8]) -> bool {
    name.first()
        .is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// Which tool printed the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    /// strace: system calls.
    Strace,
    /// ltrace: functions, whose names may have spaces.
    Ltrace,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Took {
    /// It is part of a table.
    Part,
    /// It is a row with a number beyond 64 bits.
    TooLarge,
    /// It is not part of a table.
    Not,
}

/// Reads tables line by line.
#[derive(Debug)]
pub(super) struct TableParser {
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
}

/// What a [`TableParser`] found.
#[derive(Debug)]
pub(super) struct Parsed {
    /// The tables.
    pub(super) tables: Vec<ImportedTable>,
    /// Why some are not whole.
    pub(super) cut: Vec<String>,
    /// What the times can be.
    pub(super) time_kind: TimeKind,
}

impl TableParser {
    /// A parser before its first line.
    pub(super) fn new(flavour: Flavour) -> TableParser {
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
        }
    }

    /// Whether a line is the heading of such a table.
    pub(super) fn is_heading(line: &[u8], flavour: Flavour) -> bool {
        let name = match flavour {
            Flavour::Strace => Column::Name,
            Flavour::Ltrace => Column::Function,
        };
        Heading::parse(line).is_some_and(|heading| heading.columns.contains(&name))
    }

    /// Whether the current table has ended with its total line.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes one line, already unwrapped.
    pub(super) fn line(&mut self, line: &[u8], number: u64) -> Took {
        if let Some(mode) = line
            .strip_prefix(b"System call usage summary for ")
            .and_then(|rest| text::trim(rest).strip_suffix(b" mode:"))
        {
            self.next_abi = Some(text::name(mode.strip_suffix(b" bit").unwrap_or(mode)));
            return Took::Part;
        }
        if let Some(heading) = Heading::parse(line) {
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
        let piped = text::trim(line).starts_with(b"|").then(|| {
            line.iter()
                .map(|b| if *b == b'|' { b' ' } else { *b })
                .collect::<Vec<u8>>()
        });
        let line = piped.as_deref().unwrap_or(line);
        let row = match &self.heading {
            Some(_) => split_row(line, self.flavour),
            None => fragment_row(line),
        };
        match row {
            Some(row) if !row.numbers.is_empty() => self.row(&row, number),
            Some(_) | None => Took::Not,
        }
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
        if self.heading.is_some() && self.stated.is_none() {
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
        let Some(calls) = cells.calls else {
            return Took::Not;
        };
        self.had_time |= cells.seconds.is_some();
        self.had_wall_only |= cells.seconds.is_none() && cells.wall.is_some();
        if is_total {
            let more = Stated {
                calls,
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
            calls: Some(calls),
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
    pub(super) fn finish(mut self) -> Parsed {
        self.end();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn import(text: &str) -> Imported {
        StraceSummary.import(&mut text.as_bytes()).unwrap()
    }

    #[test]
    fn chosen_columns_in_any_order() {
        let imported = import(
            "syscall              calls    errors  longest\n\
             ---------------- --------- --------- --------\n\
             read                     3           0.000007\n\
             access                   1         1 0.000001\n\
             ---------------- --------- --------- --------\n\
             total                    4         1 0.000007\n",
        );
        let table = &imported.tables[0];
        assert_eq!(imported.time_kind, TimeKind::None);
        assert_eq!((table.rows[0].calls(), table.rows[0].errors), (3, Some(0)));
        assert_eq!(table.rows[0].longest, Some(Nanos(7_000)));
        assert_eq!((table.rows[1].calls(), table.rows[1].errors), (1, Some(1)));
        assert_eq!(table.stated.map(|s| (s.calls, s.errors)), Some((4, Some(1))));
        assert!(!imported.incomplete);
    }

    #[test]
    fn cpu_and_wall_side_by_side() {
        let imported = import(
            "    seconds  wall-total     calls    errors syscall\n\
             ----------- ----------- --------- --------- ----------------\n\
                0.000010    1.000000         2           poll\n\
             ----------- ----------- --------- --------- ----------------\n\
                0.000010    1.000000         2           total\n",
        );
        let row = &imported.tables[0].rows[0];
        assert_eq!(
            (row.time, row.wall),
            (Some(Nanos(10_000)), Some(Nanos(1_000_000_000)))
        );
    }

    #[test]
    fn a_markdown_table_and_a_container_prefix() {
        let piped = import(
            "| % time | seconds | usecs/call | calls | errors | syscall |\n|---|---|---|---|---|---|\n\
             | 60.00 | 0.000006 | 3 | 2 | 1 | read |\n| 40.00 | 0.000004 | 2 | 2 |  | write |\n",
        );
        assert_eq!(piped.tables[0].rows[1].calls(), 2);
        let prefixed = import(
            "php_1  | % time     seconds  usecs/call     calls    errors syscall\n\
             php_1  | 100.00    0.000004           2         2         1 read\n",
        );
        assert_eq!(prefixed.tables[0].rows[0].errors, Some(1));
    }

    #[test]
    fn old_totals_without_a_mean_and_new_ones_without_errors() {
        let old = import(
            "% time     seconds  usecs/call     calls    errors syscall\n 99.00    0.000012           4         3           read\n\
              1.00    0.000000           0         2         2 access\n100.00    0.000012                     5         2 total\n",
        );
        assert_eq!(
            old.tables[0].stated.map(|s| (s.calls, s.errors)),
            Some((5, Some(2)))
        );
        let new = import(
            "% time     seconds  usecs/call     calls    errors syscall\n100.00    0.000012           4         3           read\n\
             100.00    0.000012           4         3           total\n",
        );
        assert_eq!(
            new.tables[0].stated.map(|s| (s.calls, s.errors)),
            Some((3, Some(0)))
        );
    }

    #[test]
    fn a_cut_table_says_so_and_a_too_large_number_too() {
        let imported = import(
            "% time     seconds  usecs/call     calls    errors syscall\n 60.00    0.000006           3         2         1 read\n\
              40.00    0.000004           3         99999999999999999999         1 write\n",
        );
        assert!(imported.incomplete);
        assert_eq!(imported.tables[0].rows.len(), 1);
        assert!(imported.notes.iter().any(|n| n.contains("64 bits")));
    }

    #[test]
    fn the_command_line_is_a_hint() {
        assert_eq!(command_line(b"$ strace -c -w php x.php"), Some(true));
        assert_eq!(command_line(b"# sudo strace -cfw -p 1"), Some(true));
        assert_eq!(command_line(b"strace -f -c -e write x"), Some(false));
        assert_eq!(command_line(b"strace -p 5"), None);
        assert_eq!(command_line(b"we used strace and then -c"), None);
    }
}
