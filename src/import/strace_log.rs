//! Logs of `strace`: one line per call, or two when another thread's line came between.
//!
//! Works on bytes, line by line. What a line is, is found in [`crate::foreign::strace`]; this file puts halves together,
//! counts, and hands each whole call to the [`Collector`].

use std::borrow::Cow;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::rc::Rc;

use super::facts::collect::{Call, Class, Collector};
use super::model::{Imported, ImportedTable, Row, TimeKind};
use super::names::{NameId, Names};
use super::pending::{Kept, PendingCalls};
use super::strace_summary::{Flavour, Parsed, TableParser, Took, command_line, complaint_note, summarise};
use super::{Head, ImportError, ImportFormat, Importer, Map, Sniff, lines, nothing_of, text};
use crate::foreign::strace::{self as scan, Event, Outcome, Prefix, Stamp};
use crate::tally::{Abi, Syscall};
use crate::units;

/// Bytes and lines of a call that something printed into.
const BROKEN: usize = 64 << 10;
const BROKEN_LINES: u64 = 64;
/// Processes whose mode is kept.
const MOST_MODES: usize = 65_536;

/// The importer.
pub(super) struct StraceLog;

impl Importer for StraceLog {
    fn format(&self) -> ImportFormat {
        ImportFormat::StraceLog
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| {
            let (_, body) = scan::prefix(line);
            match scan::event(body) {
                Event::Call(..) | Event::Unfinished(..) | Event::Resumed(..) => true,
                // `epoll_wait(5, ^Cstrace: Process 4711 detached`
                Event::Broken(_) => scan::inner_notice(line).is_some_and(|at| at > 0),
                _ => false,
            }
        })
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut session = Session::default();
        session.read(input, None)?;
        session.finish()
    }
}

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

/// What the line before was, where the next one may be its rest.
#[derive(Debug, Clone, Copy)]
enum Last {
    /// A call of that thread that did not end.
    Unfinished(u32),
    /// A call that ended without a duration.
    Ended(NameId),
}

/// Whether the last line of a file, which no line feed ends, breaks off behind the equals sign.
fn is_cut(event: &Event<'_>, timed: bool) -> bool {
    let (Event::Call(_, _, outcome) | Event::Resumed(_, _, outcome)) = event else {
        return false;
    };
    // strace explains each error in brackets, and with -T ends each line with a duration.
    let unexplained = outcome.errno.is_some_and(|errno| {
        errno.first().is_some_and(u8::is_ascii_alphabetic) && !outcome.tail.ends_with(b")")
    });
    let half = outcome.tail.contains(&b'<') && outcome.took.is_none() && outcome.ret.is_some();
    unexplained || timed && half
}

/// A line that breaks off in the middle of a call, because something printed into it.
#[derive(Debug)]
struct Broken {
    prefix: Prefix,
    text: Vec<u8>,
    line: u64,
    lines: u64,
}

/// One run: a log, or all the files of `strace -ff`.
#[derive(Debug, Default)]
pub(super) struct Session {
    names: Names,
    collector: Collector,
    pending: PendingCalls,
    broken: Option<Broken>,
    modes: Map<u32, Rc<str>>,
    /// The thread that lines without a pid belong to, once its pid is known.
    main: Option<u32>,
    unprefixed: bool,
    /// Clock of `-r`, and nanoseconds of whole days since the first stamp of `-t`.
    relative: u64,
    day: u64,
    last_of_day: u64,
    epoch_base: Option<u64>,
    /// Whether a line was read, and whether the first one was the end of another.
    begun: bool,
    cut_at_start: bool,
    last: Option<Last>,
    summary: Option<TableParser>,
    wall_hint: Option<(bool, u64)>,
    imported: Option<Imported>,
    resumed_without_start: bool,
    attached: bool,
    complaints: u64,
    cut_at_end: bool,
    /// The pid of the file being read (`-ff`).
    file_pid: Option<u32>,
    errno: String,
}

impl Session {
    /// Reads one file of the run. `pid` is whose it is, for the files of `-ff`.
    ///
    /// # Errors
    /// When reading fails.
    pub(super) fn read(&mut self, input: &mut dyn BufRead, pid: Option<u32>) -> Result<(), ImportError> {
        self.file_pid = pid;
        let mut imported = self
            .imported
            .take()
            .unwrap_or_else(|| Imported::new(ImportFormat::StraceLog));
        lines::for_each::<()>(input, |line| {
            self.line(&mut imported, line);
            ControlFlow::Continue(())
        })?;
        self.end_broken(&mut imported, true);
        self.imported = Some(imported);
        Ok(())
    }

