//! `dtruss` of macOS: its log, and its table (`-c`), which stands behind the log of the same run.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::ops::ControlFlow;

use super::errnos::{System, label, name_of};
use super::facts::collect::{Call, Collector};
use super::model::{Imported, ImportedTable, Row, TimeKind};
use super::names::Names;
use super::rows::Rows;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};
use crate::units::total;

const MICROSECOND: u64 = 1_000;

/// The importer of tables.
pub(super) struct DtrussC;
/// The importer of logs.
pub(super) struct DtrussLog;

/// Columns that options put before the call: `-f` and `-a` the ids, `-d` the relative stamp, `-e` the
/// elapsed time, `-o` the CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Ids,
    Relative,
    Elapsed,
    Cpu,
}

fn heading(line: &[u8]) -> Option<Vec<Column>> {
    let at = memchr::memmem::find(line, b"SYSCALL(args)")?;
    if !text::contains(&line[at..], "= return") {
        return None;
    }
    text::fields(&line[..at])
        .into_iter()
        .map(|word| {
            Some(match word {
                b"PID/THRD" => Column::Ids,
                b"RELATIVE" => Column::Relative,
                b"ELAPSD" => Column::Elapsed,
                b"CPU" => Column::Cpu,
                _ => return None,
            })
        })
        .collect()
}

fn is_count_heading(line: &[u8]) -> bool {
    text::fields(line) == [b"CALL".as_slice(), b"COUNT".as_slice()]
}

/// `close_nocancel          12`
fn count_row(line: &[u8]) -> Option<Row> {
    let fields = text::fields(line);
    match fields.as_slice() {
        [name, count] if !name.first().is_some_and(u8::is_ascii_digit) => Some(Row {
            syscall: text::name(name),
            calls: Some(number::uint(count)?),
            ..Row::default()
        }),
        _ => None,
    }
}

/// One line of the log.
#[derive(Debug)]
struct Traced<'a> {
    pid: u32,
    at: Option<u64>,
    elapsed: Option<u64>,
    cpu: Option<u64>,
    name: &'a [u8],
    args: &'a [u8],
    ret: Option<i64>,
    /// The number behind `Err#`; negative ones are no errors (`EJUSTRETURN` is -2).
    error: i64,
}

fn traced<'a>(line: &'a [u8], columns: &[Column]) -> Option<Traced<'a>> {
    let mut rest = text::trim(line);
    let mut traced = Traced {
        pid: 0,
        at: None,
        elapsed: None,
        cpu: None,
        name: &[],
        args: &[],
        ret: None,
        error: 0,
    };
    let mut columns = columns.iter();
    // Without a heading only the ids can be told from what they look like.
    loop {
        let end = rest.iter().position(|b| matches!(b, b' ' | b'\t'))?;
        let word = &rest[..end];
        if let Some(slash) = word
            .iter()
            .position(|b| *b == b'/')
            .filter(|at| number::is_digits(&word[..*at]))
        {
            traced.pid = number::uint(&word[..slash]).and_then(|n| u32::try_from(n).ok())?;
            if columns.as_slice().first() == Some(&Column::Ids) {
                columns.next();
            }
        } else if number::is_digits(word) {
            let value = number::uint(word)?.checked_mul(MICROSECOND)?;
            match columns.next() {
                Some(Column::Relative) => traced.at = Some(value),
                Some(Column::Elapsed) => traced.elapsed = Some(value),
                Some(Column::Cpu) => traced.cpu = Some(value),
                Some(Column::Ids) | None => return None,
            }
        } else {
            break;
        }
        rest = text::trim(&rest[end..]);
    }
    let length = rest
        .iter()
        .position(|b| !b.is_ascii_alphanumeric() && *b != b'_')
        .filter(|n| *n > 0 && *n <= 64)?;
    traced.name = &rest[..length];
    let body = rest[length..].strip_prefix(b"(")?;
    let equals = memchr::memmem::rfind(body, b" = ")?;
    let args = text::trim(&body[..equals]);
    traced.args = args.strip_suffix(b")")?;
    let result = text::fields(&body[equals + 3..]);
    let (value, after) = result.split_first()?;
    traced.ret = Some(number::int(value)?);
    // `= 3 0` and `= -1 Err#2`; strace has nothing like the second field.
    let last = after.first()?;
    traced.error = match last.strip_prefix(b"Err#") {
        Some(error) => number::int(error)?,
        None => {
            number::int(last)?;
            0
        }
    };
    Some(traced)
}

fn is_noise(line: &[u8]) -> bool {
    text::is_noise(line) || text::trim(line).starts_with(b"dtrace: ")
}

