//! Logs of `perf trace`: `0.124 ( 0.012 ms): php/14313 read(fd: 3) = 12`.

use std::collections::HashMap;
use std::io::BufRead;
use std::ops::ControlFlow;

use super::facts::collect::{Call, Collector};
use super::model::{Imported, ImportedTable, TimeKind};
use super::names::{NameId, Names};
use super::perf_trace::lost_events;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};

const MILLISECOND: u64 = 1_000_000;
const MOST_THREADS: usize = 65_536;

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
        Some(ms) => Some(number::span(text::trim(ms), MILLISECOND)?.0),
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
    // perf pads the result to a column.
    let equals = memchr::memmem::rfind(body, b" = ")?;
    let args = text::trim(&body[..equals]);
    Some(Parts {
        at,
        took,
        thread,
        name,
        args: args.strip_suffix(b")").unwrap_or(args),
        result: Some(text::trim(&body[equals + 3..])),
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
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            let Some(parts) = parts(&clean) else {
                match lost_events(text::trim(&clean)) {
                    Some(n) => lost = lost.saturating_add(n),
                    None if text::is_noise(&clean) => {}
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
            let errno = (ret.is_some_and(|n| n < 0) && tail.starts_with(b"E"))
                .then(|| text::name(&tail[..tail.iter().position(|b| *b == b' ').unwrap_or(tail.len())]));
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
