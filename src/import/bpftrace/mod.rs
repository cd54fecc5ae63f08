//! Maps that `bpftrace` prints: counts, sums, statistics and histograms by system call, command or process,
//! at its end or in intervals, as text or as JSON.
//!
//! A script names its maps and keys as it likes, so what a part of a key is shows only in all keys of the
//! map together ([`key`]), and what a value is in the map's name.

mod entry;
mod key;
mod keyless;
mod maps;
mod meaning;
mod notes;
mod printed;

use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::Imported;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, text};
use entry::Line;
use maps::Maps;

/// The importer.
pub(super) struct BpftraceMap;

impl Importer for BpftraceMap {
    fn format(&self) -> ImportFormat {
        ImportFormat::BpftraceMap
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        // A line of `@name:` alone is anybody's; with a bucket after it it is a histogram.
        let keyless = head.lines.windows(2).any(|two| {
            matches!(entry::line(&two[0]), Line::Histogram(_, None))
                && matches!(entry::line(&two[1]), Line::Bucket(..))
        });
        if keyless {
            return Sniff::Yes;
        }
        head.any(|line| {
            matches!(entry::line(line), Line::Entry(..) | Line::Histogram(_, Some(_)))
                || entry::json(line).is_some_and(|found| !found.is_empty())
        })
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut maps = Maps::default();
        let mut in_stack = false;
        let mut histogram: Option<Histogram> = None;
        let mut top = None;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            let trimmed = text::trim(&clean);
            let parsed = entry::line(&clean);
            if let (Line::Bucket(range, n), Some(open)) = (&parsed, &mut histogram) {
                open.add(range, *n);
                return ControlFlow::Continue(());
            }
            let mut fits = true;
            if let Some(whole) = histogram.take() {
                fits &= whole.into_maps(&mut maps);
            }
            match parsed {
                Line::Entry(map, key, value) => fits &= maps.add(map, key, value),
                Line::Histogram(map, key) => {
                    histogram = Some(Histogram::new(map, key));
                }
                Line::StackBegins => in_stack = true,
                Line::StackEnds if in_stack => {
                    in_stack = false;
                    maps.stacks += 1;
                }
                Line::Bucket(..) | Line::StackEnds | Line::Other => {
                    maps.gap();
                    if in_stack || is_frame(trimmed) {
                        // Parts of what bpftrace prints around its maps.
                    } else if let Some(n) = top_of(trimmed) {
                        top = Some(n);
                    } else if let Some(found) = entry::json(trimmed) {
                        for (map, key, value) in found {
                            fits &= maps.add(map.as_bytes(), key.as_deref().map(str::as_bytes), value);
                        }
                    } else {
                        imported.unknown_lines.add(line.number, line.text);
                    }
                }
            }
            if !fits {
                imported.unknown_lines.add(line.number, line.text);
            }
            ControlFlow::Continue(())
        })?;
        if let Some(whole) = histogram {
            whole.into_maps(&mut maps);
        }
        if maps.is_empty() {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        maps.into_imported(&mut imported);
        if let Some(top) = top {
            imported.notes.push(format!(
                "the script prints the top {top} only: other calls may be missing"
            ));
        }
        imported
            .notes
            .push("a bpftrace script counts the whole machine unless it has a filter on pid, and does not follow children".to_owned());
        Ok(imported)
    }
}

/// A histogram whose buckets are being read.
#[derive(Debug)]
struct Histogram {
    map: Vec<u8>,
    key: Option<Vec<u8>>,
    sum: u64,
    buckets: Vec<(String, u64)>,
}

impl Histogram {
    fn new(map: &[u8], key: Option<&[u8]>) -> Histogram {
        Histogram {
            map: map.to_vec(),
            key: key.map(<[u8]>::to_vec),
            sum: 0,
            buckets: Vec::new(),
        }
    }

    fn add(&mut self, range: &[u8], n: u64) {
        self.sum = self.sum.saturating_add(n);
        if self.key.is_none() && self.buckets.len() < keyless::MOST_BUCKETS {
            self.buckets.push((text::shown(range, 40), n));
        }
    }

