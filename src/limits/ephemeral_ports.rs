//! Local ports: each connection to one server address needs one, and one that this side closed first is
//! blocked in TIME_WAIT for 60 s, or for a second where reuse applies.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct EphemeralPorts;

/// TCP_TIMEWAIT_LEN, fixed in the kernel; `tcp_fin_timeout` does not change it.
const TIME_WAIT_MS: u64 = 60_000;

impl Limit for EphemeralPorts {
    fn id(&self) -> &'static str {
        "ephemeral_ports"
    }

    fn title(&self) -> &'static str {
        "ip_local_port_range"
    }

    fn unit(&self) -> Unit {
        Unit::Of("local ports")
    }

    fn headline(&self) -> bool {
        true
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "client's netns",
            "/proc/sys/net/ipv4/ip_local_port_range, ip_local_reserved_ports, tcp_tw_reuse",
        );
        if !load.tcp {
            return reading.not_applicable("UNIX sockets use no ports");
        }
        let (ports, reuse) = match (sysctl::local_ports(root), Reuse::read(root, load.loopback)) {
            (Ok(ports), Ok(reuse)) => (ports.usable.saturating_mul(load.destinations.max(1)), reuse),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        let reading = reading.capacity(ports);
        let open = load.open();
        let hold = if load.server_closes_first {
            0
        } else {
            reuse.hold_ms
        };
        let sustainable = sustainable(ports, hold);
        let rate = match (load.connect_per_op, load.connects_per_second) {
            (false, _) => 0,
            (true, Some(rate)) => rate,
            (true, None) if open > ports => 0,
            // However fast they come: a port each is the most that can be blocked.
            (true, None)
                if load
                    .connects_in_all
                    .is_some_and(|all| open.saturating_add(all) <= ports) =>
            {
                0
            }
            (true, None) => {
                return reading.unknown(format!(
                    "how many connections a second the clients make is not known (--rate says it); {} can last ({})",
                    sustainable, reuse.words
                ));
            }
        };
        let waiting = u64::try_from(u128::from(rate) * u128::from(hold) / 1000).unwrap_or(u64::MAX);
        // Over tcp_max_tw_buckets the kernel frees sockets at once: less blocked, and no error.
        let bounded = match sysctl::integer(root, "net.ipv4.tcp_max_tw_buckets") {
            Ok(buckets) if waiting > buckets && open.saturating_add(buckets) <= ports => Some(buckets),
            _ => None,
        };
        let in_all = match (
            load.connect_per_op,
            load.connects_per_second,
            load.connects_in_all,
        ) {
            (true, None, Some(all)) if open <= ports && hold > 0 => all,
            _ => 0,
        };
        let demand = open
            .saturating_add(bounded.unwrap_or(waiting))
            .saturating_add(in_all);
        let formula = match (rate, bounded) {
            (0, _) if in_all > 0 => {
                format!("{open} open + {in_all} connections in all, each blocked at most once")
            }
            (0, _) => format!("{open} open"),
            (_, Some(buckets)) => format!("{open} open + {buckets} in TIME_WAIT (tcp_max_tw_buckets)"),
            (_, None) => format!("{open} open + {rate} connects/s x {} s", seconds(hold)),
        };
        reading
            .demand(demand, formula)
            .fix(
                fix_now(ports, load, &reuse, rate),
                if reuse.applies || rate == 0 {
                    "net.ipv4.ip_local_port_range = 1024 65535 in /etc/sysctl.d/90-ports.conf"
                } else if reuse.timestamps {
                    "net.ipv4.tcp_tw_reuse = 1 in /etc/sysctl.d/90-ports.conf (clients only)"
                } else {
                    "net.ipv4.tcp_timestamps = 1 and net.ipv4.tcp_tw_reuse = 1 in /etc/sysctl.d/90-ports.conf (clients \
                     only)"
                },
                "docker run --sysctl net.ipv4.ip_local_port_range=\"1024 65535\"; in Kubernetes the range is a \
                 \"safe\" sysctl",
            )
            .decide(|verdict| effect(verdict, load, ports, rate, &sustainable, &reuse))
    }
}

/// How long a port is blocked after its connection was closed here.
struct Reuse {
    hold_ms: u64,
    /// How long it would be with reuse.
    delay_ms: u64,
    applies: bool,
    timestamps: bool,
    words: String,
}

