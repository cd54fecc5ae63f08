//! Tables of bcc's `syscount`, the Python one and libbpf-tools': per call, or per process (`-P`).

use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::{Imported, ProcessCount, Row, TimeKind};
use super::rows::Rows;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};
use crate::units::Nanos;

/// Processes kept.
const MOST_PROCESSES: usize = 4096;

/// The importer of tables per call.
pub(super) struct Syscount;
/// The importer of tables per process.
pub(super) struct SyscountByProcess;

/// A heading: whether it is per process, and the unit of its time column in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heading {
    by_process: bool,
    unit: Option<u64>,
}

fn heading(line: &[u8]) -> Option<Heading> {
    let fields = text::fields(line);
    let (by_process, rest) = match fields.as_slice() {
        [first, rest @ ..] if *first == b"SYSCALL" => (false, rest),
        [first, second, rest @ ..] if *first == b"PID" && *second == b"COMM" => (true, rest),
        _ => return None,
    };
    let unit = match rest {
        [count] if *count == b"COUNT" => None,
        [count, time, unit] if *count == b"COUNT" && *time == b"TIME" => match *unit {
            b"(us)" => Some(1_000),
            b"(ms)" => Some(1_000_000),
            _ => return None,
        },
        _ => return None,
    };
    Some(Heading { by_process, unit })
}

/// Name, count and time of a row; the name may have spaces (`[unknown: 462]`, `php-fpm: pool w`).
fn row(line: &[u8], heading: Heading) -> Option<(&[u8], u64, Option<Nanos>)> {
    let line = text::trim(line);
    let fields = text::fields_at(line);
    let numbers = if heading.unit.is_some() { 2 } else { 1 };
    let first = fields.len().checked_sub(numbers).filter(|n| *n > 0)?;
    let (count, _) = fields[first];
    let time = match heading.unit {
        Some(unit) => Some(number::span(fields[first + 1].0, unit)?),
        None => None,
    };
    let name = text::trim(&line[..fields[first - 1].1]);
    Some((name, number::uint(count)?, time))
}

/// `[10:13:34]`
fn is_clock(line: &[u8]) -> bool {
    let line = text::trim(line);
    line.len() == 10 && line.starts_with(b"[") && line.ends_with(b"]") && line[3] == b':' && line[6] == b':'
}

/// What is common to both tables.
#[derive(Debug, Default)]
struct Frame {
    top: Option<u64>,
    failed_only: bool,
    one_call: bool,
    intervals: u64,
    shown: u64,
    fullest: u64,
}

impl Frame {
    fn takes(&mut self, line: &[u8]) -> bool {
        let line = text::trim(line);
        if line.starts_with(b"Tracing ") {
            self.failed_only |= line.starts_with(b"Tracing failed ");
            self.one_call |= text::contains(line, "syscall '");
            if let Some(at) = memchr::memmem::find(line, b"top ") {
                let rest = &line[at + 4..];
                let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
                self.top = number::uint(&rest[..digits]);
            }
            return true;
        }
        if is_clock(line) {
            return true;
        }
        line.starts_with(b"Detaching...") || text::is_noise(line)
    }

    fn begins(&mut self) {
        self.intervals += 1;
        self.shown = 0;
    }

    fn shows(&mut self) {
        self.shown += 1;
        self.fullest = self.fullest.max(self.shown);
    }

    fn notes(&self, imported: &mut Imported, of: &str) {
        if self.failed_only {
            imported
                .notes
                .push("only failed calls were counted (-x): the calls that succeeded are missing".to_owned());
        }
        if self.one_call {
            imported
                .notes
                .push("only one system call was counted (--syscall)".to_owned());
        } else {
            let top = self.top.unwrap_or(10);
            imported.notes.push(format!(
                "syscount prints the top {top} only: other {of} may be missing{}",
                if self.fullest >= top {
                    ", and the table is full"
                } else {
                    ""
                }
            ));
        }
        imported
            .notes
            .push("the counts are of the whole machine unless syscount was given -p, -t or -c".to_owned());
        if self.intervals > 1 {
            imported.notes.push(format!(
                "{} intervals of one run are added up; a call outside the top of an interval is missing from it",
                self.intervals
            ));
        }
    }
}

