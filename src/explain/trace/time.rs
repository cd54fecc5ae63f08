//! What the times of a trace can tell, and where the time went.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{SOCKET_RECEIVES, Table, Trace, WAITS, ms, traces};
use crate::import::TimeKind;
use crate::record::Record;
use crate::units::Nanos;

pub(super) struct Times;
pub(super) struct Split;

const TIMES: &[Doc] = &[
    Doc {
        code: "NO_TIMES",
        means: "Every time in the table is zero, so it has no time information; its percentages mean nothing.",
        measured: "The sum of the time column.",
        wrong_when: "Never.",
        todo: "strace -c -w, or strace -T.",
    },
    Doc {
        code: "WAITS_NOT_IN_TIMES",
        means: "The table's times are, or may be, CPU time: the time in which a call waits is not in them, so the call with \
                the largest share need not be the slow one.",
        measured: "The kind of the times as the format tells it (strace -c and -c -w print the same heading), and calls \
                   that wait with means too small to contain a wait.",
        wrong_when: "The run never waited.",
        todo: "strace -c -w or strace -T before the slow call is named.",
    },
    Doc {
        code: "TIME_KIND_UNKNOWN",
        means: "The table's times may be CPU time or wall time; its heading is the same for both.",
        measured: "A strace -c table without its command line.",
        wrong_when: "Never; large means in waiting calls make wall time likely.",
        todo: "Ask for the command: -w makes it wall time.",
    },
];

impl Rule for Times {
    fn docs(&self) -> &'static [Doc] {
        TIMES
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| trace.tables().collect::<Vec<_>>())
            .filter_map(|table| times(&table))
            .collect()
    }
}

fn times(table: &Table<'_>) -> Option<Finding> {
    let kind = table.trace.imported.time_kind;
    let sum = table.table.sum_time()?;
    if table.table.sum_calls() == 0 {
        return None;
    }
    if sum == Nanos(0) && kind != TimeKind::Wall {
        return Some(
            table
                .finding("NO_TIMES", Severity::Info)
                .with("calls", table.table.sum_calls())
                .says("every time is zero: there is no time information in this table, and no call has a share of it")
                .try_next(table.trace.wall_hint()),
        );
    }
    if !matches!(kind, TimeKind::Cpu | TimeKind::Unknown) {
        return None;
    }
    let is_wait = |name: &str| {
        WAITS.contains(&name)
            || SOCKET_RECEIVES.contains(&name)
            || matches!(
                name,
                "read" | "futex" | "wait4" | "nanosleep" | "clock_nanosleep" | "lwp_cond_wait" | "connect"
            )
    };
    let slowest = table
        .rows()
        .iter()
        .filter(|row| is_wait(&row.syscall))
        .filter_map(|row| Some((row, row.mean()?)))
        .max_by_key(|(_, mean)| *mean);
    if kind == TimeKind::Unknown
        && let Some((row, mean)) = slowest
        && mean.0 >= 1_000_000
    {
        return Some(
            table
                .finding("TIME_KIND_UNKNOWN", Severity::Info)
                .with("mean_us", round2(mean.0 as f64 / 1e3))
                .says(format!(
                    "strace -c and -c -w print the same heading, so the time column may be CPU or wall time; {} a call in {} can \
                     hardly be CPU time, so wall time is likely",
                    ms(mean.0),
                    row.syscall
                ))
                .try_next("ask for the command line: -w makes it wall time"),
        );
    }
    let elapsed = table.trace.imported.elapsed;
    let took = elapsed
        .map(|elapsed| format!(" of the {elapsed} that the run took"))
        .unwrap_or_default();
    let why = match kind {
        TimeKind::Unknown => {
            "strace -c and -c -w print the same heading, so this may be CPU or wall time, and nothing here is as long as a wait: \
             probably CPU time, in which waits are not contained"
        }
        TimeKind::Cpu | TimeKind::Wall | TimeKind::None => {
            "this is CPU time, in which waits are not contained"
        }
    };
    // Without anything that waits there is nothing to warn of.
    slowest?;
    Some(
        table
            .finding("WAITS_NOT_IN_TIMES", Severity::Info)
            .with("sum_s", round6(sum))
            .with_known("elapsed_s", elapsed.map(round6))
            .says(format!(
                "the time column sums up to {sum}{took}; {why}: do not name the call with the largest share as the slow one"
            ))
            .try_next(format!("{} before naming the slow call", table.trace.wall_hint())),
    )
}

fn round6(span: Nanos) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e6
}

