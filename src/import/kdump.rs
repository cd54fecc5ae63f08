//! Output of `kdump` (ktrace of FreeBSD, NetBSD, OpenBSD).

use std::collections::HashMap;
use std::io::BufRead;
use std::ops::ControlFlow;

use super::errnos::{System, label, name_of};
use super::facts::collect::{Call, Class, Collector};
use super::model::{Imported, ImportedTable, TimeKind};
use super::names::{NameId, Names};
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};

/// Threads that may be inside a call at one time.
const MOST_PENDING: usize = 65_536;
const KINDS: [&str; 14] = [
    "CALL", "RET", "GIO", "NAMI", "STRU", "PSIG", "USER", "CSW", "PFLT", "PFRE", "FLTS", "SCTL", "MISC",
    "ARGS",
];

/// How lines of data begin.
const DATA: [&str; 2] = ["       ", "\t"];

/// The importer.
pub(super) struct Kdump;

/// One record's heading line.
#[derive(Debug)]
struct Entry<'a> {
    /// The process.
    pid: u32,
    /// What tells its threads apart.
    thread: u64,
    at: Option<u64>,
    /// A stamp that no clock shows; else empty.
    unusable: &'a [u8],
    kind: &'a [u8],
    body: &'a [u8],
}

/// `  8347/1026255 client   1440535961.290289 CALL  connect(…)`; the command name may have spaces.
fn entry(line: &[u8]) -> Option<Entry<'_>> {
    let fields = text::fields_at(line);
    let (ids, _) = fields.first()?;
    let mut thread = 0_u64;
    for part in ids.split(|b| *b == b'/') {
        thread = number::uint(part)?;
    }
    let process = number::uint(ids.split(|b| *b == b'/').next()?)?;
    // The first word of that kind behind the pid and the name.
    let at = (2..fields.len().min(12)).find(|i| KINDS.iter().any(|kind| kind.as_bytes() == fields[*i].0))?;
    let (kind, end) = fields[at];
    let (before, _) = fields[at - 1];
    // A column of its own for the thread: NetBSD's number within the process, FreeBSD's with -H. The command
    // name stands behind it.
    let own = fields[1].0;
    if at >= 3
        && !ids.contains(&b'/')
        && let Some(id) = number::is_digits(own).then(|| number::uint(own)).flatten()
    {
        // NetBSD counts the threads of each process from 1.
        thread = if id <= 0xffff { process << 16 | id } else { id };
    }
    let is_stamp =
        at >= 3 && before.contains(&b'.') && (number::is_decimal(before) || number::is_odd(before));
    let stamp = is_stamp.then(|| number::seconds(before)).flatten();
    Some(Entry {
        pid: u32::try_from(process).unwrap_or(0),
        thread,
        at: stamp.map(|n| n.0),
        unusable: if is_stamp && stamp.is_none() { before } else { &[] },
        kind,
        body: text::trim(&line[end..]),
    })
}

/// `connect[98]` (kdump -S) without the number.
fn without_number(name: &[u8]) -> &[u8] {
    match name.iter().position(|b| *b == b'[') {
        Some(open) if name.ends_with(b"]") => &name[..open],
        Some(_) | None => name,
    }
}

#[derive(Debug)]
struct Pending {
    id: NameId,
    args: Vec<u8>,
    at: Option<u64>,
    line: u64,
}

