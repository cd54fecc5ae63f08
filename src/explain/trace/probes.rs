//! Calls per operation that only ask: liveness probes, readiness checks, options set again.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{SOCKET_RECEIVES, Table, traces};
use crate::import::facts::Commands;
use crate::record::Record;
use crate::units::total;

pub(super) struct Probes;
pub(super) struct Options;

const DOCS: &[Doc] = &[Doc {
    code: "READINESS_CHECK",
    means: "Before each operation the client asks the kernel whether its socket is readable, with calls that do nothing \
            else.",
    measured: "Waits with time-out 0 on the connection, FIONREAD, or an epoll instance that is made, asked and closed for \
               each command.",
    wrong_when: "An event loop runs with time-out 0 for other reasons.",
    todo: "A newer client version, or fewer checks (only after the connection was idle); a check with poll() needs one \
           call and no descriptor.",
}];

impl Rule for Probes {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| trace.tables().collect::<Vec<_>>())
            .flat_map(|table| [liveness(&table), readiness(&table), asked(&table)])
            .flatten()
            .collect()
    }
}

fn liveness(table: &Table<'_>) -> Option<Finding> {
    let ops = table.ops()?;
    let peeks = table
        .trace
        .facts()
        .map(|_| total(table.trace.peers().map(|(_, peer)| peer.peeks)));
    let (probes, says) = match peeks {
        Some(peeks) => (
            peeks,
            format!(
                "{} system calls for {} {}, {peeks} of them liveness probes (MSG_PEEK; EAGAIN is the expected answer and not a \
                 failure)",
                table.table.sum_calls(),
                ops.count,
                if ops.count == 1 { "operation" } else { "operations" }
            ),
        ),
        None => {
            // strace -c knows no flags. A client that waits before it receives has no reason to find nothing.
            let empty = table.failed_receives();
            let receives = table.calls(SOCKET_RECEIVES);
            if receives == 0 || table.waits() == 0 && empty > 0 {
                return None;
            }
            (
                empty,
                format!(
                    "{empty} of {receives} receives found nothing ({:.1} {}): EAGAIN probes whether the connection lives or data \
                     is there, not failures",
                    ops.per_op(empty),
                    ops.unit()
                ),
            )
        }
    };
    let rate = ops.per_op(probes);
    if rate < 0.4 {
        return None;
    }
    Some(
        table
            .finding("LIVENESS_PROBES", Severity::Info)
            .with("probes", probes)
            .with("probes_per_op", round2(rate))
            .says(says)
            .try_next(
                "redis.pconnect.echo_check_liveness=0 for pconnect; in pools a check after idle time only",
            ),
    )
}

/// ECHO or PING before each command: a round trip.
fn asked(table: &Table<'_>) -> Option<Finding> {
    let facts = table.trace.facts()?;
    let checks = Commands::checks(&facts.commands.sent);
    let working = Commands::working(&facts.commands.sent);
    if checks == 0 || working == 0 || checks.saturating_mul(10) < working.saturating_mul(4) {
        return None;
    }
    let rate = checks as f64 / working.max(1) as f64;
    Some(
        table
            .finding("LIVENESS_PROBES", Severity::Warning)
            .with("echo_or_ping", checks)
            .with("other_commands", working)
            .says(format!(
                "{rate:.1} ECHO or PING per operation ask whether the connection lives, each a whole round trip"
            ))
            .try_next("redis.pconnect.echo_check_liveness=0 in PHP; a pool that checks after idle time only"),
    )
}

fn readiness(table: &Table<'_>) -> Option<Finding> {
    let facts = table.trace.facts()?;
    let ops = table.ops()?;
    let (checks, says, calls) = if facts.epoll_checks > 0 {
        (
            facts.epoll_checks,
            "4 extra calls per command (epoll_create, epoll_ctl, epoll_wait, close) only to ask whether the socket is \
             readable; each check needs a free descriptor"
                .to_owned(),
            4,
        )
    } else {
        let checks = total(table.trace.peers().map(|(_, peer)| peer.readiness_checks));
        (
            checks,
            format!(
                "{:.1} calls {} only ask whether the socket is readable (time-out 0)",
                ops.per_op(checks),
                ops.unit()
            ),
            1,
        )
    };
    if ops.per_op(checks) < 0.5 {
        return None;
    }
    Some(
        table
            .finding("READINESS_CHECK", Severity::Info)
            .with("checks", checks)
            .with("calls_per_check", calls)
            .says(says)
            .try_next("a client version that checks with poll(), or only after idle time"),
    )
}

impl Rule for Options {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| trace.tables().collect::<Vec<_>>())
            .filter_map(|table| options(&table))
            .collect()
    }
}

fn options(table: &Table<'_>) -> Option<Finding> {
    let ops = table.ops()?;
    let connects = ops.per_op(table.connects());
    let count = match table.trace.facts() {
        Some(_) => total(table.trace.peers().map(|(_, peer)| peer.options_in_use)),
        // fcntl and ioctl of a table may be on any descriptor.
        None => table.calls(&["setsockopt"]),
    };
    let rate = ops.per_op(count);
    if connects >= 0.5 || rate < 0.5 || ops.count < 2 {
        return None;
    }
    let kinds = if table.trace.facts().is_some() {
        "setsockopt, fcntl or ioctl"
    } else {
        "setsockopt"
    };
    Some(
        table
            .finding("OPTIONS_PER_OPERATION", Severity::Warning)
            .with("options", count)
            .with("options_per_op", round2(rate))
            .says(format!(
                "{rate:.1} {kinds} {} set options of a connection that is kept: once per connection is enough",
                ops.unit()
            ))
            .try_next("reuse one client object in place of a pconnect() or new Client for each operation"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, has};

    const GET: &str = "sendto(4, \"*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\nk\\r\\n\", 20, 0, NULL, 0) = 20\nrecvfrom(4, \"$1\\r\\nv\\r\\n\", 8192, 0, NULL, NULL) = 7\n";

    #[test]
    fn an_echo_before_each_get() {
        let text = format!(
            "sendto(4, \"*2\\r\\n$4\\r\\nECHO\\r\\n$1\\r\\nx\\r\\n\", 21, 0, NULL, 0) = 21\nrecvfrom(4, \"$1\\r\\nx\\r\\n\", 8192, 0, NULL, NULL) = 7\n{GET}"
        )
        .repeat(3);
        assert!(has(&text, "LIVENESS_PROBES"));
        assert!(!has(&GET.repeat(3), "LIVENESS_PROBES"));
    }

    #[test]
    fn a_poll_with_time_out_zero_before_each_get() {
        let check = "poll([{fd=4, events=POLLIN}], 1, 0) = 0 (Timeout)\n";
        // The first one comes before the descriptor is known to be a socket.
        assert!(has(&format!("{GET}{check}").repeat(4), "READINESS_CHECK"));
        assert!(!has(&GET.repeat(4), "READINESS_CHECK"));
    }

    #[test]
    fn options_on_a_kept_connection_and_on_a_new_one() {
        let option = "setsockopt(4, SOL_TCP, TCP_NODELAY, [1], 4) = 0\n";
        assert!(has(&format!("{GET}{option}").repeat(4), "OPTIONS_PER_OPERATION"));
        assert!(!has(&clean(4), "OPTIONS_PER_OPERATION"));
    }
}