    fn line(&mut self, imported: &mut Imported, line: lines::Line<'_>) {
        let raw = text::trim_cr(line.text);
        let plain = if line.no_escape {
            Cow::Borrowed(raw)
        } else {
            text::strip_ansi(raw)
        };
        if let Some(summary) = &mut self.summary
            && !summary.is_closed()
        {
            let clean = text::unwrap_line(&plain);
            if summary.line(&clean, line.number) != Took::Not || text::is_noise(&clean) {
                return;
            }
        } else if let Some(summary) = &mut self.summary {
            let clean = text::unwrap_line(&plain);
            if TableParser::goes_on(&clean) && summary.line(&clean, line.number) != Took::Not {
                return;
            }
        }
        if !line.ended {
            self.cut_at_end = true;
        }
        let first = !std::mem::replace(&mut self.begun, true);
        let last = self.last.take();
        if self.whole_line(imported, &plain, line.number, line.ended, last) {
            return;
        }
        // Mail quotes and HTML only when nothing else fits: `>` begins stack lines, too.
        let clean = text::unwrap_line(&plain);
        if clean.len() != plain.len() && self.whole_line(imported, &clean, line.number, line.ended, last) {
            return;
        }
        self.cut_at_start |= first && scan::has_result(&clean);
        if self.wall_hint.is_none()
            && let Some(wall) = command_line(&clean)
        {
            self.wall_hint = Some((wall, line.number));
        }
        if TableParser::is_heading(&clean, Flavour::Strace) {
            let mut summary = self
                .summary
                .take()
                .unwrap_or_else(|| TableParser::new(Flavour::Strace));
            summary.line(&clean, line.number);
            self.summary = Some(summary);
        } else if !text::is_noise(&clean) {
            imported.unknown_lines.add(line.number, line.text);
        }
    }

    /// Takes a line when it is one of the log's.
    fn whole_line(
        &mut self,
        imported: &mut Imported,
        line: &[u8],
        number: u64,
        ended: bool,
        last: Option<Last>,
    ) -> bool {
        if let Some(at) = scan::inner_notice(line) {
            self.attached = true;
            if at == 0 {
                return true;
            }
            let (prefix, body) = scan::prefix(&line[..at]);
            let body = body.strip_suffix(b"^C").unwrap_or(body);
            if body.is_empty() {
                return true;
            }
            self.begin_broken(imported, prefix, body, number);
            return true;
        }
        let (prefix, body) = scan::prefix(line);
        let event = scan::event(body);
        if self.broken.is_some() {
            match event {
                // Text that a program printed may end in the rest of the call.
                Event::Unknown => return self.continue_broken(imported, line, number),
                Event::Aside | Event::Mode(..) => {}
                _ => self.end_broken(imported, false),
            }
        }
        match event {
            Event::Broken(_) if ended => {
                self.begin_broken(imported, prefix, body, number);
                true
            }
            Event::Broken(name) => {
                self.unreturned(imported, prefix, name, number);
                imported.cut("the log ends in the middle of a line");
                true
            }
            Event::Unknown => self.remainder(imported, line, last, ended),
            event => {
                if !ended && is_cut(&event, self.names.timed()) {
                    imported.cut("the log ends in the middle of a line");
                }
                self.take(imported, prefix, event, number);
                true
            }
        }
    }

