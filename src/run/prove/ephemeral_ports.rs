//! Local ports: a wider range, or their reuse where no range would do.

use super::{Case, Plan, Provable, Test, ample};

pub(super) struct EphemeralPorts;

const RANGE: &str = "net.ipv4.ip_local_port_range";
const REUSE: &str = "net.ipv4.tcp_tw_reuse";
const TIMESTAMPS: &str = "net.ipv4.tcp_timestamps";

/// The widest range that leaves the well-known ports alone.
const LOWEST: u64 = 1024;
const HIGHEST: u64 = 65_535;

impl Provable for EphemeralPorts {
    fn codes(&self) -> &'static [&'static str] {
        &["EPHEMERAL_EXHAUSTED_TW", "EPHEMERAL_EXHAUSTED_OPEN"]
    }

    fn limit(&self) -> &'static str {
        "ephemeral_ports"
    }

    fn plan(&self, case: &Case<'_>) -> Plan {
        let range = case
            .fact("ports.range")
            .and_then(|range| range.split_once('-'))
            .and_then(|(low, high)| Some((low.parse::<u64>().ok()?, high.parse::<u64>().ok()?)))
            .filter(|(low, high)| low <= high);
        let Some((low, high)) = range else {
            return Plan::NotPossible("the range of local ports was not read when it failed".to_owned());
        };
        let mut a = case.base.clone();
        a.sysctls.insert(RANGE.to_owned(), format!("{low} {high}"));
        let reuse = match (case.fact("ports.tw_reuse"), case.fact("address.loopback")) {
            // The second server is on 127.0.0.1, where 2 helps as it does not for other addresses.
            (Some("2"), Some("no")) => "0",
            (Some(mode), _) => mode,
            (None, _) => "2",
        };
        a.sysctls.insert(REUSE.to_owned(), reuse.to_owned());
        let ports = high - low + 1;
        // What the bench reads as demand is that of a load that lasts; a run uses a port for each connection.
        let used = operations(case).max(case.evidence("time_wait").unwrap_or(0));
        let wanted = ample(used.max(ports).saturating_add(case.clients()));
        let mut b = a.clone();
        if wanted < HIGHEST - LOWEST {
            let from = low.min(HIGHEST - wanted).max(LOWEST);
            b.sysctls
                .insert(RANGE.to_owned(), format!("{from} {}", from + wanted));
        } else {
            b.sysctls.insert(REUSE.to_owned(), "1".to_owned());
            b.sysctls.insert(TIMESTAMPS.to_owned(), "1".to_owned());
        }
        let mut opposite = a.clone();
        opposite
            .sysctls
            .insert(RANGE.to_owned(), format!("{low} {}", low + ports / 2));
        Plan::Test(Box::new(Test {
            a,
            b,
            alone: Vec::new(),
            opposite: (ports >= 8).then_some(opposite),
            counters: &[
                "TcpExt.TWRecycled",
                "TcpExt.TCPTimeWaitOverflow",
                "Tcp.ActiveOpens",
            ],
        }))
    }
}

/// Operations of all rounds: with a connection each, so many ports are used.
fn operations(case: &Case<'_>) -> u64 {
    let timed = case.row.timed.known();
    let rounds = timed.into_iter().flat_map(|timed| &timed.rounds);
    crate::units::total(rounds.map(|round| round.asked.0))
}
