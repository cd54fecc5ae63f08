//! The system calls of the Rust workers in their window, counted by strace: the exact rows of the table
//! of what each client costs.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod strategy_support;

use std::collections::BTreeMap;

use strategy_support::{LIMIT, PlainEngine, Redis, calls_in_window, request};
use systally::run::interrupt::Interrupt;
use systally::strategy::contract::{Op, Stop, Transport};
use systally::strategy::worker::Workers;
use systally::strategy::{Registry, ScriptSource, Work};

const OPS: u64 = 1_000;

/// Calls per operation between the markers, and how far off they may be.
type Row = (&'static str, &'static [(&'static str, f64, f64)]);

const ROWS: &[Row] = &[
    ("noop/loop/tcp", &[]),
    (
        "raw/persistent/tcp,raw/persistent/unix",
        &[("sendto", 1.0, 0.0), ("recvfrom", 1.0, 0.02)],
    ),
    (
        "raw/pipeline/tcp,raw/pipeline/unix",
        &[("sendto", 0.01, 0.0), ("recvfrom", 0.01, 0.04)],
    ),
    (
        "redis-rs/persistent/tcp,redis-rs/persistent/unix",
        &[("sendto", 1.0, 0.0), ("recvfrom", 1.0, 0.02)],
    ),
    (
        "redis-rs/pipeline/tcp,redis-rs/pipeline/unix",
        &[("sendto", 0.01, 0.0), ("recvfrom", 0.011, 0.04)],
    ),
    (
        "redis-rs/connect/tcp",
        &[
            ("socket", 1.0, 0.0),
            ("connect", 1.0, 0.0),
            ("setsockopt", 6.0, 0.0),
            ("sendto", 2.0, 0.0),
            ("recvfrom", 2.0, 0.02),
            ("close", 1.0, 0.0),
        ],
    ),
    (
        "redis-rs/connect/unix",
        &[
            ("socket", 1.0, 0.0),
            ("connect", 1.0, 0.0),
            ("setsockopt", 4.0, 0.0),
            ("sendto", 2.0, 0.0),
            ("recvfrom", 2.0, 0.02),
            ("close", 1.0, 0.0),
        ],
    ),
    (
        "redis-rs-async/persistent/tcp,redis-rs-async/persistent/unix",
        &[
            ("writev", 1.0, 0.0),
            ("epoll_wait", 2.0, 0.1),
            ("recvfrom", 1.0, 0.02),
        ],
    ),
    (
        "redis-rs-async/pipeline/tcp,redis-rs-async/pipeline/unix",
        &[
            ("writev", 0.01, 0.01),
            ("epoll_wait", 0.02, 0.04),
            ("recvfrom", 0.011, 0.04),
        ],
    ),
];

#[test]
fn the_window_holds_what_the_client_needs_and_nothing_else() {
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        println!("SKIP: strace is not installed");
        return;
    }
    let Some(redis) = Redis::start(None) else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let source = ScriptSource {
        executable: env!("CARGO_BIN_EXE_systally").into(),
        scripts: None,
        clients: None,
    };
    let registry = Registry::load(&source).unwrap();
    for (selectors, expected) in ROWS {
        for strategy in registry.select(&[(*selectors).to_owned()]).unwrap() {
            let work = Work {
                op: Op::Set,
                stop: Stop::Ops(OPS),
                batch: 100,
                ..Work::default()
            };
            let server = match strategy.transport {
                Transport::Tcp => redis.tcp(),
                Transport::Unix => redis.unix(),
                Transport::Local => continue,
            };
            let mut assignment = strategy.assign(&work, &[server], 0);
            let strace = ["strace", "-f", "-qq", "-o", log.to_str().unwrap()].map(Into::into);
            assignment.program.argv.splice(0..0, strace);
            let mut workers = Workers::start(&PlainEngine, vec![assignment], &request()).unwrap();
            if let Err(error) = workers.ready(LIMIT, &Interrupt::never()) {
                if error.to_string().contains("PTRACE") || error.to_string().contains("not permitted") {
                    println!("SKIP: strace may not trace here: {error}");
                    return;
                }
                panic!("{error}");
            }
            let outcome = workers.round(LIMIT, &Interrupt::never()).unwrap();
            assert_eq!(outcome.dones[0].ops, OPS, "{:?}", outcome.dones[0].errors);
            workers.finish(LIMIT).unwrap();
            compare(&strategy.name().to_string(), expected, calls_in_window(&log));
        }
    }
}

fn compare(name: &str, expected: &[(&str, f64, f64)], mut counts: BTreeMap<String, u64>) {
    let shown = format!("{name}: {counts:?}");
    for (call, per_op, tolerance) in expected {
        let seen = counts.remove(*call).unwrap_or(0) as f64 / OPS as f64;
        assert!((seen - per_op).abs() <= tolerance + 1e-9, "{call} in {shown}");
    }
    if cfg!(debug_assertions) {
        // The standard library asks whether a descriptor is valid before it closes it.
        counts.remove("fcntl");
    }
    assert!(counts.is_empty(), "{shown}");
}