    /// A line that is the rest of the one before it, or of one that is not there.
    fn remainder(&mut self, imported: &mut Imported, line: &[u8], last: Option<Last>, ended: bool) -> bool {
        if !ended
            && ["[pid", "<...", "--- SIG", "+++ "]
                .iter()
                .any(|s| line.starts_with(s.as_bytes()))
        {
            imported.cut("the log ends in the middle of a line");
            return false;
        }
        match last {
            // strace -z and -Z leave the mark of the first half in front of the second.
            Some(Last::Unfinished(pid)) => {
                let Some(pending) = self.pending.get(pid) else {
                    return false;
                };
                let mut text = pending.args.clone();
                text.push(b' ');
                text.extend_from_slice(line);
                let Some((args, outcome)) = scan::rest_of_call(&text) else {
                    return false;
                };
                if let Some(pending) = self.pending.remove(pid) {
                    self.end(
                        pid,
                        pending.id,
                        args,
                        outcome,
                        pending.at,
                        outcome.took,
                        pending.line,
                    );
                }
                true
            }
            // A forum or a terminal broke the line behind the result.
            Some(Last::Ended(id)) => {
                let Some(counts) = self.names.of(id) else {
                    return false;
                };
                let errno = scan::errno_alone(line);
                if let Some(errno) = errno {
                    counts.name_last_error(&text::name(errno));
                }
                let took = scan::duration_at_end(line);
                if let Some(took) = took {
                    counts.took(took);
                } else {
                    self.last = Some(Last::Ended(id));
                }
                errno.is_some() || took.is_some()
            }
            None => false,
        }
    }

    fn begin_broken(&mut self, imported: &mut Imported, prefix: Prefix, body: &[u8], number: u64) {
        self.end_broken(imported, false);
        self.broken = Some(Broken {
            prefix,
            text: body[..body.len().min(BROKEN)].to_vec(),
            line: number,
            lines: 0,
        });
    }

    /// Joins a line to the broken one before it.
    fn continue_broken(&mut self, imported: &mut Imported, line: &[u8], number: u64) -> bool {
        let Some(mut broken) = self.broken.take() else {
            return false;
        };
        if broken.text.len() + line.len() > BROKEN || broken.lines >= BROKEN_LINES {
            self.broken = Some(broken);
            self.end_broken(imported, false);
            return false;
        }
        broken.text.extend_from_slice(line);
        broken.lines += 1;
        let event = scan::event(&broken.text);
        match event {
            Event::Call(..) | Event::Unfinished(..) | Event::Resumed(..) => {
                let prefix = broken.prefix;
                let text = std::mem::take(&mut broken.text);
                self.take(imported, prefix, scan::event(&text), broken.line);
            }
            _ => self.broken = Some(broken),
        }
        let _ = number;
        true
    }

    /// A broken line that nothing completed: a call begun, and whatever was joined to it is unknown.
    fn end_broken(&mut self, imported: &mut Imported, at_end: bool) {
        let Some(broken) = self.broken.take() else {
            return;
        };
        if let Event::Broken(name) = scan::event(&broken.text) {
            let name = name.to_vec();
            self.unreturned(imported, broken.prefix, &name, broken.line);
        }
        if broken.lines > 0 {
            imported.unknown_lines.count += broken.lines - 1;
            imported
                .unknown_lines
                .add(broken.line + 1, b"(lines after a call that broke off)");
        }
        if at_end && self.cut_at_end {
            imported.cut("the log ends in the middle of a line");
        }
    }

    /// The thread of a line.
    fn thread(&mut self, prefix: Prefix) -> u32 {
        match prefix.pid.or(self.file_pid) {
            None => {
                self.unprefixed = true;
                0
            }
            Some(pid) if self.main == Some(pid) => 0,
            Some(pid) => {
                // strace names threads only while there are several: the first name that no clone
                // explains is that of the thread which had none so far.
                if self.unprefixed
                    && self.main.is_none()
                    && !self.collector.knows(pid)
                    && !self.collector.is_cloning()
                {
                    self.main = Some(pid);
                    return 0;
                }
                pid
            }
        }
    }

    /// Nanoseconds on a clock that never goes back.
    fn clock(&mut self, stamp: Option<Stamp>) -> Option<u64> {
        const DAY: u64 = 86_400_000_000_000;
        match stamp? {
            Stamp::OfDay(nanos) => {
                if nanos + DAY / 2 < self.last_of_day {
                    self.day = self.day.saturating_add(DAY);
                }
                self.last_of_day = nanos;
                Some(self.day.saturating_add(nanos))
            }
            Stamp::Epoch(nanos) => {
                let base = *self.epoch_base.get_or_insert(nanos);
                // Kept small and positive; files of -ff begin at different times.
                Some((nanos.saturating_add(DAY)).saturating_sub(base))
            }
            Stamp::Delta(nanos) => {
                self.relative = self.relative.saturating_add(nanos);
                Some(self.relative)
            }
        }
    }