impl Importer for Syscount {
    fn format(&self) -> ImportFormat {
        ImportFormat::Syscount
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| heading(line).is_some_and(|h| !h.by_process))
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut frame = Frame::default();
        let mut current: Option<Heading> = None;
        let mut rows = Rows::default();
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            if let Some(found) = heading(&clean).filter(|h| !h.by_process) {
                current = Some(found);
                frame.begins();
            } else if frame.takes(&clean) {
                // Parts of the frame.
            } else if let Some((name, calls, time)) = current.and_then(|h| row(&clean, h)) {
                frame.shows();
                let added = rows.add(Row {
                    syscall: text::name(name),
                    calls: Some(calls),
                    time,
                    ..Row::default()
                });
                if !added {
                    imported.unknown_lines.add(line.number, line.text);
                }
            } else {
                imported.unknown_lines.add(line.number, line.text);
            }
            ControlFlow::Continue(())
        })?;
        if rows.is_empty() && current.is_none() {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        if current.is_some_and(|h| h.unit.is_some()) {
            imported.time_kind = TimeKind::Wall;
            imported.time_source = "syscount -L".to_owned();
        }
        frame.notes(&mut imported, "calls");
        imported.tables.push(rows.into_table("syscount"));
        Ok(imported)
    }
}

impl Importer for SyscountByProcess {
    fn format(&self) -> ImportFormat {
        ImportFormat::SyscountByProcess
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| heading(line).is_some_and(|h| h.by_process))
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut frame = Frame::default();
        let mut current: Option<Heading> = None;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            if let Some(found) = heading(&clean).filter(|h| h.by_process) {
                current = Some(found);
                frame.begins();
            } else if frame.takes(&clean) {
                // Parts of the frame.
            } else if let Some((process, calls, time)) =
                current.and_then(|h| row(&clean, h).and_then(process))
            {
                frame.shows();
                let pid = Some(process.0);
                let room = imported.by_process.len() < MOST_PROCESSES;
                let have = imported.by_process.iter_mut().find(|p| p.pid == pid);
                match have {
                    Some(have) => {
                        have.calls = have.calls.saturating_add(calls);
                        have.time = have.time.zip(time).map(|(a, b)| a + b);
                    }
                    None if room => imported.by_process.push(ProcessCount {
                        pid,
                        comm: process.1,
                        calls,
                        time,
                    }),
                    None => imported.unknown_lines.add(line.number, line.text),
                }
            } else {
                imported.unknown_lines.add(line.number, line.text);
            }
            ControlFlow::Continue(())
        })?;
        if current.is_none() {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        if current.is_some_and(|h| h.unit.is_some()) {
            imported.time_kind = TimeKind::Wall;
            imported.time_source = "syscount -L".to_owned();
        }
        imported.notes.push(
            "counts per process, not per system call: they cannot stand in a table of system calls (run syscount \
             without -P for that)"
                .to_owned(),
        );
        frame.notes(&mut imported, "processes");
        Ok(imported)
    }
}

/// `30216  php-fpm: pool w`
#[allow(clippy::type_complexity)] // Passed on at once.
fn process((name, calls, time): (&[u8], u64, Option<Nanos>)) -> Option<((u32, String), u64, Option<Nanos>)> {
    let digits = name.iter().take_while(|b| b.is_ascii_digit()).count();
    let pid = number::uint(&name[..digits]).and_then(|n| u32::try_from(n).ok())?;
    Some(((pid, text::name(text::trim(&name[digits..]))), calls, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_parts_of_one_run() {
        let text = "Tracing failed syscalls, printing top 5... Ctrl+C to quit.\n[10:13:34]\n\
                    SYSCALL                   COUNT        TIME (ms)\nread  2  1.500000\n\n[10:13:35]\n\
                    SYSCALL                   COUNT        TIME (ms)\nread  3  0.500000\nclose 1 0.1\n\n";
        let imported = Syscount.import(&mut text.as_bytes()).unwrap();
        let row = imported.tables[0].row("read").unwrap();
        assert_eq!((row.calls(), row.time), (5, Some(Nanos(2_000_000))));
        assert!(imported.notes.iter().any(|n| n.contains("-x")));
        assert!(imported.notes.iter().any(|n| n.contains("top 5")));
        assert_eq!(imported.unknown_lines.count, 0);
    }
}
