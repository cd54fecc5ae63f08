//! Logs of `truss`, of FreeBSD (`ERR#61 'Connection refused'`) and of Solaris (`Err#146 ECONNREFUSED`).

use std::io::BufRead;
use std::ops::ControlFlow;

use super::errnos::{System, label, name_of};
use super::facts::args::end_of_string;
use super::facts::collect::{Call, Collector};
use super::model::{Imported, ImportedTable};
use super::names::Names;
use super::{Head, ImportError, ImportFormat, Importer, Sniff, lines, nothing_of, number, text};
use crate::foreign::strace::Event;

/// The importer.
pub(super) struct TrussLog;

/// One line.
#[derive(Debug)]
struct Parts<'a> {
    pid: u32,
    at: Option<u64>,
    name: &'a [u8],
    args: &'a [u8],
    ret: Option<i64>,
    error: Option<(System, u32)>,
    /// Interrupted and begun again (FreeBSD).
    restart: bool,
    /// No call of its own: Solaris shows a call that sleeps and shows it again when it returns, and shows
    /// the return of a fork in the child.
    shown_twice: bool,
    /// The line is surely truss's and not strace's.
    sure: bool,
    /// It is truss's, or strace's with tabs in place of spaces.
    tabbed: bool,
}

/// What can follow the arguments.
const RESULTS: [&str; 8] = [
    "= ",
    "ERR#",
    "Err#",
    "(sleeping",
    "(returning",
    "argc =",
    "ERESTART",
    "EJUSTRETURN",
];

fn parts(line: &[u8]) -> Option<Parts<'_>> {
    let mut rest = text::trim(line);
    let mut pid = 0;
    let mut at = None;
    loop {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 && !rest.starts_with(b".") && !rest.starts_with(b"/") {
            break;
        }
        let end = rest.iter().position(|b| matches!(b, b' ' | b'\t'))?;
        let word = &rest[..end];
        if let Some(ids) = word.strip_suffix(b":") {
            // `1234:`, `1234/2:`, `/2:`
            let process = ids.split(|b| *b == b'/').find(|id| !id.is_empty())?;
            pid = number::uint(process).and_then(|n| u32::try_from(n).ok())?;
        } else if word.contains(&b'.') {
            at = Some(number::seconds(word)?.0);
        } else {
            // FreeBSD's -H: the thread id.
            number::uint(word)?;
        }
        rest = text::trim(&rest[end..]);
    }
    let length = rest
        .iter()
        .position(|b| !b.is_ascii_alphanumeric() && !matches!(b, b'_' | b'.'))
        .filter(|n| *n > 0 && *n <= 64)?;
    if !rest[0].is_ascii_alphabetic() && rest[0] != b'_' {
        return None;
    }
    let name = &rest[..length];
    let body = rest[length..].strip_prefix(b"(")?;
    // The bracket that ends the arguments: the first one outside strings with a result behind it.
    let mut end = None;
    let mut i = 0;
    while let Some(byte) = body.get(i) {
        match byte {
            b'"' => {
                i = end_of_string(body, i);
                continue;
            }
            b')' => {
                let after = &body[i + 1..];
                let result = text::trim(after);
                let is_result = result.is_empty()
                    || after.starts_with(b"\t")
                    || after.starts_with(b" ") && RESULTS.iter().any(|p| result.starts_with(p.as_bytes()));
                if is_result {
                    end = Some(i);
                    break;
                }
            }
            _ => {}
        }
        i += 1;
    }
    let end = end?;
    let result = text::trim(&body[end + 1..]);
    let mut parts = Parts {
        pid,
        at,
        name,
        args: &body[..end],
        ret: None,
        error: None,
        restart: false,
        shown_twice: false,
        sure: false,
        tabbed: false,
    };
    if let Some(value) = result.strip_prefix(b"= ") {
        let fields = text::fields(value);
        parts.ret = fields
            .first()
            .and_then(|f| number::int(f.strip_suffix(b"L").unwrap_or(f)));
        parts.ret?;
        // FreeBSD repeats the value in hex: `= 12 (0xc)`; both set a tab before the result.
        match fields.as_slice() {
            [_] => parts.tabbed = body.get(end + 1) == Some(&b'\t'),
            [_, hex] => parts.sure = hex.starts_with(b"(0x") && hex.ends_with(b")"),
            _ => {}
        }
    } else if let Some(rest) = result.strip_prefix(b"ERR#") {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        parts.error = Some((
            System::Bsd,
            number::uint(&rest[..digits]).and_then(|n| u32::try_from(n).ok())?,
        ));
        parts.ret = Some(-1);
        parts.sure = true;
    } else if let Some(rest) = result.strip_prefix(b"Err#") {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        parts.error = Some((
            System::Solaris,
            number::uint(&rest[..digits]).and_then(|n| u32::try_from(n).ok())?,
        ));
        parts.ret = Some(-1);
        parts.sure = true;
    } else if result.starts_with(b"(sleeping") || result.starts_with(b"(returning") {
        parts.shown_twice = true;
        parts.sure = true;
    } else if result == b"EJUSTRETURN" {
        parts.sure = true;
    } else if result == b"ERESTART" {
        parts.restart = true;
        parts.sure = true;
    } else if !(result.is_empty() || result.starts_with(b"argc =")) {
        return None;
    }
    Some(parts)
}

