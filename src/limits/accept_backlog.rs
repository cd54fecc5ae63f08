//! The accept queue of the server's listener: how many connections can wait at once. One more than the
//! backlog fits, and synchronous clients never have more than one each in it.
//!
//! The backlog is what the kernel holds for that very listener, latched when it called listen(); neither
//! the sysctl nor the server's setting tells it.

use super::reading::{Reading, enough, verdict};
use super::{Limit, Load, Unit, syn_backlog};
use crate::proc::process::same_netns;
use crate::proc::sockdiag::{self, Listener};
use crate::proc::{Root, sysctl};
use crate::record::{Fix, LimitReading, Verdict};

pub(super) struct AcceptBacklog;

impl Limit for AcceptBacklog {
    fn id(&self) -> &'static str {
        "accept_backlog"
    }

    fn title(&self) -> &'static str {
        "accept queue (somaxconn, tcp-backlog)"
    }

    fn unit(&self) -> Unit {
        Unit::Of("waiting connections")
    }

    fn headline(&self) -> bool {
        true
    }

    fn check(&self, root: &Root, load: &Load) -> LimitReading {
        let demand = load.waiting();
        let formula = match load.attempts_per_op {
            0 | 1 => format!("{demand} processes, each with one connection waiting"),
            attempts => format!(
                "{} processes x {attempts} attempts waiting at once",
                load.processes
            ),
        };
        let reading =
            |source: &str| Reading::of(self.id(), "server's netns", source).demand(demand, formula.as_str());
        if load.endpoint.is_none() && load.same_host {
            let source = "/proc/sys/net/core/somaxconn + 1: this machine's side alone";
            return machine_side(root, load, reading(source));
        }
        let reading = reading("socket query: the listener's backlog + 1");
        let listener = match planned_listener(root, load) {
            Ok(listener) => listener,
            Err(why) => return reading.unknown(why),
        };
        let capacity = listener.capacity();
        let wanted = enough(demand, capacity).saturating_sub(1);
        let (now, kept) = fixes(root, load, wanted);
        reading
            .capacity(capacity)
            .fix(now, kept, in_a_container(wanted))
            .decide(|verdict| effect(verdict, load.tcp, demand, capacity))
    }
}

/// What Redis asks for by default (`tcp-backlog`), and nginx and PHP-FPM as well.
const USUAL_BACKLOG: u64 = 511;

/// Without a server: how long a queue this machine allows. What the server asks for can only make it shorter,
/// and a load over the usual request is a warning, since that one is a guess.
fn machine_side(root: &Root, load: &Load, reading: Reading) -> LimitReading {
    let demand = load.waiting();
    let somaxconn = match sysctl::integer(root, "net.core.somaxconn") {
        Ok(value) => value,
        Err(e) => return reading.unknown(e.to_string()),
    };
    let capacity = somaxconn.saturating_add(1);
    let usual = somaxconn.min(USUAL_BACKLOG).saturating_add(1);
    let wanted = enough(demand, usual).saturating_sub(1);
    let (now, kept) = fixes(root, load, wanted);
    let fix = Fix {
        now,
        kept,
        container: in_a_container(wanted),
    };
    let unknown = format!(
        "not known without a server: the backlog that it asks for, which can only make the queue shorter (Redis asks \
         for {USUAL_BACKLOG}, memcached for 1024)"
    );
    let side = format!(
        "this machine allows a queue of {capacity} (somaxconn {somaxconn}, and one more){}",
        handshakes(root, load)
    );
    let mut reading = reading.capacity(capacity).decide(|verdict| match verdict {
        Verdict::Fail => format!("{side}; {}", effect(verdict, load.tcp, demand, capacity)),
        _ => format!("{side}; {unknown}"),
    });
    if reading.verdict == Verdict::Ok && verdict(demand, usual) != Verdict::Ok {
        reading.verdict = Verdict::Warn;
        reading.effect =
            format!("{side}; {unknown}, and in a queue of {usual} these {demand} do not fit or only just");
    }
    if reading.verdict != Verdict::Ok {
        reading.fix = fix;
    }
    reading
}

