//! EPHEMERAL_EXHAUSTED_TW, EPHEMERAL_EXHAUSTED_OPEN, EADDRNOTAVAIL_NO_SOURCE: connect() found no local
//! address or port.
//!
//! One errno, three causes, told apart by what occupies the ports to that destination. No kernel counter
//! grows.

use super::evidence::Fact;
use super::finding::{Doc, Finding, Rule, Severity};
use super::row::{Mode, Row, round2};
use super::symptom::Symptom;
use crate::record::Record;

pub(super) struct EphemeralPorts;

const DOCS: &[Doc] = &[
    Doc {
        code: "EPHEMERAL_EXHAUSTED_TW",
        means: "All local ports towards the server wait in TIME_WAIT, because the client closes connections faster \
                than their ports come free.",
        measured: "EADDRNOTAVAIL while connecting, and sockets in TIME_WAIT to that address on at least 80 % of the \
                   usable ports; without that reading, a connection per operation.",
        wrong_when: "The readings were taken more than a minute after the failure.",
        todo: "Keep connections. Else tcp_tw_reuse=1 for addresses that are not loopback, or more server addresses; \
               a wider range helps only in proportion, and tcp_fin_timeout not at all.",
    },
    Doc {
        code: "EPHEMERAL_EXHAUSTED_OPEN",
        means: "All local ports towards the server belong to open connections.",
        measured: "EADDRNOTAVAIL while connecting, and established connections to that address on at least 80 % of \
                   the usable ports.",
        wrong_when: "The client binds to a port of its own choice that is taken.",
        todo: "Share connections, or spread them over several server addresses, ports or source addresses.",
    },
    Doc {
        code: "EADDRNOTAVAIL_NO_SOURCE",
        means: "This machine has no address from which that server can be reached, while ports are free.",
        measured: "EADDRNOTAVAIL while connecting, with less than half of the usable ports taken, or no source \
                   address for the destination.",
        wrong_when: "The ports came free between failure and reading.",
        todo: "Use 127.0.0.1 in place of localhost when IPv6 is off; look at the addresses of the interfaces.",
    },
];

impl Rule for EphemeralPorts {
    fn docs(&self) -> &'static [Doc] {
        DOCS
    }

    fn check(&self, record: &Record) -> Vec<Finding> {
        Row::run(record).filter_map(|row| check(&row)).collect()
    }
}

enum Cause {
    TimeWait,
    Open,
    NoSource,
}

fn check(row: &Row<'_>) -> Option<Finding> {
    if row.is_unix() == Some(true) {
        return None;
    }
    let seen = row.met(Symptom::NoAddress, &["connect", "bind"])?;
    let ports = row.number(Fact::PortsUsable).or_else(|| capacity(row));
    let time_wait = row
        .number(Fact::TcpTimeWait)
        .or_else(|| row.record.counters.after.get("sockstat.TCP.tw").copied());
    let open = row.number(Fact::TcpEstablished);
    let recycled = row.record.counters.grew("TcpExt.TWRecycled");
    let reuse = row.number(Fact::TwReuse);
    let cause = cause(row, ports, time_wait, open)?;
    let code = match cause {
        Cause::TimeWait => "EPHEMERAL_EXHAUSTED_TW",
        Cause::Open => "EPHEMERAL_EXHAUSTED_OPEN",
        Cause::NoSource => "EADDRNOTAVAIL_NO_SOURCE",
    };
    let endpoint = row.endpoint();
    let of = |n: Option<u64>| match (n, ports) {
        (Some(n), Some(ports)) if ports > 0 => {
            format!(
                "{n} of {ports} local ports ({:.0} %)",
                n as f64 * 100.0 / ports as f64
            )
        }
        (Some(n), _) => format!("{n} local ports"),
        (None, _) => "the local ports".to_owned(),
    };
    let (says, try_next) = match cause {
        Cause::TimeWait => (
            format!(
                "no free local port towards {endpoint}: {} wait in TIME_WAIT, since the client closes its connection \
                 after each operation{}",
                of(time_wait),
                reuse_words(row, reuse)
            ),
            "keep connections (persistent, pconnect, a pool); else tcp_tw_reuse=1, then a wider \
             ip_local_port_range; look for what makes the client reconnect",
        ),
        Cause::Open => (
            format!(
                "no free local port towards {endpoint}: {} belong to open connections",
                of(open)
            ),
            "share connections between clients, or spread them over several server addresses or ports",
        ),
        Cause::NoSource => (
            format!(
                "this machine has no source address for {endpoint}; its ports are free ({} in TIME_WAIT)",
                of(time_wait)
            ),
            "connect to 127.0.0.1 in place of localhost when IPv6 is off, and look at `ip address`",
        ),
    };
    Some(
        Finding::about(row, code, Severity::Error)
            .with("failed_connects", seen.count)
            .explains(seen.count)
            .with("client_says", seen.text)
            .with_known("ports_usable", ports)
            .with_known("time_wait", time_wait)
            .with_known("established", open)
            .with_known("time_wait_recycled", recycled)
            .with_known("tcp_tw_reuse", reuse)
            .with_known("source_address", row.fact(Fact::SourceAddress))
            .with_known("lost_share", row.lost_share().map(round2))
            .says(says)
            .try_next(try_next)
            .clears(row.cleared(&["ephemeral_ports"])),
    )
}

