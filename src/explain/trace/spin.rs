//! EVENT_LOOP_SPIN: a loop that is woken, or wakes itself, for nothing.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Table, Trace, traces};
use crate::record::Record;
use crate::units::total;

pub(super) struct Spin;

const DOCS: &[Doc] = &[
    Doc {
        code: "EVENT_LOOP_SPIN",
        means: "A loop runs at full speed without getting anything: a descriptor is reported ready again and again and has \
                nothing, or the program asks without waiting.",
        measured: "Three or more reports of one descriptor in a row, each followed by a receive with EAGAIN or by nothing; \
                   long rows of receives with EAGAIN or of waits with time-out 0; in a counted pass twenty waits with time-out 0 in a row for nothing, or ten receives with EAGAIN per reply without a wait.",
        wrong_when: "A program polls for a short time on purpose (busy polling for latency).",
        todo: "After EPOLLERR or POLLHUP read SO_ERROR and close or reconnect; wait for events in place of asking.",
    },
    Doc {
        code: "POLL_STORM",
        means: "Far more waits for descriptors than operations.",
        measured: "poll, select and epoll calls per operation, ten and more; the same in a counted pass.",
        wrong_when: "One loop serves other work as well.",
        todo: "Find what the loop is woken for: timers, descriptors that stay ready, many callbacks per operation.",
    },
    Doc {
        code: "EPOLL_STALE_FDS",
        means: "An event loop registers descriptors that are gone, and removes what it never registered.",
        measured: "epoll_ctl calls that fail with ENOENT, EEXIST or EBADF.",
        wrong_when: "A library adds first and modifies on EEXIST, by design.",
        todo: "Unregister a descriptor before it is closed; a newer version of the loop or the client.",
    },
];

impl Rule for Spin {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        let mut out: Vec<Finding> = traces(record)
            .flat_map(|trace| [reported(&trace), asking(&trace), stale(&trace)])
            .flatten()
            .collect();
        out.extend(
            traces(record)
                .flat_map(|trace| trace.tables().collect::<Vec<_>>())
                .filter_map(|table| storm(&table)),
        );
        out
    }
}

/// Whether the log shows a descriptor that is reported in vain.
pub(super) fn spins(trace: &Trace<'_>) -> bool {
    trace
        .facts()
        .is_some_and(|facts| facts.spins.iter().any(|spin| spin.repeats >= 3) || facts.eagain_streak >= 20)
}

fn reported(trace: &Trace<'_>) -> Option<Finding> {
    let spin = trace
        .facts()?
        .spins
        .iter()
        .filter(|spin| spin.repeats >= 3)
        .max_by_key(|spin| spin.repeats)?;
    let events = if spin.events.is_empty() {
        String::new()
    } else {
        format!(" ({})", spin.events)
    };
    let error = spin.events.contains("ERR") || spin.events.contains("HUP");
    let cause = if error {
        "a pending socket error (SO_ERROR) is not consumed"
    } else {
        "what made it ready is never taken"
    };
    Some(
        trace
            .finding("EVENT_LOOP_SPIN", Severity::Error)
            .with("fd", spin.fd)
            .with("repeats", spin.repeats)
            .with("events", spin.events.as_str())
            .says(format!(
                "descriptor {} is reported again and again{events} by {}, {} times in a row, and a receive gets EAGAIN each \
                 time: a busy loop; {cause}",
                spin.fd, spin.call, spin.repeats
            ))
            .try_next("getsockopt(SO_ERROR), then close or reconnect; remove the descriptor from the loop"),
    )
}

fn asking(trace: &Trace<'_>) -> Option<Finding> {
    let facts = trace.facts()?;
    let (count, what) = if facts.eagain_streak >= 20 {
        (
            facts.eagain_streak,
            "receives got EAGAIN with no wait between them",
        )
    } else if facts.empty_poll_streak >= 20 {
        (facts.empty_poll_streak, "waits with time-out 0 reported nothing")
    } else {
        return None;
    };
    Some(
        trace
            .finding("EVENT_LOOP_SPIN", Severity::Warning)
            .with("in_a_row", count)
            .says(format!(
                "{count} times in a row {what}: the program asks in a loop where it could wait"
            ))
            .try_next("wait with poll or epoll and a time-out"),
    )
}

fn stale(trace: &Trace<'_>) -> Option<Finding> {
    let errors = &trace.facts()?.epoll_ctl_errors;
    let total = total(errors.values().copied());
    if total < 3 {
        return None;
    }
    let list: Vec<String> = errors.iter().map(|(what, n)| format!("{n} x {what}")).collect();
    Some(
        trace
            .finding("EPOLL_STALE_FDS", Severity::Warning)
            .with("failed", total)
            .says(format!(
                "{total} epoll_ctl calls failed ({}): the event loop keeps descriptors that are gone",
                list.join(", ")
            ))
            .try_next("unregister descriptors before they are closed"),
    )
}

fn storm(table: &Table<'_>) -> Option<Finding> {
    let ops = table.ops()?;
    let rate = ops.per_op(table.waits());
    if rate < 10.0 || !ops.known {
        return None;
    }
    Some(
        table
            .finding("POLL_STORM", Severity::Warning)
            .with("waits", table.waits())
            .with("waits_per_op", round2(rate))
            .says(format!(
                "{rate:.0} waits for descriptors per operation, where one or two would do"
            ))
            .try_next(
                "trace with strace -e trace=poll,select,epoll_wait -T to see what the loop is woken for",
            ),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, has};

    #[test]
    fn a_drain_ends_with_eagain_and_is_no_spin() {
        let turn = "epoll_wait(5, [{events=EPOLLIN, data={u32=10, u64=10}}], 128, -1) = 1\n\
                    read(10, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 16384) = 14\nread(10, 0x7ffe, 16384) = -1 EAGAIN (Resource temporarily unavailable)\n\
                    write(10, \"+PONG\\r\\n\", 7) = 7\n";
        assert!(!has(&turn.repeat(10), "EVENT_LOOP_SPIN"));
        assert!(!has(&clean(5), "EVENT_LOOP_SPIN"));
    }

    #[test]
    fn receives_without_a_wait() {
        let text = format!(
            "sendto(4, \"x\", 1, 0, NULL, 0) = 1\n{}",
            "recvfrom(4, 0x7f, 8192, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)\n"
                .repeat(30)
        );
        assert!(has(&text, "EVENT_LOOP_SPIN"));
    }

    #[test]
    fn stale_descriptors() {
        let text = "epoll_ctl(3, EPOLL_CTL_DEL, 9, 0x7f) = -1 ENOENT (No such file or directory)\n\
                    epoll_ctl(3, EPOLL_CTL_ADD, 9, {events=EPOLLIN, data={u32=9, u64=9}}) = -1 EEXIST (File exists)\n";
        assert!(has(&text.repeat(3), "EPOLL_STALE_FDS"));
        assert!(!has(&clean(3), "EPOLL_STALE_FDS"));
    }
}
