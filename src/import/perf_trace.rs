//! Tables of `perf trace -s`: one per thread, merged here; or one in all with `--bpf-summary`.

use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::{Group, Imported, Row, TimeKind};
use super::rows::Rows;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};
use crate::units::Nanos;

const MILLISECOND: u64 = 1_000_000;
/// Threads whose sums are kept by name.
const MOST_GROUPS: usize = 1024;

/// The importer.
pub(super) struct PerfTraceSummary;

/// The columns after the name; versions of perf differ in which they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Calls,
    Errors,
    Total,
    Min,
    Average,
    Max,
    Deviation,
}

fn heading(line: &[u8]) -> Option<Vec<Column>> {
    let fields = text::fields(line);
    let (first, rest) = fields.split_first()?;
    if *first != b"syscall" || rest.first() != Some(&&b"calls"[..]) || !rest.contains(&&b"stddev"[..]) {
        return None;
    }
    rest.iter()
        .map(|word| {
            Some(match *word {
                b"calls" => Column::Calls,
                b"errors" => Column::Errors,
                b"total" => Column::Total,
                b"min" => Column::Min,
                b"avg" => Column::Average,
                b"max" => Column::Max,
                b"stddev" => Column::Deviation,
                _ => return None,
            })
        })
        .collect()
}

/// ` php (14313), 308 events, 85.1%`: the name of the thread and whether it is the whole machine.
fn group(line: &[u8]) -> Option<(String, bool)> {
    let line = text::trim(line);
    let at = memchr::memmem::rfind(line, b" events")?;
    let comma = memchr::memmem::rfind(&line[..at], b", ")?;
    if !number::is_digits(&line[comma + 2..at]) {
        return None;
    }
    let name = &line[..comma];
    Some((
        text::shown(name, 64),
        name == b"total" || name.starts_with(b"cgroup "),
    ))
}

impl Importer for PerfTraceSummary {
    fn format(&self) -> ImportFormat {
        ImportFormat::PerfTraceSummary
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| heading(line).is_some())
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut columns: Option<Vec<Column>> = None;
        let mut rows = Rows::default();
        let mut last: Option<String> = None;
        let mut whole_machine = false;
        let mut estimated = false;
        let mut lost = 0_u64;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            let trimmed = text::trim(&clean);
            if let Some(found) = heading(&clean) {
                columns = Some(found);
                last = None;
            } else if let Some((name, whole)) = group(&clean) {
                whole_machine |= whole;
                if imported.groups.len() < MOST_GROUPS {
                    imported.groups.push(Group { name, total_calls: 0 });
                }
                columns = None;
            } else if let Some(columns) = &columns
                && let Some((row, guessed)) = row(trimmed, columns)
            {
                estimated |= guessed;
                if let Some(group) = imported.groups.last_mut() {
                    group.total_calls = group.total_calls.saturating_add(row.calls());
                }
                last = Some(row.syscall.clone());
                if !rows.add(row) {
                    imported.unknown_lines.add(line.number, line.text);
                }
            } else if let (Some(call), Some((errno, n))) = (&last, errno_count(trimmed)) {
                if let Some(row) = rows.of(call, None) {
                    let sum = row.errnos.entry(errno).or_default();
                    *sum = sum.saturating_add(n);
                }
            } else if let Some(n) = lost_events(trimmed) {
                lost = lost.saturating_add(n);
            } else if trimmed.starts_with(b"Summary of events") || is_units(trimmed) || text::is_noise(&clean)
            {
                // Parts of the frame.
            } else if super::perf_trace_log::is_call(&clean) || super::perf_trace_log::is_aside(&clean) {
                // perf trace -S: the log of the same run, not counted a second time.
            } else {
                imported.unknown_lines.add(line.number, line.text);
            }
            ControlFlow::Continue(())
        })?;
        if rows.is_empty() {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        imported.time_kind = TimeKind::Wall;
        imported.time_source = "perf trace".to_owned();
        let several = imported.groups.len() > 1;
        imported.processes =
            (!whole_machine && !imported.groups.is_empty()).then_some(imported.groups.len() as u64);
        imported.notes.push(if several {
            format!(
                "the times are wall time, summed over {} threads",
                imported.groups.len()
            )
        } else {
            "the times are wall time".to_owned()
        });
        imported.notes.push(
            "“N events” in perf's headings counts entries and exits, about twice the calls; perf trace can lose events \
             under load without saying so"
                .to_owned(),
        );
        if whole_machine {
            imported
                .notes
                .push("the table is of the whole machine or a control group, not of one program".to_owned());
        }
        if rows.has("clone3", None) || rows.has("clone", None) {
            imported.notes.push(
                "a new thread shows the clone that made it with 0.000 ms: only its return; the real number of clones \
                 is lower by one for each thread that starts with it"
                    .to_owned(),
            );
        }
        if estimated {
            imported.notes.push(
                "this version of perf prints no total: times are mean times number of calls".to_owned(),
            );
        }
        if lost > 0 {
            imported.cut(format!("perf lost {lost} events"));
        }
        imported.tables.push(rows.into_table("all threads"));
        Ok(imported)
    }
}