impl Importer for DtrussC {
    fn format(&self) -> ImportFormat {
        ImportFormat::DtrussC
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        // The table comes last: a long log hides it, and then the log is what is read.
        head.any(is_count_heading)
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut rows = Rows::default();
        let mut columns = Vec::new();
        let mut counting = false;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            if is_count_heading(&clean) {
                if !rows.is_empty() {
                    // Another run below the first.
                    let label = format!("run {}", imported.tables.len() + 1);
                    imported.tables.push(std::mem::take(&mut rows).into_table(label));
                }
                counting = true;
            } else if let Some(found) = heading(&clean) {
                columns = found;
                counting = false;
            } else if let Some(row) = count_row(&clean).filter(|_| counting) {
                if !rows.add(row) {
                    imported.unknown_lines.add(line.number, line.text);
                }
            } else if let Some(traced) = traced(&clean, &columns) {
                if traced.error > 0 && imported.errors_from_log.len() < 512 {
                    let error = error_of(&traced);
                    *imported
                        .errors_from_log
                        .entry(text::name(traced.name))
                        .or_default()
                        .entry(error)
                        .or_default() += 1;
                }
            } else if !is_noise(&clean) {
                imported.unknown_lines.add(line.number, line.text);
            }
            ControlFlow::Continue(())
        })?;
        if !rows.is_empty() {
            let label = format!("run {}", imported.tables.len() + 1);
            imported.tables.push(rows.into_table(label));
        }
        if imported.tables.is_empty() {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        imported
            .notes
            .push("dtruss -c tells calls only: no errors and no times".to_owned());
        if !imported.errors_from_log.is_empty() {
            imported.notes.push(
                "the trace lines above the table are of the same run and are not counted again".to_owned(),
            );
        }
        Ok(imported)
    }
}

/// `Err#2 (ENOENT)`
fn error_of(traced: &Traced<'_>) -> String {
    let number = u32::try_from(traced.error).unwrap_or(0);
    match name_of(System::Mac, number) {
        Some(name) => format!("Err#{number} ({name})"),
        None => format!("Err#{number}"),
    }
}

impl Importer for DtrussLog {
    fn format(&self) -> ImportFormat {
        ImportFormat::DtrussLog
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| {
            heading(line).is_some() || traced(line, &[]).is_some_and(|t| !t.name.is_empty() && tabs(line))
        })
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut names = Names::default();
        let mut collector = Collector::default();
        let mut columns = Vec::new();
        let mut cpu_only = false;
        let mut counting = false;
        let mut counted = BTreeMap::new();
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            if let Some(found) = heading(&clean) {
                cpu_only = found.contains(&Column::Cpu) && !found.contains(&Column::Elapsed);
                columns = found;
            } else if is_count_heading(&clean) {
                counting = true;
            } else if let Some(row) = count_row(&clean).filter(|_| counting) {
                if counted.len() < 4096 {
                    let calls = row.calls();
                    counted.insert(row.syscall, calls);
                }
            } else if let Some(traced) = traced(&clean, &columns) {
                let Some(counts) = names.id(traced.name, None).and_then(|id| names.of(id)) else {
                    imported.unknown_lines.add(line.number, line.text);
                    return ControlFlow::Continue(());
                };
                counts.calls += 1;
                let error = u32::try_from(traced.error).ok().filter(|n| *n > 0);
                if let Some(number) = error {
                    counts.failed(&label(System::Mac, number));
                }
                let took = if cpu_only { traced.cpu } else { traced.elapsed };
                if let Some(took) = took {
                    counts.took(took);
                }
                collector.call(&Call {
                    pid: traced.pid,
                    name: &counts.name,
                    class: counts.class,
                    args: traced.args,
                    ret: traced.ret,
                    errno: error.and_then(|n| name_of(System::Mac, n)),
                    tail: &[],
                    at: traced.at,
                    took: traced.elapsed,
                    line: line.number,
                });
            } else if !is_noise(&clean) {
                imported.unknown_lines.add(line.number, line.text);
            }
            ControlFlow::Continue(())
        })?;
        if names.total() == 0 {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        if names.timed() {
            imported.time_kind = if cpu_only { TimeKind::Cpu } else { TimeKind::Wall };
            imported.time_source = if cpu_only {
                "CPU column"
            } else {
                "ELAPSD column, microseconds"
            }
            .to_owned();
        }
        if !counted.is_empty() {
            imported.notes.push(format!(
                "the table at the end counts {} calls of the same run; the rows here are the log's",
                total(counted.values().copied())
            ));
        }
        imported
            .notes
            .push("error numbers are those of macOS, which differ from Linux's".to_owned());
        imported.processes = Some(collector.seen.max(1));
        imported.facts = Some(Box::new(collector.finish()));
        imported.tables.push(ImportedTable {
            label: "log".to_owned(),
            rows: names.into_rows(),
            stated: None,
        });
        Ok(imported)
    }
}

/// dtruss sets two tabs before the result, or says `Err#`.
fn tabs(line: &[u8]) -> bool {
    text::contains(line, ")\t\t = ") || text::contains(line, " Err#")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_and_elapsed_columns() {
        let text = "\tPID/THRD  RELATIVE  ELAPSD    CPU SYSCALL(args) \t\t = return\n\
                    \x2012/0x1a:       310      40      12 read(0x5, \"a = b\\0\", 0x1000)\t\t = 5 0\n";
        let imported = DtrussLog.import(&mut text.as_bytes()).unwrap();
        let row = &imported.tables[0].rows[0];
        assert_eq!((row.calls(), row.time), (1, Some(crate::units::Nanos(40_000))));
        assert_eq!(imported.time_kind, TimeKind::Wall);
    }

    #[test]
    fn strace_lines_are_not_dtruss_lines() {
        assert!(traced(b"close(3)                 = 0", &[]).is_none());
        assert!(
            traced(
                b"read(3, \"x\", 1) = -1 EAGAIN (Resource temporarily unavailable)",
                &[]
            )
            .is_none()
        );
        assert!(traced(b"close(0x3)\t\t = 0 0", &[]).is_some());
    }
}