const SPLIT: &[Doc] = &[
    Doc {
        code: "TIME_SPLIT",
        means: "Where the time of the log went: waiting in calls, working in calls, and outside of calls (the program's own \
                work).",
        measured: "Time stamps and durations of a log (strace -tt -T). In a bench the untraced rounds: the workers' own time, \
                   their CPU time from the kernel, and the server's own time in the commands; the rest is waiting, divided \
                   by what the counted pass waited for. Harness-bound: noop, the workers' loop without a client, takes half \
                   of the time; server-bound: the server is in commands for 60 % of the time; client-bound: 60 % are the \
                   client's CPU time.",
        wrong_when: "In a log or a counted program the tracer slows every call, and short calls are mostly its cost. In a bench \
                     waiting for a free CPU counts as waiting for the server, and what the server does beside its commands \
                     (reading, writing) is not in its own time.",
        todo: "Mostly waiting: look at the server or the network, make fewer round trips. Mostly outside or client-bound: \
               profile the program; system calls are not the cause.",
    },
    Doc {
        code: "OUTSIDE_SYSCALLS",
        means: "A pause between two calls is longer than any wait in a call: the time passes in the program itself, or the \
                scheduler did not run it.",
        measured: "The longest gap between the return of one call and the start of the next in the same thread.",
        wrong_when: "A filter (-e trace=) hides calls in between.",
        todo: "Profile the program at that place (perf, a profiler of the language); system calls cannot explain it.",
    },
];

impl Rule for Split {
    fn docs(&self) -> &'static [Doc] {
        SPLIT
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| [split(&trace), outside(&trace)])
            .flatten()
            .collect()
    }
}

fn split(trace: &Trace<'_>) -> Option<Finding> {
    let facts = trace.facts()?;
    let in_calls = facts.in_calls?;
    let waiting = facts.waiting.unwrap_or_default();
    // A split of a few calls says nothing.
    if in_calls.0 < 1_000_000 {
        return None;
    }
    let working = Nanos(in_calls.0.saturating_sub(waiting.0));
    let outside = facts.outside;
    let total = Nanos(in_calls.0 + outside.map_or(0, |o| o.0));
    let share = |part: Nanos| part.0 as f64 * 100.0 / total.0.max(1) as f64;
    let longest = longest_wait(trace);
    let verdict = if share(waiting) >= 60.0 {
        match longest {
            Some((name, time)) if time.0.saturating_mul(2) >= waiting.0 && is_sleep(name) => {
                "mostly waiting: in its own sleeps, not for a server"
            }
            Some((name, time)) if time.0.saturating_mul(2) >= waiting.0 && name.contains("futex") => {
                "mostly waiting: for other threads"
            }
            _ => "mostly waiting: for the server, another thread, or a time-out",
        }
    } else if outside.is_some_and(|outside| share(outside) >= 60.0) {
        "mostly outside of system calls: the program's own work"
    } else if share(working) >= 60.0 {
        "mostly inside calls that should not wait: the log shows where the time passes and not why; the reason is not explained"
    } else {
        "no part has most of it"
    };
    let outside_words = outside
        .map(|outside| format!(", {outside} outside of calls ({:.0} %)", share(outside)))
        .unwrap_or_else(|| ", time outside of calls not known without time stamps".to_owned());
    let of_it = longest
        .filter(|(_, time)| time.0 > 0)
        .map(|(name, time)| format!(" ({time} of it in {name})"))
        .unwrap_or_default();
    let busiest = (share(working) >= 60.0).then(|| busiest(trace)).flatten();
    let in_it = busiest.as_deref().unwrap_or_default();
    Some(
        trace
            .finding("TIME_SPLIT", Severity::Info)
            .with("waiting_s", round6(waiting))
            .with("working_in_calls_s", round6(working))
            .with_known("outside_calls_s", outside.map(round6))
            .says(format!(
                "{waiting} waiting in calls{of_it} ({:.0} %), {working} working in calls{in_it} ({:.0} %){outside_words}; {verdict} (tracing \
                 slows every call)",
                share(waiting),
                share(working)
            )),
    )
}

/// The call that took the most time without being a wait, with the size of what it moved.
fn busiest(trace: &Trace<'_>) -> Option<String> {
    let rows = trace.imported.tables.iter().flat_map(|table| &table.rows);
    let (name, calls, time) = rows
        .filter(|row| !is_wait(&row.syscall))
        .filter_map(|row| Some((row.syscall.as_str(), row.calls(), row.time?)))
        .max_by_key(|(_, _, time)| *time)?;
    let each = Nanos(time.0 / calls.max(1));
    let sends = super::SOCKET_SENDS.contains(&name) || super::WRITES.contains(&name);
    let (sent, bytes) = trace.peers().fold((0_u64, 0_u64), |(n, bytes), (_, peer)| {
        (n + peer.sends, bytes.saturating_add(peer.sent_bytes))
    });
    let size = if sends && sent > 0 {
        format!(", {} bytes each", crate::units::Grouped(bytes / sent))
    } else {
        String::new()
    };
    Some(format!(" ({time} of it in {calls} {name}, {each} each{size})"))
}

