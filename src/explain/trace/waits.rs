//! WAIT_EQUALS_TIMEOUT, LOCK_WAIT, SLEEP_LOOP: waits whose length gives away what they are.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Table, Trace, WAITS, plural, traces};
use crate::import::facts::Wait;
use crate::record::Record;

pub(super) struct KnownTimeouts;
pub(super) struct Sleeps;

const TIMEOUTS: &[Doc] = &[Doc {
    code: "WAIT_EQUALS_TIMEOUT",
    means: "A wait lasted as long as a well-known time-out, so it ended by the clock and not by an event.",
    measured: "The longest waits of the log: 60 s (PHP's default_socket_timeout), 5 s (a name server's query), 1, 3 or 7 s \
               in connect (SYN retries), 0.2 s (retransmission), 0.04 s (delayed ACK); and waits that returned at their \
               own time-out; in a counted pass calls of those lengths that ended by their time-out.",
    wrong_when: "The other side happens to answer after that time.",
    todo: "Find whose time-out it is and what should have come before it.",
}];

/// What a wait of a certain length usually is.
struct Known {
    nanos: u64,
    within: u64,
    connect_only: bool,
    what: &'static str,
}

const SECOND: u64 = 1_000_000_000;
const KNOWN: &[Known] = &[
    Known {
        nanos: 60 * SECOND,
        within: 300_000_000,
        connect_only: false,
        what: "60 s is PHP's default_socket_timeout, and many proxies' read time-out",
    },
    Known {
        nanos: 5 * SECOND,
        within: 60_000_000,
        connect_only: false,
        what: "5 s is how long a resolver waits for a name server",
    },
    Known {
        nanos: SECOND,
        within: 40_000_000,
        connect_only: true,
        what: "1 s is the first SYN retry",
    },
    Known {
        nanos: 3 * SECOND,
        within: 60_000_000,
        connect_only: true,
        what: "3 s is the second SYN retry",
    },
    Known {
        nanos: 7 * SECOND,
        within: 120_000_000,
        connect_only: true,
        what: "7 s is the third SYN retry",
    },
    Known {
        nanos: 200_000_000,
        within: 10_000_000,
        connect_only: false,
        what: "0.2 s is the shortest retransmission time-out: a packet was lost",
    },
];

impl Rule for KnownTimeouts {
    fn docs(&self) -> &'static [Doc] {
        TIMEOUTS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| match trace.facts() {
                Some(_) => timeouts(&trace).into_iter().collect::<Vec<_>>(),
                None => trace.tables().filter_map(|table| of_table(&table)).collect(),
            })
            .collect()
    }
}

/// The longest single call of a table (`strace -c -U max-time`, perf trace -s).
fn of_table(table: &Table<'_>) -> Option<Finding> {
    let waits = table
        .rows()
        .iter()
        .filter(|row| WAITS.contains(&row.syscall.as_str()) || row.syscall == "connect");
    let (row, longest, what) = waits
        .filter_map(|row| Some((row, row.longest?)))
        .filter_map(|(row, longest)| {
            let ack = (38_000_000..=50_000_000).contains(&longest.0);
            let what = if ack {
                "close to Linux's shortest delayed ACK (40 ms), which two small sends without TCP_NODELAY run into"
            } else {
                famous(longest.0, row.syscall == "connect")?
            };
            Some((row, longest, what))
        })
        .max_by_key(|(_, longest, _)| *longest)?;
    Some(
        table
            .finding("WAIT_EQUALS_TIMEOUT", Severity::Info)
            .with("longest_ms", round2(longest.0 as f64 / 1e6))
            .with("call", row.syscall.as_str())
            .says(format!("longest {} {}: {what}", row.syscall, millis(longest.0)))
            .try_next("strace -T on that call shows what it waits for"),
    )
}

/// `41 ms`, without digits that nobody asked for.
fn millis(nanos: u64) -> String {
    format!("{} ms", (nanos as f64 / 1e6).round())
}

/// What a wait of that length usually is.
pub(in crate::explain) fn famous(nanos: u64, connect: bool) -> Option<&'static str> {
    KNOWN
        .iter()
        .find(|known| nanos.abs_diff(known.nanos) <= known.within && (!known.connect_only || connect))
        .map(|known| known.what)
}

fn timeouts(trace: &Trace<'_>) -> Option<Finding> {
    let facts = trace.facts()?;
    // A futex or a sleep ends when its program wants it to.
    let waits = || facts.waits.iter().filter(|wait| !wait.call.contains("futex"));
    let famous =
        waits().find_map(|wait| Some((wait, famous(wait.length.0, wait.call == "connect")?.to_owned())));
    let own = || {
        waits()
            .find(|wait| wait.in_vain && wait.timeout_ms.is_some_and(|ms| ms >= 100) && !wait.peer.is_empty())
            .map(|wait| {
                let ms = wait.timeout_ms.unwrap_or(0);
                (wait, format!("the client's own time-out of {ms} ms ended it"))
            })
    };
    // Whoever sets a time-out sets one shorter than this.
    let kernels = || {
        let given_up =
            |wait: &&Wait| wait.in_vain && wait.timeout_ms.is_none() && wait.length.0 >= 100 * SECOND;
        waits().find(given_up).map(|wait| {
            let what = "no time-out of the client's own ended it: the kernel gave up after its retransmissions \
                        (net.ipv4.tcp_retries2)";
            (wait, what.to_owned())
        })
    };
    let (wait, what) = famous.or_else(own).or_else(kernels)?;
    let to = if wait.peer.is_empty() {
        String::new()
    } else {
        format!(" for {}", wait.peer)
    };
    Some(
        trace
            .finding("WAIT_EQUALS_TIMEOUT", Severity::Warning)
            .with("wait_ms", round2(wait.length.0 as f64 / 1e6))
            .with("line", wait.line)
            .with("call", wait.call.as_str())
            .says(format!(
                "{} waited {}{to} (line {}): {what}",
                wait.call, wait.length, wait.line
            ))
            .try_next("find whose time-out it is; what should have come earlier got lost or was never sent"),
    )
}

