//! How connections are made and lost: one per operation, a full queue, a refusal, an idle close.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Table, Trace, plural, traces};
use crate::import::facts::UNKNOWN_PEER;
use crate::record::Record;
use crate::units::{Grouped, total};

pub(super) struct UnixBacklog;
pub(super) struct Refused;
pub(super) struct ConnectTimedOut;
pub(super) struct PerOperation;
pub(super) struct NeverClosed;
pub(super) struct ClosedIdle;

impl Rule for UnixBacklog {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| unix_backlog(&trace)).collect()
    }
}

fn unix_backlog(trace: &Trace<'_>) -> Option<Finding> {
    let (path, peer) = trace
        .peers()
        .find(|(_, peer)| peer.unix && peer.connects.contains_key("EAGAIN"))?;
    let failed = peer.connects.get("EAGAIN").copied().unwrap_or(0);
    Some(
        trace
            .finding("UNIX_BACKLOG_EAGAIN", Severity::Error)
            .with("failed_connects", failed)
            .with("connect_attempts", peer.connect_attempts())
            .with("socket", path)
            .says(format!(
                "{} of {} to {path} failed with EAGAIN: the listen queue of the server is full; it holds \
                 min(backlog, somaxconn) + 1 connections, and where a TCP socket would wait a UNIX socket refuses at once",
                failed,
                plural(peer.connect_attempts(), "connect")
            ))
            .try_next(
                "raise the server's backlog (tcp-backlog, listen.backlog) and net.core.somaxconn and restart it; keep \
                 connections; or retry after a pause",
            ),
    )
}

impl Rule for Refused {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| refused(&trace)).collect()
    }
}

fn refused(trace: &Trace<'_>) -> Option<Finding> {
    let at_once = trace.errno(&["connect", "connectx"], "ECONNREFUSED");
    let facts = trace.facts();
    let later = facts
        .and_then(|facts| facts.so_errors.get("ECONNREFUSED"))
        .copied()
        .unwrap_or(0);
    if at_once.saturating_add(later) == 0 {
        return None;
    }
    let to = trace
        .peers()
        .find(|(_, peer)| {
            peer.connects.contains_key("ECONNREFUSED") || peer.errors.contains_key("ECONNREFUSED")
        })
        .map(|(name, _)| name)
        .filter(|name| *name != UNKNOWN_PEER)
        .unwrap_or("the server");
    let debugger = [":9003", ":9000"].iter().any(|port| to.ends_with(port));
    let hidden = if later > 0 {
        "; the connect itself returned EINPROGRESS, and getsockopt(SO_ERROR) handed the refusal over while returning 0, \
         so counting errnos per call misses it"
    } else {
        ""
    };
    let (says, next) = if debugger {
        (
            format!(
                "connections to {to} are refused: that is a debugger's port, so xdebug looks for a listener at every start \
                 (start_with_request){hidden}"
            ),
            "unload xdebug or set xdebug.start_with_request=trigger",
        )
    } else {
        (
            format!(
                "{} refused by {to}: nothing listens there{hidden}",
                plural(at_once.saturating_add(later), "connection")
            ),
            "look whether the server runs and listens on that address; on a BSD or macOS a full queue of a UNIX socket is \
             refused like this as well",
        )
    };
    Some(
        trace
            .finding(
                "CONNECTION_REFUSED",
                if debugger {
                    Severity::Warning
                } else {
                    Severity::Error
                },
            )
            .with("refused", at_once.saturating_add(later))
            .with("told_by_so_error", later)
            .with("address", to)
            .says(says)
            .try_next(next),
    )
}

const TIMED_OUT: &[Doc] = &[Doc {
    code: "CONNECT_TIMED_OUT",
    means: "A connect got no answer in time: the packets were dropped, or the server's queue was full and its kernel let \
            the client try again.",
    measured: "ETIMEDOUT from connect or SO_ERROR, or a connect that returned EINPROGRESS and whose wait then ran into \
               its time-out; connects that took 1, 3 or 7 s, which are SYN retries.",
    wrong_when: "The log begins after the connect.",
    todo: "Look at the listener's queue (ss -ltn) and at ListenOverflows; a client's text \"Operation now in progress\" \
           (115) after a wait means timed out, not in progress.",
}];

impl Rule for ConnectTimedOut {
    fn docs(&self) -> &'static [Doc] {
        TIMED_OUT
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .filter_map(|trace| connect_timed_out(&trace))
            .collect()
    }
}