    fn take(&mut self, imported: &mut Imported, prefix: Prefix, event: Event<'_>, number: u64) {
        let at = self.clock(prefix.stamp);
        match event {
            Event::Call(name, args, outcome) => {
                let pid = self.thread(prefix);
                self.drop_pending(pid);
                self.check(imported, &outcome, number);
                let Some(id) = self.begin(imported, pid, name, number) else {
                    return;
                };
                self.end(pid, id, args, outcome, at, outcome.took, number);
                if outcome.took.is_none() {
                    self.last = Some(Last::Ended(id));
                }
            }
            Event::Unfinished(name, args) => {
                let pid = self.thread(prefix);
                self.drop_pending(pid);
                let Some(id) = self.begin(imported, pid, name, number) else {
                    return;
                };
                self.collector.meet(pid);
                self.last = Some(Last::Unfinished(pid));
                if self.names.of(id).is_some_and(|c| c.class == Class::Clone) {
                    self.collector.clone_begins(pid, args);
                }
                match self.pending.insert(pid, id, args, at, number) {
                    Kept::Whole => {}
                    Kept::Part => self.collector.truncated(),
                    Kept::Nothing => {
                        self.collector.truncated();
                        if let Some(counts) = self.names.of(id) {
                            counts.unfinished += 1;
                        }
                    }
                }
            }
            Event::Resumed(name, rest, outcome) => {
                self.resume(imported, prefix, name, rest, outcome, at, number)
            }
            Event::Signal(name) => {
                let pid = self.thread(prefix);
                self.collector.signal(pid, &text::name(name));
            }
            Event::Gone(killed_by) => {
                let pid = self.thread(prefix);
                self.drop_pending(pid);
                let killed_by = killed_by.map(text::name);
                self.collector.gone(pid, killed_by.as_deref());
                self.modes.remove(&pid);
            }
            Event::Superseded(other) => {
                let pid = self.thread(prefix);
                let other = self.thread(Prefix {
                    pid: Some(other),
                    ..prefix
                });
                self.drop_pending(pid);
                // Its exec returns under the number that it has taken over.
                self.pending.hand_over(other, pid);
            }
            Event::Mode(pid, mode) => {
                let pid = match pid {
                    Some(_) if prefix.pid.is_some() => self.thread(prefix),
                    Some(pid) if self.collector.knows(pid) => pid,
                    Some(_) | None => 0,
                };
                let mode = text::name(mode);
                if mode == "64" {
                    self.modes.remove(&pid);
                } else if self.modes.len() < MOST_MODES {
                    self.modes.insert(pid, mode.into());
                }
            }
            Event::Complaint(message) => {
                self.complaints += 1;
                if self.complaints <= 5 {
                    imported.notes.push(complaint_note(message));
                }
            }
            Event::Aside => self.attached = true,
            Event::Broken(_) | Event::Unknown => {}
        }
    }

    /// Notes what a call cannot have taken or returned.
    fn check(&self, imported: &mut Imported, outcome: &Outcome<'_>, number: u64) {
        if !outcome.unusable.is_empty() {
            imported.unusable_values.add(number, outcome.unusable);
        }
    }

    /// A call that the same thread never ended before its next one.
    fn drop_pending(&mut self, pid: u32) {
        if self.pending.is_empty() {
            return;
        }
        if let Some(pending) = self.pending.remove(pid)
            && let Some(counts) = self.names.of(pending.id)
        {
            counts.unfinished += 1;
        }
    }

    /// Counts a call as begun.
    fn begin(&mut self, imported: &mut Imported, pid: u32, name: &[u8], number: u64) -> Option<NameId> {
        let abi = if self.modes.is_empty() {
            None
        } else {
            self.modes.get(&pid).cloned()
        };
        let id = self.names.id(name, abi.as_ref());
        match id.and_then(|id| self.names.of(id)) {
            Some(counts) => counts.calls += 1,
            None => imported.unknown_lines.add(number, name),
        }
        id
    }

    fn unreturned(&mut self, imported: &mut Imported, prefix: Prefix, name: &[u8], number: u64) {
        self.clock(prefix.stamp);
        let pid = self.thread(prefix);
        self.drop_pending(pid);
        self.collector.meet(pid);
        if let Some(counts) = self
            .begin(imported, pid, name, number)
            .and_then(|id| self.names.of(id))
        {
            counts.unfinished += 1;
        }
    }

