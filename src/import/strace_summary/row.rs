//! One row of a table: its fields, and which number belongs to which column.

use super::super::{number, text};
use super::heading::Column;
use super::table::Flavour;
use crate::units::Nanos;

/// Numbers of one row by column.
#[derive(Debug, Default, Clone)]
pub(super) struct Cells {
    pub(super) seconds: Option<Nanos>,
    pub(super) shortest: Option<Nanos>,
    pub(super) longest: Option<Nanos>,
    pub(super) wall: Option<Nanos>,
    pub(super) average: Option<u64>,
    pub(super) calls: Option<u64>,
    pub(super) errors: Option<u64>,
}

/// A row before it is known which table it belongs to.
#[derive(Debug)]
pub(super) struct RawRow<'a> {
    pub(super) numbers: Vec<&'a [u8]>,
    pub(super) name: &'a [u8],
}

/// A line without the marks of Markdown and forums that can stand around it or its cells.
pub(super) fn unmarked(line: &[u8]) -> Option<Vec<u8>> {
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
pub(super) fn is_half(line: &[u8]) -> bool {
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

pub(super) fn split_row(line: &[u8], flavour: Flavour) -> Option<RawRow<'_>> {
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
pub(super) fn fragment_row(line: &[u8]) -> Option<RawRow<'_>> {
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

pub(super) fn too_large(field: &[u8]) -> bool {
    if number::is_digits(field) {
        number::uint(field).is_none()
    } else {
        number::is_decimal(field) && number::seconds(field).is_none()
    }
}

pub(super) fn assign(columns: &[Column], numbers: &[&[u8]]) -> Option<Cells> {
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
    pub(super) fn plausible(&self) -> bool {
        self.errors.unwrap_or(0) <= self.calls.unwrap_or(0)
    }

    /// Whether the mean is what time and calls make it, to a microsecond.
    pub(super) fn mean_fits(&self) -> bool {
        let (Some(mean), Some(time), Some(calls)) = (self.average, self.seconds, self.calls) else {
            return false;
        };
        calls > 0 && (time.0 / calls / 1_000).abs_diff(mean) <= 1
    }
}
