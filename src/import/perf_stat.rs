//! Output of `perf stat` on system call tracepoints: `-x,`, `-j`, or plain.

use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::{Imported, Row};
use super::rows::Rows;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};
use crate::units::Nanos;

const EVENT: &[u8] = b"syscalls:sys_";

/// The importer.
pub(super) struct PerfStat;

/// One counter.
#[derive(Debug, PartialEq)]
struct Counter {
    /// The call.
    call: String,
    /// Whether it counts returns (`sys_exit_`) instead of entries.
    exits: bool,
    /// Calls; `None` when perf could not count.
    count: Option<u64>,
    /// Whether this machine has the event at all.
    supported: bool,
    /// Share of the time in which it counted, in hundredths of a percent.
    running: Option<u64>,
    /// Not a count per call: all calls (`raw_syscalls:`).
    all: bool,
}

fn event(field: &[u8]) -> Option<(String, bool, bool)> {
    let field = text::trim(field);
    let field = field.split(|b| *b == b'/').next()?;
    if let Some(rest) = field.strip_prefix(b"raw_syscalls:sys_") {
        let exits = rest.starts_with(b"exit");
        return Some((String::new(), exits, true));
    }
    let rest = field.strip_prefix(EVENT)?;
    let (exits, name) = match rest.strip_prefix(b"enter_") {
        Some(name) => (false, name),
        None => (true, rest.strip_prefix(b"exit_")?),
    };
    // :u and :k restrict what is counted, not which call.
    let name = name.split(|b| *b == b':').next()?;
    (!name.is_empty()).then(|| (text::name(name), exits, false))
}

/// Whether a value field says that the machine has no such event.
fn supported(field: &[u8]) -> bool {
    !text::contains(field, "<not supported>")
}

/// The value field, digits grouped or scaled to a decimal.
fn value(field: &[u8]) -> Option<Option<u64>> {
    let field = text::trim(field);
    if matches!(field, b"<not counted>" | b"<not supported>") {
        return Some(None);
    }
    let whole = match field.iter().position(|b| *b == b'.') {
        // Counts are whole; -j writes them with decimals.
        Some(at) if field[at + 1..].iter().all(|b| *b == b'0') => &field[..at],
        _ => field,
    };
    let digits: Vec<u8> = whole
        .iter()
        .copied()
        .filter(|b| !matches!(b, b',' | b'\'' | b'.'))
        .collect();
    Some(Some(number::uint(&digits)?))
}

fn percent(field: &[u8]) -> Option<u64> {
    let field = text::trim(field);
    let field = field.strip_suffix(b"%").unwrap_or(field);
    // In hundredths.
    number::span(field, 100).map(|n| n.0)
}

fn counter(line: &[u8]) -> Option<Counter> {
    if !text::contains(line, "syscalls:sys_") {
        return None;
    }
    json(line).or_else(|| separated(line)).or_else(|| plain(line))
}

fn json(line: &[u8]) -> Option<Counter> {
    let line = text::trim(line);
    let line = line.strip_suffix(b",").unwrap_or(line);
    if !line.starts_with(b"{") || line.len() > 4096 {
        return None;
    }
    let object: serde_json::Value = serde_json::from_slice(line).ok()?;
    let (call, exits, all) = event(object.get("event")?.as_str()?.as_bytes())?;
    Some(Counter {
        call,
        exits,
        all,
        count: value(object.get("counter-value")?.as_str()?.as_bytes())?,
        supported: supported(object.get("counter-value")?.as_str()?.as_bytes()),
        running: object
            .get("pcnt-running")
            .and_then(serde_json::Value::as_f64)
            .filter(|p| (0.0..=100.0).contains(p))
            .map(|p| (p * 100.0).round() as u64),
    })
}

