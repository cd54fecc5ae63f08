//! `tcp_max_tw_buckets`: sockets in TIME_WAIT. Beyond it the kernel frees them at once, which costs no
//! error and sets ports free sooner; so a load never fails here.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, sysctl};
use crate::record::LimitReading;

pub(super) struct TwBuckets;

impl Limit for TwBuckets {
    fn id(&self) -> &'static str {
        "tw_buckets"
    }

    fn title(&self) -> &'static str {
        "tcp_max_tw_buckets"
    }

    fn unit(&self) -> Unit {
        Unit::Of("sockets in TIME_WAIT")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "client's netns",
            "/proc/sys/net/ipv4/tcp_max_tw_buckets",
        );
        let rate = match load.connects_per_second {
            Some(rate) if load.tcp && load.connect_per_op && !load.server_closes_first => rate,
            Some(_) | None => {
                return reading.not_applicable("the load leaves no known number of sockets in TIME_WAIT");
            }
        };
        let buckets = match sysctl::integer(root, "net.ipv4.tcp_max_tw_buckets") {
            Ok(buckets) => buckets,
            Err(e) => return reading.unknown(e.to_string()),
        };
        let demand = rate.saturating_mul(60);
        reading
            .demand(demand, format!("{rate} connects/s x 60 s"))
            .fine(if demand > buckets {
                format!("over {buckets} sockets leave TIME_WAIT at once: no error, and ports are free sooner")
            } else {
                format!("all sockets in TIME_WAIT have their place among {buckets}")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;
    use crate::record::Verdict;

    #[test]
    fn more_than_there_are_is_no_failure() {
        let load = Load {
            connect_per_op: true,
            connects_per_second: Some(15_000),
            ..Load::default()
        };
        let reading = TwBuckets.check(&Tree::defaults().root(), &load);
        assert_eq!(
            (reading.verdict, reading.demand.known()),
            (Verdict::Ok, Some(&900_000))
        );
    }
}
