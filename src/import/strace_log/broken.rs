//! Lines that break off: in the middle of a call that something printed into, behind its result, or at the end of
//! the file.

use super::super::model::Imported;
use super::super::text;
use super::session::{Last, Session};
use crate::foreign::strace::{self as scan, Event, Prefix};

/// Bytes and lines of a call that something printed into.
const BROKEN: usize = 64 << 10;

const BROKEN_LINES: u64 = 64;

/// A line that breaks off in the middle of a call, because something printed into it.
#[derive(Debug)]
pub(super) struct Broken {
    prefix: Prefix,
    text: Vec<u8>,
    line: u64,
    lines: u64,
}

/// Whether the last line of a file, which no line feed ends, breaks off behind the equals sign.
pub(super) fn is_cut(event: &Event<'_>, timed: bool) -> bool {
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

impl Session {
    /// A line that is the rest of the one before it, or of one that is not there.
    pub(super) fn remainder(
        &mut self,
        imported: &mut Imported,
        line: &[u8],
        last: Option<Last>,
        ended: bool,
    ) -> bool {
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

    pub(super) fn begin_broken(&mut self, imported: &mut Imported, prefix: Prefix, body: &[u8], number: u64) {
        self.end_broken(imported, false);
        self.broken = Some(Broken {
            prefix,
            text: body[..body.len().min(BROKEN)].to_vec(),
            line: number,
            lines: 0,
        });
    }

    /// Joins a line to the broken one before it.
    pub(super) fn continue_broken(&mut self, imported: &mut Imported, line: &[u8], number: u64) -> bool {
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
    pub(super) fn end_broken(&mut self, imported: &mut Imported, at_end: bool) {
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
}
