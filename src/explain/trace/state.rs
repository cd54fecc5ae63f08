//! Pasted limits and counters of a system: what is full, what is near, and what is not.

use serde_json::Value;

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Trace, traces};
use crate::record::Record;

/// How much of a limit is used.
pub(super) fn share(used: u64, most: u64) -> f64 {
    used as f64 / most.max(1) as f64
}

pub(super) struct ListenQueue;
pub(super) struct OpenFiles;
pub(super) struct NothingFull;

const QUEUE: &[Doc] = &[Doc {
    code: "LISTEN_OVERFLOW",
    means: "The accept queue of a listening socket is or was full. TCP clients then see connects that take 1, 3 or 7 s or time \
            out, and never \"connection refused\".",
    measured: "The queue and its length (ss -ltn), ListenOverflows (netstat -s, nstat), the server's own warning at start.",
    wrong_when: "The counters are old, or of another listener of the same namespace.",
    todo: "Raise net.core.somaxconn and the server's backlog, then restart the server: both are applied at listen() only.",
}];

impl Rule for ListenQueue {
    fn docs(&self) -> &'static [Doc] {
        QUEUE
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| queue(&trace)).collect()
    }
}

fn queue(trace: &Trace<'_>) -> Option<Finding> {
    let now = trace.value("accept_queue_now");
    let backlog = trace.value("backlog_effective");
    let overflows = trace.value("listen_overflows").filter(|n| *n > 0);
    let full = matches!((now, backlog), (Some(now), Some(backlog)) if now >= backlog && backlog > 0);
    if !full && overflows.is_none() {
        return None;
    }
    let listener = trace.word("listener");
    let unix = full && listener.is_some_and(|name| name.starts_with(['/', '@']));
    let mut parts = Vec::new();
    if let (Some(now), Some(backlog), true) = (now, backlog, full) {
        let of = listener.map_or_else(String::new, |name| format!(" ({name})"));
        parts.push(format!("accept queue {now} of {backlog}: full now{of}"));
    }
    if let Some(overflows) = overflows {
        parts.push(format!("it has overflowed {overflows} times since boot"));
    }
    if let (Some(asked), Some(most)) = (trace.value("backlog_asked"), trace.value("somaxconn"))
        && asked > most
    {
        parts.push(format!(
            "the server asked for {asked} and somaxconn allows {most}"
        ));
    }
    Some(
        trace
            .finding("LISTEN_OVERFLOW", Severity::Error)
            .with_known("accept_queue_now", now)
            .with_known("backlog", backlog)
            .with_known("listen_overflows", overflows)
            .says(format!(
                "{}; clients see {}",
                parts.join("; "),
                if unix {
                    "EAGAIN from connect at once (\"Resource temporarily unavailable\"), or wait for ever when they block"
                } else {
                    "connects that take 1 s, 3 s, 7 s (SYN retries) or time out, not \"connection refused\""
                }
            ))
            .try_next(
                "raise net.core.somaxconn AND the server's backlog (tcp-backlog), then restart the server; and look why it does \
                 not accept in time",
            ),
    )
}

const FILES: &[Doc] = &[Doc {
    code: "OPEN_FILES_LIMIT",
    means: "How many connections a limit of open files allows: a process may raise its soft limit to the hard one, and a \
            Redis server takes what it gets and lowers maxclients to that less 32.",
    measured: "/proc/PID/limits, ulimit, prlimit, or the server's log.",
    wrong_when: "The limits are of another process (the shell's instead of the service's).",
    todo: "LimitNOFILE= in the unit, --ulimit nofile= for a container, of at least maxclients + 32.",
}];

/// Descriptors that Redis keeps for itself.
const RESERVED: u64 = 32;
/// Redis' default maxclients.
const DEFAULT_CLIENTS: u64 = 10_000;

impl Rule for OpenFiles {
    fn docs(&self) -> &'static [Doc] {
        FILES
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| open_files(&trace)).collect()
    }
}

fn open_files(trace: &Trace<'_>) -> Option<Finding> {
    if let (Some(asked), Some(got)) = (
        trace.value("maxclients_asked"),
        trace.value("maxclients_effective"),
    ) && got < asked
    {
        return Some(lowered(trace, asked, got));
    }
    if let Some(got) = trace.value("maxclients_effective") {
        return Some(lowered(trace, DEFAULT_CLIENTS, got));
    }
    let soft = trace.value("nofile_soft")?;
    let hard = trace.value("nofile_hard");
    let needed = DEFAULT_CLIENTS + RESERVED;
    if hard.unwrap_or(soft) >= needed
        && soft >= 1024
        && trace
            .value("fds_now")
            .is_none_or(|now| now.saturating_mul(10) < soft.saturating_mul(8))
    {
        return None;
    }
    let raise = match hard {
        Some(hard) if hard > soft => {
            format!("the process may raise itself to {hard}, no further without root")
        }
        Some(_) => "that is also the hard limit: no further without root".to_owned(),
        None => "the hard limit is not shown".to_owned(),
    };
    let soft_clients = soft.saturating_sub(RESERVED);
    let clients = match hard {
        Some(hard) if hard > soft => format!("{} or {soft_clients} clients", hard.saturating_sub(RESERVED)),
        _ => format!("{soft_clients} clients"),
    };
    let now = trace
        .value("fds_now")
        .map(|now| {
            format!(
                "; {now} are open now ({:.0} %)",
                now as f64 * 100.0 / soft.max(1) as f64
            )
        })
        .unwrap_or_default();
    Some(
        trace
            .finding("OPEN_FILES_LIMIT", Severity::Info)
            .with("soft", soft)
            .with_known("hard", hard)
            .with_known("open_now", trace.value("fds_now"))
            .says(format!(
                "soft limit {soft}: {raise}{now}; a server that asks for {needed} (maxclients {DEFAULT_CLIENTS} + {RESERVED}) will \
                 end up at {clients}"
            ))
            .try_next("LimitNOFILE= in the service's unit or --ulimit nofile= for a container; the shell's ulimit does not count for a service"),
    )
}

