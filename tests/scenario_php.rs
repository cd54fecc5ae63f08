//! The scenario `php-cache-clients`, small: the figures of 2018 beside today's, its tables per operation,
//! and its three mistakes named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod bench_support;

use bench_support::{Run, codes, have_php, may_trace};
use systally::record::{Record, Status, StrategyResult};

fn setting<'a>(row: &'a StrategyResult, name: &str) -> &'a str {
    row.experiment.settings.get(name).map_or("", String::as_str)
}

fn find<'a>(record: &'a Record, name: &str, payload: &str, variant: &str) -> &'a StrategyResult {
    let found = record.strategies.iter().find(|row| {
        row.name == name && setting(row, "payload") == payload && setting(row, "variant") == variant
    });
    found.unwrap_or_else(|| panic!("no {name} {payload} {variant}"))
}

#[test]
fn rows_counts_and_published_figures_belong_together() {
    if !have_php() || !may_trace() {
        return;
    }
    let (ended, record) = Run::bench([
        "--scenario",
        "php-cache-clients",
        "--scale",
        "0.01",
        "--runs",
        "1",
        "--warmup",
        "0",
        "--witness",
        "none",
        "--published",
        "phpredis/persistent",
        "phpredis/pconnect-no-pool/tcp",
        "phpredis/unsent",
        "predis/timed-before-flush",
    ])
    .record();
    // The two mistakes are not confirmed by the server.
    ended.code(5);
    for payload in ["", "array", "object"] {
        for variant in ["plain", "opcache"] {
            let row = find(&record, "phpredis/persistent/tcp", payload, variant);
            assert_eq!(row.status, Status::Ok, "{:?}", row.reason);
            // 100 operations a round and in the counted pass, half of them SET.
            let view = row.server_view.known().unwrap();
            assert_eq!((view.served(&["set"]), view.served(&["get"])), (100, 100));
            let counted = row.counted.known().unwrap();
            for (call, calls) in [("sendto", 100), ("recvfrom", 300), ("poll", 100)] {
                let counts = &counted.phases.run_loop.syscalls[call];
                assert_eq!(counts.calls, calls, "{call} {payload} {variant}");
            }
            let opcache = row.client.environment.get("opcache_cli").map(String::as_str);
            assert_eq!(opcache, Some(if variant == "opcache" { "true" } else { "false" }));
        }
    }
    let published = |payload, name| {
        let row = find(&record, name, payload, "plain");
        row.experiment
            .published
            .iter()
            .find_map(|figure| figure.ops_per_s)
    };
    assert_eq!(published("array", "phpredis/persistent/unix"), Some(44_764.79));
    assert_eq!(published("", "phpredis/persistent/tcp"), Some(25_462.75));

    let unsent = find(&record, "phpredis/unsent/tcp", "object", "");
    assert_eq!(unsent.status, Status::Unverified);
    assert_eq!(unsent.server_view.known().unwrap().served(&["get", "set"]), 0);
    assert_eq!(unsent.experiment.published[0].ops_per_s, Some(1_621_555.16));
    let late = find(&record, "predis/timed-before-flush/tcp", "", "");
    // At most a round and the counted pass; what comes before systally asks the server is not late.
    assert!(late.experiment.served_late <= 200);
    let codes = codes(&record);
    for code in ["CLAIMED_NOT_SERVED", "TIMED_BEFORE_FLUSH"] {
        assert!(codes.contains(&code), "{codes:?}");
    }
    // With the debugger loaded its rows are told, and no others; without the extension they are skipped.
    let told: Vec<&StrategyResult> = record
        .findings
        .iter()
        .filter(|finding| finding.code == "XDEBUG_LOADED")
        .map(|finding| &record.strategies[finding.row.unwrap()])
        .collect();
    let with: Vec<&StrategyResult> = record
        .strategies
        .iter()
        .filter(|row| setting(row, "variant") == "xdebug")
        .collect();
    // persistent and unsent, over TCP.
    assert_eq!(with.len(), 2);
    if with.iter().any(|row| row.status == Status::Skipped) {
        let reason = with[0].reason.as_deref().unwrap();
        assert!(reason.contains("PHP has no extension xdebug"), "{reason}");
        assert!(told.is_empty(), "{codes:?}");
        println!("SKIP: a loaded debugger: {reason}");
    } else {
        assert_eq!(told, with);
        for row in &record.strategies {
            let version = row.client.environment.get("xdebug").map_or("", String::as_str);
            let loaded = setting(row, "variant") == "xdebug";
            assert_eq!(loaded, !version.is_empty(), "{} {version}", row.name);
        }
        let row = find(&record, "phpredis/persistent/tcp", "", "xdebug");
        assert_eq!(row.status, Status::Ok, "{:?}", row.reason);
        assert_eq!(row.experiment.published[0].ops_per_s, Some(9733.0));
        // The debugger makes no calls of its own in the loop.
        let calls = &row.counted.known().unwrap().phases.run_loop.syscalls;
        assert_eq!((calls["sendto"].calls, calls["recvfrom"].calls), (100, 300));
    }
    for text in ["published beside today's", "(php-ext-redis)", "setsockopt"] {
        assert!(ended.stdout.contains(text), "no {text}: {}", ended.stdout);
    }
}