fn is_units(line: &[u8]) -> bool {
    line.starts_with(b"(msec)")
}

/// `LOST 123 events!`
pub(super) fn lost_events(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"LOST ")?;
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    rest[digits..]
        .starts_with(b" events")
        .then(|| number::uint(&rest[..digits]))?
}

/// `ENOENT: 14`
fn errno_count(line: &[u8]) -> Option<(String, u64)> {
    let colon = line.iter().position(|b| *b == b':')?;
    let (errno, n) = (&line[..colon], text::trim(&line[colon + 1..]));
    if errno == b"(unknown)" {
        // Numbers that no program sees: calls that a signal interrupted and the kernel begins again.
        return Some(("ERESTART".to_owned(), number::uint(n)?));
    }
    let plain = errno.starts_with(b"E")
        && errno.len() < 32
        && errno.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    plain.then(|| Some((text::name(errno), number::uint(n)?)))?
}

fn row(line: &[u8], columns: &[Column]) -> Option<(Row, bool)> {
    let fields = text::fields(line);
    let (name, numbers) = fields.split_first()?;
    if numbers.len() != columns.len() || name.starts_with(b"-") {
        return None;
    }
    let mut row = Row {
        syscall: text::name(name),
        ..Row::default()
    };
    let mut mean = None;
    for (column, field) in columns.iter().zip(numbers) {
        let time = || number::span(field, MILLISECOND);
        match column {
            Column::Calls => row.calls = Some(number::uint(field)?),
            Column::Errors => row.errors = Some(number::uint(field)?),
            Column::Total => row.time = Some(time()?),
            Column::Min => row.shortest = Some(time()?),
            Column::Average => mean = Some(time()?),
            Column::Max => row.longest = Some(time()?),
            Column::Deviation => {
                if !field.ends_with(b"%") {
                    return None;
                }
            }
        }
    }
    let guessed = row.time.is_none();
    if let (true, Some(mean)) = (guessed, mean) {
        row.time = Some(Nanos(mean.0.saturating_mul(row.calls())));
    }
    Some((row, guessed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_perf_without_errors_and_total() {
        let text = " Summary of events:\n\n dd (18299), 4 events, 2.1%, 0.000 msec\n\n\
                    \x20  syscall            calls      min       avg       max      stddev\n\
                    \x20                              (msec)    (msec)    (msec)        (%)\n\
                    \x20  --------------- -------- --------- --------- ---------     ------\n\
                    \x20  read                   2     0.001     0.002     0.003      10.00%\n";
        let imported = PerfTraceSummary.import(&mut text.as_bytes()).unwrap();
        let row = &imported.tables[0].rows[0];
        assert_eq!((row.calls(), row.errors, row.time), (2, None, Some(Nanos(4_000))));
        assert_eq!(imported.unknown_lines.count, 0);
    }

    #[test]
    fn names_of_threads_may_hold_anything() {
        assert_eq!(
            group(b" a, b (c) (7), 12 events, 1.0%").map(|g| g.0),
            Some("a, b (c) (7)".to_owned())
        );
        assert!(group(b" 12 events").is_none());
    }
}