fn capacity(row: &Row<'_>) -> Option<u64> {
    row.record
        .limits
        .iter()
        .find(|reading| reading.id == "ephemeral_ports")?
        .capacity
        .known()
        .copied()
}

fn cause(row: &Row<'_>, ports: Option<u64>, time_wait: Option<u64>, open: Option<u64>) -> Option<Cause> {
    let share = |n: Option<u64>| match (n, ports) {
        (Some(n), Some(ports)) if ports > 0 => Some(n as f64 / ports as f64),
        _ => None,
    };
    let (waiting, open) = (share(time_wait), share(open));
    if row.fact(Fact::SourceAddress) == Some("none") {
        return Some(Cause::NoSource);
    }
    let used = waiting.unwrap_or(0.0) + open.unwrap_or(0.0);
    if used >= 0.8 {
        return Some(if waiting.unwrap_or(0.0) >= open.unwrap_or(0.0) {
            Cause::TimeWait
        } else {
            Cause::Open
        });
    }
    if waiting.is_some() && open.is_some() && used < 0.5 {
        return Some(Cause::NoSource);
    }
    // Without readings: connects that succeeded before prove that there is a source address.
    let connected = row.counted().is_some_and(|counted| {
        let calls = [&counted.phases.startup, &counted.phases.run_loop];
        calls
            .iter()
            .filter_map(|phase| phase.syscalls.get("connect"))
            .any(|call| {
                let lost = call
                    .errors
                    .known()
                    .and_then(|errors| errors.get("EADDRNOTAVAIL"))
                    .copied()
                    .unwrap_or(0);
                call.calls > lost
            })
    });
    (connected || row.mode() == Mode::Connect).then_some(Cause::TimeWait)
}

fn reuse_words(row: &Row<'_>, reuse: Option<u64>) -> String {
    match (reuse, row.yes(Fact::Loopback)) {
        (Some(2), Some(false)) => ", and tcp_tw_reuse=2 helps loopback addresses only".to_owned(),
        (Some(2), _) => ", faster than loopback reuse (tcp_tw_reuse=2, after 1 s) frees them".to_owned(),
        (Some(0), _) => ", each for 60 s (tcp_tw_reuse=0)".to_owned(),
        (Some(_) | None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::testing::{codes, empty, explained, failed, row, set_errno, with_fact};

    fn refused_address() -> Record {
        failed(
            "predis/connect/tcp",
            "connect",
            "Cannot assign requested address [tcp://10.0.0.5:6379]",
        )
    }

    #[test]
    fn ports_in_time_wait() {
        let mut record = refused_address();
        for (fact, value) in [
            (Fact::PortsUsable, "28232"),
            (Fact::TcpTimeWait, "28189"),
            (Fact::TcpEstablished, "12"),
            (Fact::TwReuse, "2"),
            (Fact::Loopback, "no"),
        ] {
            record = with_fact(record, fact, value);
        }
        assert_eq!(codes(&record), ["EPHEMERAL_EXHAUSTED_TW"]);
        let says = &explained(&record)[0].says;
        assert!(says.contains("28189 of 28232 local ports (100 %)"), "{says}");
        assert!(says.contains("helps loopback addresses only"), "{says}");
    }

    #[test]
    fn ports_in_use() {
        let record = with_fact(refused_address(), Fact::PortsUsable, "51");
        let record = with_fact(
            with_fact(record, Fact::TcpEstablished, "51"),
            Fact::TcpTimeWait,
            "0",
        );
        assert_eq!(codes(&record), ["EPHEMERAL_EXHAUSTED_OPEN"]);
    }

    #[test]
    fn free_ports_mean_that_there_is_no_source_address() {
        let record = with_fact(refused_address(), Fact::PortsUsable, "28232");
        let record = with_fact(
            with_fact(record, Fact::TcpEstablished, "3"),
            Fact::TcpTimeWait,
            "7",
        );
        assert_eq!(codes(&record), ["EADDRNOTAVAIL_NO_SOURCE"]);
    }

    #[test]
    fn a_log_without_readings_still_has_its_connects() {
        let mut record = empty();
        let mut strategy = row("strace.log");
        strategy.axes.transport = String::new();
        set_errno(&mut strategy, "connect", 1, "EADDRNOTAVAIL");
        record.strategies.push(strategy);
        assert_eq!(
            codes(&record),
            [] as [&str; 0],
            "one failed connect alone proves nothing"
        );
        let call = record.strategies[0].counted.clone();
        let mut counted = call.known().cloned().unwrap();
        counted.phases.run_loop.syscalls.get_mut("connect").unwrap().calls = 2;
        record.strategies[0].counted = crate::units::Measured::Known(counted);
        assert_eq!(codes(&record), ["EPHEMERAL_EXHAUSTED_TW"]);
    }
}
