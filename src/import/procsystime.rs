//! Tables of `procsystime` (DTrace toolkit; FreeBSD, macOS, Solaris): elapsed times (`-e`), CPU times
//! (`-o`), counts (`-c`), one below the other for the same calls.

use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::{Imported, Row, TimeKind};
use super::rows::Rows;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};

/// The importer.
pub(super) struct Procsystime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    Elapsed,
    Cpu,
    Counts,
}

/// `Elapsed Times for PID 1871,`, `CPU Times for all processes,`, `Syscall Counts for command httpd,`
fn title(line: &[u8]) -> Option<Table> {
    let line = text::trim(line);
    let table = [
        ("Elapsed Times for ", Table::Elapsed),
        ("CPU Times for ", Table::Cpu),
        ("Syscall Counts for ", Table::Counts),
    ];
    table
        .iter()
        .find(|(start, _)| line.starts_with(start.as_bytes()))
        .map(|(_, table)| *table)
}

/// Whether a heading is one, and whether its column is a time.
fn heading(line: &[u8]) -> Option<bool> {
    let fields = text::fields(line);
    if fields == [b"SYSCALL".as_slice(), b"TIME", b"(ns)"] {
        Some(true)
    } else if fields == [b"SYSCALL".as_slice(), b"COUNT"] {
        Some(false)
    } else {
        None
    }
}

impl Importer for Procsystime {
    fn format(&self) -> ImportFormat {
        ImportFormat::Procsystime
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| title(line).is_some() || heading(line) == Some(true))
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut table: Option<Table> = None;
        let mut rows = Rows::default();
        let mut kinds = [false; 3];
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            let trimmed = text::trim(&clean);
            if let Some(found) = title(&clean) {
                table = Some(found);
                return ControlFlow::Continue(());
            }
            if let Some(is_time) = heading(&clean) {
                table = match (table, is_time) {
                    (None | Some(Table::Counts), true) => Some(Table::Elapsed),
                    (_, false) => Some(Table::Counts),
                    (known, true) => known,
                };
                return ControlFlow::Continue(());
            }
            let fields = text::fields(trimmed);
            let row = match (table, fields.as_slice()) {
                (Some(table), [name, value]) => number::uint(value).map(|value| (table, *name, value)),
                _ => None,
            };
            match row {
                // -T adds a total.
                Some((_, b"TOTAL:", _)) => {}
                Some((kind, name, value)) => {
                    kinds[kind as usize] = true;
                    let row = Row {
                        syscall: text::name(name),
                        calls: (kind == Table::Counts).then_some(value),
                        time: (kind == Table::Elapsed).then_some(crate::units::Nanos(value)),
                        wall: (kind == Table::Cpu).then_some(crate::units::Nanos(value)),
                        ..Row::default()
                    };
                    if !rows.add(row) {
                        imported.unknown_lines.add(line.number, line.text);
                    }
                }
                None if text::is_noise(&clean)
                    || trimmed.starts_with(b"Tracing...")
                    || trimmed.starts_with(b"Hit Ctrl-C")
                    || trimmed.starts_with(b"dtrace: ") => {}
                None => imported.unknown_lines.add(line.number, line.text),
            }
            ControlFlow::Continue(())
        })?;
        if rows.is_empty() {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        let [elapsed, cpu, counts] = kinds;
        let mut result = rows.into_table("procsystime");
        for row in &mut result.rows {
            // Kept apart until here, because both may be in the file.
            let cpu_time = row.wall.take();
            if !elapsed {
                row.time = cpu_time;
            }
        }
        imported.time_kind = match (elapsed, cpu) {
            (true, _) => TimeKind::Wall,
            (false, true) => TimeKind::Cpu,
            (false, false) => TimeKind::None,
        };
        if imported.time_kind != TimeKind::None {
            imported.time_source = if elapsed {
                "Elapsed Times, nanoseconds"
            } else {
                "CPU Times, nanoseconds"
            }
            .to_owned();
        }
        if elapsed && cpu {
            imported
                .notes
                .push("the file has elapsed and CPU times; the elapsed ones are shown".to_owned());
        }
        if !counts {
            imported.notes.push(
                "there are times and no counts here (procsystime -c or -a counts): calls are not zero but not told".to_owned(),
            );
        }
        imported.tables.push(result);
        Ok(imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    #[test]
    fn counts_are_not_taken_for_those_of_syscount() {
        let text = "Hit Ctrl-C to stop sampling...\n\nSyscall Counts for PID 7,\n\n         SYSCALL              COUNT\n\
                    \x20           read                  4\n          TOTAL:                  4\n";
        let (_, found) = super::super::sniff(text.as_bytes(), true).unwrap();
        assert_eq!(found.map(Importer::format), Some(ImportFormat::Procsystime));
        let imported = Procsystime.import(&mut text.as_bytes()).unwrap();
        assert_eq!(imported.tables[0].sum_calls(), 4);
        assert_eq!(imported.unknown_lines.count, 0);
    }

    #[test]
    fn all_three_tables_meet_in_one() {
        let text = "Tracing... Hit Ctrl-C to end...\n^C\nElapsed Times for processes csh,\n\n         SYSCALL          TIME (ns)\n\
                    \x20         getpid               6131\n            read         3988049784\n\nCPU Times for processes csh,\n\n\
                    \x20        SYSCALL          TIME (ns)\n            read             10000\n\n\
                    Syscall Counts for processes csh,\n\n         SYSCALL              COUNT\n            read                  4\n          getpid                  1\n";
        let imported = Procsystime.import(&mut text.as_bytes()).unwrap();
        let read = imported.tables[0].row("read").unwrap();
        assert_eq!((read.calls(), read.time), (4, Some(Nanos(3_988_049_784))));
        assert_eq!(imported.time_kind, TimeKind::Wall);
        assert_eq!(imported.unknown_lines.count, 0);
    }
}