impl Reuse {
    fn read(root: &Root, loopback: bool) -> Result<Reuse, crate::proc::ReadError> {
        let mode = sysctl::integer(root, "net.ipv4.tcp_tw_reuse")?;
        // Reuse decides by timestamps and is off without them.
        let timestamps = sysctl::integer(root, "net.ipv4.tcp_timestamps")? != 0;
        let applies = timestamps && (mode == 1 || (mode == 2 && loopback));
        // Kernels before 6.14 have one second built in.
        let delay = match sysctl::integer(root, "net.ipv4.tcp_tw_reuse_delay") {
            Ok(delay) => delay,
            Err(e) if e.is_absent() => 1000,
            Err(e) => return Err(e),
        };
        Ok(Reuse {
            hold_ms: if applies { delay } else { TIME_WAIT_MS },
            delay_ms: delay,
            applies,
            timestamps,
            words: match (mode, applies) {
                (2, true) => "loopback reuse on (tcp_tw_reuse=2)".to_owned(),
                (2, false) if timestamps => "tcp_tw_reuse=2 helps loopback addresses only".to_owned(),
                (_, true) => format!("reuse on (tcp_tw_reuse={mode})"),
                (_, false) if mode != 0 => "reuse needs tcp_timestamps=1".to_owned(),
                (_, false) => "no reuse (tcp_tw_reuse=0)".to_owned(),
            },
        })
    }
}

/// Connections a second that can last.
fn sustainable(ports: u64, hold_ms: u64) -> String {
    match (ports.saturating_mul(1000)).checked_div(hold_ms) {
        Some(rate) => format!("{rate} connects/s"),
        None => "any number of connects".to_owned(),
    }
}

fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) {
        (ms / 1000).to_string()
    } else {
        format!("{:.3}", ms as f64 / 1000.0)
    }
}

fn fix_now(ports: u64, load: &Load, reuse: &Reuse, rate: u64) -> String {
    const WIDEST: u64 = 65535 - 1024 + 1;
    const WIDER: &str = "a wider range: sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\" (and the ports of services in \
                         it into ip_local_reserved_ports)";
    let mut parts = Vec::new();
    if load.connect_per_op {
        parts.push("persistent connections".to_owned());
    }
    // Against connections that stay open only more ports help, or fewer connections.
    if rate == 0 || reuse.applies {
        parts.push(WIDER.to_owned());
    } else {
        let with_reuse = sustainable(ports, reuse.delay_ms).replace(" connects/s", "/s");
        let on = if reuse.timestamps {
            ""
        } else {
            "net.ipv4.tcp_timestamps=1 "
        };
        parts.push(format!(
            "tcp_tw_reuse=1 ({with_reuse}): sysctl -w {on}net.ipv4.tcp_tw_reuse=1"
        ));
        let widest = WIDEST
            .saturating_mul(load.destinations.max(1))
            .saturating_mul(1000)
            / TIME_WAIT_MS;
        parts.push(if rate > widest {
            format!("range 1024-65535 alone gives only {widest}/s: not enough")
        } else {
            format!("range 1024-65535 alone gives {widest}/s: enough")
        });
    }
    parts.push("several server addresses or ports (each has all ports again)".to_owned());
    parts.join("; ")
}

