//! Maps that `bpftrace` prints at its end: `@[44]: 10`, `@calls[sendto]: 10`.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::ops::ControlFlow;

use super::model::{Imported, Row, TimeKind};
use super::rows::Rows;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};
use crate::units::Nanos;

/// Maps kept apart.
const MOST_MAPS: usize = 64;

/// Linux 6.1's last number. Newer calls keep their number here: on which kernel a pasted map was made is
/// not known, and names given to new numbers by a newer table would say more than the file does.
const LAST_NAMED: u64 = 450;

/// The importer.
pub(super) struct BpftraceMap;

/// One entry of a map.
#[derive(Debug, PartialEq)]
struct Entry<'a> {
    map: &'a [u8],
    key: &'a [u8],
    value: u64,
}

fn entry(line: &[u8]) -> Option<Entry<'_>> {
    let rest = text::trim(line).strip_prefix(b"@")?;
    let open = rest.iter().position(|b| *b == b'[')?;
    let close = memchr::memmem::rfind(rest, b"]: ")?;
    if open > close
        || !rest[..open]
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || *b == b'_')
    {
        return None;
    }
    Some(Entry {
        map: &rest[..open],
        key: &rest[open + 1..close],
        value: number::uint(text::trim(&rest[close + 3..]))?,
    })
}

/// What the values of a map are, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    Calls,
    Errors,
    Time(u64),
    Other,
}

fn meaning(map: &[u8]) -> Meaning {
    let name = map.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text::contains(&name, word));
    let ends = |words: &[&str]| words.iter().any(|word| name.ends_with(word.as_bytes()));
    if has(&["err", "fail"]) {
        Meaning::Errors
    } else if ends(&["_ns", "nsecs", "nanos"]) || name == b"ns" || has(&["time", "lat", "dur", "total_ns"]) {
        Meaning::Time(1)
    } else if ends(&["_us", "usecs", "micros"]) || name == b"us" {
        Meaning::Time(1_000)
    } else if ends(&["_ms", "msecs", "millis"]) || name == b"ms" {
        Meaning::Time(1_000_000)
    } else if has(&["byte", "size", "start", "avg", "min", "max"]) {
        Meaning::Other
    } else {
        Meaning::Calls
    }
}

/// The call in a key: the last part that is a number, a tracepoint or a function; the parts before it
/// (comm, pid) tell who called.
fn call(key: &[u8]) -> Option<(String, bool)> {
    let parts: Vec<&[u8]> = key.split(|b| *b == b',').map(text::trim).collect();
    let last = parts.last()?;
    if number::is_digits(last) {
        let nr = number::uint(last)?;
        let named = (nr <= LAST_NAMED)
            .then(|| {
                crate::tally::Syscall {
                    abi: crate::tally::Abi::X86_64,
                    number: nr,
                }
                .bare_name()
            })
            .flatten();
        return Some((named.map_or_else(|| format!("syscall_{nr}"), str::to_owned), true));
    }
    let mut name = *last;
    for prefix in [
        "tracepoint:",
        "kprobe:",
        "kretprobe:",
        "fentry:",
        "fexit:",
        "kfunc:",
        "vmlinux:",
        "syscalls:",
        "sys_enter_",
        "sys_exit_",
        "__x64_sys_",
        "__arm64_sys_",
        "__ia32_sys_",
        "__se_sys_",
        "__do_sys_",
        "ksys_",
        "SyS_",
        "sys_",
    ] {
        name = name.strip_prefix(prefix.as_bytes()).unwrap_or(name);
    }
    let plain = name.first().is_some_and(u8::is_ascii_alphabetic)
        && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    plain.then(|| (text::name(name), false))
}

