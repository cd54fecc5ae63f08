//! Tables of `truss -c`: Solaris and illumos (system CPU time), FreeBSD (time between entry and return).

use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::{Imported, ImportedTable, Row, Stated, TimeKind};
use super::rows::Rows;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};
use crate::units::Nanos;

/// The importer for Solaris.
pub(super) struct TrussCSolaris;
/// The importer for FreeBSD.
pub(super) struct TrussCFreebsd;

fn is_heading(line: &[u8]) -> bool {
    text::fields(line) == [b"syscall".as_slice(), b"seconds", b"calls", b"errors"]
}

/// FreeBSD pads the name to 20 and the time to 15; it prints nine decimals and an errors cell always.
/// Solaris prints two or three decimals, no digit before the point for less than a second, and has other
/// parts around the table.
fn is_solaris(head: &Head<'_>) -> bool {
    let mut inside = false;
    for line in &head.lines {
        if is_heading(line) {
            inside = true;
        } else if text::contains(line, "sys totals:") || text::contains(line, "usr time:") {
            return true;
        } else if inside && let Some(row) = row(line, Style::Any) {
            return row.decimals < 9;
        }
    }
    // A table without rows.
    inside
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Any,
    Solaris,
}

#[derive(Debug)]
struct Line<'a> {
    name: &'a [u8],
    time: Nanos,
    calls: u64,
    errors: u64,
    decimals: usize,
}

fn row(line: &[u8], style: Style) -> Option<Line<'_>> {
    let fields = text::fields_at(line);
    // Names longer than the column touch the number in old versions: "lwp_cond_wai12345.00" cannot be
    // told apart, but a point ends the name at the latest.
    let at = fields
        .iter()
        .position(|(f, _)| number::is_decimal(f) && f.contains(&b'.'))?;
    let name = match at {
        0 => &[][..],
        1 => fields[0].0,
        2 if style == Style::Solaris && fields[1].0 == b"totals:" => &b"sys totals:"[..],
        _ => return None,
    };
    let numbers: Vec<&[u8]> = fields[at..].iter().map(|(f, _)| *f).collect();
    let (time, counts) = numbers.split_first()?;
    let decimals = time.iter().position(|b| *b == b'.').map(|p| time.len() - p - 1)?;
    let (calls, errors) = match counts {
        [calls] => (number::uint(calls)?, 0),
        [calls, errors] => (number::uint(calls)?, number::uint(errors)?),
        _ => return None,
    };
    Some(Line {
        name,
        time: number::seconds(time)?,
        calls,
        errors,
        decimals,
    })
}

/// Rows below a heading, up to the total.
fn table(
    imported: &mut Imported,
    input: &mut dyn BufRead,
    style: Style,
    mut other: impl FnMut(&mut Imported, &[u8]) -> bool,
) -> Result<(), ImportError> {
    let mut rows = Rows::default();
    let mut inside = false;
    let mut total_seen = false;
    let end = |imported: &mut Imported, rows: &mut Rows, stated: Option<Stated>| {
        if !rows.is_empty() || stated.is_some() {
            let label = format!("run {}", imported.tables.len() + 1);
            imported.tables.push(ImportedTable {
                stated,
                ..std::mem::take(rows).into_table(label)
            });
        }
    };
    lines::for_each::<()>(input, |line| {
        let clean = text::unwrap_line(line.text);
        if is_heading(&clean) {
            end(imported, &mut rows, None);
            inside = true;
            total_seen = false;
            return ControlFlow::Continue(());
        }
        let found = if inside { row(&clean, style) } else { None };
        match found {
            Some(total) if total.name.is_empty() || total.name == b"sys totals:" => {
                let stated = Stated {
                    calls: total.calls,
                    errors: Some(total.errors),
                    time: Some(total.time),
                };
                end(imported, &mut rows, Some(stated));
                inside = false;
                total_seen = true;
            }
            Some(found) => {
                let fits = rows.add(Row {
                    syscall: text::name(found.name),
                    calls: Some(found.calls),
                    errors: Some(found.errors),
                    time: Some(found.time),
                    ..Row::default()
                });
                if !fits {
                    imported.unknown_lines.add(line.number, line.text);
                }
            }
            None if text::is_noise(&clean) || other(imported, text::trim(&clean)) => {}
            None => imported.unknown_lines.add(line.number, line.text),
        }
        ControlFlow::Continue(())
    })?;
    if !rows.is_empty() && !total_seen {
        imported.cut("the table has no total line: its end is missing");
    }
    end(imported, &mut rows, None);
    if imported.tables.is_empty() {
        return Err(nothing_of(imported.format, &imported.unknown_lines));
    }
    Ok(())
}

