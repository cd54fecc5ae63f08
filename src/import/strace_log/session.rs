//! One run, line by line: which lines are the log's, and what each of them tells.

use std::borrow::Cow;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::rc::Rc;

use super::super::facts::collect::{Class, Collector};
use super::super::model::Imported;
use super::super::names::{NameId, Names};
use super::super::pending::{Kept, PendingCalls};
use super::super::strace_summary::{Flavour, TableParser, Took, command_line, complaint_note};
use super::super::{ImportError, ImportFormat, Map, lines, text};
use super::broken::{Broken, is_cut};
use super::clock::Clock;
use crate::foreign::strace::{self as scan, Event, Prefix};

/// Processes whose mode is kept.
const MOST_MODES: usize = 65_536;

/// What the line before was, where the next one may be its rest.
#[derive(Debug, Clone, Copy)]
pub(super) enum Last {
    /// A call of that thread that did not end.
    Unfinished(u32),
    /// A call that ended without a duration.
    Ended(NameId),
}

/// One run: a log, or all the files of `strace -ff`.
#[derive(Debug, Default)]
pub(in crate::import) struct Session {
    pub(super) names: Names,
    pub(super) collector: Collector,
    pub(super) pending: PendingCalls,
    pub(super) broken: Option<Broken>,
    pub(super) modes: Map<u32, Rc<str>>,
    /// The thread that lines without a pid belong to, once its pid is known.
    pub(super) main: Option<u32>,
    pub(super) unprefixed: bool,
    pub(super) clock: Clock,
    /// Whether a line was read, and whether the first one was the end of another.
    begun: bool,
    pub(super) cut_at_start: bool,
    pub(super) last: Option<Last>,
    pub(super) summary: Option<TableParser>,
    pub(super) wall_hint: Option<(bool, u64)>,
    pub(super) imported: Option<Imported>,
    pub(super) resumed_without_start: bool,
    pub(super) attached: bool,
    pub(super) complaints: u64,
    pub(super) cut_at_end: bool,
    /// The pid of the file being read (`-ff`).
    pub(super) file_pid: Option<u32>,
    pub(super) errno: String,
}

impl Session {
    /// Reads one file of the run. `pid` is whose it is, for the files of `-ff`.
    ///
    /// # Errors
    /// When reading fails.
    pub(in crate::import) fn read(
        &mut self,
        input: &mut dyn BufRead,
        pid: Option<u32>,
    ) -> Result<(), ImportError> {
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

    pub(super) fn take(&mut self, imported: &mut Imported, prefix: Prefix, event: Event<'_>, number: u64) {
        let at = self.clock.at(prefix.stamp);
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
}
