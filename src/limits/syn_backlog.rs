//! `tcp_max_syn_backlog`: half-open connections. Used only with `tcp_syncookies=0`, and then from three
//! quarters of it on; with cookies nothing is lost.

use super::reading::Reading;
use super::server_side::shares_netns;
use super::{Limit, Load, Unit};
use crate::proc::{Root, sysctl};
use crate::record::LimitReading;

pub(super) struct SynBacklog;

impl Limit for SynBacklog {
    fn id(&self) -> &'static str {
        "syn_backlog"
    }

    fn title(&self) -> &'static str {
        "tcp_max_syn_backlog"
    }

    fn unit(&self) -> Unit {
        Unit::Of("half-open connections")
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let reading = Reading::of(
            self.id(),
            "server's netns",
            "/proc/sys/net/ipv4/tcp_max_syn_backlog, tcp_syncookies",
        );
        if !load.tcp {
            return reading.not_applicable("UNIX sockets have no handshake");
        }
        if let Err(why) = shares_netns(root, load) {
            return reading.unknown(why);
        }
        let (cookies, max) = match (
            sysctl::integer(root, "net.ipv4.tcp_syncookies"),
            sysctl::integer(root, "net.ipv4.tcp_max_syn_backlog"),
        ) {
            (Ok(cookies), Ok(max)) => (cookies, max),
            (Err(e), _) | (_, Err(e)) => return reading.unknown(e.to_string()),
        };
        if cookies != 0 {
            return reading.not_applicable("tcp_syncookies is on: half-open connections are not lost");
        }
        let room = room(max);
        let reading = reading
            .demand(
                load.waiting(),
                format!("{} handshakes at once at most", load.waiting()),
            )
            .capacity(room)
            .fix(
                "sysctl -w net.ipv4.tcp_syncookies=1",
                "net.ipv4.tcp_syncookies = 1 in /etc/sysctl.d/90-syncookies.conf",
                "docker run --sysctl net.ipv4.tcp_syncookies=1",
            );
        if load.waiting() <= room {
            return reading.fine(format!("{room} half-open connections are possible: fits"));
        }
        // How many handshakes overlap depends on the round-trip time, which is microseconds on loopback.
        reading.unknown(format!(
            "without syncookies more than {room} half-open connections are dropped; how many overlap depends on the \
             round-trip time"
        ))
    }
}

/// Half-open connections that pass without syncookies: from three quarters of the setting on they are dropped.
pub(super) fn room(max_syn_backlog: u64) -> u64 {
    (max_syn_backlog / 4 * 3).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::testing::Tree;
    use crate::record::Verdict;

    #[test]
    fn cookies_make_it_irrelevant() {
        let tree = Tree::new()
            .with("proc/self/ns/net", "net:[1]")
            .with("proc/9/ns/net", "net:[1]")
            .with("proc/sys/net/ipv4/tcp_max_syn_backlog", "16\n")
            .with("proc/sys/net/ipv4/tcp_syncookies", "1\n");
        let load = |n| Load {
            processes: n,
            server_pid: Some(9),
            ..Load::default()
        };
        assert_eq!(
            SynBacklog.check(&tree.root(), &load(100)).verdict,
            Verdict::NotApplicable
        );
        let without = tree.with("proc/sys/net/ipv4/tcp_syncookies", "0\n");
        assert_eq!(SynBacklog.check(&without.root(), &load(13)).verdict, Verdict::Ok);
        assert_eq!(
            SynBacklog.check(&without.root(), &load(40)).verdict,
            Verdict::Unknown
        );
    }
}