/// What strace writes and truss does not: the name of an error behind -1, a question mark, `+++`, durations.
fn is_straces(line: &[u8]) -> bool {
    let (_, body) = crate::foreign::strace::prefix(line);
    match crate::foreign::strace::event(body) {
        Event::Call(_, _, outcome) => {
            outcome.errno.is_some() || outcome.ret.is_none() || outcome.took.is_some()
        }
        Event::Unknown | Event::Broken(_) => false,
        _ => true,
    }
}

fn is_aside(line: &[u8]) -> bool {
    let line = text::trim(line);
    let line = match line.iter().position(|b| *b == b':') {
        Some(colon) if line[..colon].iter().all(|b| b.is_ascii_digit() || *b == b'/') => {
            text::trim(&line[colon + 1..])
        }
        Some(_) | None => line,
    };
    [
        "SIGNAL ",
        "Received signal",
        "process exit",
        "process killed",
        "process dumped",
        "<new process>",
        "<new thread",
        "<thread exited>",
        "truss: ",
        "siginfo:",
        "Base time stamp:",
        "*** process",
        "*** SUID",
        "Incurred fault",
        "Stopped",
        "Continued",
    ]
    .iter()
    .any(|start| line.starts_with(start.as_bytes()))
}

impl Importer for TrussLog {
    fn format(&self) -> ImportFormat {
        ImportFormat::TrussLog
    }

    fn sniff(&self, head: &Head<'_>) -> Sniff {
        match head.any(|line| parts(line).is_some_and(|p| p.sure)) {
            Sniff::No
                if head.any(|line| parts(line).is_some_and(|p| p.tabbed)) == Sniff::Yes
                    && head.any(is_straces) == Sniff::No =>
            {
                Sniff::Yes
            }
            answer => answer,
        }
    }

    fn import(&self, input: &mut dyn BufRead) -> Result<Imported, ImportError> {
        let mut imported = Imported::new(self.format());
        let mut names = Names::default();
        let mut collector = Collector::default();
        lines::for_each::<()>(input, |line| {
            let clean = text::unwrap_line(line.text);
            let Some(parts) = parts(&clean) else {
                if !text::is_noise(&clean) && !is_aside(&clean) {
                    imported.unknown_lines.add(line.number, line.text);
                }
                return ControlFlow::Continue(());
            };
            if parts.shown_twice {
                return ControlFlow::Continue(());
            }
            let Some(counts) = names.id(parts.name, None).and_then(|id| names.of(id)) else {
                imported.unknown_lines.add(line.number, line.text);
                return ControlFlow::Continue(());
            };
            counts.calls += 1;
            if let Some((system, number)) = parts.error {
                counts.failed(&label(system, number));
            } else if parts.restart {
                counts.failed("ERESTART");
            }
            collector.call(&Call {
                pid: parts.pid,
                name: &counts.name,
                class: counts.class,
                args: parts.args,
                ret: parts.ret,
                errno: parts.error.and_then(|(system, n)| name_of(system, n)),
                tail: &[],
                at: parts.at,
                took: None,
                line: line.number,
            });
            ControlFlow::Continue(())
        })?;
        if names.total() == 0 {
            return Err(nothing_of(self.format(), &imported.unknown_lines));
        }
        imported
            .notes
            .push("error numbers are those of the traced system, which differ from Linux's".to_owned());
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
    fn freebsd_and_solaris_lines() {
        let text = "1234: 0.000123456 connect(4,{ AF_INET 127.0.0.1:6379 },16)\t ERR#61 'Connection refused'\n\
                    1234: read(3,\"a) = 1\",1024)\t\t = 12 (0xc)\n\
                    1234: SIGNAL 20 (SIGCHLD)\n\
                    1234:\topen(\"/etc/x\", O_RDONLY)\t\t\tErr#2 ENOENT\n\
                    1234/2:\tpollsys(0xFE, 1, 0x0, 0x0)\t(sleeping...)\n\
                    1234/2:\tpollsys(0xFE, 1, 0x0, 0x0)\t\t= 1\n";
        let imported = TrussLog.import(&mut text.as_bytes()).unwrap();
        let table = &imported.tables[0];
        assert_eq!(table.sum_calls(), 4);
        let connect = table.row("connect").unwrap();
        assert_eq!(connect.errnos.get("ECONNREFUSED (BSD 61)"), Some(&1));
        let facts = imported.facts.unwrap();
        assert_eq!(facts.peers["127.0.0.1:6379"].connects["ECONNREFUSED"], 1);
        assert_eq!(imported.unknown_lines.count, 0);
    }

    #[test]
    fn strace_lines_are_not_sure() {
        for line in [
            "close(3)                 = 0",
            "getpid() = 13370",
            "fcntl(3, F_GETFL) = 0x2 (flags O_RDWR)",
        ] {
            assert!(!parts(line.as_bytes()).is_some_and(|p| p.sure), "{line}");
        }
    }
}
