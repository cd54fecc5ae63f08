//! CLIENT_NOFILE and SYSTEM_FILE_MAX in traces: descriptors that ran out, and what needs them.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::{Trace, plural, traces};
use crate::record::Record;

pub(super) struct Nofile;
pub(super) struct FileMax;

const DOCS: &[Doc] = &[
    Doc {
        code: "ACCEPT_NOFILE",
        means: "A server cannot accept connections because its process has no free descriptor; clients connect and hang, \
                and the server spins.",
        measured: "EMFILE from accept, or connections that are accepted and closed without a read (an event loop that \
                   keeps a spare descriptor to turn clients away).",
        wrong_when: "The program closes connections on purpose, for instance a port check.",
        todo: "Raise the limit of the server's process (LimitNOFILE in its unit; the shell's ulimit does not count) and \
               count EMFILE, since the server's own counter of rejected connections may stay 0.",
    },
    Doc {
        code: "SELECT_FD_LIMIT",
        means: "Descriptors of 1024 and above are in use, and select() cannot handle those.",
        measured: "The highest descriptor number in the log.",
        wrong_when: "Nothing in the program uses select().",
        todo: "Use poll or epoll; raising ulimit -n does not help select().",
    },
];

impl Rule for Nofile {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| [nofile(&trace), accept(&trace), high(&trace)])
            .flatten()
            .collect()
    }
}

fn nofile(trace: &Trace<'_>) -> Option<Finding> {
    let failed = trace.errno(&[], "EMFILE") - trace.errno(&["accept", "accept4"], "EMFILE");
    if failed == 0 {
        return None;
    }
    let checks = trace.facts().map_or(0, |facts| facts.epoll_checks);
    let only_checks = trace.errno(&["epoll_create", "epoll_create1"], "EMFILE") == failed;
    let why = if only_checks {
        "; what fails is a readiness check that needs a free descriptor each time, although the connection itself is \
         healthy"
    } else {
        ""
    };
    Some(
        trace
            .finding("CLIENT_NOFILE", Severity::Error)
            .with("failed", failed)
            .with("epoll_checks", checks)
            .with_known("highest_fd", trace.facts().and_then(|facts| facts.highest_fd))
            .says(format!(
                "{} failed with EMFILE: the process has used up its limit of open files{why}",
                plural(failed, "call")
            ))
            .try_next(
                "/proc/PID/limits of that process (a unit's LimitNOFILE, not the shell's ulimit); close what is not \
                 needed; a check with poll() needs no descriptor",
            ),
    )
}

fn accept(trace: &Trace<'_>) -> Option<Finding> {
    let refused = trace.errno(&["accept", "accept4"], "EMFILE");
    let accepts = trace.facts().map(|facts| &facts.accepts);
    let unread = accepts.map_or(0, |accepts| accepts.closed_unread);
    let accepted = accepts.map_or(0, |accepts| accepts.accepted);
    let spare = unread >= 3 && unread.saturating_mul(2) >= accepted;
    if refused == 0 && !spare {
        return None;
    }
    let spare = if spare {
        format!(
            "; {unread} of {accepted} accepted connections were closed without a read, as event loops with a spare descriptor do"
        )
    } else {
        String::new()
    };
    Some(
        trace
            .finding("ACCEPT_NOFILE", Severity::Error)
            .with("failed_accepts", refused)
            .with("closed_unread", unread)
            .says(format!(
                "the server has no free descriptor: {} failed with EMFILE{spare}",
                plural(refused, "accept")
            ))
            .try_next(
                "raise the limit of the server's own process, and look for connections that it never closes",
            )
            .clears(vec![
                "the server's own counter of rejected connections: it stays 0, since accept fails before the server can count"
                    .to_owned(),
            ]),
    )
}

fn high(trace: &Trace<'_>) -> Option<Finding> {
    let highest = trace.facts()?.highest_fd.filter(|fd| *fd >= 1024)?;
    Some(
        trace
            .finding("SELECT_FD_LIMIT", Severity::Info)
            .with("highest_fd", highest)
            .says(format!(
                "descriptor {highest} is in use: above 1024 select() does not work, whatever ulimit -n says"
            ))
            .try_next("poll or epoll in place of select()"),
    )
}

impl Rule for FileMax {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| file_max(&trace)).collect()
    }
}

fn file_max(trace: &Trace<'_>) -> Option<Finding> {
    let failed = trace.errno(&[], "ENFILE");
    let said = trace
        .imported
        .values
        .get("error_texts")
        .and_then(|texts| texts.get("ENFILE"))
        .and_then(serde_json::Value::as_u64)
        .unwrap_or(0);
    let (used, most) = (trace.value("file_nr"), trace.value("file_max"));
    let full = matches!((used, most), (Some(used), Some(most)) if used as f64 >= most as f64 * 0.95);
    if failed.saturating_add(said) == 0 && !full {
        return None;
    }
    let of = match (used, most) {
        (Some(used), Some(most)) => format!(" ({used} of {most})"),
        _ => String::new(),
    };
    let own = match (trace.value("fds_now"), trace.value("nofile_soft")) {
        (Some(now), Some(soft)) if now < soft => {
            format!(
                "; the process itself uses {now} of {soft}, so its own limit (ulimit -n) is not the cause"
            )
        }
        _ => "; a process' own limit would give EMFILE, whose text lacks \"in system\"".to_owned(),
    };
    Some(
        trace
            .finding("SYSTEM_FILE_MAX", Severity::Error)
            .with("failed", failed.saturating_add(said))
            .with_known("file_nr", used)
            .with_known("file_max", most)
            .says(format!(
                "ENFILE (\"... in system\"): the whole machine is at fs.file-max{of}{own}"
            ))
            .try_next("find who holds the files (fs.file-nr counts all processes), then sysctl -w fs.file-max=N on the host"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, has};

    #[test]
    fn descriptors_run_out_on_either_side() {
        assert!(has(
            "socket(AF_INET, SOCK_STREAM, 0) = -1 EMFILE (Too many open files)\n",
            "CLIENT_NOFILE"
        ));
        let server = "accept4(3, NULL, NULL, 0) = -1 EMFILE (Too many open files)\n";
        assert!(has(server, "ACCEPT_NOFILE"));
        assert!(!has(server, "CLIENT_NOFILE"));
        let spare = "close(18) = 0\naccept4(3, NULL, NULL, 0) = 18\nclose(18) = 0\n".repeat(4);
        assert!(has(&spare, "ACCEPT_NOFILE"));
        assert!(has(
            "socket(AF_INET, SOCK_STREAM, 0) = -1 ENFILE (Too many open files in system)\n",
            "SYSTEM_FILE_MAX"
        ));
    }

    #[test]
    fn a_clean_client_has_descriptors() {
        for code in [
            "CLIENT_NOFILE",
            "ACCEPT_NOFILE",
            "SYSTEM_FILE_MAX",
            "SELECT_FD_LIMIT",
        ] {
            assert!(!has(&clean(3), code), "{code}");
        }
    }
}