fn connect_timed_out(trace: &Trace<'_>) -> Option<Finding> {
    let later = trace.facts().and_then(|facts| facts.so_errors.get("ETIMEDOUT"));
    let failed = trace
        .errno(&["connect"], "ETIMEDOUT")
        .saturating_add(later.copied().unwrap_or(0));
    // SYN retries come after 1, 3 and 7 s, on kernels since 6.5 after each second at first.
    let slow = trace.peers().find(|(_, peer)| {
        peer.longest_connect.is_some_and(|longest| {
            [1, 2, 3, 7]
                .iter()
                .any(|s| longest.0.abs_diff(s * 1_000_000_000) < 60_000_000)
        })
    });
    // Under way, and nothing was ever sent: the client gave up.
    let given_up = trace
        .peers()
        .filter(|(_, peer)| peer.connects.contains_key("EINPROGRESS") && peer.sends == 0)
        .find_map(|(name, peer)| Some((name, *peer.timed_out.keys().max()?)));
    if failed == 0 && slow.is_none() && given_up.is_none() {
        return None;
    }
    let longest = slow.and_then(|(_, peer)| peer.longest_connect);
    // tcp_syn_retries=6 gives up after 127 s.
    let kernels = trace
        .peers()
        .filter_map(|(_, peer)| peer.longest_connect)
        .find(|longest| (125_000_000_000..140_000_000_000).contains(&longest.0));
    let what = match (longest, given_up, kernels) {
        (Some(longest), ..) => format!("a connect took {longest}, which is the time of SYN retries"),
        (None, Some((name, ms)), _) => format!(
            "a connect to {name} was still under way (EINPROGRESS, on Linux 115) when the client's wait of {ms} ms ran out: \
             its text \"Operation now in progress\" means timed out, not in progress"
        ),
        (None, None, Some(longest)) => format!(
            "{} ran into ETIMEDOUT after {longest}: no time-out of the client's own ended it, the kernel gave up after its \
             SYN retries (net.ipv4.tcp_syn_retries)",
            plural(failed, "connect")
        ),
        (None, None, None) => format!("{} ran into ETIMEDOUT", plural(failed, "connect")),
    };
    Some(
        trace
            .finding("CONNECT_TIMED_OUT", Severity::Warning)
            .with("timed_out", failed)
            .with_known("longest_connect_ms", longest.map(|l| l.0 / 1_000_000))
            .says(format!(
                "{what}: packets were dropped on the way, or the server's accept queue was full, which TCP shows as \
                 waiting and not as a refusal"
            ))
            .try_next("ss -ltn on the server (Recv-Q against Send-Q), nstat TcpExtListenOverflows, and the firewall"),
    )
}

impl Rule for PerOperation {
    fn docs(&self) -> &'static [Doc] {
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| trace.tables().collect::<Vec<_>>())
            .filter_map(|table| per_operation(&table))
            .collect()
    }
}

fn per_operation(table: &Table<'_>) -> Option<Finding> {
    let from_log = table
        .trace
        .facts()
        .map(|_| total(table.trace.peers().map(|(_, peer)| peer.connections())));
    let connects: u64 = from_log.unwrap_or_else(|| table.connects());
    let ops = table.ops()?;
    let rate = ops.per_op(connects);
    if connects < 3 || rate < least_rate(table, connects) {
        return None;
    }
    let detail: Vec<String> = ["connect", "socket", "setsockopt", "fcntl", "close"]
        .iter()
        .filter_map(|call| {
            let rate = ops.per_op(table.calls(&[*call]));
            (rate >= 0.05).then(|| format!("{rate:.1} {call}"))
        })
        .collect();
    let unused = total(table.trace.peers().map(|(_, peer)| peer.closed_after[0]));
    let mut finding = table
        .finding("CONNECTION_PER_OPERATION", Severity::Warning)
        .with("connects", connects)
        .with("connects_per_op", round2(rate))
        .with("ops", ops.count);
    if unused > 0 {
        finding = finding.with("closed_without_an_operation", unused);
    }
    let what = if rate >= 0.9 {
        "a new connection for every operation".to_owned()
    } else {
        format!(
            "the client connects again and again, {rate:.2} times per operation ({} for {} operations)",
            plural(connects, "connection"),
            Grouped(ops.count)
        )
    };
    Some(
        finding
            .says(format!("{} {}: {what}", detail.join(", "), ops.unit()))
            .try_next(
                "keep the connection: make the client object once, no close() after pconnect(), a pool that is switched on; \
                 at high rates the local ports run out as well",
            ),
    )
}

