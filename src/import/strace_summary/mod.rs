//! Tables of `strace -c`, of every version, and the parser that `ltrace -c` shares.
//!
//! Columns are taken from the heading, never by position in a fixed layout: `-U` chooses and orders
//! them, numbers grow out of their columns, and the errors cell of a row is blank when there were none.

mod heading;
mod row;
mod table;

use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::{Imported, TimeKind};
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, text};
use crate::foreign::strace::is_notice;

pub(super) use table::{Flavour, Parsed, TableParser, Took};

/// The importer.
pub(super) struct StraceSummary;

impl Importer for StraceSummary {
    fn format(&self) -> ImportFormat {
        ImportFormat::StraceSummary
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        let table = |line: &[u8]| {
            TableParser::is_heading(line, Flavour::Strace)
                || TableParser::is_half_heading(line)
                || row::is_fragment(line)
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
                table_line(&mut parser, &mut imported, &clean, &line);
                if let Some(wall) = command_line(&clean) {
                    wall_hint = Some((wall, line.number));
                }
            }
            ControlFlow::Continue(())
        })?;
        imported.unknown_lines.count += parser.take_lost();
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
        summarise(&mut imported, parsed, wall_hint);
        Ok(imported)
    }
}

/// Takes a line of an input that is tables only; `clean` is the line freed from what it was wrapped in.
pub(super) fn table_line(
    parser: &mut TableParser,
    imported: &mut Imported,
    clean: &[u8],
    line: &lines::Line<'_>,
) {
    match parser.line(clean, line.number) {
        Took::Part => {}
        Took::TooLarge => imported.notes.push(format!(
            "line {}: a number does not fit in 64 bits; the row is not counted",
            line.number
        )),
        Took::Not if text::is_noise(clean) => {}
        Took::Not => imported.unknown_lines.add(line.number, line.text),
    }
}

/// Makes the tables those of the import. `wall_hint` is whether a command line in the paste has `-w`, and its
/// line.
pub(super) fn summarise(imported: &mut Imported, parsed: Parsed, wall_hint: Option<(bool, u64)>) {
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
}

/// Whether a pasted shell line runs `strace -c`, and if so whether with `-w`.
pub(super) fn command_line(line: &[u8]) -> Option<bool> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

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
    fn marks_and_broken_rows() {
        let marked = import(
            "|% time|seconds|usecs/call|calls|errors|syscall|\n|--|--|--|--|--|--|\n|60.00|0.000006|3|2|1|`read`|\n\
             |40.00|0.000004|2|2||`epoll\\_wait`|\n|100.00|0.000010|2|4|1|**total**|\n",
        );
        assert_eq!(marked.tables[0].rows[1].syscall, "epoll_wait");
        assert_eq!(marked.tables[0].stated.map(|s| s.calls), Some(4));
        let broken = import(
            "% time     seconds  usecs/call     calls    errors\nsyscall\n------ -----------\n----\n\
             \x2060.00    0.000006           3         2         1\nread\n\x2040.00    0.000004           2         2\nwrite\n\
             100.00    0.000010           2         4         1\ntotal\n",
        );
        assert_eq!(broken.tables[0].rows.len(), 2);
        assert_eq!(broken.tables[0].rows[0].errors, Some(1));
        assert_eq!(broken.unknown_lines.count, 0);
        let glued = import(
            "[code]% time     seconds  usecs/call     calls    errors syscall\n100.00    0.000006           3         2         1 read\n\
             100.00    0.000006           3         2         1 total[/code]\n",
        );
        assert!(!glued.incomplete);
        assert_eq!(glued.tables[0].rows.len(), 1);
        let lost = import(
            "% time     seconds  usecs/call     calls    errors syscall\n100.00    0.000006           3         2         1 read\n\
             100.00    0.000006           3         2         1 total\n1.5 2 3\nthe mean of three\n",
        );
        assert_eq!(lost.unknown_lines.count, 2);
    }

    #[test]
    fn errors_without_calls() {
        let imported = import(
            "   errors syscall\n--------- ----------------\n      400 recvfrom\n          sendto\n--------- ----------------\n\
             \x20     400 total\n",
        );
        let table = &imported.tables[0];
        assert_eq!(
            table.row("recvfrom").map(|r| (r.calls, r.errors)),
            Some((None, Some(400)))
        );
        assert_eq!(
            table.row("sendto").map(|r| (r.calls, r.errors)),
            Some((None, Some(0)))
        );
        assert!(!imported.incomplete);
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
