//! Logs of `perf trace`: `0.124 ( 0.012 ms): php/14313 read(fd: 3) = 12`.

use std::collections::HashMap;
use std::io::BufRead;
use std::ops::ControlFlow;

use super::facts::collect::{Call, Class, Collector};
use super::model::{Imported, ImportedTable, TimeKind};
use super::names::{NameId, Names};
use super::perf_trace::lost_events;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};

const MILLISECOND: u64 = 1_000_000;
const MOST_THREADS: usize = 65_536;
/// No call takes longer than a year, in nanoseconds.
const LONGEST: u64 = 365 * 86_400 * 1_000_000_000;
/// Columns in front of the frames of a call chain.
const CHAIN: &[u8] = b"                              ";

/// The importer.
pub(super) struct PerfTraceLog;

/// One line, taken apart.
#[derive(Debug)]
struct Parts<'a> {
    at: Option<u64>,
    took: Option<u64>,
    thread: &'a [u8],
    name: &'a [u8],
    args: &'a [u8],
    /// The text after `= `; `None` when the call goes on below.
    result: Option<&'a [u8]>,
    continued: bool,
}

fn parts(line: &[u8]) -> Option<Parts<'_>> {
    let line = text::trim(line);
    let open = line.iter().position(|b| *b == b'(')?;
    let stamp = text::trim(&line[..open]);
    let at = match stamp {
        b"?" => None,
        _ if number::is_decimal(stamp) => Some(number::span(stamp, MILLISECOND)?.0),
        _ => return None,
    };
    let close = memchr::memmem::find(line, b"):")?;
    if close < open {
        return None;
    }
    let inner = text::trim(&line[open + 1..close]);
    let took = match inner.strip_suffix(b"ms") {
        // Some versions print the end of a call without a beginning as the time since the year 1385.
        Some(ms) => Some(number::span(text::trim(ms), MILLISECOND)?.0).filter(|n| *n < LONGEST),
        None if inner.is_empty() => None,
        None => return None,
    };
    let rest = text::trim(&line[close + 2..]);
    let (thread, rest) = thread(rest);
    let (continued, rest) = match rest.strip_prefix(b"... [continued]: ") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let length = rest
        .iter()
        .position(|b| !b.is_ascii_alphanumeric() && *b != b'_')
        .filter(|n| *n > 0 && *n <= 64)?;
    let name = &rest[..length];
    let body = rest[length..].strip_prefix(b"(")?;
    if let Some(args) = body.strip_suffix(b" ...") {
        return Some(Parts {
            at,
            took,
            thread,
            name,
            args: args.strip_suffix(b")").unwrap_or(args),
            result: None,
            continued,
        });
    }
    // perf pads the result to a column. A zero that would be a process id is printed as nothing at all.
    let (args, result) = match body.strip_suffix(b" =") {
        Some(args) => (args, &b""[..]),
        None => {
            let equals = memchr::memmem::rfind(body, b" = ")?;
            (&body[..equals], text::trim(&body[equals + 3..]))
        }
    };
    let args = text::trim(args);
    Some(Parts {
        at,
        took,
        thread,
        name,
        args: args.strip_suffix(b")").unwrap_or(args),
        result: Some(result),
        continued,
    })
}

