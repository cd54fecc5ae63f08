//! EXPECTED_ERRORS, UNEXPECTED_ERRORS: which of the counted errors are normal traffic.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::is_lookup;
use super::{SOCKET_RECEIVES, Table, Trace, bare, spin, traces};
use crate::import::Row;
use crate::record::Record;
use crate::units::{Grouped, total};

pub(super) struct Errors;

const DOCS: &[Doc] = &[
    Doc {
        code: "EXPECTED_ERRORS",
        means: "Errors of the table or log that belong to normal traffic: receives that found nothing yet (EAGAIN), \
                connects under way (EINPROGRESS), searches for files (ENOENT), restarts after a signal (ERESTART…).",
        measured: "Errnos by call where they are told; else the calls that usually fail so, with a question mark.",
        wrong_when: "The same errno stands for trouble in another place: EAGAIN from connect to a UNIX socket is a full queue, \
                     and EAGAIN again and again without a wait is a busy loop.",
        todo: "Nothing, unless another finding names them.",
    },
    Doc {
        code: "UNEXPECTED_ERRORS",
        means: "Errors that are not part of normal traffic.",
        measured: "Errnos by call.",
        wrong_when: "The program tries several ways and expects some to fail.",
        todo: "Look at the calls with strace -e trace=NAME.",
    },
];

impl Rule for Errors {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| trace.tables().collect::<Vec<_>>())
            .flat_map(|table| errors(&table))
            .collect()
    }
}

/// What makes an errno that is normally harmless a sign of trouble.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::explain) struct Doubt {
    /// A loop asks again and again.
    spins: bool,
    /// A connect ran out of time.
    timed_out: bool,
}

/// Why an errno of a call is normal.
pub(in crate::explain) fn normal_error(call: &str, errno: &str, doubt: Doubt) -> Option<&'static str> {
    let receive = SOCKET_RECEIVES.contains(&call) || matches!(call, "read" | "readv");
    let path = is_path(call);
    let why = match errno {
        "EAGAIN" if receive && !doubt.spins => "nothing to read yet",
        "EAGAIN" if call.contains("futex") || call.starts_with("accept") => "another was faster",
        "EINPROGRESS" if call.starts_with("connect") && !doubt.timed_out => "non-blocking connect under way",
        "ENOENT" | "ENOTDIR" if path => "path search",
        "EINVAL" if call.starts_with("readlink") => "not a link",
        "EINVAL" if call == "prctl" => "asks what this kernel knows",
        "ENOTTY" if call.starts_with("ioctl") => "not a terminal",
        "ESPIPE" if call.contains("lseek") => "a pipe or terminal and no file",
        "ECHILD" if call.starts_with("wait") => "no child left",
        "ETIMEDOUT" if call.contains("futex") => "a time-out of the program",
        "ENODATA" if call.contains("xattr") => "no such attribute",
        _ if errno.starts_with("ERESTART") => "interrupted by a signal and restarted",
        // It has no result of its own.
        _ if matches!(call, "rt_sigreturn" | "sigreturn") => {
            "the result of the call that a signal interrupted, handed back"
        }
        "EINTR" if receive || is_wait(call) => "interrupted by a signal",
        _ => return None,
    };
    Some(why)
}

/// Calls that wait, and that a signal ends.
fn is_wait(call: &str) -> bool {
    [
        "wait",
        "poll",
        "ppoll",
        "select",
        "pselect",
        "_newselect",
        "epoll_",
        "nanosleep",
        "clock_nanosleep",
        "restart_syscall",
        "pause",
        "sigsuspend",
        "rt_sigsuspend",
        "rt_sigtimedwait",
        "futex",
        "kevent",
    ]
    .iter()
    .any(|name| call.starts_with(name))
}

/// How many connects failed so at sockets where names are looked up, which answer on few machines.
fn lookups(trace: &Trace<'_>, call: &str, errno: &str) -> u64 {
    if call != "connect" {
        return 0;
    }
    let of_lookups = trace.peers().filter(|(name, _)| is_lookup(name));
    total(of_lookups.filter_map(|(_, peer)| peer.connects.get(errno).copied()))
}

/// EINPROGRESS whose wait ran out is a connect that timed out.
fn timed_out(trace: &Trace<'_>) -> bool {
    trace.peers().any(|(_, peer)| {
        peer.connects.contains_key("EINPROGRESS") && peer.sends == 0 && !peer.timed_out.is_empty()
    })
}