impl Importer for BpftraceMap {
    fn format(&self) -> ImportFormat {
        ImportFormat::BpftraceMap
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| entry(line).is_some())
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut maps: BTreeMap<Vec<u8>, Rows> = BTreeMap::new();
        let mut order: Vec<Vec<u8>> = Vec::new();
        let mut numbers = false;
        let mut who = false;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            let trimmed = text::trim(&clean);
            let known = entry(&clean).and_then(|entry| Some((call(entry.key)?, entry)));
            match known {
                Some(((name, by_number), entry))
                    if maps.contains_key(entry.map) || maps.len() < MOST_MAPS =>
                {
                    numbers |= by_number;
                    who |= entry.key.contains(&b',');
                    if !maps.contains_key(entry.map) {
                        order.push(entry.map.to_vec());
                    }
                    let added = maps.entry(entry.map.to_vec()).or_default().add(Row {
                        syscall: name,
                        calls: Some(entry.value),
                        ..Row::default()
                    });
                    if !added {
                        imported.unknown_lines.add(line.number, line.text);
                    }
                }
                _ if text::is_noise(&clean)
                    || trimmed.starts_with(b"Attaching ") && trimmed.ends_with(b"...")
                    || trimmed.starts_with(b"Attached ") && text::contains(trimmed, " probe") => {}
                _ => imported.unknown_lines.add(line.number, line.text),
            }
            ControlFlow::Continue(())
        })?;
        if maps.is_empty() {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        let of = |wanted: &dyn Fn(Meaning) -> bool| -> Vec<Vec<u8>> {
            order.iter().filter(|map| wanted(meaning(map))).cloned().collect()
        };
        let mut counting = of(&|m| m == Meaning::Calls);
        if counting.is_empty() {
            // A single map counts calls, whatever its name.
            counting = order.iter().take(1).cloned().collect();
        }
        let single = counting.len() == 1;
        for map in &counting {
            let Some(rows) = maps.remove(map) else { continue };
            let mut table = rows.into_table(if map.is_empty() {
                "@".to_owned()
            } else {
                format!("@{}", text::shown(map, 40))
            });
            if single {
                for other in &order {
                    let Some(values) = maps.get_mut(other) else {
                        continue;
                    };
                    for row in &mut table.rows {
                        if !values.has(&row.syscall, None) {
                            continue;
                        }
                        let value = values.of(&row.syscall, None).map_or(0, |r| r.calls());
                        match meaning(other) {
                            Meaning::Errors => row.errors = Some(value),
                            Meaning::Time(unit) => {
                                row.time = Some(Nanos(value.saturating_mul(unit)));
                                imported.time_kind = TimeKind::Wall;
                                imported.time_source = format!("map @{}", text::shown(other, 40));
                            }
                            Meaning::Calls | Meaning::Other => {}
                        }
                    }
                }
            }
            imported.tables.push(table);
        }
        if !single {
            imported.notes.push(
                "several maps count calls; each is a table of its own and they are not added up".to_owned(),
            );
        }
        if numbers {
            imported.abi_assumed = Some("x86_64".to_owned());
            imported.notes.push(
                "the keys are system call numbers, taken as x86_64's; another CPU has other numbers (44 is sendto on \
                 x86_64 and fstatfs on arm64)"
                    .to_owned(),
            );
        }
        if who {
            imported
                .notes
                .push("keys with several parts (who, which call) are added up by call".to_owned());
        }
        imported
            .notes
            .push("a bpftrace script counts the whole machine unless it has a filter on pid, and does not follow children".to_owned());
        Ok(imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_kind() {
        for key in [
            "44",
            "php, 44",
            "tracepoint:syscalls:sys_enter_sendto",
            "sys_enter_sendto",
            "kprobe:__x64_sys_sendto",
            "sendto",
            "1234, php, tracepoint:syscalls:sys_enter_sendto",
        ] {
            assert_eq!(
                call(key.as_bytes()).map(|c| c.0),
                Some("sendto".to_owned()),
                "{key}"
            );
        }
        assert_eq!(call(b"462").map(|c| c.0), Some("syscall_462".to_owned()));
        assert_eq!(call(b"a b"), None);
    }

    #[test]
    fn errors_and_times_join_the_counts() {
        let text = "Attaching 3 probes...\n\n@calls[sendto]: 4\n@errors[sendto]: 1\n@total_ns[sendto]: 5000\n@us[sendto]:\n[0, 1]  4 |@@|\n";
        let imported = BpftraceMap.import(&mut text.as_bytes()).unwrap();
        let row = &imported.tables[0].rows[0];
        assert_eq!(
            (row.calls(), row.errors, row.time),
            (4, Some(1), Some(Nanos(5_000)))
        );
        assert_eq!(imported.unknown_lines.count, 2);
    }
}