fn effect(verdict: Verdict, load: &Load, ports: u64, rate: u64, sustainable: &str, reuse: &Reuse) -> String {
    let begin = if rate > 0 {
        format!(
            "{ports} ports; connect-per-op makes ~{rate} connects/s; {}",
            reuse.words
        )
    } else {
        format!("{ports} ports; {} connections stay open", load.open())
    };
    match verdict {
        Verdict::Fail if rate > 0 => {
            let when = match ports.saturating_sub(load.open()) / rate {
                0 => "in the first second".to_owned(),
                seconds => format!("after about {seconds} s"),
            };
            format!(
                "connect EADDRNOTAVAIL (\"Cannot assign requested address\", redis-py \"Error 99 connecting to\") {when}: \
                 {begin}: {sustainable} can last"
            )
        }
        Verdict::Fail => format!(
            "connect EADDRNOTAVAIL (\"Cannot assign requested address\", redis-py \"Error 99 connecting to\"): {begin}"
        ),
        Verdict::Warn if rate > 0 => format!("{begin}: close to the {sustainable} that can last"),
        Verdict::Warn => format!("{begin}: close"),
        Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => format!("{begin}: fits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    fn per_op(processes: u64, rate: u64, loopback: bool) -> Load {
        Load {
            processes,
            connect_per_op: true,
            connects_per_second: Some(rate),
            loopback,
            same_host: loopback,
            ..Load::default()
        }
    }

    #[test]
    fn another_host_allows_470_a_second() {
        let reading = EphemeralPorts.check(&Tree::defaults().root(), &per_op(100, 2000, false));
        assert_eq!(
            (reading.demand.known(), reading.capacity.known()),
            (Some(&120_100), Some(&28_232))
        );
        assert_eq!(reading.verdict, Verdict::Fail);
        assert!(reading.effect.contains("EADDRNOTAVAIL"));
        assert!(reading.effect.contains("after about 14 s"), "{}", reading.effect);
        assert!(
            reading.effect.contains("470 connects/s can last"),
            "{}",
            reading.effect
        );
        for words in [
            "persistent connections",
            "tcp_tw_reuse=1 (28232/s)",
            "range 1024-65535 alone gives only 1075/s: not enough",
        ] {
            assert!(reading.fix.now.contains(words), "{words}: {}", reading.fix.now);
        }
    }

    #[test]
    fn loopback_reuses_ports_after_a_second() {
        let reading = EphemeralPorts.check(&Tree::defaults().root(), &per_op(1000, 15_000, true));
        assert_eq!(reading.demand.known(), Some(&16_000));
        assert_eq!(reading.verdict, Verdict::Ok);
        assert_eq!(
            reading.effect,
            "28232 ports; connect-per-op makes ~15000 connects/s; loopback reuse on (tcp_tw_reuse=2): fits"
        );
    }

    #[test]
    fn reuse_needs_timestamps_and_its_delay_counts() {
        let off = Tree::defaults().with("proc/sys/net/ipv4/tcp_timestamps", "0\n");
        assert_eq!(
            EphemeralPorts.check(&off.root(), &per_op(1, 1000, true)).verdict,
            Verdict::Fail
        );
        let quick = Tree::defaults().with("proc/sys/net/ipv4/tcp_tw_reuse_delay", "10\n");
        let reading = EphemeralPorts.check(&quick.root(), &per_op(1, 100_000, true));
        assert_eq!(reading.demand.known(), Some(&1001));
        let old = Tree::defaults().without("proc/sys/net/ipv4/tcp_tw_reuse_delay");
        let reading = EphemeralPorts.check(&old.root(), &per_op(1, 100, true));
        assert_eq!(reading.demand.known(), Some(&101));
    }

    #[test]
    fn a_server_that_closes_first_keeps_the_time_wait() {
        let load = Load {
            server_closes_first: true,
            ..per_op(100, 20_000, false)
        };
        let reading = EphemeralPorts.check(&Tree::defaults().root(), &load);
        assert_eq!(reading.demand.known(), Some(&100));
        assert_eq!(reading.verdict, Verdict::Ok);
    }

    #[test]
    fn few_time_wait_buckets_free_ports_sooner() {
        let tree = Tree::defaults().with("proc/sys/net/ipv4/tcp_max_tw_buckets", "4096\n");
        let reading = EphemeralPorts.check(&tree.root(), &per_op(1, 2000, false));
        assert_eq!(reading.verdict, Verdict::Ok);
    }

    #[test]
    fn shards_multiply_ports_and_unix_needs_none() {
        let load = Load {
            destinations: 5,
            ..per_op(100, 2000, false)
        };
        assert_eq!(
            EphemeralPorts.check(&Tree::defaults().root(), &load).verdict,
            Verdict::Warn
        );
        let load = Load {
            tcp: false,
            ..per_op(100, 2000, false)
        };
        assert_eq!(
            EphemeralPorts.check(&Tree::defaults().root(), &load).verdict,
            Verdict::NotApplicable
        );
    }

    #[test]
    fn a_fix_is_one_that_helps() {
        let held = Load {
            processes: 300,
            connections_per_process: 100,
            ..Load::default()
        };
        let now = EphemeralPorts.check(&Tree::defaults().root(), &held).fix.now;
        assert!(now.starts_with("a wider range"), "{now}");
        assert!(!now.contains("reuse") && !now.contains("persistent"), "{now}");
        let off = Tree::defaults().with("proc/sys/net/ipv4/tcp_timestamps", "0\n");
        let now = EphemeralPorts.check(&off.root(), &per_op(1, 1000, true)).fix.now;
        assert!(
            now.contains("sysctl -w net.ipv4.tcp_timestamps=1 net.ipv4.tcp_tw_reuse=1"),
            "{now}"
        );
        assert!(now.contains("alone gives 1075/s: enough"), "{now}");
    }

    #[test]
    fn an_unknown_rate_is_unknown_and_says_what_can_last() {
        let load = Load {
            connects_per_second: None,
            ..per_op(100, 0, false)
        };
        let reading = EphemeralPorts.check(&Tree::defaults().root(), &load);
        assert_eq!(reading.verdict, Verdict::Unknown);
        assert!(
            reading.effect.contains("470 connects/s can last"),
            "{}",
            reading.effect
        );
    }
}
