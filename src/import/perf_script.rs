//! Output of `perf script` on a recording of system call tracepoints: `raw_syscalls:sys_enter`,
//! `syscalls:sys_exit_read` and their like.
//!
//! One call per entry. A return without its entry is a call that was under way when the recording began; where a
//! call's entries were not recorded at all, its returns are counted. A new process's or thread's first return
//! (of clone, 0) is no call of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::ops::ControlFlow;

use super::Map as Hash;
use super::model::{Imported, Row, TimeKind};
use super::rows::Rows;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};
use crate::tally::{Abi, Errno, Syscall};
use crate::units::Nanos;

/// The importer.
pub(super) struct PerfScript;

/// Threads followed at once; a recording of a whole machine has some thousands.
const MOST_THREADS: usize = 1 << 17;

/// One event.
#[derive(Debug, PartialEq)]
struct Event<'a> {
    thread: u64,
    at: Nanos,
    /// How many events it stands for: more than one where perf only sampled.
    period: u64,
    /// The call; `None` where the kernel no longer knows it (the return of `rt_sigreturn`).
    call: Option<Call<'a>>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call<'a> {
    Named(&'a [u8]),
    Numbered(u64),
}

impl Call<'_> {
    fn name(self) -> String {
        match self {
            Call::Named(name) => text::name(name),
            Call::Numbered(number) => Syscall {
                abi: Abi::X86_64,
                number,
            }
            .bare_name()
            .map_or_else(|| format!("syscall_{number}"), str::to_owned),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Enter,
    /// With what the call returned, where the line has it.
    Exit(Option<i64>),
}

/// `php 123/124 [001] 18341.337359:  1  raw_syscalls:sys_exit: NR 12 = 0`; the process, CPU and period may be
/// missing, and names of commands may have spaces.
fn event(line: &[u8]) -> Option<Event<'_>> {
    let at = memchr::memmem::find(line, b"syscalls:sys_")?;
    let (front, raw) = match line[..at].strip_suffix(b"raw_") {
        Some(front) => (front, true),
        None => (&line[..at], false),
    };
    let front = front.strip_suffix(b"tracepoint:").unwrap_or(front);
    let mut fields = text::fields(front);
    let mut period = 1;
    if let Some(n) = fields.last().and_then(|field| number::uint(field)) {
        period = n;
        fields.pop();
    }
    let stamp = fields.pop()?.strip_suffix(b":")?;
    let at_time = stamp.contains(&b'.').then(|| number::seconds(stamp))??;
    if fields
        .last()
        .is_some_and(|field| field.starts_with(b"[") && field.ends_with(b"]"))
    {
        fields.pop();
    }
    // `pid/tid`, or the thread alone.
    let thread = number::uint(fields.last()?.rsplit(|b| *b == b'/').next()?)?;
    let rest = &line[at + b"syscalls:sys_".len()..];
    let colon = rest.iter().position(|b| matches!(b, b':' | b' '))?;
    let (event, rest) = rest.split_at(colon);
    let rest = text::trim(rest.strip_prefix(b":").unwrap_or(rest));
    let (enters, name) = match event.strip_prefix(b"enter") {
        Some(name) => (true, name),
        None => (false, event.strip_prefix(b"exit")?),
    };
    let (call, result) = if raw {
        let rest = rest.strip_prefix(b"NR ")?;
        let end = rest
            .iter()
            .position(|b| matches!(b, b' ' | b'('))
            .unwrap_or(rest.len());
        let number = number::int(&rest[..end])?;
        let result = memchr::memmem::find(rest, b" = ").map(|at| text::trim(&rest[at + 3..]));
        (u64::try_from(number).ok().map(Call::Numbered), result)
    } else {
        let name = name.strip_prefix(b"_").filter(|name| !name.is_empty())?;
        (Some(Call::Named(name)), Some(rest))
    };
    Some(Event {
        thread,
        at: at_time,
        period,
        call,
        kind: if enters {
            Kind::Enter
        } else {
            Kind::Exit(result.and_then(returned))
        },
    })
}

/// `0x1f`, `0xfffffffffffffffe`, `-2`.
fn returned(field: &[u8]) -> Option<i64> {
    match field.strip_prefix(b"0x") {
        // A failed call's result is a negative number in two's complement.
        Some(digits) => u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16)
            .ok()
            .map(u64::cast_signed),
        None => number::int(field),
    }
}