impl Importer for Kdump {
    fn format(&self) -> ImportFormat {
        ImportFormat::Kdump
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        head.any(|line| entry(line).is_some_and(|e| matches!(e.kind, b"CALL" | b"RET")))
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut names = Names::default();
        let mut collector = Collector::default();
        let mut pending: HashMap<u64, Pending> = HashMap::new();
        let mut stamped = false;
        let mut last_at = 0;
        let mut went_back = false;
        let mut data = false;
        let mut lost_start = false;
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            // Data of a GIO record goes on over indented lines, and may look like records; a process id is
            // set flush right in six columns.
            let is_data = data && DATA.iter().any(|indent| clean.starts_with(indent.as_bytes()));
            let Some(entry) = entry(&clean).filter(|_| !is_data) else {
                let indented = line.text.first().is_some_and(|b| matches!(b, b' ' | b'\t'));
                if !(data && indented || text::is_noise(&clean)) {
                    imported.unknown_lines.add(line.number, line.text);
                }
                return ControlFlow::Continue(());
            };
            data = !matches!(entry.kind, b"CALL" | b"RET");
            if let Some(at) = entry.at {
                stamped = true;
                went_back |= at < last_at;
                last_at = at;
            }
            let pid = u32::try_from(entry.thread).unwrap_or(entry.pid);
            if !entry.unusable.is_empty() {
                imported.unusable_values.add(line.number, entry.unusable);
            }
            match entry.kind {
                b"CALL" => {
                    let open = entry
                        .body
                        .iter()
                        .position(|b| *b == b'(')
                        .unwrap_or(entry.body.len());
                    let name = without_number(&entry.body[..open.min(64)]);
                    let args = entry.body.get(open + 1..).unwrap_or(&[]);
                    let args = args.strip_suffix(b")").unwrap_or(args);
                    if let Some(before) = pending.remove(&entry.thread)
                        && let Some(counts) = names.of(before.id)
                    {
                        counts.unfinished += 1;
                    }
                    let Some(id) = names.id(text::trim(name), None) else {
                        imported.unknown_lines.add(line.number, line.text);
                        return ControlFlow::Continue(());
                    };
                    if let Some(counts) = names.of(id) {
                        counts.calls += 1;
                    }
                    if pending.len() < MOST_PENDING {
                        pending.insert(
                            entry.thread,
                            Pending {
                                id,
                                args: args[..args.len().min(1024)].to_vec(),
                                at: entry.at,
                                line: line.number,
                            },
                        );
                    }
                }
                b"RET" => {
                    let fields = text::fields(entry.body);
                    let Some((name, result)) = fields.split_first() else {
                        imported.unknown_lines.add(line.number, line.text);
                        return ControlFlow::Continue(());
                    };
                    let name = &without_number(name);
                    let begun = pending.remove(&entry.thread);
                    let (id, args, began, number) = match begun {
                        Some(p) => (Some(p.id), p.args, p.at, p.line),
                        None => {
                            // The child's return from fork has no call of its own.
                            let child =
                                matches!(Class::of(&text::name(name)), Class::Clone) || *name == b"rfork";
                            if child {
                                collector.meet(pid);
                                return ControlFlow::Continue(());
                            }
                            lost_start = true;
                            let id = names.id(name, None);
                            if let Some(counts) = id.and_then(|id| names.of(id)) {
                                counts.calls += 1;
                            }
                            (id, Vec::new(), None, line.number)
                        }
                    };
                    let Some(counts) = id.and_then(|id| names.of(id)) else {
                        return ControlFlow::Continue(());
                    };
                    // `write 22/0x16`, `connect -1 errno 61 Connection refused`, `execve JUSTRETURN`.
                    let value = result.first().copied().unwrap_or(b"");
                    let value = value.split(|b| *b == b'/').next().unwrap_or(b"");
                    let ret = number::int(value);
                    if ret.is_none() && number::is_odd(value) {
                        imported.unusable_values.add(line.number, value);
                    }
                    let errno = match result {
                        [_, word, errno, ..] if *word == b"errno" => {
                            number::uint(errno).and_then(|n| u32::try_from(n).ok())
                        }
                        _ => None,
                    };
                    let restart = matches!(value, b"RESTART" | b"ERESTART");
                    if restart {
                        counts.failed("ERESTART");
                    } else if let Some(errno) = errno {
                        counts.failed(&label(System::Bsd, errno));
                    }
                    let took = began.zip(entry.at).map(|(begin, end)| end.saturating_sub(begin));
                    if let Some(took) = took {
                        counts.took(took);
                    }
                    collector.call(&Call {
                        pid,
                        name: &counts.name,
                        class: counts.class,
                        args: &args,
                        ret,
                        errno: errno.and_then(|n| name_of(System::Bsd, n)),
                        tail: &[],
                        at: began,
                        took,
                        line: number,
                    });
                }
                b"PSIG" => {
                    let name = entry.body.split(|b| *b == b' ').next().unwrap_or(b"");
                    collector.signal(pid, &text::name(name));
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        if names.total() == 0 {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        for (_, pending) in pending {
            if let Some(counts) = names.of(pending.id) {
                counts.unfinished += 1;
            }
        }
        if lost_start {
            imported.cut("the dump begins in the middle of a call");
        }
        if stamped && !went_back {
            imported.time_kind = TimeKind::Wall;
            imported.time_source = "difference of CALL and RET stamps".to_owned();
        }
        imported.processes = Some(collector.seen.max(1));
        imported.notes.push(
            "error numbers are those of the BSDs: 35 is EAGAIN and 61 is ECONNREFUSED there".to_owned(),
        );
        let mut facts = collector.finish();
        let mut rows = names.into_rows();
        if went_back {
            // -R: each stamp is a difference to the record before, so a call's duration is not told.
            imported.notes.push(
                "the stamps go back: they are differences (kdump -R), not durations, and are not added up"
                    .to_owned(),
            );
            for row in &mut rows {
                row.time = None;
                row.longest = None;
            }
            facts.span = None;
            facts.in_calls = None;
            facts.waiting = None;
            facts.outside = None;
            facts.longest_gap = None;
            facts.waits.clear();
        }
        imported.facts = Some(Box::new(facts));
        imported.tables.push(ImportedTable {
            label: "log".to_owned(),
            rows,
            stated: None,
        });
        Ok(imported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_the_heading() {
        for line in [
            "  8347/1026255 client   1440535961.290289 CALL  close(4)",
            "  8347 client   CALL  close(4)",
            "  8347 php-fpm: pool www 0.000031 CALL  close(4)",
        ] {
            let entry = entry(line.as_bytes()).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((entry.kind, entry.body), (&b"CALL"[..], &b"close(4)"[..]));
        }
        assert!(entry(b"       \"*1\\r\\n$4\\r\\nPING\\r\\n\"").is_none());
    }

    #[test]
    fn relative_stamps_are_no_durations() {
        let text = "  1 a   0.000100 CALL  close(4)\n  1 a   0.000002 RET   close 0\n";
        let imported = Kdump.import(&mut text.as_bytes()).unwrap();
        assert_eq!(imported.time_kind, TimeKind::None);
        assert_eq!(imported.tables[0].rows[0].time, None);
    }
}
