//! The counts of `systally bench` against the table of what each client costs, and against strace.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;

use std::collections::BTreeMap;
use std::path::Path;

use bench_support::{Run, have, have_php, may_trace, row_is};
use serde::Deserialize;
use systally::record::{Counted, Record, Status};

const OPS: u64 = 400;
const BATCH: u64 = 100;
const OPERATIONS: &str = "get,set,incr,setget";

/// `fixtures/truth/loops.json`.
#[derive(Deserialize)]
struct Truth {
    rows: Vec<Loop>,
}

/// What the loop of some strategies makes, per operation.
#[derive(Deserialize)]
struct Loop {
    strategies: Vec<String>,
    batch: u64,
    calls: BTreeMap<String, f64>,
    round_trips: f64,
    connects: f64,
    tolerance: Tolerance,
}

#[derive(Deserialize)]
struct Tolerance {
    per_op: f64,
    #[serde(default)]
    ranges: BTreeMap<String, (f64, f64)>,
}

fn truth(of: impl Fn(&str) -> bool) -> Vec<Loop> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/truth/loops.json");
    let mut truth: Truth = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for row in &mut truth.rows {
        row.strategies.retain(|name| of(name.split('/').next().unwrap()));
    }
    truth.rows.retain(|row| !row.strategies.is_empty());
    assert!(!truth.rows.is_empty());
    truth.rows
}

/// Runs all strategies of these clients, with every operation, and compares.
fn compare(clients: &[&str]) {
    let rows = truth(|client| clients.contains(&client));
    for batch in [1, BATCH] {
        let rows: Vec<&Loop> = rows.iter().filter(|row| row.batch == batch).collect();
        let names: Vec<&str> = rows
            .iter()
            .flat_map(|row| &row.strategies)
            .map(String::as_str)
            .collect();
        // Ten batches, so that a range per operation still means something.
        let ops = if batch == 1 { OPS } else { 10 * batch };
        let mut run = Run::bench(&names)
            .arg("-t")
            .arg(OPERATIONS)
            .arg("-n")
            .arg(ops.to_string());
        run = run
            .arg("--runs")
            .arg("1")
            .arg("--warmup")
            .arg("0")
            .arg("--timeout")
            .arg("100s");
        if batch > 1 {
            run = run.arg("-P").arg(batch.to_string());
        }
        let (ended, record) = run.record();
        ended.code(0);
        assert_eq!(record.strategies.len(), names.len() * 4);
        for row in rows {
            for name in &row.strategies {
                for found in record.strategies.iter().filter(|s| s.name == *name) {
                    assert_eq!(found.status, Status::Ok, "{name}: {:?}", found.reason);
                    let counted = found.counted.known().unwrap();
                    assert_eq!(counted.ops.unwrap().0, ops, "{name}");
                    check(&format!("{name} {}", found.axes.op), row, counted, ops);
                }
            }
        }
    }
}

fn check(name: &str, row: &Loop, counted: &Counted, ops: u64) {
    let calls = &counted.phases.run_loop.syscalls;
    let per_op = |n: u64| n as f64 / ops as f64;
    let shown = || {
        let all: Vec<_> = calls
            .iter()
            .map(|(call, c)| format!("{call} {}", per_op(c.calls)))
            .collect();
        format!("{name}: {}", all.join(", "))
    };
    for (call, expected) in &row.calls {
        let seen = per_op(calls.get(call).map_or(0, |c| c.calls));
        let (low, high) = match row.tolerance.ranges.get(call) {
            Some(range) => *range,
            None => (expected - row.tolerance.per_op, expected + row.tolerance.per_op),
        };
        assert!(
            (low - 1e-9..=high + 1e-9).contains(&seen),
            "{call} in {}",
            shown()
        );
    }
    // The standard library of a debug build asks whether a descriptor is valid before it closes it.
    let checks_descriptors = cfg!(debug_assertions) && name.starts_with("redis-rs/connect/");
    for (call, seen) in calls {
        let allowed = match call.as_str() {
            "fcntl" if checks_descriptors => 1.0,
            _ => 0.0,
        };
        if !row.calls.contains_key(call) {
            assert!(
                (per_op(seen.calls) - allowed).abs() <= row.tolerance.per_op,
                "{call} in {}",
                shown()
            );
        }
    }
    let close = |seen: f64, expected: f64| (seen - expected).abs() <= row.tolerance.per_op;
    let trips = *counted.round_trips_per_op.known().unwrap();
    let trips_vary = row
        .tolerance
        .ranges
        .values()
        .map(|range| range.1)
        .fold(row.round_trips, f64::max);
    assert!(
        close(trips, row.round_trips) || (row.round_trips..=trips_vary).contains(&trips),
        "{trips} round trips in {}",
        shown()
    );
    let connects = *counted.connects_per_op.known().unwrap();
    assert!(
        close(connects, row.connects),
        "{connects} connects in {}",
        shown()
    );
    let total: u64 = calls.values().map(|c| c.calls).sum();
    let ratio = *counted.floor_ratio.known().unwrap();
    let expected = per_op(total) / (2.0 / row.batch as f64);
    assert!(
        (ratio - expected).abs() < 1e-6,
        "{ratio} times the floor in {}",
        shown()
    );
}