/// Errors that a rule of their own speaks of.
fn told_elsewhere(trace: &Trace<'_>, call: &str, errno: &str) -> bool {
    let connect = call.starts_with("connect");
    match errno {
        "EMFILE" | "ENFILE" => true,
        "EINPROGRESS" => connect && timed_out(trace),
        "EADDRNOTAVAIL" | "ECONNREFUSED" | "ETIMEDOUT" => connect || errno == "EADDRNOTAVAIL",
        "EAGAIN" => connect || spin::spins(trace),
        _ => false,
    }
}

/// The likely name of a call that the tool knew by number only.
fn likely_name(call: &str) -> &str {
    let number = call
        .strip_prefix("syscall_0x")
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number
        .and_then(|number| {
            crate::tally::Syscall {
                abi: crate::tally::Abi::X86_64,
                number,
            }
            .bare_name()
        })
        .unwrap_or(call)
}

fn errors(table: &Table<'_>) -> Vec<Finding> {
    let mut expected: Vec<String> = Vec::new();
    let mut unexpected: Vec<String> = Vec::new();
    let mut guessed: Vec<String> = Vec::new();
    let (mut normal_count, mut bad_count, mut all_failed) = (0_u64, 0_u64, 0_u64);
    let doubt = Doubt {
        spins: spin::spins(&table.trace),
        timed_out: timed_out(&table.trace),
    };
    for row in table.rows() {
        let failed = row.errors.unwrap_or(0);
        all_failed = all_failed.saturating_add(failed);
        for (errno, n) in &row.errnos {
            let call = likely_name(&row.syscall);
            if told_elsewhere(&table.trace, call, bare(errno)) {
                continue;
            }
            let of_names = lookups(&table.trace, call, bare(errno)).min(*n);
            let n = n - of_names;
            if of_names > 0 {
                normal_count = normal_count.saturating_add(of_names);
                expected.push(format!(
                    "{} {errno} {} (no service for names on this machine)",
                    row.syscall,
                    Grouped(of_names)
                ));
            }
            match normal_error(call, bare(errno), doubt) {
                _ if n == 0 => {}
                Some(why) => {
                    normal_count = normal_count.saturating_add(n);
                    expected.push(format!("{} {errno} {} ({why})", row.syscall, Grouped(n)));
                }
                None => {
                    bad_count = bad_count.saturating_add(n);
                    unexpected.push(format!("{} {errno} {}", row.syscall, Grouped(n)));
                }
            }
        }
        let named: u64 = row.errnos.values().fold(0, |sum: u64, n| sum.saturating_add(*n));
        if failed > named {
            guessed.extend(guess(table, row, failed - named));
        }
    }
    let mut out = Vec::new();
    if !expected.is_empty() || !guessed.is_empty() {
        let all = if expected.is_empty() {
            "the source does not name these errors; usually they are normal traffic and not failures: "
                .to_owned()
        } else if normal_count == all_failed && all_failed > 0 {
            match all_failed {
                1 => "the only error is an expected one and not a failure: ".to_owned(),
                _ => format!(
                    "all {} errors are expected ones and not failures: ",
                    Grouped(all_failed)
                ),
            }
        } else {
            "normal traffic and not failures: ".to_owned()
        };
        out.push(
            table
                .finding("EXPECTED_ERRORS", Severity::Info)
                .with("expected", normal_count)
                .with("errors", all_failed)
                .says(format!("{all}{}", [expected, guessed].concat().join("; "))),
        );
    }
    if !unexpected.is_empty() {
        out.push(
            table
                .finding("UNEXPECTED_ERRORS", Severity::Warning)
                .with("unexpected", bad_count)
                .with("errors", all_failed)
                .says(format!(
                    "errors that are not normal traffic: {}",
                    unexpected.join("; ")
                ))
                .try_next("a trace of those calls with their arguments (strace -e trace=NAME -y)"),
        );
    }
    out
}

