//! `netdev_max_backlog`: packets a CPU may leave for later. How many meet in one moment cannot be planned;
//! what was dropped so far can be read.

use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, net, sysctl};
use crate::record::LimitReading;

pub(super) struct NetdevBacklog;

impl Limit for NetdevBacklog {
    fn id(&self) -> &'static str {
        "netdev_backlog"
    }

    fn title(&self) -> &'static str {
        "netdev_max_backlog"
    }

    fn unit(&self) -> Unit {
        Unit::Of("packets")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "machine",
            "/proc/sys/net/core/netdev_max_backlog, column 2 of /proc/net/softnet_stat",
        );
        if !load.tcp {
            return reading.not_applicable("UNIX sockets send no packets");
        }
        match (
            sysctl::integer(root, "net.core.netdev_max_backlog"),
            net::softnet_dropped(root),
        ) {
            (Ok(max), Ok(dropped)) => reading.not_applicable(format!(
                "{max} packets per CPU; not a matter of planning; {dropped} dropped since boot"
            )),
            (Err(e), _) | (_, Err(e)) => reading.unknown(e.to_string()),
        }
    }
}