/// What the machine's limit of half-open connections means for the queue, in words.
fn handshakes(root: &Root, load: &Load) -> String {
    if !load.tcp {
        return String::new();
    }
    match (
        sysctl::integer(root, "net.ipv4.tcp_syncookies"),
        sysctl::integer(root, "net.ipv4.tcp_max_syn_backlog"),
    ) {
        (Ok(0), Ok(max)) => format!(
            "; without syncookies only {} handshakes can be under way at once (tcp_max_syn_backlog {max})",
            syn_backlog::room(max)
        ),
        (Ok(_), Ok(max)) => {
            format!("; tcp_max_syn_backlog {max} does not shorten it, since tcp_syncookies is on")
        }
        (Err(_), _) | (_, Err(_)) => "; tcp_syncookies and tcp_max_syn_backlog cannot be read".to_owned(),
    }
}

fn in_a_container(backlog: u64) -> String {
    format!(
        "docker run --sysctl net.core.somaxconn={backlog}; in Kubernetes it is an \"unsafe\" sysctl; the server's \
         namespace counts, for UNIX sockets too"
    )
}

/// The listener the load goes to, as it was handed over or as the kernel tells.
pub(super) fn planned_listener(root: &Root, load: &Load) -> Result<Listener, String> {
    if load.endpoint.is_none() {
        return Err("no server address is known".to_owned());
    }
    if let Some(listeners) = &load.server.listeners {
        return load
            .listener(listeners)
            .cloned()
            .ok_or_else(|| "the server has no listener for that address".to_owned());
    }
    if !load.same_host {
        return Err("the server is on another machine: look there (ss -ltn, column Send-Q)".to_owned());
    }
    // A listener of the same address in this namespace would be somebody else's.
    if let Some(Ok(false)) = load.server_pid.map(|pid| same_netns(root, pid)) {
        return Err(
            "the server is in another network namespace, whose listeners cannot be seen from here".to_owned(),
        );
    }
    let listeners = sockdiag::listeners(root).map_err(|e| e.to_string())?;
    load.listener(&listeners).cloned().ok_or_else(|| {
        "no listener for that address can be seen from here: it is down, or in another network namespace"
            .to_owned()
    })
}

/// What to set, now and for good: both locks, and only those that bind.
fn fixes(root: &Root, load: &Load, backlog: u64) -> (String, String) {
    let somaxconn = sysctl::integer(root, "net.core.somaxconn").ok();
    let asked = load.server.tcp_backlog;
    let mut now = Vec::new();
    let mut kept = Vec::new();
    match somaxconn {
        Some(value) if value >= backlog => now.push(format!("somaxconn already sufficient ({value})")),
        _ => {
            now.push(format!(
                "somaxconn >= {backlog}: sysctl -w net.core.somaxconn={backlog}"
            ));
            kept.push(format!(
                "net.core.somaxconn = {backlog} in /etc/sysctl.d/90-somaxconn.conf"
            ));
        }
    }
    match asked {
        Some(value) if value >= backlog => now.push(format!("tcp-backlog already sufficient ({value})")),
        _ => {
            now.push(format!("tcp-backlog >= {backlog}"));
            kept.push(format!("tcp-backlog {backlog} in redis.conf"));
        }
    }
    if let (2, Some(asked)) = (kept.len(), asked) {
        now.push(format!("both: raising somaxconn alone stops at {asked}"));
    }
    now.push(if load.tcp && asked.is_some_and(|asked| asked >= backlog) {
        "then listen again: CONFIG SET bind to the same addresses re-listens TCP without a restart".to_owned()
    } else {
        "then a server restart (tcp-backlog is immutable; CONFIG SET bind re-listens TCP only)".to_owned()
    });
    (now.join("; "), kept.join("; "))
}