/// What errors without errnos usually are, said as a guess.
fn guess(table: &Table<'_>, row: &Row, failed: u64) -> Option<String> {
    let interrupted = table.row("restart_syscall").is_some() || table.row("rt_sigreturn").is_some();
    let of = format!("{} {} of {}", row.syscall, Grouped(failed), Grouped(row.calls()));
    let call = row.syscall.as_str();
    let ops = table.ops();
    let rate = ops
        .filter(|ops| ops.count > 1)
        .map(|ops| {
            let unit = if ops.known { "per operation" } else { "per reply" };
            format!(", {} {unit}", short(ops.per_op(failed)))
        })
        .unwrap_or_default();
    let why = if SOCKET_RECEIVES.contains(&call) {
        "EAGAIN probes most likely, which are expected"
    } else if call == "connect" {
        if failed == row.calls() {
            "all of them: EINPROGRESS of non-blocking connects is possible and expected; ask for the errno (strace -e trace=connect)"
        } else {
            "EINPROGRESS of non-blocking connects is possible; ask for the errno (strace -e trace=connect)"
        }
    } else if matches!(call, "restart_syscall" | "rt_sigreturn") {
        "the return of an interrupted call passes through it"
    } else if matches!(call, "read" | "readv" | "wait4" | "select" | "poll" | "nanosleep") && interrupted {
        "may be ERESTARTSYS: strace -c counts an interrupted and restarted call as an error and counts the restart as a call"
    } else if matches!(call, "read" | "readv" | "accept" | "accept4") {
        "EAGAIN of non-blocking descriptors most likely"
    } else if call.contains("futex") {
        "EAGAIN or ETIMEDOUT most likely, which are expected"
    } else if call.starts_with("readlink") {
        "EINVAL (not a link) or ENOENT most likely, both expected"
    } else if is_path(call) {
        "ENOENT of searches most likely"
    } else {
        return None;
    };
    Some(format!("{of}{rate} ({why})"))
}

/// Calls with a path, which may lead nowhere.
fn is_path(call: &str) -> bool {
    matches!(
        call,
        "open"
            | "openat"
            | "openat2"
            | "stat"
            | "stat64"
            | "lstat"
            | "lstat64"
            | "newfstatat"
            | "fstatat64"
            | "statx"
            | "statfs"
            | "statfs64"
            | "access"
            | "faccessat"
            | "faccessat2"
            | "readlink"
            | "readlinkat"
            | "unlink"
            | "unlinkat"
            | "execve"
            | "getattrlist"
            | "open_nocancel"
            | "openat_nocancel"
    )
}

fn short(rate: f64) -> String {
    if rate >= 0.1 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.2}")
    }
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    #[test]
    fn what_is_normal_and_what_is_not() {
        let text = "recvfrom(4, 0x7f, 1, MSG_PEEK, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)\n\
                    openat(AT_FDCWD, \"/a\", O_RDONLY) = -1 ENOENT (No such file or directory)\n\
                    write(4, \"x\", 1) = -1 EPIPE (Broken pipe)\n";
        let findings = found(text);
        assert!(
            find(&findings, "EXPECTED_ERRORS")
                .unwrap()
                .says
                .contains("path search")
        );
        let bad = find(&findings, "UNEXPECTED_ERRORS").unwrap();
        assert!(bad.says.contains("EPIPE") && !bad.says.contains("ENOENT"));
    }

    #[test]
    fn eagain_of_a_connect_is_not_normal() {
        let text = "connect(6, {sa_family=AF_UNIX, sun_path=\"/r.sock\"}, 24) = -1 EAGAIN (Resource temporarily unavailable)\n";
        let findings = found(text);
        assert!(find(&findings, "EXPECTED_ERRORS").is_none());
    }

    #[test]
    fn a_table_and_a_log_of_one_run_agree() {
        let log = "statfs(\"/sys/fs/selinux\", 0x7ffd) = -1 ENOENT (No such file or directory)\n\
                   readlink(\"/etc\", 0x7ffd, 4095) = -1 EINVAL (Invalid argument)\n\
                   fstat(9, 0x7ffd) = -1 EBADF (Bad file descriptor)\n";
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     \x2050.00    0.000002           1         1         1 statfs\n\
                     \x2025.00    0.000001           1         1         1 readlink\n\
                     \x2025.00    0.000001           1         1         1 fstat\n\
                     100.00    0.000004           1         3         3 total\n";
        for text in [log, table] {
            let findings = found(text);
            let says = &find(&findings, "EXPECTED_ERRORS").unwrap().says;
            assert!(says.contains("statfs") && says.contains("readlink"), "{says}");
            assert!(says.contains("not a link"), "{says}");
            assert!(!says.contains("fstat"), "{says}");
        }
    }

    #[test]
    fn no_errors_no_finding() {
        assert!(!has(&clean(3), "EXPECTED_ERRORS"));
        assert!(!has(&clean(3), "UNEXPECTED_ERRORS"));
    }
}