/// `100,,syscalls:sys_enter_sendto,24234638,100.00,,`, any separator, with or without columns in front
/// (`-I` the time, `-A` the CPU).
fn separated(line: &[u8]) -> Option<Counter> {
    for separator in [b',', b';', b'\t', b'|'] {
        let fields: Vec<&[u8]> = line.split(|b| *b == separator).collect();
        let Some(at) = fields.iter().position(|f| event(f).is_some()) else {
            continue;
        };
        if at < 2 {
            continue;
        }
        let (call, exits, all) = event(fields[at])?;
        return Some(Counter {
            call,
            exits,
            all,
            count: value(fields[at - 2])?,
            supported: supported(fields[at - 2]),
            running: fields.get(at + 2).and_then(|f| percent(f)),
        });
    }
    None
}

/// `             1,250      syscalls:sys_enter_poll        ( +-  1.2% )  (50.00%)`
fn plain(line: &[u8]) -> Option<Counter> {
    let at =
        memchr::memmem::find(line, EVENT).or_else(|| memchr::memmem::find(line, b"raw_syscalls:sys_"))?;
    let at = if at >= 4 && line[..at].ends_with(b"raw_") {
        at - 4
    } else {
        at
    };
    let before = text::trim(&line[..at]);
    let after = &line[at..];
    let end = after
        .iter()
        .position(|b| matches!(b, b' ' | b'\t'))
        .unwrap_or(after.len());
    let (call, exits, all) = event(&after[..end])?;
    // -I puts the time in front.
    let before = match before.iter().rposition(|b| matches!(b, b' ' | b'\t')) {
        Some(space) if !before.ends_with(b">") => &before[space + 1..],
        Some(_) | None => before,
    };
    let count = match before.iter().position(|b| *b == b'<') {
        Some(open) => value(&before[open..])?,
        None => value(before)?,
    };
    let running = memchr::memmem::rfind(after, b"%)").and_then(|close| {
        let open = after[..close].iter().rposition(|b| *b == b'(')?;
        percent(&after[open + 1..close])
    });
    Some(Counter {
        call,
        exits,
        all,
        count,
        supported: supported(before),
        running,
    })
}

/// `       0.000957005 seconds time elapsed`, with -r `0.08255 +- 0.00176 seconds time elapsed  ( +-  2.13% )`
fn elapsed(line: &[u8]) -> Option<Nanos> {
    let end = memchr::memmem::find(line, b" seconds time elapsed")?;
    let mut fields = text::fields(&line[..end]).into_iter();
    let time = number::seconds(fields.next()?)?;
    matches!(fields.next(), None | Some(b"+-")).then_some(time)
}

/// Events whose shares are told one by one.
const MOST_SHARES: usize = 64;

/// `   <not supported>      cycles`, `  12,345  page-faults  # 1 K/sec`: a counter that is no system call.
fn other_event(line: &[u8], others: &mut u64) -> bool {
    let rest = if let Some(rest) = line
        .strip_prefix(b"<not supported>")
        .or_else(|| line.strip_prefix(b"<not counted>"))
    {
        rest
    } else {
        let end = line
            .iter()
            .position(|b| matches!(b, b' ' | b'\t'))
            .unwrap_or(line.len());
        match value(&line[..end]) {
            Some(Some(_)) => &line[end..],
            _ => return false,
        }
    };
    let fields = text::fields(rest);
    let name = |field: &&[u8]| {
        field.first().is_some_and(u8::is_ascii_alphabetic)
            && field
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b':' | b'.' | b'/' | b'='))
    };
    // `msec task-clock`: the unit stands before the event.
    let is_event = match fields.as_slice() {
        [event] => name(event),
        [event, more, ..] => {
            name(event) && (matches!(*more, b"#" | b"(") || more.starts_with(b"(") || *event == b"msec")
        }
        [] => false,
    };
    *others += u64::from(is_event);
    is_event
}