/// Connections per operation from which on they are not a start's. Where a log shows that most of many were closed
/// again, and not only opened, a twentieth of the operations is no start; else a pool may have been filled.
fn least_rate(table: &Table<'_>, connects: u64) -> f64 {
    let closed = total(
        table
            .trace
            .peers()
            .map(|(_, peer)| total(peer.closed_after).saturating_add(peer.closed_by_peer)),
    );
    let processes = table.trace.imported.processes.unwrap_or(1).max(1);
    let again = connects >= processes.saturating_mul(5) && closed.saturating_mul(2) >= connects;
    if again { 0.05 } else { 0.4 }
}

const NEVER_CLOSED: &[Doc] = &[Doc {
    code: "CONNECTIONS_NEVER_CLOSED",
    means: "The program opens connection after connection and closes hardly any.",
    measured: "Connections begun in the log against connections closed in it, twenty or more left over.",
    wrong_when: "The log ends while a pool is still filling.",
    todo: "Close clients that are made anew, or make one; until then descriptors and maxclients run out at this rate.",
}];

impl Rule for NeverClosed {
    fn docs(&self) -> &'static [Doc] {
        NEVER_CLOSED
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| never_closed(&trace)).collect()
    }
}

fn never_closed(trace: &Trace<'_>) -> Option<Finding> {
    let (name, peer) = trace.peers().max_by_key(|(_, peer)| peer.connections())?;
    let begun = peer.connections();
    let closed: u64 = peer
        .closed_after
        .iter()
        .fold(peer.closed_by_peer, |sum, n| sum.saturating_add(*n));
    // A connection or two for each of many processes pile up nowhere.
    let processes = trace.imported.processes.unwrap_or(1).max(1);
    if begun < 20 || closed.saturating_mul(10) > begun || begun < processes.saturating_mul(10) {
        return None;
    }
    let rate = trace
        .facts()
        .and_then(|facts| facts.span)
        .filter(|span| span.0 > 0)
        .map(|span| begun.saturating_sub(closed) as f64 / span.as_secs_f64());
    let speed = rate
        .map(|rate| {
            let slope = if rate >= 1.0 {
                format!("{rate:.1} more each second")
            } else {
                format!("{:.1} more each minute", rate * 60.0)
            };
            // What is left to Redis' default maxclients.
            let minutes = 10_000_u64.saturating_sub(begun) as f64 / rate.max(1e-9) / 60.0;
            format!(" ({slope}; 10 000 clients, Redis' default limit, are reached in {minutes:.0} minutes)")
        })
        .unwrap_or_default();
    Some(
        trace
            .finding("CONNECTIONS_NEVER_CLOSED", Severity::Warning)
            .with("opened", begun)
            .with("closed", closed)
            .with_known("growth_per_s", rate.map(round2))
            .says(format!(
                "{begun} connections to {name} were opened and {closed} closed{speed}: they pile up until descriptors or \
                 the server's maxclients run out"
            ))
            .try_next("close the client where it is given up, or make it once"),
    )
}

const CLOSED_IDLE: &[Doc] = &[Doc {
    code: "SERVER_CLOSED_IDLE",
    means: "The server, or a proxy or firewall before it, closed a connection while nothing was asked of it.",
    measured: "A receive that returned 0 when no request was outstanding.",
    wrong_when: "The log begins after the request that was outstanding.",
    todo: "Compare the server's timeout with how long connections stay idle; a client that reconnects by itself pays one \
           connect each time.",
}];

impl Rule for ClosedIdle {
    fn docs(&self) -> &'static [Doc] {
        CLOSED_IDLE
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record).filter_map(|trace| closed_idle(&trace)).collect()
    }
}

