//! The heading of a table: which columns it has.

use super::super::text;

/// What the columns of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
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

    pub(super) fn is_name(self) -> bool {
        matches!(self, Column::Name | Column::Function)
    }

    pub(super) fn is_count(self) -> bool {
        matches!(
            self,
            Column::Average | Column::Calls | Column::Errors | Column::WallAverage
        )
    }
}

/// A heading line.
#[derive(Debug)]
pub(super) struct Heading {
    pub(super) columns: Vec<Column>,
    /// What stands before it on every line (`php_1  | `).
    pub(super) prefix: Vec<u8>,
}

impl Heading {
    pub(super) fn parse(line: &[u8]) -> Option<Heading> {
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

pub(super) const CLASSIC: [Column; 6] = [
    Column::Percent,
    Column::Seconds,
    Column::Average,
    Column::Calls,
    Column::Errors,
    Column::Name,
];
