//! NAGLE_DELAYED_ACK and its denial: the 40 ms that two small writes can cost.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::super::row::round2;
use super::{Table, Trace, WAITS, ms, traces};
use crate::import::TimeKind;
use crate::record::Record;
use crate::units::{Nanos, total};

pub(super) struct Nagle;

const DOCS: &[Doc] = &[
    Doc {
        code: "NAGLE_DELAYED_ACK",
        means: "The client sends a request in two or more small pieces; Nagle's algorithm holds the second back until the \
                first is acknowledged, and the other side delays that by 40 ms.",
        measured: "Waits of 38 to 50 ms after two or more sends; in a table, the mean or longest wait near 40 ms together \
                   with more than one send per reply. 40 ms is Linux's shortest delayed ACK; in a counted pass two or more waits of 35 to 50 ms after several sends on a socket without TCP_NODELAY.",
        wrong_when: "The server needs 40 ms for its answer.",
        todo: "Send the request in one piece (writev, a larger buffer), or set TCP_NODELAY.",
    },
    Doc {
        code: "NAGLE_NOT_THE_CAUSE",
        means: "TCP_NODELAY is not set, which people like to blame, and no wait shows the stall it would cause.",
        measured: "Times between the last send of a request and its reply, none near 40 ms.",
        wrong_when: "The log covers only a part of the run.",
        todo: "Look elsewhere.",
    },
    Doc {
        code: "NAGLE_UNDECIDED",
        means: "Requests leave in several sends without TCP_NODELAY, and nothing tells how long their replies took.",
        measured: "Sends per reply; the missing times; in a bench latencies near 40 ms under an engine that does not see sends.",
        wrong_when: "The server is reached over a UNIX socket, where Nagle's algorithm does not exist.",
        todo: "Trace again with strace -T (or -c -w) and look for waits of 40 ms.",
    },
];

/// Around Linux's shortest delayed ACK (40 ms), with the time of the reply itself.
fn is_ack_wait(wait: Nanos) -> bool {
    (38_000_000..=50_000_000).contains(&wait.0)
}

impl Rule for Nagle {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| match trace.facts() {
                Some(_) => log(&trace).into_iter().collect::<Vec<_>>(),
                None => trace.tables().filter_map(|table| of_table(&table)).collect(),
            })
            .collect()
    }
}

fn log(trace: &Trace<'_>) -> Option<Finding> {
    let tcp: Vec<_> = trace
        .peers()
        .filter(|(_, peer)| !peer.unix && peer.turns > 0)
        .collect();
    if let Some((name, peer)) = tcp.iter().max_by_key(|(_, peer)| peer.ack_waits_after_several)
        && peer.ack_waits_after_several > 0
    {
        let set = if peer.nodelay > 0 {
            "TCP_NODELAY was set on some of its sockets, not on all"
        } else if peer.without_nodelay > 0 {
            "TCP_NODELAY was never set on its sockets"
        } else {
            "whether TCP_NODELAY was set before the log is not known"
        };
        return Some(
            trace
                .finding("NAGLE_DELAYED_ACK", Severity::Warning)
                .with("waits_near_40_ms", peer.ack_waits_after_several)
                .with("turns", peer.turns)
                .with("most_sends_before_a_reply", peer.most_sends_in_turn)
                .says(format!(
                    "{} of {} replies from {name} came about 40 ms after the last of several sends: Nagle's algorithm and a \
                     delayed ACK; {set}",
                    peer.ack_waits_after_several, peer.turns
                ))
                .try_next("TCP_NODELAY (in PHP the stream context option tcp_nodelay), or one send for the whole request"),
        );
    }
    let timed = total(tcp.iter().map(|(_, peer)| peer.timed_turns));
    let without = total(tcp.iter().map(|(_, peer)| peer.without_nodelay));
    let several = total(tcp.iter().map(|(_, peer)| peer.turns_with_several_sends));
    let near = total(tcp.iter().map(|(_, peer)| peer.ack_waits_after_one));
    if timed == 0 {
        return (several > 0 && without > 0).then(|| {
            trace
                .finding("NAGLE_UNDECIDED", Severity::Info)
                .with("turns_with_several_sends", several)
                .says("requests leave in several sends without TCP_NODELAY, and the log has no times: whether each costs 40 ms cannot be told")
                .try_next("strace -f -tt -T shows it")
        });
    }
    let longest = tcp.iter().filter_map(|(_, peer)| peer.longest_turn_wait).max()?;
    if without == 0 || near > 0 {
        return None;
    }
    Some(
        trace
            .finding("NAGLE_NOT_THE_CAUSE", Severity::Info)
            .with("longest_wait_ms", round2(longest.0 as f64 / 1e6))
            .with("timed_replies", timed)
            .says(format!(
                "TCP_NODELAY is not set, but no reply was held back for 40 ms (the longest wait of {timed} was {}): Nagle's \
                 algorithm is not the cause",
                ms(longest.0)
            )),
    )
}

