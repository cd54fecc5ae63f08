//! A recording may hold anything: nothing in it may end in a panic, in a wrong "ok", or in control
//! characters on a terminal.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use systally::limits::{Load, check_all};
use systally::proc::{Root, counters, host};
use systally::record::Verdict;
use systally::strategy::contract::Endpoint;

/// Files that limits are read from.
const FILES: &[&str] = &[
    "proc/sys/fs/file-max",
    "proc/sys/fs/file-nr",
    "proc/sys/fs/nr_open",
    "proc/sys/kernel/pid_max",
    "proc/sys/kernel/threads-max",
    "proc/sys/net/core/somaxconn",
    "proc/sys/net/ipv4/ip_local_port_range",
    "proc/sys/net/ipv4/ip_local_reserved_ports",
    "proc/sys/net/ipv4/tcp_tw_reuse",
    "proc/sys/net/ipv4/tcp_timestamps",
    "proc/sys/net/ipv4/tcp_max_orphans",
    "proc/sys/net/ipv4/tcp_mem",
    "proc/sys/net/netfilter/nf_conntrack_count",
    "proc/self/limits",
    "proc/self/status",
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/self/net/sockstat",
    "proc/self/net/netstat",
    "proc/self/net/snmp",
    "proc/loadavg",
    "proc/meminfo",
    "proc/cpuinfo",
    "proc/net/softnet_stat",
    "systally/listeners.json",
    "systally/server.json",
    "systally/uid_tasks",
    "sys/kernel/mm/transparent_hugepage/enabled",
];

/// Pieces that kernel files are made of, and some that they never are.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "\n",
        "\t",
        " ",
        ":",
        "-",
        "max",
        "unlimited",
        "Max open files",
        "Max processes",
        "TcpExt: A B",
        "TCP: tw",
        "0::/a",
        "0::/../..",
        "MemAvailable:",
        "kB",
        "Uid:",
        "CapEff:",
        "1/2",
        "18446744073709551616",
        "\u{1b}[2J",
        "\u{202e}",
    ];
    prop_oneof![
        3 => prop::sample::select(known.as_slice().to_vec()).prop_map(str::to_owned),
        1 => any::<u64>().prop_map(|n| n.to_string()),
        1 => any::<i32>().prop_map(|n| n.to_string()),
        1 => "[a-z]{1,8}",
    ]
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(piece(), 0..12).prop_map(|pieces| pieces.concat().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_survived(
        files in prop::collection::btree_map(prop::sample::select(FILES), content(), 0..FILES.len()),
        processes in any::<u64>(),
        connections in any::<u64>(),
        rate in prop::option::of(any::<u64>()),
        connect_per_op in any::<bool>(),
        tcp in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in &files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let root = Root::recorded(folder.path());
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port: 6379, user: None, password: None };
        let load = Load {
            processes,
            connections_per_process: connections,
            connects_per_second: rate,
            connect_per_op,
            tcp,
            ..Load::to(&endpoint)
        };
        for reading in check_all(&root, &load) {
            for text in [&reading.effect, &reading.formula, &reading.fix.now] {
                prop_assert!(!text.chars().any(char::is_control), "{}: {text:?}", reading.id);
            }
            if reading.verdict == Verdict::Ok
                && let (Some(demand), Some(capacity)) = (reading.demand.known(), reading.capacity.known())
                // Beyond this one the kernel only frees sooner.
                && reading.id != "tw_buckets"
            {
                prop_assert!(demand <= capacity, "{}: {demand} of {capacity}", reading.id);
            }
        }
        let _ = host(&root);
        let _ = counters(&root, None);
        let _ = counters(&root, Some(1));
    }
}
