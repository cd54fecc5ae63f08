//! `tcp_abort_on_overflow`: whether a handshake that finds the accept queue full in its last step is reset
//! in place of waiting. A policy, not an amount.

use super::reading::Reading;
use super::server_side::shares_netns;
use super::{Limit, Load, Unit, accept_backlog};
use crate::proc::{Root, sysctl};
use crate::record::LimitReading;

pub(super) struct AbortOnOverflow;

impl Limit for AbortOnOverflow {
    fn id(&self) -> &'static str {
        "abort_on_overflow"
    }

    fn title(&self) -> &'static str {
        "tcp_abort_on_overflow"
    }

    fn unit(&self) -> Unit {
        Unit::Of("resets")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "server's netns",
            "/proc/sys/net/ipv4/tcp_abort_on_overflow",
        );
        if !load.tcp {
            return reading.not_applicable("UNIX sockets have no handshake");
        }
        if let Err(why) = shares_netns(root, load) {
            return reading.unknown(why);
        }
        match sysctl::integer(root, "net.ipv4.tcp_abort_on_overflow") {
            Err(e) => reading.unknown(e.to_string()),
            Ok(0) => reading.fine("0: a full accept queue makes clients wait, it resets nobody"),
            Ok(_) => match accept_backlog::planned_listener(root, load) {
                Ok(listener) if load.waiting() <= listener.capacity() => {
                    reading.fine("on, and the accept queue holds all that wait")
                }
                Ok(_) | Err(_) => reading
                    .fix(
                        "sysctl -w net.ipv4.tcp_abort_on_overflow=0, and a longer accept queue",
                        "net.ipv4.tcp_abort_on_overflow = 0 in /etc/sysctl.d/90-overflow.conf",
                        "docker run --sysctl net.ipv4.tcp_abort_on_overflow=0",
                    )
                    .unknown("on: a full accept queue can reset clients (ECONNRESET after connect), besides stalls"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;
    use crate::record::Verdict;

    #[test]
    fn only_the_policy_to_reset_matters() {
        let tree = Tree::new()
            .with("proc/self/ns/net", "net:[1]")
            .with("proc/9/ns/net", "net:[1]")
            .with("proc/sys/net/ipv4/tcp_abort_on_overflow", "0\n");
        let load = Load {
            server_pid: Some(9),
            ..Load::default()
        };
        assert_eq!(AbortOnOverflow.check(&tree.root(), &load).verdict, Verdict::Ok);
        let on = tree.with("proc/sys/net/ipv4/tcp_abort_on_overflow", "1\n");
        assert_eq!(AbortOnOverflow.check(&on.root(), &load).verdict, Verdict::Unknown);
    }
}
