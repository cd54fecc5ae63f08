//! `vm.overcommit_memory`: whether a server can fork to save its data when little memory is free.

use super::facts::ServerKind;
use super::reading::Reading;
use super::{Limit, Load, Unit};
use crate::proc::{Root, host, sysctl};
use crate::record::{LimitReading, Verdict};

pub(super) struct Overcommit;

impl Limit for Overcommit {
    fn id(&self) -> &'static str {
        "overcommit"
    }

    fn title(&self) -> &'static str {
        "vm.overcommit_memory"
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "machine",
            "/proc/sys/vm/overcommit_memory, INFO used_memory",
        )
        .fix(
            "sysctl -w vm.overcommit_memory=1",
            "vm.overcommit_memory = 1 in /etc/sysctl.d/90-overcommit.conf",
            "not namespaced: set it on the host",
        );
        if load.server.kind == ServerKind::Memcached {
            return reading.not_applicable("memcached does not fork");
        }
        if !load.same_host {
            return reading.unknown("the server is on another machine");
        }
        match sysctl::integer(root, "vm.overcommit_memory") {
            Err(e) => reading.unknown(e.to_string()),
            Ok(1) => reading.fine("1: a server can always fork to save"),
            Ok(mode) => match (load.server.used_memory, host::meminfo(root, "MemAvailable")) {
                // Only a fork that the whole machine could not hold is refused; what one writes to
                // meanwhile is copied, and how much that is nobody can say before.
                (Some(used), Ok(available)) if mode == 0 && super::reading::verdict(used, available) != Verdict::Ok => {
                    reading.unknown(format!(
                        "0: the server uses {} KiB and {} KiB are available; what is written to while it saves is copied, \
                         and a fork to save may be refused: background saves fail then",
                        used >> 10,
                        available >> 10
                    ))
                }
                (Some(used), Ok(available)) if mode == 0 => reading
                    .demand(
                        used,
                        format!("{used} bytes used by the server, to be forked for saving"),
                    )
                    .capacity(available)
                    .decide(|_| "a fork to save fits in what is available".to_owned()),
                (_, Err(e)) => reading.unknown(e.to_string()),
                (None, Ok(_)) => reading.unknown("the server does not tell its used_memory"),
                (Some(_), Ok(_)) => {
                    reading.unknown("2: forks are refused over a strict sum that is not computed here")
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ServerFacts;
    use crate::proc::testing::Tree;

    #[test]
    fn a_small_server_can_fork_anyway() {
        let tree = Tree::new()
            .with("proc/sys/vm/overcommit_memory", "0\n")
            .with("proc/meminfo", "MemAvailable: 1000 kB\n");
        let check = |used| {
            let server = ServerFacts {
                used_memory: Some(used),
                ..ServerFacts::default()
            };
            Overcommit
                .check(
                    &tree.root(),
                    &Load {
                        server,
                        ..Load::default()
                    },
                )
                .verdict
        };
        assert_eq!(check(1000), Verdict::Ok);
        assert_eq!(check(2_000_000), Verdict::Unknown);
    }
}