fn is_wait(name: &str) -> bool {
    WAITS.contains(&name)
        || SOCKET_RECEIVES.contains(&name)
        || is_sleep(name)
        || matches!(
            name,
            "futex" | "wait4" | "waitid" | "connect" | "accept" | "accept4" | "pause"
        )
}

fn is_sleep(call: &str) -> bool {
    call.contains("nanosleep") || call == "usleep"
}

/// The call that waited the most in all.
fn longest_wait<'a>(trace: &Trace<'a>) -> Option<(&'a str, Nanos)> {
    trace
        .imported
        .tables
        .iter()
        .flat_map(|table| &table.rows)
        .filter(|row| is_wait(&row.syscall))
        .filter_map(|row| Some((row.syscall.as_str(), row.time?)))
        .max_by_key(|(_, time)| *time)
}

fn outside(trace: &Trace<'_>) -> Option<Finding> {
    let facts = trace.facts()?;
    let gap = facts.longest_gap.as_ref()?;
    let longest_wait = trace
        .imported
        .tables
        .iter()
        .flat_map(|table| &table.rows)
        .filter_map(|row| row.longest)
        .max()?;
    if gap.length.0 < 500_000 || gap.length.0 < longest_wait.0.saturating_mul(2) {
        return None;
    }
    Some(
        trace
            .finding("OUTSIDE_SYSCALLS", Severity::Info)
            .with("gap_us", round2(gap.length.as_micros_f64()))
            .with("line", gap.line)
            .says(format!(
                "the longest pause is not in the system calls: {} between {} and {} (line {}), while no call took longer than {}",
                gap.length, gap.after, gap.before, gap.line, longest_wait
            ))
            .try_next("profile the program there; system calls do not explain it"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    fn table(mean_us: u64) -> String {
        format!(
            "% time     seconds  usecs/call     calls    errors syscall\n 90.00    {:.6}  {mean_us}        10           poll\n\
             \x2010.00    0.000001           0        10           sendto\n100.00    {:.6}           0        20           total\n",
            mean_us as f64 * 10.0 / 1e6,
            mean_us as f64 * 10.0 / 1e6 + 1e-6
        )
    }

    #[test]
    fn small_means_hide_waits_and_large_ones_show_them() {
        assert!(has(&table(20), "WAITS_NOT_IN_TIMES"));
        assert!(has(&table(40_000), "TIME_KIND_UNKNOWN"));
        assert!(has(&table(0).replace("0.000001", "0.000000"), "NO_TIMES"));
        assert!(!has(&clean(3), "WAITS_NOT_IN_TIMES"));
    }

    #[test]
    fn a_gap_between_calls() {
        let text = "10:00:00.000000 sendto(4, \"x\", 1, 0, NULL, 0) = 1 <0.000010>\n\
                    10:00:00.000020 recvfrom(4, \"y\", 1, 0, NULL, NULL) = 1 <0.000030>\n\
                    10:00:00.900000 sendto(4, \"x\", 1, 0, NULL, 0) = 1 <0.000010>\n";
        let finding = find(&found(text), "OUTSIDE_SYSCALLS").unwrap();
        assert!(finding.says.contains("between recvfrom and sendto"));
        assert!(!has(&clean(5), "OUTSIDE_SYSCALLS"));
    }

    #[test]
    fn the_call_that_waits_is_named() {
        let text = "10:00:00.000000 clock_nanosleep(CLOCK_REALTIME, 0, {tv_sec=2, tv_nsec=0}, NULL) = 0 <2.000100>\n\
                    10:00:02.000200 poll([{fd=4, events=POLLIN}], 1, -1) = 1 ([{fd=4, revents=POLLIN}]) <0.100000>\n\
                    10:00:02.200000 close(4) = 0 <0.000010>\n";
        let findings = found(text);
        let says = &find(&findings, "TIME_SPLIT").unwrap().says;
        assert!(says.contains("2.00 s of it in clock_nanosleep"), "{says}");
        assert!(says.contains("in its own sleeps"), "{says}");
    }

    #[test]
    fn the_split_adds_up() {
        let text = "10:00:00.000000 poll([{fd=4, events=POLLIN}], 1, -1) = 1 ([{fd=4, revents=POLLIN}]) <0.100000>\n\
                    10:00:00.200000 close(4) = 0 <0.000010>\n";
        let finding = find(&found(text), "TIME_SPLIT").unwrap();
        assert_eq!(finding.evidence["waiting_s"], 0.1);
        assert_eq!(finding.evidence["outside_calls_s"], 0.1);
        assert!(!has(&clean(2), "TIME_SPLIT"));
    }
}