fn closed_idle(trace: &Trace<'_>) -> Option<Finding> {
    // A server's own clients may leave when they like.
    if trace.facts()?.accepts.accepted > 0 {
        return None;
    }
    let idle = total(trace.peers().map(|(_, peer)| peer.closed_idle));
    if idle == 0 {
        return None;
    }
    let again = trace.peers().find(|(_, peer)| peer.connections() > 0);
    let reconnected = again
        .map(|(name, _)| format!("; the client reconnected by itself to {name}"))
        .unwrap_or_default();
    Some(
        trace
            .finding("SERVER_CLOSED_IDLE", Severity::Warning)
            .with("closed_by_peer", idle)
            .says(format!(
                "recv returned 0 with no request outstanding: the peer closed the idle connection (the server's timeout, a \
                 proxy or a firewall){reconnected}"
            ))
            .try_next("the server's `timeout` (0 is never) or keep-alive; a proxy's idle limit"),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    const CONNECT: &str =
        "connect(3, {sa_family=AF_INET, sin_port=htons(6379), sin_addr=inet_addr(\"10.0.0.9\")}, 16) = ";

    #[test]
    fn a_clean_client_has_none_of_these() {
        let codes: Vec<_> = found(&clean(5))
            .into_iter()
            .map(|f| f.code.into_owned())
            .collect();
        for code in [
            "UNIX_BACKLOG_EAGAIN",
            "CONNECTION_REFUSED",
            "CONNECT_TIMED_OUT",
            "CONNECTION_PER_OPERATION",
            "CONNECTIONS_NEVER_CLOSED",
            "SERVER_CLOSED_IDLE",
        ] {
            assert!(!codes.contains(&code.to_owned()), "{code}");
        }
    }

    /// A client that makes a connection for each so many operations and closes it again.
    fn reconnecting(connections: u32, operations: u32) -> String {
        let operation = "sendto(3, \"*1\\r\\n$4\\r\\nPING\\r\\n\", 14, MSG_DONTWAIT, NULL, 0) = 14\n\
                         recvfrom(3, \"+PONG\\r\\n\", 8192, 0, NULL, NULL) = 7\n";
        let one = format!(
            "socket(AF_INET, SOCK_STREAM, 0) = 3\n{CONNECT}0\n{}close(3) = 0\n",
            operation.repeat(operations as usize)
        );
        one.repeat(connections as usize)
    }

    #[test]
    fn connecting_again_and_again_is_told_with_its_rate() {
        for (connections, operations, rate, words) in [
            (10, 1, 1.0, "a new connection for every operation"),
            (
                10,
                2,
                0.5,
                "0.50 times per operation (10 connections for 20 operations)",
            ),
            (
                10,
                10,
                0.1,
                "0.10 times per operation (10 connections for 100 operations)",
            ),
        ] {
            let found = found(&reconnecting(connections, operations));
            let finding = find(&found, "CONNECTION_PER_OPERATION").unwrap();
            assert_eq!(finding.evidence["connects_per_op"], rate);
            assert!(finding.says.ends_with(words), "{}", finding.says);
        }
        // A connection or two are a start, and so is a pool that is filled and kept.
        assert!(!has(&reconnecting(2, 2), "CONNECTION_PER_OPERATION"));
        let pool = reconnecting(10, 10).replace("close(3) = 0\n", "");
        assert!(!has(&pool, "CONNECTION_PER_OPERATION"));
    }

    #[test]
    fn a_refusal_that_only_so_error_tells() {
        let text = format!(
            "socket(AF_INET, SOCK_STREAM, 0) = 3\n{CONNECT}-1 EINPROGRESS (Operation now in progress)\n\
             poll([{{fd=3, events=POLLOUT}}], 1, 1000) = 1 ([{{fd=3, revents=POLLERR|POLLHUP}}])\n\
             getsockopt(3, SOL_SOCKET, SO_ERROR, [ECONNREFUSED], [4]) = 0\n"
        );
        let finding = find(&found(&text), "CONNECTION_REFUSED").unwrap();
        assert!(finding.says.contains("SO_ERROR"));
        assert!(finding.says.contains("10.0.0.9:6379"));
    }

    #[test]
    fn xdebug_without_a_listener() {
        let text = format!(
            "{}-1 ECONNREFUSED (Connection refused)\n",
            CONNECT.replace("6379", "9003")
        );
        assert!(
            find(&found(&text), "CONNECTION_REFUSED")
                .unwrap()
                .says
                .contains("xdebug")
        );
    }

    #[test]
    fn syn_retries_are_a_time() {
        let text = format!("{CONNECT}0 <3.004000>\n");
        assert!(has(&text, "CONNECT_TIMED_OUT"));
        assert!(!has(&format!("{CONNECT}0 <0.004000>\n"), "CONNECT_TIMED_OUT"));
    }

    #[test]
    fn connections_that_pile_up() {
        let mut text = String::new();
        for fd in 10..40 {
            text.push_str(&format!(
                "socket(AF_INET, SOCK_STREAM, 0) = {fd}\n{}0\n",
                CONNECT.replace("connect(3", &format!("connect({fd}"))
            ));
        }
        assert!(has(&text, "CONNECTIONS_NEVER_CLOSED"));
    }

    #[test]
    fn a_server_whose_clients_leave_is_fine() {
        let text = "accept4(3, NULL, NULL, 0) = 7\nread(7, \"\", 16384) = 0\nclose(7) = 0\n";
        assert!(!has(text, "SERVER_CLOSED_IDLE"));
    }
}