/// `php/14313 `, absent when there is one thread only. The command name may have spaces.
fn thread(rest: &[u8]) -> (&[u8], &[u8]) {
    let until = rest.iter().position(|b| *b == b'(').unwrap_or(rest.len());
    let Some(slash) = rest[..until].iter().rposition(|b| *b == b'/') else {
        return (&[], rest);
    };
    let digits = rest[slash + 1..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    if digits == 0 || rest.get(slash + 1 + digits) != Some(&b' ') {
        return (&[], rest);
    }
    (
        &rest[slash + 1..slash + 1 + digits],
        text::trim(&rest[slash + 1 + digits..]),
    )
}

/// `-1 (unknown) (INTERNAL ERROR: strerror_r(512, [buf], 128)=22)`: a number that programs never see, so
/// that perf has no name for it.
fn unnamed(tail: &[u8]) -> Option<&'static str> {
    let rest = tail.strip_prefix(b"(unknown)")?;
    let number = memchr::memmem::find(rest, b"strerror_r(").map(|at| {
        let digits = rest[at + 11..].split(|b| !b.is_ascii_digit()).next();
        digits.and_then(number::uint)
    });
    Some(match number.flatten() {
        Some(512) => "ERESTARTSYS",
        Some(513) => "ERESTARTNOINTR",
        Some(514) => "ERESTARTNOHAND",
        Some(516) => "ERESTART_RESTARTBLOCK",
        Some(_) => "errno ?",
        // Another C library says something else; what has no name are these.
        None => "ERESTART",
    })
}

/// Frames of a call chain, page faults, and other events that perf trace can show between calls.
pub(super) fn is_aside(line: &[u8]) -> bool {
    if line.starts_with(CHAIN) && text::trim(line).ends_with(b")") {
        return true;
    }
    let fault = text::contains(line, " minfault [") || text::contains(line, " majfault [");
    fault && text::contains(line, "ms): ")
}

/// Whether a line is one of such a log.
pub(super) fn is_call(line: &[u8]) -> bool {
    parts(line).is_some()
}