/// What was counted of one call.
#[derive(Debug, Default)]
struct Seen {
    enters: u64,
    exits: u64,
    /// Returns without an entry.
    without_entry: u64,
    errnos: BTreeMap<String, u64>,
    time: Nanos,
    timed: u64,
    shortest: Option<Nanos>,
    longest: Option<Nanos>,
    scaled: bool,
}

/// Calls that return twice: to the caller, and with 0 to what they made.
const MAKERS: [&str; 4] = ["clone", "clone3", "fork", "vfork"];
/// Calls that never return.
const ENDS: [&str; 3] = ["exit", "exit_group", "rt_sigreturn"];

#[derive(Debug, Default)]
struct Counted {
    calls: Hash<String, Seen>,
    order: Vec<String>,
    open: Hash<u64, (String, Nanos)>,
    threads: BTreeSet<u64>,
    numbers: bool,
    forgotten: bool,
}

impl Counted {
    /// Takes an event; false when there are too many names.
    fn add(&mut self, event: &Event<'_>) -> bool {
        if self.threads.len() < MOST_THREADS {
            self.threads.insert(event.thread);
        }
        let Some(call) = event.call else {
            self.open.remove(&event.thread);
            return true;
        };
        self.numbers |= matches!(call, Call::Numbered(_));
        let name = call.name();
        if !self.calls.contains_key(&name) {
            if self.calls.len() >= 4096 {
                return false;
            }
            self.order.push(name.clone());
        }
        let seen = self.calls.entry(name.clone()).or_default();
        seen.scaled |= event.period > 1;
        match event.kind {
            Kind::Enter => {
                seen.enters = seen.enters.saturating_add(event.period);
                if self.open.len() < MOST_THREADS || self.open.contains_key(&event.thread) {
                    self.open.insert(event.thread, (name, event.at));
                } else {
                    self.forgotten = true;
                }
            }
            Kind::Exit(result) => {
                let begun = match self.open.remove(&event.thread) {
                    Some((open, at)) if open == name => Some(at),
                    _ => None,
                };
                if begun.is_none() && result == Some(0) && MAKERS.contains(&name.as_str()) {
                    return true;
                }
                seen.exits = seen.exits.saturating_add(event.period);
                match begun {
                    Some(at) => {
                        let took = Nanos(event.at.0.saturating_sub(at.0));
                        seen.time += took;
                        seen.timed += 1;
                        seen.shortest = Some(seen.shortest.map_or(took, |least| least.min(took)));
                        seen.longest = Some(seen.longest.map_or(took, |most| most.max(took)));
                    }
                    None => seen.without_entry = seen.without_entry.saturating_add(event.period),
                }
                if let Some(error) = result.filter(|n| (-4095..0).contains(n)) {
                    let errno = Errno(i32::try_from(-error).unwrap_or(0)).name().into_owned();
                    let n = seen.errnos.entry(errno).or_default();
                    *n = n.saturating_add(event.period);
                }
            }
        }
        true
    }

