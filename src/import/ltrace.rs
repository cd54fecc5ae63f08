//! Tables of `ltrace -c`: library functions, and system calls only as `SYS_…` rows (with `-S`).

use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::{Imported, TimeKind};
use super::strace_summary::{Flavour, TableParser, table_line};
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, text};

/// The importer.
pub(super) struct LtraceC;

impl Importer for LtraceC {
    fn format(&self) -> ImportFormat {
        ImportFormat::LtraceC
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| TableParser::is_heading(line, Flavour::Ltrace))
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut parser = TableParser::new(Flavour::Ltrace);
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            table_line(&mut parser, &mut imported, &clean, &line);
            ControlFlow::Continue(())
        })?;
        imported.unknown_lines.count += parser.take_lost();
        let parsed = parser.finish();
        if parsed.tables.is_empty() {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        imported.tables = parsed.tables;
        for because in parsed.cut {
            imported.cut(because);
        }
        imported.time_kind = TimeKind::Wall;
        imported.time_source = "ltrace -c".to_owned();
        imported.notes.push(
            "these are library calls, not system calls: only rows named SYS_… (ltrace -S) are system calls, so they do \
             not belong in one table with system calls; a library call can make none or many"
                .to_owned(),
        );
        Ok(imported)
    }
}