    fn into_maps(self, maps: &mut Maps) -> bool {
        match self.key {
            Some(key) => maps.add(&self.map, Some(&key), entry::Value::Buckets(self.sum)),
            None => maps.histogram(&self.map, self.sum, self.buckets),
        }
    }
}

/// `Attaching 2 probes...`, a clock, an empty line.
fn is_frame(line: &[u8]) -> bool {
    let clock = line.len() == 8 && line[2] == b':' && line[5] == b':' && line[0].is_ascii_digit();
    text::is_noise(line)
        || clock
        || line.starts_with(b"Attaching ") && line.ends_with(b"...")
        || line.starts_with(b"Attached ") && text::contains(line, " probe")
        || text::contains(line, "Hit Ctrl-C to end")
}

/// `Top 10 syscalls IDs:`
fn top_of(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"Top ").filter(|_| line.ends_with(b":"))?;
    super::number::uint(rest.split(|b| *b == b' ').next()?)
}

#[cfg(test)]
mod tests {
    use super::super::model::TimeKind;
    use super::*;
    use crate::units::Nanos;

    fn import(text: &str) -> Imported {
        BpftraceMap.import(&mut text.as_bytes()).unwrap()
    }

    #[test]
    fn errors_and_times_join_the_counts() {
        let imported = import(
            "Attaching 3 probes...\n\n@calls[sendto]: 4\n@calls[read]: 2\n@errors[sendto]: 1\n@total_ns[sendto]: 5000\n\
             @us[sendto]:\n[0, 1]  4 |@@|\n",
        );
        let table = &imported.tables[0];
        let row = table.row("sendto").unwrap();
        assert_eq!(
            (row.calls(), row.errors, row.time),
            (4, Some(1), Some(Nanos(5_000)))
        );
        // The map of errors has no entry for it: none failed.
        assert_eq!(table.row("read").and_then(|r| r.errors), Some(0));
        assert_eq!(imported.unknown_lines.count, 0);
        assert_eq!(imported.tables.len(), 1);
    }

    #[test]
    fn the_call_may_stand_anywhere_in_the_key() {
        for (text, parts) in [
            ("@[php, 44]: 3\n@[redis-server, 45]: 1\n", true),
            ("@[44, php]: 3\n@[45, php]: 1\n", true),
            ("@[php, 9123, 44]: 3\n@[php, 9123, 45]: 1\n", true),
            (
                "@[tracepoint:syscalls:sys_enter_sendto, php]: 3\n@[tracepoint:syscalls:sys_enter_recvfrom, php]: 1\n",
                true,
            ),
        ] {
            let imported = import(text);
            let table = &imported.tables[0];
            assert_eq!(table.row("sendto").map(|r| r.calls()), Some(3), "{text}");
            assert_eq!(table.row("recvfrom").map(|r| r.calls()), Some(1), "{text}");
            assert_eq!(imported.notes.iter().any(|n| n.contains("several parts")), parts);
        }
    }

    #[test]
    fn commands_and_processes_are_no_calls() {
        let imported = import("@[php]: 10\n@[lto cgu.02]: 4\n@[sleep]: 2\n");
        assert!(imported.tables.is_empty());
        assert_eq!(imported.by_process.len(), 3);
        let imported = import("@[9123, php]: 10\n@[1, init]: 4\n@[9123, php]: 5\n");
        assert_eq!(
            (imported.by_process[0].pid, imported.by_process[0].calls),
            (Some(9123), 15)
        );
        let imported = import("@[9123]: 10\n@[1]: 4\n");
        assert_eq!(imported.by_process[0].pid, Some(9123));
    }

    #[test]
    fn statistics_and_histograms_tell_how_often() {
        let imported =
            import("@us[7]: count 50, average 2, total 120\n@s[16861]: 1189928947527\n@n[16861]: 231\n");
        let row = &imported.tables[0].rows[0];
        assert_eq!(
            (&*row.syscall, row.calls(), row.time),
            ("poll", 50, Some(Nanos(120_000)))
        );
        assert_eq!(imported.time_kind, TimeKind::Wall);
        assert_eq!(imported.tables.len(), 1);
        let imported = import("@us[7]: \n[1]   1 |@|\n[2, 4)  3 |@@@|\n\n@us[0]: \n[0]   2 |@|\n");
        let table = &imported.tables[0];
        assert_eq!(table.row("poll").map(|r| (r.calls(), r.time)), Some((4, None)));
        assert_eq!(table.row("read").map(|r| r.calls()), Some(2));
        assert_eq!(imported.unknown_lines.count, 0);
    }

