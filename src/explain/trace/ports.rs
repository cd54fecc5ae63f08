//! EPHEMERAL_EXHAUSTED_TW in traces and pasted state: no local port is left towards a server.

use super::super::finding::{Doc, Finding, Rule, Severity};
use super::{Trace, plural, traces};
use crate::import::ImportFormat;
use crate::import::facts::UNKNOWN_PEER;
use crate::record::Record;
use crate::units::total;

pub(super) struct Ports;

impl Rule for Ports {
    fn docs(&self) -> &'static [Doc] {
        // Described where the rule for live runs stands.
        &[]
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        traces(record)
            .flat_map(|trace| calls(&trace).into_iter().chain(state(&trace)))
            .collect()
    }
}

/// Local ports where `ip_local_port_range` was left alone: 32768-60999.
const USUAL_PORTS: u64 = 28_232;

const ARITHMETIC: &str = "read ip_local_port_range and tcp_tw_reuse: with the usual 28232 ports and no reuse about 470 \
                          new connections per second to one server address can last; with tcp_tw_reuse=2 (the default \
                          since Linux 4.19) loopback ports are free again after 1 s, so there the rate must have been \
                          far higher or the range is small";

fn calls(trace: &Trace<'_>) -> Option<Finding> {
    let failed = trace.errno(&["connect", "connectx", "bind"], "EADDRNOTAVAIL");
    if failed == 0 {
        return None;
    }
    let peer = trace
        .peers()
        .find(|(_, peer)| peer.connects.contains_key("EADDRNOTAVAIL"));
    let peers: Vec<_> = trace.peers().collect();
    let once = total(peers.iter().map(|(_, peer)| peer.closed_after[1]));
    let unused = total(peers.iter().map(|(_, peer)| peer.closed_after[0]));
    let more = total(peers.iter().map(|(_, peer)| peer.closed_after[2]));
    let attempts = total(peers.iter().map(|(_, peer)| peer.connect_attempts()));
    let to = peer
        .map(|(name, _)| name)
        .filter(|name| *name != UNKNOWN_PEER)
        .unwrap_or("the server");
    let habit = if once > 0 && once >= more {
        "; the client closes the connection after each operation, and its ports then wait in TIME_WAIT for 60 s"
    } else if unused >= 3 && unused > more {
        "; connections are made and closed without an operation in between, so this is the consequence of a \
         reconnecting client"
    } else {
        ""
    };
    Some(
        trace
            .finding("EPHEMERAL_EXHAUSTED_TW", Severity::Error)
            .with("failed_connects", failed)
            .with("connect_attempts", attempts)
            .with("closed_after_one_operation", once)
            .says(format!(
                "{} failed with EADDRNOTAVAIL, after {} that worked: there is no free local port towards {to}{habit}",
                plural(failed, "connect"),
                crate::units::Grouped(attempts.saturating_sub(failed))
            ))
            .try_next(match trace.imported.format {
                ImportFormat::DtrussLog | ImportFormat::TrussLog | ImportFormat::Kdump => {
                    "keep connections (pconnect, a pool); look at the range of local ports (net.inet.ip.portrange on macOS and \
                     FreeBSD) and at how long TIME_WAIT lasts there (twice net.inet.tcp.msl)"
                        .to_owned()
                }
                _ => format!("keep connections (pconnect, a pool); {ARITHMETIC}"),
            })
            .clears(vec![
                "somaxconn and ulimit -n: they have no part in local ports".to_owned(),
            ]),
    )
}

