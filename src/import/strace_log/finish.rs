//! The end of a run: what a table in the same file adds, and what a reader of the counts must know.

use super::super::model::{Imported, ImportedTable, Row, TimeKind};
use super::super::strace_summary::{Parsed, summarise};
use super::super::{ImportError, ImportFormat, nothing_of};
use super::session::Session;
use crate::tally::{Abi, Syscall};
use crate::units;

/// Whether a name is a system call's, in any table, or one that strace gives to a number.
fn is_known(name: &str) -> bool {
    let number = |rest: &str| rest.starts_with("0x") || rest.bytes().all(|b| b.is_ascii_digit());
    name.strip_prefix("syscall_")
        .or_else(|| name.strip_prefix("SYS_"))
        .is_some_and(number)
        || matches!(name, "?" | "_exit" | "stat64" | "fstat64" | "lstat64")
        || [Abi::X86_64, Abi::Aarch64, Abi::I386, Abi::Arm]
            .iter()
            .any(|abi| Syscall::by_name(*abi, name).is_some())
}

/// Takes the times from the table of the same run (`strace -C`); false when it is that of another.
fn times_of(log: &mut ImportedTable, table: &ImportedTable) -> bool {
    let same = table.rows.iter().all(|row| {
        let of_log = log
            .rows
            .iter()
            .find(|r| r.syscall == row.syscall && r.abi == row.abi);
        of_log.is_some_and(|of_log| of_log.calls == row.calls)
    });
    if !same || table.rows.iter().all(|row| row.time.is_none()) {
        return false;
    }
    for row in &mut log.rows {
        let of_table = table
            .rows
            .iter()
            .find(|r| r.syscall == row.syscall && r.abi == row.abi);
        row.time = of_table.and_then(|r| r.time);
    }
    true
}

impl Session {
    /// Tables with a few lines of a log beside them: an excerpt, or a log that was cut.
    fn only_tables(self, from: &Imported, parsed: Parsed) -> Imported {
        let mut imported = Imported::new(ImportFormat::StraceSummary);
        imported.unknown_lines = from.unknown_lines.clone();
        imported.notes.clone_from(&from.notes);
        summarise(&mut imported, parsed, self.wall_hint);
        let lines = self.names.total();
        for row in self
            .names
            .into_rows()
            .into_iter()
            .filter(|row| !row.errnos.is_empty())
        {
            if imported.errors_from_log.len() < 512 {
                imported.errors_from_log.insert(row.syscall, row.errnos);
            }
        }
        imported.notes.push(format!(
            "{lines} calls of a log stand beside the table; they are less than the table counts, and are not counted \
             again"
        ));
        imported
    }

    /// The whole run.
    ///
    /// # Errors
    /// When there was not a single call.
    pub(in crate::import) fn finish(mut self) -> Result<Imported, ImportError> {
        let mut imported = self
            .imported
            .take()
            .unwrap_or_else(|| Imported::new(ImportFormat::StraceLog));
        if self.names.total() == 0 && self.complaints == 0 {
            return Err(nothing_of(ImportFormat::StraceLog, &imported.unknown_lines));
        }
        let mut beside = None;
        if let Some(mut summary) = self.summary.take() {
            imported.unknown_lines.count += summary.take_lost();
            let parsed = summary.finish();
            let counted = units::total(parsed.tables.iter().map(ImportedTable::total_calls));
            if counted > self.names.total() {
                return Ok(self.only_tables(&imported, parsed));
            }
            beside = Some((parsed, counted));
        }
        for id in std::mem::take(&mut self.pending).ids() {
            if let Some(counts) = self.names.of(id) {
                counts.unfinished += 1;
            }
        }
        if self.cut_at_start {
            imported.cut("the log begins in the middle of a line");
        }
        if self.resumed_without_start {
            imported
                .incomplete_because
                .insert(0, "the log begins in the middle of a call".to_owned());
            imported.incomplete = true;
        }
        if self.names.timed() {
            imported.time_kind = TimeKind::Wall;
            imported.time_source = "-T".to_owned();
        }
        if self.names.mixed() {
            imported
                .notes
                .push("calls of more than one ABI: a 32-bit or x32 process took part".to_owned());
        }
        imported.processes = Some(self.collector.seen.max(1));
        let total = self.names.total();
        let facts = self.collector.finish();
        if facts.commands.cut_payloads == 0 && facts.commands.operations() > 0 {
            imported.ops = Some(facts.commands.operations());
            imported.ops_source = "commands in the payloads".to_owned();
        }
        imported.facts = Some(Box::new(facts));
        let mut table = ImportedTable {
            label: "log".to_owned(),
            rows: self.names.into_rows(),
            stated: None,
        };
        // ltrace writes its lines the same way.
        let foreign = |row: &&Row| !is_known(&row.syscall);
        let foreign = units::total(table.rows.iter().filter(foreign).map(Row::calls));
        if foreign > total / 2 {
            imported.notes.push(
                "most names here are no system calls of Linux: this may be a log of library calls (ltrace), which are \
                 not system calls"
                    .to_owned(),
            );
        }
        if let Some((parsed, counted)) = beside {
            imported.notes.push(format!(
                "the strace -c table in this file counts {counted} calls, the log has {total}; the rows here are the \
                 log's (strace before 7.1 leaves calls without a name out of its tables)"
            ));
            if imported.time_kind == TimeKind::None
                && let [of_run] = parsed.tables.as_slice()
                && times_of(&mut table, of_run)
            {
                imported.time_kind = parsed.time_kind;
                imported.time_source = "the table in the same file".to_owned();
            }
        }
        imported.tables.push(table);
        Ok(imported)
    }
}