/// `usr time:  .020`, `elapsed:  2.310`
fn labelled(line: &[u8], label: &str) -> Option<Nanos> {
    let rest = line.strip_prefix(label.as_bytes())?;
    number::seconds(text::trim(rest))
}

impl Importer for TrussCSolaris {
    fn format(&self) -> ImportFormat {
        ImportFormat::TrussCSolaris
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        match head.any(is_heading) {
            Sniff::Yes if is_solaris(head) => Sniff::Yes,
            Sniff::Yes => Sniff::No,
            other => other,
        }
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        imported.time_kind = TimeKind::Cpu;
        imported.time_source = "truss -c counts system CPU time".to_owned();
        let mut section = false;
        table(&mut imported, input, Style::Solaris, |imported, line| {
            if let Some(time) = labelled(line, "elapsed:") {
                imported.elapsed = Some(time);
                return true;
            }
            if labelled(line, "usr time:").is_some() {
                return true;
            }
            // Signals, faults and their own total stand in a section of their own before the calls.
            if line.starts_with(b"signals --") || line.starts_with(b"faults --") || line == b"signals" {
                section = true;
                return true;
            }
            if section && text::fields(line).len() == 2 {
                section = !line.starts_with(b"total:");
                return true;
            }
            false
        })?;
        imported
            .notes
            .push("the seconds are system CPU time: waits are not in them".to_owned());
        Ok(imported)
    }
}

impl Importer for TrussCFreebsd {
    fn format(&self) -> ImportFormat {
        ImportFormat::TrussCFreebsd
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(is_heading)
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        imported.time_kind = TimeKind::Wall;
        imported.time_source = "truss -c takes the time between entry and return".to_owned();
        table(&mut imported, input, Style::Any, |_, line| {
            line.starts_with(b"truss: ")
        })?;
        imported
            .notes
            .push("the seconds are wall time in the calls: waits are in them".to_owned());
        Ok(imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freebsd_has_a_total_without_a_name() {
        let text = "syscall                     seconds   calls  errors\n\
                    connect                 0.000123456       3       3\n\
                    poll                    1.000000000      10       0\n\
                    \x20                     ------------- ------- -------\n\
                    \x20                       1.000123456      13       3\n";
        assert_eq!(TrussCSolaris.sniff(&Head::new(text.as_bytes(), true)), Sniff::No);
        assert_eq!(TrussCFreebsd.sniff(&Head::new(text.as_bytes(), true)), Sniff::Yes);
        let imported = TrussCFreebsd.import(&mut text.as_bytes()).unwrap();
        assert_eq!(imported.tables[0].rows.len(), 2);
        assert_eq!(
            imported.tables[0].stated.map(|s| (s.calls, s.errors)),
            Some((13, Some(3)))
        );
        assert_eq!(imported.unknown_lines.count, 0);
    }

    #[test]
    fn old_solaris_has_two_decimals() {
        let text = "syscall      seconds   calls  errors\n_exit            .00       1\nopen             .00       6      1\n\
                    \x20               ----     ---    ---\nsys totals:      .57       7      1\nusr time:        .33\nelapsed:        3.05\n";
        assert_eq!(TrussCSolaris.sniff(&Head::new(text.as_bytes(), true)), Sniff::Yes);
        let imported = TrussCSolaris.import(&mut text.as_bytes()).unwrap();
        assert_eq!(imported.tables[0].rows.len(), 2);
        assert_eq!(imported.tables[0].stated.map(|s| s.calls), Some(7));
        assert_eq!(imported.elapsed, Some(Nanos(3_050_000_000)));
        assert_eq!(imported.unknown_lines.count, 0);
    }
}