impl Importer for PerfStat {
    fn format(&self) -> ImportFormat {
        ImportFormat::PerfStatCsv
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| counter(line).is_some())
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut rows = Rows::default();
        let mut exits = Rows::default();
        let mut everything: Option<u64> = None;
        let mut uncounted_raw = false;
        // Shares of the time, where perf took turns between events.
        let mut shares: Vec<(String, u64)> = Vec::new();
        let mut unsupported: Vec<String> = Vec::new();
        let mut others: u64 = 0;
        let mut seen = false;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            let trimmed = text::trim(&clean);
            if let Some(counter) = counter(&clean) {
                seen = true;
                let share = counter.running.filter(|share| *share < 9_999);
                if counter.all {
                    everything = everything.max(counter.count);
                    uncounted_raw |= counter.count.is_none();
                    if let (Some(share), true) = (share, shares.len() < MOST_SHARES) {
                        shares.push(("all calls (raw_syscalls)".to_owned(), share));
                    }
                    return ControlFlow::Continue(());
                }
                let Some(count) = counter.count else {
                    if !counter.supported
                        && unsupported.len() < MOST_SHARES
                        && !unsupported.contains(&counter.call)
                    {
                        unsupported.push(counter.call.clone());
                    }
                    if !imported.not_counted.contains(&counter.call) && imported.not_counted.len() < 512 {
                        imported.not_counted.push(counter.call);
                    }
                    return ControlFlow::Continue(());
                };
                if let Some(share) = share {
                    if !imported.scaled.contains(&counter.call) {
                        imported.scaled.push(counter.call.clone());
                    }
                    // Of several lines of one call (-A, -I, entries and returns) the least share is told.
                    match shares.iter().position(|(call, _)| *call == counter.call) {
                        Some(at) => shares[at].1 = share.min(shares[at].1),
                        None if shares.len() < MOST_SHARES => shares.push((counter.call.clone(), share)),
                        None => {}
                    }
                }
                let into = if counter.exits { &mut exits } else { &mut rows };
                let added = into.add(Row {
                    syscall: counter.call,
                    calls: Some(count),
                    ..Row::default()
                });
                if !added {
                    imported.unknown_lines.add(line.number, line.text);
                }
            } else if let Some(time) = elapsed(trimmed) {
                imported.elapsed = Some(time);
            } else if !(text::is_noise(&clean)
                || trimmed.starts_with(b"#")
                || trimmed.starts_with(b"Performance counter stats")
                || trimmed.ends_with(b" seconds user")
                || other_event(trimmed, &mut others)
                || trimmed.ends_with(b" seconds sys"))
            {
                imported.unknown_lines.add(line.number, line.text);
            }
            ControlFlow::Continue(())
        })?;
        if !seen {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        imported.not_counted.retain(|call| !rows.has(call, None));
        if rows.is_empty() && !exits.is_empty() {
            imported.notes.push(
                "the events are returns (sys_exit), which a filter may have reduced to errors".to_owned(),
            );
            rows = exits;
        } else if !exits.is_empty() {
            imported
                .notes
                .push("returns (sys_exit events) are beside the entries in this file; only entries are counted here".to_owned());
        }
        if let Some(all) = everything {
            imported.notes.push(format!(
                "raw_syscalls counts {all} calls of all kinds; only chosen ones have a row"
            ));
        } else if uncounted_raw {
            imported
                .notes
                .push("raw_syscalls was not counted, which is not zero: how many calls there were in all is not known".to_owned());
        }
        if !shares.is_empty() {
            let each: Vec<String> = shares
                .iter()
                .map(|(call, share)| {
                    format!(
                        "{call} was counted {}.{:02} % of the time",
                        share / 100,
                        share % 100
                    )
                })
                .collect();
            imported.notes.push(format!(
                "scaled up by perf, which took turns between more events than fit at once, so estimates and not exact: {}",
                each.join(", ")
            ));
        }
        let (missing, idle): (Vec<&String>, Vec<&String>) = imported
            .not_counted
            .iter()
            .partition(|call| unsupported.contains(*call));
        for (calls, why) in [
            (idle, "not counted, which is not zero"),
            (
                missing,
                "not supported by that machine, so not counted, which is not zero",
            ),
        ] {
            if !calls.is_empty() {
                let names: Vec<&str> = calls.iter().map(|call| call.as_str()).collect();
                imported.notes.push(format!("{why}: {}", names.join(", ")));
            }
        }
        if others > 0 {
            imported.notes.push(format!(
                "{others} other events of perf stat are no system calls and have no row"
            ));
        }
        imported
            .notes
            .push("only the calls that perf stat was asked for are counted".to_owned());
        imported.tables.push(rows.into_table("perf stat"));
        Ok(imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<(String, Option<u64>, Option<u64>)> {
        counter(line.as_bytes()).map(|c| (c.call, c.count, c.running))
    }

    #[test]
    fn every_way_perf_writes_a_counter() {
        let poll = |n, share| Some(("poll".to_owned(), n, share));
        assert_eq!(
            of("1250,,syscalls:sys_enter_poll,12117319,50.00,,"),
            poll(Some(1250), Some(5000))
        );
        assert_eq!(
            of("1.000123,1250,,syscalls:sys_enter_poll,12117319,100.00,,"),
            poll(Some(1250), Some(10000))
        );
        assert_eq!(
            of("CPU0;1250;;syscalls:sys_enter_poll:u;12117319;100.00;;"),
            poll(Some(1250), Some(10000))
        );
        assert_eq!(
            of("<not counted>,,syscalls:sys_enter_poll,0,100.00,,"),
            poll(None, Some(10000))
        );
        assert_eq!(
            of("             1,250      syscalls:sys_enter_poll          (50.00%)"),
            poll(Some(1250), Some(5000))
        );
        assert_eq!(
            of("     <not counted>      syscalls:sys_enter_poll"),
            poll(None, None)
        );
        assert_eq!(
            of(
                r#"{"counter-value" : "2.000000", "unit" : "", "event" : "syscalls:sys_enter_poll", "event-runtime" : 364534, "pcnt-running" : 100.00}"#
            ),
            poll(Some(2), Some(10000))
        );
        assert_eq!(of("no counter"), None);
    }

    #[test]
    fn shares_of_the_time_are_told() {
        let text = " Performance counter stats for 'dd':\n\n\
                    \x20            1,250      syscalls:sys_enter_poll          (75.12%)\n\
                    \x20              303      syscalls:sys_enter_read\n\
                    \x20    <not counted>      syscalls:sys_enter_write         (0.00%)\n\
                    \x20  <not supported>      syscalls:sys_enter_futex\n\
                    \x20  <not supported>      cycles\n\
                    \x20             1.23 msec task-clock                       #    0.500 CPUs utilized\n\
                    \x20  <not counted>      raw_syscalls:sys_enter\n\n\
                    \x20      0.98 seconds time elapsed\n";
        let imported = PerfStat.import(&mut text.as_bytes()).unwrap();
        assert_eq!(imported.scaled, ["poll"]);
        assert_eq!(imported.not_counted, ["write", "futex"]);
        let says = |words: &[&str]| {
            let found = imported
                .notes
                .iter()
                .any(|note| words.iter().all(|word| note.contains(word)));
            assert!(found, "{words:?} in {:?}", imported.notes);
        };
        says(&["estimates and not exact", "poll was counted 75.12 % of the time"]);
        says(&["not counted, which is not zero: write"]);
        says(&["not supported by that machine", "futex"]);
        says(&["raw_syscalls was not counted, which is not zero"]);
        says(&["2 other events"]);
        assert_eq!(imported.unknown_lines.count, 0, "{:?}", imported.unknown_lines);
        let exact = PerfStat
            .import(&mut &b"  303  syscalls:sys_enter_read  (100.00%)\n"[..])
            .unwrap();
        assert!(exact.scaled.is_empty() && !exact.notes.iter().any(|note| note.contains("estimates")));
    }
}