    #[test]
    fn return_values_are_errors() {
        let imported = import("@[45, -11]: 200\n@[45, 5]: 100\n@[42, -115]: 50\n");
        let row = imported.tables[0].row("recvfrom").unwrap();
        assert_eq!((row.calls(), row.errors), (300, Some(200)));
        assert_eq!(row.errnos.get("EAGAIN"), Some(&200));
        let imported = import("@calls[45]: 300\n@calls[42]: 50\n@byerr[45, -11]: 200\n");
        let table = &imported.tables[0];
        assert_eq!(table.row("recvfrom").and_then(|r| r.errors), Some(200));
        assert_eq!(table.row("connect").and_then(|r| r.errors), Some(0));
    }

    #[test]
    fn intervals_are_added_up_and_running_totals_are_not() {
        let cleared = import("10:00:01\n@[0]: 4\n@[3]: 9\n10:00:02\n@[3]: 5\n10:00:03\n@[0]: 8\n");
        assert_eq!(cleared.tables[0].row("read").map(|r| r.calls()), Some(12));
        assert_eq!(cleared.tables[0].row("close").map(|r| r.calls()), Some(14));
        let running = import("@[0]: 4\n@[3]: 9\n\n@[0]: 5\n@[3]: 9\n\n@[0]: 5\n@[3]: 10\n@[1]: 20\n");
        assert_eq!(running.tables[0].row("read").map(|r| r.calls()), Some(5));
        assert_eq!(running.tables[0].row("close").map(|r| r.calls()), Some(10));
        assert!(running.notes.iter().any(|n| n.contains("running totals")));
    }

    #[test]
    fn what_is_no_call_makes_no_row() {
        let imported = import("@: 5336\n@[kprobe:vfs_read]: 3\n@[\n    a+1\n    b+2\n]: 5\n");
        assert!(imported.tables.is_empty() && imported.by_process.is_empty());
        assert!(imported.notes.iter().any(|n| n.contains("5 336")));
        assert!(imported.notes.iter().any(|n| n.contains("no system calls")));
        assert_eq!(imported.unknown_lines.count, 0);
    }

    #[test]
    fn a_histogram_without_a_key_is_read_and_is_no_call() {
        let text = "Attaching 2 probes...\n\n@usecs: \n[0]  5 |@@|\n[1]  0 |  |\n[2, 4)  20 |@@@@|\n[4, 8)  1 |@|\n\n";
        assert_eq!(
            super::super::format_of(Box::new(text.as_bytes())),
            Some(ImportFormat::BpftraceMap)
        );
        let imported = import(text);
        assert!(imported.tables.is_empty());
        assert_eq!(imported.values["@usecs"]["count"], 26);
        assert_eq!(
            imported.values["@usecs"]["buckets"][2],
            serde_json::json!(["[2, 4)", 20])
        );
        let note = imported
            .notes
            .iter()
            .find(|note| note.contains("@usecs"))
            .unwrap();
        assert!(note.contains("26 values") && note.contains("[2, 4)"), "{note}");
        assert_eq!(imported.unknown_lines.count, 0);
        // Printed again: a falling bucket shows that the script cleared it between.
        let cleared = import("@h:\n[0]  5 |@|\n[1]  2 |@|\n\n@h:\n[0]  3 |@|\n");
        assert_eq!(cleared.values["@h"]["count"], 10);
        let running = import("@h:\n[0]  5 |@|\n[1]  2 |@|\n\n@h:\n[0]  6 |@|\n[1]  2 |@|\n");
        assert_eq!(running.values["@h"]["count"], 8);
        // A name with a colon is no histogram.
        assert_eq!(
            super::super::format_of(Box::new(&b"@anna:\nhello there\n"[..])),
            None
        );
    }
}