impl Importer for PerfTraceLog {
    fn format(&self) -> ImportFormat {
        ImportFormat::PerfTraceLog
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(is_call)
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut names = Names::default();
        let mut collector = Collector::default();
        let mut open: HashMap<u32, (NameId, Option<u64>)> = HashMap::new();
        let mut lost = 0_u64;
        let mut returns = 0_u64;
        let mut summary = false;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            summary |= text::trim(&clean) == b"Summary of events:";
            if summary {
                // perf trace -S: the same run once more, as a table.
                return ControlFlow::Continue(());
            }
            let Some(parts) = parts(&clean) else {
                match lost_events(text::trim(&clean)) {
                    Some(n) => lost = lost.saturating_add(n),
                    None if text::is_noise(&clean) || is_aside(&clean) => {}
                    None => imported.unknown_lines.add(line.number, line.text),
                }
                return ControlFlow::Continue(());
            };
            let pid = number::uint(parts.thread)
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0);
            collector.meet(pid);
            let started = if parts.continued { open.remove(&pid) } else { None };
            let (id, began) = match started {
                Some((id, began)) => (Some(id), began),
                None => {
                    returns +=
                        u64::from(parts.continued && Class::of(&text::name(parts.name)) == Class::Clone);
                    let id = names.id(parts.name, None);
                    match id.and_then(|id| names.of(id)) {
                        Some(counts) => counts.calls += 1,
                        None => imported.unknown_lines.add(line.number, line.text),
                    }
                    (id, parts.at)
                }
            };
            let Some(counts) = id.and_then(|id| names.of(id)) else {
                return ControlFlow::Continue(());
            };
            let Some(result) = parts.result else {
                if open.len() < MOST_THREADS
                    && let Some(id) = id
                {
                    open.insert(pid, (id, parts.at));
                }
                return ControlFlow::Continue(());
            };
            let (value, tail) =
                result.split_at(result.iter().position(|b| *b == b' ').unwrap_or(result.len()));
            let tail = text::trim(tail);
            let ret = number::int(value);
            if ret.is_none() && number::is_odd(value) {
                imported.unusable_values.add(line.number, value);
            }
            let errno = if ret.is_some_and(|n| n < 0) && tail.starts_with(b"E") {
                Some(text::name(
                    &tail[..tail.iter().position(|b| *b == b' ').unwrap_or(tail.len())],
                ))
            } else {
                unnamed(tail).map(str::to_owned)
            };
            if let Some(errno) = &errno {
                counts.failed(errno);
            }
            if let Some(took) = parts.took {
                counts.took(took);
            }
            collector.call(&Call {
                pid,
                name: &counts.name,
                class: counts.class,
                args: parts.args,
                ret,
                errno: errno.as_deref(),
                tail,
                at: began,
                took: parts.took,
                line: line.number,
            });
            ControlFlow::Continue(())
        })?;
        if names.total() == 0 {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        for (_, (id, _)) in open {
            if let Some(counts) = names.of(id) {
                counts.unfinished += 1;
            }
        }
        if names.timed() {
            imported.time_kind = TimeKind::Wall;
            imported.time_source = "perf trace".to_owned();
        }
        if lost > 0 {
            imported.cut(format!("perf lost {lost} events"));
        }
        imported
            .notes
            .push("perf trace can lose events under load without saying so".to_owned());
        if returns > 0 {
            imported.notes.push(format!(
                "{returns} of the clones are only the return in a new thread or process, whose own call stands beside \
                 it: so many were made less"
            ));
        }
        if summary {
            imported
                .notes
                .push("the table at the end is of the same run and is not counted again".to_owned());
        }
        imported.processes = Some(collector.seen.max(1));
        imported.facts = Some(Box::new(collector.finish()));
        imported.tables.push(ImportedTable {
            label: "log".to_owned(),
            rows: names.into_rows(),
            stated: None,
        });
        Ok(imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_and_results_that_perf_prints_no_name_for() {
        let text = "    15.580 ( 6.987 ms): sigs/6207 read(fd: 4<pipe:[65545]>, buf: 0x7f, count: 1)   = -1 (unknown) (INTERNAL ERROR: strerror_r(512, [buf], 128)=22)\n\
                    \x20        ? (         ): sigs/6053  ... [continued]: clone())                  = \n\
                    \x20  301.647 (18446744073677.398 ms): cat/6136  ... [continued]: clone())       = \n\
                    \x20                                      _start (/usr/lib/ld-linux-x86-64.so.2)\n\
                    \x20    0.047 ( 0.006 ms): php/19 wait4(upid: -1, options: NOHANG)                = 0\n";
        let imported = PerfTraceLog.import(&mut text.as_bytes()).unwrap();
        let table = &imported.tables[0];
        let read = table.row("read").unwrap();
        assert_eq!((read.errors, read.errnos.get("ERESTARTSYS")), (Some(1), Some(&1)));
        assert_eq!(table.row("clone").map(|r| (r.calls(), r.time)), Some((2, None)));
        assert_eq!(imported.unknown_lines.count, 0);
    }

    #[test]
    fn lines_of_one_and_several_threads() {
        let text = "         ? (         ): true/1188  ... [continued]: execve())                   = 0\n\
                    \x20    0.046 ( 0.006 ms): true/1188 brk()                                       = 0x55f9b6034000\n\
                    \x20    0.146 ( 0.009 ms): true/1188 access(filename: 0x84c22a0, mode: R)       = -1 ENOENT (No such file or directory)\n\
                    \x20    0.200 (         ): true/1188 poll(ufds: 0x7f, nfds: 1, timeout_msecs: 60000) ...\n\
                    \x20    0.300 ( 0.001 ms): a b/1189 close(fd: 3)                                 = 0\n\
                    \x20   40.300 (40.100 ms): true/1188  ... [continued]: poll())                  = 1\n\
                    LOST 3 events!\n";
        let imported = PerfTraceLog.import(&mut text.as_bytes()).unwrap();
        let table = &imported.tables[0];
        assert_eq!(table.sum_calls(), 5);
        assert_eq!(
            table.row("poll").map(|r| (r.calls(), r.time)),
            Some((1, Some(crate::units::Nanos(40_100_000))))
        );
        assert_eq!(table.row("access").and_then(|r| r.errors), Some(1));
        assert_eq!(imported.processes, Some(2));
        assert!(imported.incomplete);
        assert_eq!(imported.unknown_lines.count, 0);
    }
}