fn lowered(trace: &Trace<'_>, asked: u64, got: u64) -> Finding {
    let server = trace.value("nofile_server");
    trace
        .finding("REDIS_MAXCLIENTS_BY_ULIMIT", Severity::Warning)
        .with("asked", asked)
        .with("got", got)
        .with_known("open_files", server)
        .says(format!(
            "the server wanted {asked} clients and lowers maxclients to {got}, its limit of open files ({}) less {RESERVED}: \
             connections beyond that are closed with an error",
            server.map_or_else(|| (got + RESERVED).to_string(), |n| n.to_string())
        ))
        .try_next(format!("LimitNOFILE={} or more for the server, then a restart", asked + RESERVED))
}

const NOTHING: &[Doc] = &[Doc {
    code: "NO_LIMIT_REACHED",
    means: "Everything that was pasted is below its limit: the failures must have another cause.",
    measured: "Each pair of a use and its limit, with the figures.",
    wrong_when: "The values were read at a quiet moment.",
    todo: "Read them while it fails; look at the server's log, at time-outs and at what is between client and server.",
}];

impl Rule for NothingFull {
    fn docs(&self) -> &'static [Doc] {
        NOTHING
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| nothing_full(&trace)).collect()
    }
}

fn nothing_full(trace: &Trace<'_>) -> Option<Finding> {
    let pairs: [(&str, Option<u64>, Option<u64>); 7] = [
        (
            "open files of the machine",
            trace.value("file_nr"),
            trace.value("file_max"),
        ),
        (
            "open files of the process",
            trace.value("fds_now"),
            trace.value("nofile_soft"),
        ),
        (
            "local ports in TIME_WAIT",
            trace.value("time_wait"),
            trace.value("ports"),
        ),
        (
            "clients",
            trace.value("connected_clients"),
            trace.value("maxclients"),
        ),
        (
            "accept queue",
            trace.value("accept_queue_now"),
            trace.value("backlog_effective"),
        ),
        (
            "conntrack entries",
            trace.value("conntrack_count"),
            trace.value("conntrack_max"),
        ),
        ("processes", trace.value("pids.current"), trace.value("pids.max")),
    ];
    let known: Vec<(&str, u64, u64)> = pairs
        .into_iter()
        .filter_map(|(name, used, most)| Some((name, used?, most.filter(|most| *most > 0)?)))
        .collect();
    let bad_counters = [
        "listen_overflows",
        "rejected_connections",
        "time_wait_overflow",
        "syn_queue_drops",
    ]
    .iter()
    .any(|name| trace.value(name).is_some_and(|n| n > 0));
    let said = trace
        .imported
        .values
        .get("error_texts")
        .and_then(Value::as_object);
    // What the kernel or a server complained of stands in the finding of that limit.
    let complained = trace
        .imported
        .values
        .keys()
        .any(|name| name.ends_with("_lines") || name.starts_with("oom_"));
    let full = complained
        || known
            .iter()
            .any(|(_, used, most)| *used as f64 >= *most as f64 * 0.8);
    if known.len() < 2 || full || bad_counters || said.is_some_and(|texts| texts.contains_key("ENFILE")) {
        return None;
    }
    let list: Vec<String> = known
        .iter()
        .map(|(name, used, most)| {
            format!(
                "{name} {used} of {most} ({:.1} %)",
                *used as f64 * 100.0 / *most as f64
            )
        })
        .collect();
    let worst = known
        .iter()
        .map(|(_, used, most)| *used as f64 / *most as f64)
        .fold(0.0, f64::max);
    Some(
        trace
            .finding("NO_LIMIT_REACHED", Severity::Info)
            .with("highest_share", round2(worst))
            .says(format!("no limit is reached: {}", list.join("; ")))
            .try_next("read them again while it fails; what is left are time-outs, the server itself, and what lies between"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{find, found, has};

    #[test]
    fn a_full_queue_and_an_empty_one() {
        let queue = |now: u32| {
            format!(
                "State Recv-Q Send-Q Local Address:Port Peer Address:Port\nLISTEN {now} 128 0.0.0.0:6379 0.0.0.0:*\n"
            )
        };
        assert!(has(&queue(129), "LISTEN_OVERFLOW"));
        assert!(!has(&queue(0), "LISTEN_OVERFLOW"));
    }

    #[test]
    fn the_log_of_a_server_with_too_few_files() {
        let text = "Current maximum open files is 4096. maxclients has been reduced to 4064 to compensate for low ulimit.\n";
        let finding = find(&found(text), "REDIS_MAXCLIENTS_BY_ULIMIT").unwrap();
        assert!(finding.says.contains("4064") && finding.says.contains("4096"));
    }

    #[test]
    fn everything_tuned_and_nothing_full() {
        let text = "connected_clients:191\nmaxclients:10000\nrejected_connections:0\nfs.file-nr = 3000\t0\t6599218\n\
                    net.ipv4.ip_local_port_range = 10240\t65535\n# ss -Htan state time-wait | wc -l\n8\n";
        let finding = find(&found(text), "NO_LIMIT_REACHED").unwrap();
        assert!(finding.says.contains("191 of 10000"));
        let full = text.replace("connected_clients:191", "connected_clients:9999");
        assert!(!has(&full, "NO_LIMIT_REACHED"));
    }

    #[test]
    fn a_large_limit_needs_no_word() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            65536                524288               files     \n";
        assert!(!has(text, "OPEN_FILES_LIMIT"));
    }
}
