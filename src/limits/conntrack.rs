//! `nf_conntrack_max`: connections that the packet filter follows, closed ones for two more minutes. Only
//! where a rule uses it; then also on loopback.

use super::reading::{Reading, enough};
use super::{Limit, Load, Unit};
use crate::proc::{Root, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct Conntrack;

impl Limit for Conntrack {
    fn id(&self) -> &'static str {
        "conntrack"
    }

    fn title(&self) -> &'static str {
        "nf_conntrack_max"
    }

    fn unit(&self) -> Unit {
        Unit::Of("followed connections")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "client's netns",
            "/proc/sys/net/netfilter/nf_conntrack_max, nf_conntrack_count",
        );
        if !load.tcp {
            return reading.not_applicable("UNIX sockets are not followed");
        }
        let read = |name| sysctl::integer(root, &format!("net.netfilter.{name}"));
        let count = match read("nf_conntrack_count") {
            Ok(count) => count,
            Err(e) if e.is_absent() && sysctl::integer(root, "net.core.somaxconn").is_ok() => {
                return reading.not_applicable("connection tracking is not loaded");
            }
            Err(e) => return reading.unknown(e.to_string()),
        };
        let (max, hold) = match (
            read("nf_conntrack_max"),
            read("nf_conntrack_tcp_timeout_time_wait"),
        ) {
            (Ok(max), Ok(hold)) => (max, hold),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        let reading = reading.capacity(max);
        let open = load.open();
        let rate = match (load.connect_per_op, load.connects_per_second) {
            (false, _) => 0,
            (true, Some(rate)) => rate,
            (true, None) if count.saturating_add(open) > max => 0,
            (true, None) if fits_in_all(load, count.saturating_add(open), max) => 0,
            (true, None) => {
                return reading.unknown(format!(
                    "how many connections a second the clients make is not known (--rate says it); {} a second can last",
                    max.saturating_sub(count) / hold.max(1)
                ));
            }
        };
        let in_all = match load.connects_per_second {
            None if load.connect_per_op => load.connects_in_all.unwrap_or(0),
            Some(_) | None => 0,
        };
        let demand = count
            .saturating_add(open)
            .saturating_add(rate.saturating_mul(hold))
            .saturating_add(in_all);
        let wanted = enough(demand, max);
        let mut formula = format!("{count} followed now + {open} open");
        if rate > 0 {
            formula.push_str(&format!(" + {rate} connects/s x {hold} s"));
        }
        if in_all > 0 {
            formula.push_str(&format!(" + {in_all} connections in all"));
        }
        let reading = reading
            .demand(demand, formula)
            .fix(
                format!("sysctl -w net.netfilter.nf_conntrack_max={wanted} on the host"),
                format!("net.netfilter.nf_conntrack_max = {wanted} in /etc/sysctl.d/90-conntrack.conf; or a notrack rule for the port"),
                "read-only in a container: set it on the host",
            );
        if count == 0 && demand > max {
            return reading.unknown(
                "nothing is followed at this moment, so perhaps no rule uses connection tracking; if one does, this \
                 load does not fit and connects stall",
            );
        }
        reading.decide(|verdict| match verdict {
            Verdict::Fail => {
                "SYNs are dropped in the client: connects stall and time out as with a full accept queue (phpredis \
                 \"Connection timed out\", redis-py \"Timeout connecting to server\"), while ListenOverflows stays 0"
                    .to_owned()
            }
            Verdict::Warn | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => {
                format!("{demand} of {max} followed connections")
            }
        })
    }
}

/// Whether all connections of a load fit together, however fast they come.
fn fits_in_all(load: &Load, now: u64, max: u64) -> bool {
    load.connects_in_all
        .is_some_and(|all| now.saturating_add(all) <= max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    fn tree(count: u64) -> Tree {
        Tree::defaults().tracking_connections(count)
    }

    fn load(rate: u64) -> Load {
        Load {
            processes: 100,
            connect_per_op: true,
            connects_per_second: Some(rate),
            ..Load::default()
        }
    }

    #[test]
    fn closed_connections_are_followed_for_two_minutes() {
        let reading = Conntrack.check(&tree(500).root(), &load(3000));
        assert_eq!(reading.demand.known(), Some(&(500 + 100 + 360_000)));
        assert_eq!(reading.verdict, Verdict::Fail);
        assert_eq!(
            Conntrack.check(&tree(500).root(), &load(1000)).verdict,
            Verdict::Ok
        );
    }

    #[test]
    fn not_loaded_or_not_used() {
        assert_eq!(
            Conntrack.check(&Tree::defaults().root(), &load(3000)).verdict,
            Verdict::NotApplicable
        );
        assert_eq!(
            Conntrack.check(&tree(0).root(), &load(3000)).verdict,
            Verdict::Unknown
        );
        assert_eq!(
            Conntrack.check(&Tree::new().root(), &load(3000)).verdict,
            Verdict::Unknown
        );
    }
}
