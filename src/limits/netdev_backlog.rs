//! `netdev_max_backlog`: packets a CPU may leave for later. How many meet in one moment cannot be planned;
//! what was dropped so far can be read.

use super::reading::Reading;
use super::{Limit, Load};
use crate::proc::{ReadError, Root, sysctl};
use crate::record::LimitReading;

pub(super) struct NetdevBacklog;

impl Limit for NetdevBacklog {
    fn id(&self) -> &'static str {
        "netdev_backlog"
    }

    fn title(&self) -> &'static str {
        "netdev_max_backlog"
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
            dropped(root),
        ) {
            (Ok(max), Ok(dropped)) => reading.not_applicable(format!(
                "{max} packets per CPU; not a matter of planning; {dropped} dropped since boot"
            )),
            (Err(e), _) | (_, Err(e)) => reading.unknown(e.to_string()),
        }
    }
}

/// Packets dropped for a full backlog, all CPUs.
fn dropped(root: &Root) -> Result<u64, ReadError> {
    const PATH: &str = "proc/net/softnet_stat";
    let text = root.read(PATH)?;
    let mut sum = 0_u64;
    for line in text.lines() {
        let column = line
            .split_whitespace()
            .nth(1)
            .and_then(|word| u64::from_str_radix(word, 16).ok());
        sum = sum.saturating_add(column.ok_or_else(|| ReadError::content(PATH, "columns of numbers", line))?);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;

    #[test]
    fn drops_of_all_cpus_are_added() {
        let tree = Tree::new().with(
            "proc/net/softnet_stat",
            "0010665a 0000000a 1\n000fcab2 00000001 0\n",
        );
        assert_eq!(dropped(&tree.root()).unwrap(), 11);
        assert!(dropped(&Tree::new().with("proc/net/softnet_stat", "1\n").root()).is_err());
    }
}