fn effect(verdict: Verdict, tcp: bool, demand: u64, capacity: u64) -> String {
    match (verdict, tcp) {
        (Verdict::Fail, true) => format!(
            "SYN dropped, retransmit after 1 s: when all {demand} connect at once, {} of them stall for whole \
             seconds and nothing is reported, until a time-out ends it (phpredis \"Connection timed out\", redis-py \
             \"Timeout connecting to server\")",
            demand.saturating_sub(capacity)
        ),
        (Verdict::Fail, false) => format!(
            "connect EAGAIN at once (\"Resource temporarily unavailable\") when more than {capacity} wait: so \
             says phpredis, and redis-py \"Error 11 connecting to\"; a blocking client (redis-rs, redis-py 4 without \
             time-out) waits instead; no kernel counter shows it"
        ),
        (Verdict::Warn, _) => format!("up to {demand} wait in a queue of {capacity}: close"),
        (Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable, _) => {
            format!("up to {demand} wait in a queue of {capacity}: fits")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ServerFacts;
    use crate::proc::sockdiag::Address;
    use crate::proc::testing::Tree;
    use crate::strategy::contract::Endpoint;

    fn load(tcp: bool, processes: u64, backlog: u32, asked: u64) -> Load {
        let (endpoint, address) = if tcp {
            (
                Endpoint::Tcp {
                    host: "127.0.0.1".into(),
                    port: 6379,
                    user: None,
                    password: None,
                },
                Address::Tcp("127.0.0.1:6379".parse().unwrap()),
            )
        } else {
            (
                Endpoint::Unix {
                    path: "/run/r.sock".into(),
                    user: None,
                    password: None,
                },
                Address::Unix("/run/r.sock".into()),
            )
        };
        Load {
            processes,
            connect_per_op: true,
            server: ServerFacts {
                tcp_backlog: Some(asked),
                listeners: Some(vec![Listener {
                    address,
                    queued: 0,
                    backlog,
                    drops: None,
                    inode: 1,
                }]),
                ..ServerFacts::default()
            },
            ..Load::to(&endpoint)
        }
    }

    #[test]
    fn the_bound_is_the_backlog_and_one() {
        let tree = Tree::defaults();
        let verdict = |n| {
            AcceptBacklog
                .check(&tree.root(), &load(false, n, 511, 511))
                .verdict
        };
        assert_eq!(verdict(512), Verdict::Warn);
        assert_eq!(verdict(513), Verdict::Fail);
        assert_eq!(verdict(100), Verdict::Ok);
    }

    #[test]
    fn a_full_unix_queue_is_eagain_and_its_lock_is_the_servers() {
        let reading = AcceptBacklog.check(&Tree::defaults().root(), &load(false, 1000, 511, 511));
        assert!(reading.effect.contains("connect EAGAIN at once"));
        for words in [
            "tcp-backlog >= 999",
            "server restart",
            "somaxconn already sufficient",
        ] {
            assert!(reading.fix.now.contains(words), "{words}: {}", reading.fix.now);
        }
    }

    #[test]
    fn a_full_tcp_queue_stalls_and_has_two_locks() {
        let tree = Tree::defaults().with("proc/sys/net/core/somaxconn", "128\n");
        let reading = AcceptBacklog.check(&tree.root(), &load(true, 1000, 128, 511));
        assert_eq!(reading.capacity.known(), Some(&129));
        assert!(reading.effect.contains("SYN dropped, retransmit after 1 s"));
        for words in [
            "somaxconn >= 999",
            "tcp-backlog >= 999",
            "both: raising somaxconn alone stops at 511",
        ] {
            assert!(reading.fix.now.contains(words), "{words}: {}", reading.fix.now);
        }
    }

    #[test]
    fn a_raised_somaxconn_needs_a_new_listen_only() {
        let reading = AcceptBacklog.check(&Tree::defaults().root(), &load(true, 1000, 128, 4096));
        assert_eq!(reading.verdict, Verdict::Fail);
        assert!(reading.fix.now.contains("CONFIG SET bind"), "{}", reading.fix.now);
    }

    #[test]
    fn attempts_left_behind_by_timeouts_count() {
        let mut load = load(true, 60, 59, 59);
        assert_eq!(
            AcceptBacklog.check(&Tree::defaults().root(), &load).verdict,
            Verdict::Warn
        );
        load.attempts_per_op = 5;
        assert_eq!(
            AcceptBacklog.check(&Tree::defaults().root(), &load).verdict,
            Verdict::Fail
        );
    }

    #[test]
    fn a_listener_of_this_namespace_is_not_the_one_of_a_server_elsewhere() {
        let tree = Tree::defaults()
            .with("proc/self/ns/net", "net:[1]")
            .with("proc/9/ns/net", "net:[2]")
            .with(
                "systally/listeners.json",
                r#"[{"address":{"unix":"/run/r.sock"},"queued":0,"backlog":511,"drops":null,"inode":9}]"#,
            );
        let mut load = load(false, 10, 0, 511);
        load.server.listeners = None;
        assert_eq!(AcceptBacklog.check(&tree.root(), &load).verdict, Verdict::Ok);
        load.server_pid = Some(9);
        assert_eq!(AcceptBacklog.check(&tree.root(), &load).verdict, Verdict::Unknown);
    }

    #[test]
    fn another_machine_is_unknown() {
        let endpoint = Endpoint::Tcp {
            host: "10.0.0.5".into(),
            port: 6379,
            user: None,
            password: None,
        };
        let reading = AcceptBacklog.check(&Tree::defaults().root(), &Load::to(&endpoint));
        assert_eq!(reading.verdict, Verdict::Unknown);
    }

    #[test]
    fn without_a_server_the_machine_decides_and_the_rest_is_said_to_be_unknown() {
        let tree = Tree::new()
            .with("proc/sys/net/core/somaxconn", "4096\n")
            .with("proc/sys/net/ipv4/tcp_max_syn_backlog", "2048\n")
            .with("proc/sys/net/ipv4/tcp_syncookies", "1\n");
        let check = |tree: &Tree, processes| {
            let load = Load {
                processes,
                ..Load::default()
            };
            AcceptBacklog.check(&tree.root(), &load)
        };
        for (processes, verdict) in [
            (2, Verdict::Ok),
            (409, Verdict::Ok),
            (410, Verdict::Warn),
            (2000, Verdict::Warn),
            (4097, Verdict::Warn),
            (4098, Verdict::Fail),
        ] {
            let reading = check(&tree, processes);
            assert_eq!(reading.verdict, verdict, "{processes}");
            assert_eq!(reading.capacity.known(), Some(&4097));
            assert_eq!(reading.fix.now.is_empty(), verdict == Verdict::Ok);
            let says = &reading.effect;
            assert!(
                says.contains("tcp_max_syn_backlog 2048 does not shorten it"),
                "{says}"
            );
            if verdict != Verdict::Fail {
                assert!(says.contains("not known without a server: the backlog"), "{says}");
            }
        }
        let small = tree
            .with("proc/sys/net/core/somaxconn", "128\n")
            .with("proc/sys/net/ipv4/tcp_syncookies", "0\n");
        let reading = check(&small, 500);
        assert_eq!(reading.verdict, Verdict::Fail);
        assert!(
            reading.effect.contains("only 1537 handshakes"),
            "{}",
            reading.effect
        );
        assert!(
            reading.fix.now.contains("net.core.somaxconn=499"),
            "{}",
            reading.fix.now
        );
        // An unreadable machine is not judged.
        assert_eq!(check(&Tree::new(), 500).verdict, Verdict::Unknown);
    }
}