    #[allow(clippy::too_many_arguments)] // The parts of one call, from two lines.
    fn end(
        &mut self,
        pid: u32,
        id: NameId,
        args: &[u8],
        outcome: Outcome<'_>,
        at: Option<u64>,
        known: Option<u64>,
        number: u64,
    ) {
        let Some(counts) = self.names.of(id) else { return };
        let mut restart = false;
        self.errno.clear();
        if outcome.is_error() {
            match outcome.errno {
                Some(number) if number.first().is_some_and(u8::is_ascii_digit) => {
                    let named = super::number::uint(number).and_then(|n| i32::try_from(n).ok());
                    match named {
                        Some(n) => self.errno.push_str(&crate::tally::Errno(n).name()),
                        None => self.errno.push_str("errno ?"),
                    }
                }
                Some(name) => match std::str::from_utf8(name) {
                    Ok(plain)
                        if plain.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                            && plain.len() < 32 =>
                    {
                        self.errno.push_str(plain);
                    }
                    Ok(_) | Err(_) => self.errno.push_str(&text::name(name)),
                },
                None => self.errno.push_str("errno ?"),
            }
            restart = self.errno.starts_with("ERESTART");
            counts.failed(&self.errno);
        }
        if let Some(took) = outcome.took {
            counts.took(took);
        }
        if counts.class == Class::Other && at.is_none() && known.is_none() {
            self.collector.meet(pid);
            return;
        }
        let call = Call {
            pid,
            name: &counts.name,
            class: counts.class,
            args,
            ret: outcome.ret,
            errno: (!self.errno.is_empty()).then_some(&*self.errno),
            tail: outcome.tail,
            at,
            took: known,
            line: number,
        };
        self.collector.call(&call);
        if restart {
            self.collector.restarted(pid);
        }
    }

    #[allow(clippy::too_many_arguments)] // The parts of one line.
    fn resume(
        &mut self,
        imported: &mut Imported,
        prefix: Prefix,
        name: &[u8],
        rest: &[u8],
        outcome: Outcome<'_>,
        at: Option<u64>,
        number: u64,
    ) {
        self.check(imported, &outcome, number);
        let mut pid = self.thread(prefix);
        // The thread that had no name so far gets one with the return of its clone.
        if prefix.pid.is_some()
            && self.unprefixed
            && self.main.is_none()
            && !self.pending.contains(pid)
            && let Some(pending) = self.pending.get(0)
            && self
                .names
                .of(pending.id)
                .is_some_and(|c| c.name.as_bytes() == name)
        {
            self.main = Some(pid);
            pid = 0;
        }
        // The last thread left has no pid in front, and may be another than the one that began so.
        if prefix.pid.is_none() && !self.pending.contains(pid) {
            let names = &mut self.names;
            let same = |id| name.is_empty() || names.of(id).is_some_and(|c| c.name.as_bytes() == name);
            if let Some(other) = self.pending.find(same) {
                pid = other;
            }
        }
        match self.pending.remove(pid) {
            Some(pending) => {
                let mut args = pending.args;
                if !rest.is_empty() {
                    args.extend_from_slice(rest);
                }
                // Without -T the two stamps still tell how long it took; that is not the file's own word.
                let known = outcome
                    .took
                    .or_else(|| at.zip(pending.at).map(|(end, begin)| end.saturating_sub(begin)));
                self.end(pid, pending.id, &args, outcome, pending.at, known, pending.line);
            }
            None => {
                if !self.attached {
                    self.resumed_without_start = true;
                }
                let name = if name.is_empty() { b"?" } else { name };
                if let Some(id) = self.begin(imported, pid, name, number) {
                    // The arguments before the cut are gone, so there is no descriptor to go by.
                    self.end(pid, id, &[], outcome, None, outcome.took, number);
                }
            }
        }
    }

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
    pub(super) fn finish(mut self) -> Result<Imported, ImportError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_more_days_than_there_are_stands_still() {
        let mut session = Session::default();
        let mut last = 0;
        for _ in 0..300_000 {
            for of_day in [86_399_000_000_000, 0] {
                let at = session.clock(Some(Stamp::OfDay(of_day))).unwrap_or_default();
                assert!(at >= last);
                last = at;
            }
        }
        assert_eq!(last, u64::MAX);
    }
}