#[test]
fn the_rust_clients_cost_what_the_table_says() {
    if may_trace() {
        compare(&["raw", "redis-rs", "redis-rs-async"]);
    }
}

#[test]
fn phpredis_costs_what_the_table_says() {
    if may_trace() && have_php() {
        compare(&["phpredis"]);
    }
}

#[test]
fn predis_costs_what_the_table_says() {
    if may_trace() && have_php() {
        compare(&["predis"]);
    }
}

/// The same worker under strace, as a program of one's own, makes exactly the calls that systally counts.
#[test]
fn strace_counts_the_same() {
    if !(may_trace() && have("strace", &["-V"], "comparing with strace")) {
        return;
    }
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tracing-scripts/php");
    let script = |name: &str| scripts.join(name).into_os_string().into_string().unwrap();
    let php = ["php", "-d", "display_errors=stderr"].map(str::to_owned);
    let mut cases = vec![
        (
            "raw",
            vec![
                env!("CARGO_BIN_EXE_systally").to_owned(),
                "worker".into(),
                "raw".into(),
            ],
        ),
        (
            "redis-rs",
            vec![
                env!("CARGO_BIN_EXE_systally").to_owned(),
                "worker".into(),
                "redis-rs".into(),
            ],
        ),
    ];
    if have_php() {
        cases.push(("phpredis", [&php[..], &[script("phpredis.php")]].concat()));
        cases.push(("predis", [&php[..], &[script("predis.php")]].concat()));
    }
    let quick = ["--runs", "1", "--warmup", "0", "-n", "400", "--timeout", "100s"];
    let transports = ["tcp", "unix"];
    for (client, worker) in cases {
        let names = transports.map(|transport| format!("{client}/persistent/{transport}"));
        let (ended, ours) = Run::bench(&names).args(quick).record();
        ended.code(0);

        let run = Run::bench(quick).args(["--engine", "none"]);
        let logs = run.path("log");
        let saved = run.path("record.json");
        // The transport in the name of the log keeps the two rows of a program apart.
        let strace = format!("exec strace -f -qq -o {}.$SYSTALLY_SCHEME \"$@\"", logs.display());
        let run = run
            .arg("-o")
            .arg(&saved)
            .args(["--", "sh", "-c", &strace, "sh"])
            .args(&worker);
        let ended = run.end();
        let theirs = ended.saved(&saved);
        if theirs.strategies.iter().any(|row| row.status != Status::Ok) {
            println!("SKIP: strace may not trace here: {}", ended.all());
            return;
        }
        for (transport, name) in transports.iter().zip(&names) {
            row_is(&theirs, &format!("strace/persistent/{transport}"), Status::Ok);
            let log = logs.with_extension(transport);
            assert_eq!(loop_calls(&ours, name), in_window(&log), "{name}");
        }
    }
}

fn loop_calls(record: &Record, name: &str) -> BTreeMap<String, u64> {
    let counted = row_is(record, name, Status::Ok).counted.known().unwrap();
    let calls = &counted.phases.run_loop.syscalls;
    calls
        .iter()
        .map(|(name, call)| (name.clone(), call.calls))
        .collect()
}

/// Calls between the return of the read that brought `go` and the write of the result.
fn in_window(log: &Path) -> BTreeMap<String, u64> {
    let log = std::fs::read_to_string(log).unwrap();
    let window = &log[log.find("read(0, \"go\\n\"").unwrap()..];
    let end = window.find("write(1, \"{\\\"event\\\":\\\"done\\\"").unwrap();
    let mut counts = BTreeMap::new();
    for line in window[..end].lines().skip(1) {
        let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
        if let Some((name, _)) = call.split_once('(')
            && !name.starts_with(['<', '+', '-'])
        {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}