    fn into_imported(mut self, imported: &mut Imported) {
        let mut rows = Rows::default();
        let mut by_returns = Vec::new();
        let mut under_way: u64 = 0;
        let mut timed = false;
        let mut never_returned: Hash<String, u64> = Hash::default();
        for (name, _) in self.open.values() {
            *never_returned.entry(name.clone()).or_default() += 1;
        }
        for name in std::mem::take(&mut self.order) {
            let Some(seen) = self.calls.remove(&name) else {
                continue;
            };
            let calls = if seen.enters == 0 && seen.exits == 0 {
                continue;
            } else if seen.enters == 0 {
                by_returns.push(name.clone());
                seen.exits
            } else {
                under_way = under_way.saturating_add(seen.without_entry);
                seen.enters.saturating_add(seen.without_entry)
            };
            let recorded = seen.exits > 0;
            let unfinished = match never_returned.get(&name) {
                Some(n) if recorded && !ENDS.contains(&name.as_str()) => *n,
                _ => 0,
            };
            imported.unfinished = imported.unfinished.saturating_add(unfinished);
            timed |= seen.timed > 0;
            if seen.scaled {
                imported.scaled.push(name.clone());
            }
            rows.add(Row {
                syscall: name,
                calls: Some(calls),
                errors: recorded.then(|| crate::units::total(seen.errnos.values().copied())),
                errnos: seen.errnos,
                unfinished,
                time: (seen.timed > 0).then_some(seen.time),
                shortest: seen.shortest,
                longest: seen.longest,
                ..Row::default()
            });
        }
        if timed {
            imported.time_kind = TimeKind::Wall;
            imported.time_source = "stamps of sys_enter and sys_exit".to_owned();
        }
        imported.processes = Some(self.threads.len() as u64);
        if self.numbers {
            imported.abi_assumed = Some("x86_64".to_owned());
            imported.notes.push(
                "raw_syscalls events have numbers, taken as x86_64's; another CPU and 32-bit programs have other numbers"
                    .to_owned(),
            );
        }
        // With entries of some calls and returns of others a name can be missing on purpose.
        if !by_returns.is_empty() {
            by_returns.truncate(12);
            imported.notes.push(format!(
                "counted by their returns, since no entry was recorded: {}",
                by_returns.join(", ")
            ));
        }
        if under_way > 0 {
            imported.notes.push(format!(
                "{under_way} calls were under way when the recording began: their returns are here, their entries are not"
            ));
        }
        if self.forgotten {
            imported.notes.push(
                "so many threads that the times of some calls are missing; the counts are whole".to_owned(),
            );
        }
        if !imported.scaled.is_empty() {
            imported.notes.push(format!(
                "sampled by perf, so the counts are estimates: {}",
                imported.scaled.join(", ")
            ));
        }
        imported
            .notes
            .push("only the events that perf record was asked for are counted".to_owned());
        imported.tables.push(rows.into_table("perf script"));
    }
}

/// A frame of a call stack: an address, a symbol, and in brackets where it is from.
fn is_frame(line: &[u8]) -> bool {
    let fields = text::fields(line);
    let [address, .., from] = fields.as_slice() else {
        return false;
    };
    address.iter().all(u8::is_ascii_hexdigit) && from.ends_with(b")")
}