fn of_table(table: &Table<'_>) -> Option<Finding> {
    let ops = table.ops()?;
    let sends = ops.per_op(table.sends());
    let waits: Vec<_> = table
        .rows()
        .iter()
        .filter(|row| {
            WAITS.contains(&row.syscall.as_str()) || table.receives() == row.calls() && row.calls() > 0
        })
        .collect();
    let mean = waits.iter().find(|row| row.mean().is_some_and(is_ack_wait));
    let longest = waits.iter().find(|row| row.longest.is_some_and(is_ack_wait));
    let held = mean.or(longest);
    match held {
        Some(row) if sends >= 1.5 => {
            let time = row.mean().filter(|mean| is_ack_wait(*mean)).or(row.longest).unwrap_or_default();
            let options = table.calls(&["setsockopt"]);
            let nodelay = if options == 0 {
                "no setsockopt is in the table, so TCP_NODELAY was not set on the socket"
            } else {
                "whether one of the setsockopt calls was TCP_NODELAY cannot be seen in a table"
            };
            Some(
                table
                    .finding("NAGLE_DELAYED_ACK", Severity::Warning)
                    .with("wait_ms", round2(time.0 as f64 / 1e6))
                    .with("sends_per_op", round2(sends))
                    .with("setsockopt_calls", options)
                    .says(format!(
                        "{} takes {} a call, which is Linux's shortest delayed ACK, and there are {sends:.1} {} {}: header and \
                         body are sent apart, and Nagle's algorithm with a delayed ACK is suspected; {nodelay}",
                        row.syscall,
                        ms(time.0),
                        send_name(table),
                        ops.unit()
                    ))
                    .try_next("TCP_NODELAY (in PHP the stream context option tcp_nodelay), or one send for the whole request; strace -T confirms it"),
            )
        }
        Some(_) => None,
        None if sends >= 1.5 && table.trace.imported.time_kind != TimeKind::Wall => Some(
            table
                .finding("NAGLE_UNDECIDED", Severity::Info)
                .with("sends_per_op", round2(sends))
                .says(format!(
                    "{sends:.1} sends {}, and the times here do not show how long replies took: whether Nagle's algorithm \
                     holds the second send back for 40 ms cannot be told",
                    ops.unit()
                ))
                .try_next(format!("{} shows it", table.trace.wall_hint())),
        ),
        None => None,
    }
}

/// The send that the table has most of.
fn send_name<'a>(table: &Table<'a>) -> &'a str {
    table
        .rows()
        .iter()
        .filter(|row| table.send_names().contains(&row.syscall.as_str()))
        .max_by_key(|row| row.calls())
        .map_or("sends", |row| row.syscall.as_str())
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    fn two_sends(wait_us: u32, nodelay: bool) -> String {
        let mut text = String::from(
            "10:00:00.000000 socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 4 <0.000010>\n\
             10:00:00.000020 connect(4, {sa_family=AF_INET, sin_port=htons(11211), sin_addr=inet_addr(\"127.0.0.1\")}, 16) = 0 <0.000050>\n",
        );
        if nodelay {
            text.push_str("10:00:00.000080 setsockopt(4, SOL_TCP, TCP_NODELAY, [1], 4) = 0 <0.000005>\n");
        }
        text.push_str(&format!(
            "10:00:00.000100 sendto(4, \"set k 0 0 1\\r\\n\", 13, 0, NULL, 0) = 13 <0.000010>\n\
             10:00:00.000120 sendto(4, \"x\\r\\n\", 3, 0, NULL, 0) = 3 <0.000010>\n\
             10:00:00.000140 recvfrom(4, \"STORED\\r\\n\", 8192, 0, NULL, NULL) = 8 <0.{wait_us:06}>\n"
        ));
        text
    }

    #[test]
    fn a_wait_of_forty_milliseconds_after_two_sends() {
        let finding = find(&found(&two_sends(40_100, false)), "NAGLE_DELAYED_ACK").unwrap();
        assert!(finding.says.contains("never set"));
    }

    #[test]
    fn no_stall_means_no() {
        let quick = two_sends(40, false);
        assert!(!has(&quick, "NAGLE_DELAYED_ACK"));
        assert!(has(&quick, "NAGLE_NOT_THE_CAUSE"));
        assert!(!has(&two_sends(40, true), "NAGLE_NOT_THE_CAUSE"));
        assert!(!has(&clean(5), "NAGLE_DELAYED_ACK"));
    }

    #[test]
    fn without_times_it_cannot_be_told() {
        let text: String = two_sends(0, false)
            .lines()
            .map(|line| format!("{}\n", line[16..].split(" <").next().unwrap()))
            .collect();
        assert!(has(&text, "NAGLE_UNDECIDED"));
    }
}