const SLEEPS: &[Doc] = &[
    Doc {
        code: "LOCK_WAIT",
        means: "The same command is sent again after the same sleep, over and over: the program waits for a lock (a session \
                lock, a mutex key), and neither network nor server is slow.",
        measured: "Equal commands on one connection with a sleep between them, three times and more.",
        wrong_when: "A program polls a queue or a counter on purpose.",
        todo: "Find who holds the lock and for how long; shorter sleeps only hide it.",
    },
    Doc {
        code: "SLEEP_LOOP",
        means: "The program sleeps many times for the same length: it looks for something in intervals in place of waiting \
                for it.",
        measured: "Sleeps of one length, at least twenty, and as many as half the operations; the same in a counted pass.",
        wrong_when: "The run-time sleeps for its own purposes (Go's sysmon).",
        todo: "Wait with a time-out for the event itself.",
    },
];

impl Rule for Sleeps {
    fn docs(&self) -> &'static [Doc] {
        SLEEPS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .filter_map(|trace| lock(&trace).or_else(|| sleeping(&trace)))
            .collect()
    }
}

fn lock(trace: &Trace<'_>) -> Option<Finding> {
    let (command, repeat) = trace
        .facts()?
        .repeats
        .iter()
        .max_by_key(|(_, repeat)| repeat.times)?;
    if repeat.times < 3 {
        return None;
    }
    let sleeps = if repeat.equal { "equal sleeps" } else { "sleeps" };
    Some(
        trace
            .finding("LOCK_WAIT", Severity::Warning)
            .with("times", repeat.times)
            .with("sleep_ms", round2(repeat.sleep.0 as f64 / 1e6))
            .with("command", command.as_str())
            .says(format!(
                "“{command}” was sent {} more times after {sleeps} of {}: a lock wait of the program, not the network",
                repeat.times, repeat.sleep
            ))
            .try_next("find who holds the lock; close sessions early (session_write_close in PHP)")
            .clears(vec!["the network and the server: they answered each time".to_owned()]),
    )
}

fn sleeping(trace: &Trace<'_>) -> Option<Finding> {
    let facts = trace.facts()?;
    let (micros, times) = facts.sleeps.iter().max_by_key(|(_, n)| **n)?;
    let ops = trace.imported.ops.unwrap_or(0);
    if *times < 20 || times.saturating_mul(2) < ops {
        return None;
    }
    let total = *micros as f64 * *times as f64 / 1e6;
    Some(
        trace
            .finding("SLEEP_LOOP", Severity::Info)
            .with("sleeps", *times)
            .with("each_us", *micros)
            .says(format!(
                "{} of {} each, {total:.2} s in all: the program looks for something in intervals",
                plural(*times, "sleep"),
                crate::units::Nanos(micros.saturating_mul(1_000))
            ))
            .try_next("wait for the event with a time-out in place of sleeping"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    fn wait(call: &str, seconds: &str) -> String {
        format!(
            "sendto(4, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 14, 0, NULL, 0) = 14 <0.000010>\n{call} <{seconds}>\n"
        )
    }

    #[test]
    fn sixty_seconds_and_not_fifty() {
        let poll = "poll([{fd=4, events=POLLIN}], 1, 60000) = 0 (Timeout)";
        let finding = find(&found(&wait(poll, "60.002000")), "WAIT_EQUALS_TIMEOUT").unwrap();
        assert!(finding.says.contains("default_socket_timeout"));
        let recv = "recvfrom(4, \"+PONG\\r\\n\", 8192, 0, NULL, NULL) = 7";
        assert!(!has(&wait(recv, "50.000000"), "WAIT_EQUALS_TIMEOUT"));
        assert!(!has(&clean(5), "WAIT_EQUALS_TIMEOUT"));
    }

    #[test]
    fn a_session_lock() {
        let turn = "sendto(4, \"*3\\r\\n$5\\r\\nSETNX\\r\\n$4\\r\\nlock\\r\\n$1\\r\\n1\\r\\n\", 36, 0, NULL, 0) = 36\n\
                    recvfrom(4, \":0\\r\\n\", 8192, 0, NULL, NULL) = 4\n\
                    clock_nanosleep(CLOCK_REALTIME, 0, {tv_sec=0, tv_nsec=500000000}, NULL) = 0\n";
        let findings = found(&turn.repeat(6));
        let finding = find(&findings, "LOCK_WAIT").unwrap();
        assert!(
            finding.says.contains("SETNX lock") && finding.says.contains("500 ms"),
            "{}",
            finding.says
        );
        assert!(!has(&clean(10), "LOCK_WAIT"));
    }

    #[test]
    fn many_equal_sleeps() {
        let text = "nanosleep({tv_sec=0, tv_nsec=1000000}, NULL) = 0\n".repeat(40);
        assert!(has(&text, "SLEEP_LOOP"));
        assert!(!has(&clean(3), "SLEEP_LOOP"));
    }
}