impl Importer for PerfScript {
    fn format(&self) -> ImportFormat {
        ImportFormat::PerfScript
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| event(line).is_some())
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut counted = Counted::default();
        let mut lost = false;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            let trimmed = text::trim(&clean);
            if let Some(event) = event(&clean) {
                if !counted.add(&event) {
                    imported.unknown_lines.add(line.number, line.text);
                }
            } else if text::contains(trimmed, "PERF_RECORD_LOST")
                || trimmed.starts_with(b"Processed ") && text::contains(trimmed, "lost")
            {
                lost = true;
            } else if !(text::is_noise(&clean) || trimmed.starts_with(b"#") || is_frame(trimmed)) {
                imported.unknown_lines.add(line.number, line.text);
            }
            ControlFlow::Continue(())
        })?;
        if counted.calls.is_empty() {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        if lost {
            imported.incomplete = true;
            imported
                .incomplete_because
                .push("perf lost events: its buffer was too small (perf record -m)".to_owned());
        }
        counted.into_imported(&mut imported);
        Ok(imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(text: &str) -> Imported {
        PerfScript.import(&mut text.as_bytes()).unwrap()
    }

    #[test]
    fn every_way_perf_writes_an_event() {
        for (line, thread, period) in [
            (
                "         python3 10332 [000] 18341.337358: raw_syscalls:sys_enter: NR 12 (0, 7f, 0)",
                10332,
                1,
            ),
            (
                "Web Content 7/8 18341.337358:          4 raw_syscalls:sys_exit: NR 12 = 94126302265344",
                8,
                4,
            ),
            ("dd 5 [001] 1.5:  syscalls:sys_exit_read: 0x340", 5, 1),
            (
                "dd 5 [001] 1.000000005:       syscalls:sys_enter_read: fd: 0x00000003, buf: 0x7ffd, count: 0x1",
                5,
                1,
            ),
        ] {
            let event = event(line.as_bytes()).unwrap();
            assert_eq!((event.thread, event.period), (thread, period), "{line}");
        }
        for line in [
            "1,250      syscalls:sys_enter_poll        (50.00%)",
            "     1.000123456      1,250      syscalls:sys_enter_poll",
            "100,,syscalls:sys_enter_sendto,24234638,100.00,,",
            "@[tracepoint:syscalls:sys_enter_sendto, php]: 3",
            "\t 2092a fstatat64+0xa (/usr/lib/ld.so)",
            "",
        ] {
            assert_eq!(event(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn one_call_per_entry_and_errors_by_their_returns() {
        let imported = import(
            "a 5 [000] 1.000001: raw_syscalls:sys_exit: NR 59 = 0\n\
             a 5 [000] 1.000002: raw_syscalls:sys_enter: NR 0 (3, 0, 1)\n\
             a 6 [001] 1.000003: raw_syscalls:sys_enter: NR 0 (3, 0, 1)\n\
             a 5 [000] 1.000005: raw_syscalls:sys_exit: NR 0 = -11\n\
             a 6 [001] 1.000013: raw_syscalls:sys_exit: NR 0 = 1\n\
             a 7 [001] 1.000014: raw_syscalls:sys_exit: NR 56 = 0\n\
             a 5 [000] 1.000015: raw_syscalls:sys_enter: NR 15 ()\n\
             a 5 [000] 1.000016: raw_syscalls:sys_exit: NR -1 = 0\n\
             a 6 [001] 1.000017: raw_syscalls:sys_enter: NR 7 ()\n\
             a 5 [000] 1.000018: raw_syscalls:sys_enter: NR 231 (0)\n",
        );
        let table = &imported.tables[0];
        let row = |name: &str| table.row(name).unwrap();
        assert_eq!((row("read").calls(), row("read").errors), (2, Some(1)));
        assert_eq!(row("read").errnos.get("EAGAIN"), Some(&1));
        assert_eq!(row("read").time, Some(Nanos(13_000)));
        assert_eq!(row("execve").calls(), 1);
        assert_eq!(row("rt_sigreturn").calls(), 1);
        assert_eq!(row("exit_group").unfinished, 0);
        // The new thread's return of clone is no call.
        assert!(table.row("clone").is_none());
        assert_eq!(imported.unknown_lines.count, 0);
    }

    #[test]
    fn returns_alone_are_counted_and_said_to_be() {
        let imported = import(
            "dd 5 [001] 1.5:  syscalls:sys_exit_read: 0x340\ndd 5 [001] 1.6: syscalls:sys_exit_read: 0xfffffffffffffff5\n",
        );
        let row = imported.tables[0].row("read").unwrap();
        assert_eq!((row.calls(), row.errors, row.time), (2, Some(1), None));
        assert!(
            imported
                .notes
                .iter()
                .any(|note| note.contains("by their returns"))
        );
        // Entries alone tell nothing of errors.
        let imported = import("dd 5 [001] 1.5: syscalls:sys_enter_read: fd: 0x3\n");
        assert_eq!(imported.tables[0].rows[0].errors, None);
    }

    #[test]
    fn samples_are_estimates() {
        let imported = import("dd 5 [001] 1.5:  100 syscalls:sys_enter_read: fd: 0x3\n");
        assert_eq!(imported.tables[0].rows[0].calls(), 100);
        assert_eq!(imported.scaled, ["read"]);
    }
}