fn state(trace: &Trace<'_>) -> Option<Finding> {
    let waiting = trace.value("time_wait_to_peer").or(trace.value("time_wait"))?;
    let shown = trace.value("ports");
    let ports = shown.unwrap_or(USUAL_PORTS);
    let share = waiting as f64 / ports.max(1) as f64;
    // The range is only guessed at where the number is the usual one, as when all ports to one peer wait.
    let guessed = shown.is_none();
    if share < 0.8 || guessed && !(0.97..=1.0).contains(&share) {
        return None;
    }
    let to_peer = trace.value("time_wait_to_peer").is_some();
    let peer = trace.word("time_wait_peer");
    let loopback = peer
        .map(|peer| peer.starts_with("127.") || peer.starts_with("[::1]") || peer.starts_with("localhost"));
    let reuse = trace.value("tcp_tw_reuse");
    let blocked = match (reuse, loopback) {
        (Some(0), _) => "tcp_tw_reuse=0 reuses none of them, so each port is blocked for 60 s",
        (Some(1), _) => "tcp_tw_reuse=1 reuses them after 1 s, so most of these ports can be used again",
        (Some(2), Some(false)) => {
            "tcp_tw_reuse=2 reuses ports only for loopback, and the peer is not loopback, so each port is blocked for 60 s"
        }
        (Some(2), Some(true)) => "tcp_tw_reuse=2 reuses them after 1 s, since the peer is loopback",
        (Some(2), None) => {
            "tcp_tw_reuse=2 reuses ports only for loopback; for other peers each is blocked for 60 s"
        }
        _ => "unless tcp_tw_reuse applies, each port is blocked for 60 s",
    };
    let again_soon = reuse == Some(1) || reuse == Some(2) && loopback == Some(true);
    let rate = ports / 60;
    let towards = match (to_peer, peer) {
        (true, Some(peer)) => format!("towards one peer ({peer})"),
        (true, None) => "towards one peer".to_owned(),
        (false, _) => "in all (the limit is per peer)".to_owned(),
    };
    Some(
        trace
            .finding(
                "EPHEMERAL_EXHAUSTED_TW",
                if guessed { Severity::Warning } else { Severity::Error },
            )
            .with("time_wait", waiting)
            .with("ports", ports)
            .with_known("tcp_tw_reuse", reuse)
            .with("sustained_connections_per_s", rate)
            .says(format!(
                "{waiting} of {ports} local ports ({:.1} %{}) are in TIME_WAIT {towards}; {blocked}{}",
                share * 100.0,
                if guessed {
                    ", if the range is the usual 32768-60999"
                } else {
                    ""
                },
                if again_soon {
                    String::new()
                } else {
                    format!(": more than about {rate} new connections per second cannot last")
                }
            ))
            .try_next(
                "first keep connections (pconnect, a pool); then tcp_tw_reuse=1; then a wider ip_local_port_range; \
                 tcp_fin_timeout does not shorten TIME_WAIT",
            ),
    )
}

#[cfg(test)]
mod tests {
    use crate::explain::trace::testing::{clean, find, found, has};

    #[test]
    fn ports_nearly_used_up_and_not() {
        let state = |waiting: u64| {
            format!(
                "# cat /proc/sys/net/ipv4/ip_local_port_range\n32768\t60999\n# cat /proc/sys/net/ipv4/tcp_tw_reuse\n1\n\
                 # ss -Htan state time-wait | wc -l\n{waiting}\n"
            )
        };
        let full = find(&found(&state(28_000)), "EPHEMERAL_EXHAUSTED_TW").unwrap();
        assert!(full.says.contains("99.2 %"), "{}", full.says);
        assert!(!has(&state(8), "EPHEMERAL_EXHAUSTED_TW"));
        // Without the range the usual one is guessed at, and only where the number speaks for it.
        let summary = |waiting: u64| {
            format!("TCP:   90000 (estab 12, closed {waiting}, orphaned 0, timewait {waiting})\n")
        };
        let guessed = find(&found(&summary(28_211)), "EPHEMERAL_EXHAUSTED_TW").unwrap();
        assert!(
            guessed.says.contains("if the range is the usual"),
            "{}",
            guessed.says
        );
        for waiting in [800, 25_000, 28_300, 52_000] {
            assert!(!has(&summary(waiting), "EPHEMERAL_EXHAUSTED_TW"), "{waiting}");
        }
    }

    #[test]
    fn a_clean_log_has_ports() {
        assert!(!has(&clean(5), "EPHEMERAL_EXHAUSTED_TW"));
    }
}
