//! The scenarios `sharded-set` and `socket-vs-tcp`, small: every SET on one of the servers, the same keys
//! on the same ones in each run; a socket that leads out of a network namespace where TCP does not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_support;

use bench_support::{Run, have, is_root, may_trace};
use systally::record::Status;

#[test]
fn every_set_is_on_one_of_the_servers() {
    if !have("redis-server", &["--version"], "servers of their own") || !may_trace() {
        return;
    }
    let run = Run::bench([
        "--scenario",
        "sharded-set",
        "--scale",
        "0.0001",
        "--runs",
        "2",
        "--witness",
        "none",
        "redis-rs/shards",
        "--export-svg",
    ]);
    let picture = run.path("picture.svg");
    let (ended, record) = run.arg(&picture).record();
    ended.code(0);
    // 2, 3 and 4 clients of 10 operations each, over 2 to 5 servers.
    let axes: Vec<(u32, u32)> = record
        .strategies
        .iter()
        .map(|row| (row.axes.clients, row.axes.servers))
        .collect();
    let expected: Vec<(u32, u32)> = [2, 3, 4]
        .into_iter()
        .flat_map(|clients| (2..=5).map(move |servers| (clients, servers)))
        .collect();
    assert_eq!(axes, expected);
    for row in &record.strategies {
        assert_eq!(row.status, Status::Ok, "{:?}", row.reason);
        let asked = u64::from(row.axes.clients) * 10;
        let view = row.server_view.known().unwrap();
        // Two rounds and the counted pass.
        assert_eq!(view.served(&["set"]), 3 * asked);
        let nodes: Vec<u64> = view
            .nodes
            .values()
            .map(|node| node.commands.get("set").copied().unwrap_or(0))
            .collect();
        assert_eq!(nodes.len(), row.axes.servers as usize);
        assert_eq!(nodes.iter().sum::<u64>(), 3 * asked);
        let calls = &row.counted.known().unwrap().phases.run_loop.syscalls;
        assert_eq!((calls["sendto"].calls, calls["recvfrom"].calls), (asked, asked));
    }
    for text in ["Throughput by servers and clients", "Balance: commands by server"] {
        assert!(ended.stdout.contains(text), "no {text}: {}", ended.stdout);
    }
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert_eq!(picture.matches("<polyline").count(), 3);
}

#[test]
fn a_socket_leads_into_another_network_and_tcp_does_not() {
    let programs = have("redis-server", &["--version"], "a server of its own")
        && have("redis-benchmark", &["--version"], "redis-benchmark")
        && have("unshare", &["--net", "true"], "network namespaces");
    if !programs || !is_root() {
        return;
    }
    let (ended, record) = Run::bench([
        "--scenario",
        "socket-vs-tcp",
        "--scale",
        "0.0005",
        "--runs",
        "1",
        "--warmup",
        "0",
        "--engine",
        "none",
        "--published",
    ])
    .record();
    ended.code(0);
    let suite: Vec<_> = record
        .strategies
        .iter()
        .filter(|row| row.name.starts_with("redis-benchmark/"))
        .map(|row| {
            let network = row.experiment.settings.get("network").map_or("", String::as_str);
            (row.axes.transport.as_str(), network, row)
        })
        .collect();
    let status: Vec<_> = suite
        .iter()
        .map(|(transport, network, row)| (*transport, *network, row.status))
        .collect();
    assert_eq!(
        status,
        [
            ("tcp", "", Status::Ok),
            ("unix", "", Status::Ok),
            ("tcp", "own", Status::Skipped),
            ("unix", "own", Status::Ok),
        ]
    );
    for (_, _, row) in suite.iter().filter(|(_, _, row)| row.status == Status::Ok) {
        // 20 tests of 50 requests; LRANGE and its list are five of them.
        let view = row.server_view.known().unwrap();
        assert_eq!(row.timed.known().unwrap().rounds[0].ops.0, 1000);
        assert_eq!((view.served(&["lrange"]), view.served(&["lpush"])), (200, 100));
        assert_eq!(view.served(&["ping", "set", "get", "incr", "mset"]), 300);
        let usage = row.experiment.usage.unwrap();
        assert_eq!(usage.rounds, 1);
        assert!(usage.client.user_ns + usage.client.system_ns > 0, "{usage:?}");
        let server = usage.server.unwrap();
        assert!(
            server.user_ns + server.system_ns > 0 && server.voluntary > 0,
            "{usage:?}"
        );
    }
    let reason = suite[2].2.reason.as_deref().unwrap();
    assert!(reason.contains("a network namespace of its own"), "{reason}");
    assert_eq!(suite[0].2.experiment.published[0].seconds, Some(48.92));
    assert_eq!(suite[3].2.experiment.published[0].seconds, Some(66.77));
    assert!(
        ended.stdout.contains("client processes and server"),
        "{}",
        ended.stdout
    );
}
