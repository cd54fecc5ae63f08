//! Calls as they begin and end: whose they are, what is counted, and what is handed to the collector.

use super::super::facts::collect::{Call, Class};
use super::super::model::Imported;
use super::super::names::NameId;
use super::super::{number, text};
use super::session::Session;
use crate::foreign::strace::{Outcome, Prefix};
use crate::tally::Errno;

impl Session {
    /// The thread of a line.
    pub(super) fn thread(&mut self, prefix: Prefix) -> u32 {
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

    /// Notes what a call cannot have taken or returned.
    pub(super) fn check(&self, imported: &mut Imported, outcome: &Outcome<'_>, number: u64) {
        if !outcome.unusable.is_empty() {
            imported.unusable_values.add(number, outcome.unusable);
        }
    }

    /// A call that the same thread never ended before its next one.
    pub(super) fn drop_pending(&mut self, pid: u32) {
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
    pub(super) fn begin(
        &mut self,
        imported: &mut Imported,
        pid: u32,
        name: &[u8],
        number: u64,
    ) -> Option<NameId> {
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

    pub(super) fn unreturned(&mut self, imported: &mut Imported, prefix: Prefix, name: &[u8], number: u64) {
        self.clock.at(prefix.stamp);
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
    pub(super) fn end(
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
                    let named = number::uint(number).and_then(|n| i32::try_from(n).ok());
                    match named {
                        Some(n) => self.errno.push_str(&Errno(n).name()),
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
    pub(super) fn resume(
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
}
