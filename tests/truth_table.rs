//! Every client's calls per operation, counted by each engine that bench counts with, against the table of
//! what they are: `fixtures/truth/clients.json`.
//!
//! A client that is not installed, or is there at a version that makes other calls, prints a SKIP line; so
//! does an engine that may not run here. `SYSTALLY_TRUTH_ROWS=redispy4` counts only the rows whose name
//! begins so.

// A test that panics is a test that fails, also in its helpers.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod strategy_support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use strategy_support::LIMIT;
use systally::engine::{Availability, EngineKind, Failures, Request, Selection, Window, engine};
use systally::run::interrupt::Interrupt;
use systally::server::{Place, PrivateOptions, Servers, Wanted};
use systally::strategy::contract::{Endpoint, Op, PayloadKind, Serializer, Stop, Store, Transport};
use systally::strategy::worker::Workers;
use systally::strategy::{Presence, Registry, ScriptSource, Strategy, Work};
use systally::tally::Tally;
use systally::units::Measured;

/// Enough that what follows the time and not the operations falls below the tolerance, and ten batches.
const OPS: u64 = 1_000;

/// What an interpreter does for its own memory and threads: it follows the time and the allocator, not
/// the operations.
const RUNTIME: &[&str] = &[
    "mmap",
    "munmap",
    "mremap",
    "brk",
    "madvise",
    "mprotect",
    "futex",
    "prctl",
    "sched_yield",
];

#[derive(Deserialize)]
struct Truth {
    rows: Vec<Row>,
}

/// One measurement of the table.
#[derive(Deserialize, Debug)]
struct Row {
    measured_as: String,
    strategy: String,
    version: String,
    op: Op,
    batch: u32,
    #[serde(default = "four")]
    payload_bytes: u64,
    #[serde(default)]
    payload: Option<PayloadKind>,
    #[serde(default)]
    serializer: Option<Serializer>,
    #[serde(default = "three")]
    servers: u32,
    calls: BTreeMap<String, (f64, f64)>,
    others: f64,
}

fn four() -> u64 {
    4
}

fn three() -> u32 {
    3
}

#[test]
fn ptrace_counts_what_each_client_makes() {
    every_row(EngineKind::Ptrace);
}

#[test]
fn bpf_counts_what_each_client_makes() {
    every_row(EngineKind::Bpf);
}

#[test]
fn the_loop_of_a_worker_makes_no_call() {
    for kind in [EngineKind::Ptrace, EngineKind::Bpf] {
        if !may_run(kind) {
            continue;
        }
        let noop = registry()
            .select(&["noop/loop/local".to_owned()])
            .unwrap()
            .remove(0);
        let counted = count(kind, &noop, &Work::default(), &[]).unwrap();
        assert_eq!(counted.total(), 0, "{kind}: {:?}", by_name(&counted));
    }
}

fn every_row(kind: EngineKind) {
    if !may_run(kind) {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/truth/clients.json");
    let truth: Truth = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let registry = registry();
    let only = std::env::var("SYSTALLY_TRUTH_ROWS").unwrap_or_default();
    let rows: Vec<(Row, Strategy)> = truth
        .rows
        .into_iter()
        .filter(|row| row.measured_as.starts_with(&only))
        .map(|row| {
            let strategy = registry
                .select(std::slice::from_ref(&row.strategy))
                .unwrap()
                .remove(0);
            (row, strategy)
        })
        .collect();
    let rows = only_installed(rows);
    assert!(!rows.is_empty(), "no client of the table is installed");
    let needs = rows
        .iter()
        .filter_map(|(row, strategy)| Some((place(strategy)?, row.servers)));
    let servers = Servers::start(
        &Wanted::private(PrivateOptions::default()),
        needs,
        &Interrupt::never(),
    )
    .unwrap();
    let mut wrong = Vec::new();
    for (row, strategy) in &rows {
        let Some(addresses) = addresses(&servers, row, strategy) else {
            continue;
        };
        let mut work = Work {
            op: row.op,
            stop: Stop::Ops(OPS),
            batch: row.batch,
            ..Work::default()
        };
        work.payload.bytes = row.payload_bytes;
        work.payload.kind = row.payload.unwrap_or(PayloadKind::String);
        work.payload.serializer = row.serializer.unwrap_or(Serializer::None);
        match count(kind, strategy, &work, &addresses) {
            Ok(counted) => wrong.extend(differences(row, &by_name(&counted))),
            Err(error) => wrong.push(format!("{}: {error}", row.measured_as)),
        }
    }
    println!("{} rows of the table counted by {kind}", rows.len());
    assert!(wrong.is_empty(), "counted by {kind}:\n{}", wrong.join("\n"));
}

fn registry() -> Registry {
    let source = ScriptSource {
        executable: env!("CARGO_BIN_EXE_systally").into(),
        scripts: None,
        clients: None,
    };
    Registry::load(&source).unwrap()
}

fn may_run(kind: EngineKind) -> bool {
    match engine(kind).availability() {
        Availability::Ready => true,
        Availability::Unavailable { why, .. } => {
            println!("SKIP: {kind}: {why}");
            false
        }
    }
}

/// Says once for each client what is left out.
fn only_installed(rows: Vec<(Row, Strategy)>) -> Vec<(Row, Strategy)> {
    let mut said = BTreeSet::new();
    let mut skip = |text: String| {
        if said.insert(text.clone()) {
            println!("SKIP: {text}");
        }
        false
    };
    rows.into_iter()
        .filter(|(row, strategy)| {
            let client = strategy.client.name();
            match strategy.client.presence() {
                Presence::Missing { why, .. } => skip(format!("{client}: {why}")),
                Presence::Ready { version } if !version.starts_with(&row.version) => skip(format!(
                    "{client}: this is {version}, some rows are for {}",
                    row.version
                )),
                Presence::Ready { .. } => true,
            }
        })
        .collect()
}

fn place(strategy: &Strategy) -> Option<Place> {
    Place::of(strategy.store(), strategy.transport)
}

/// Says with a SKIP line when the server is missing.
fn addresses(servers: &Servers, row: &Row, strategy: &Strategy) -> Option<Vec<Endpoint>> {
    let Some(place) = place(strategy) else {
        return Some(Vec::new());
    };
    if let Some(absence) = servers.absence(place) {
        println!("SKIP: {}: {}", row.measured_as, absence.error);
        return None;
    }
    let number = match strategy.store() {
        Store::Shards | Store::Cluster => row.servers,
        Store::Redis | Store::Memcached | Store::Twemproxy | Store::None => 1,
    };
    Some(servers.get(place).unwrap().endpoints(strategy.transport, number))
}

fn count(kind: EngineKind, strategy: &Strategy, work: &Work, servers: &[Endpoint]) -> Result<Tally, String> {
    assert_eq!(servers.is_empty(), strategy.transport == Transport::Local);
    let request = Request {
        window: Window::Markers,
        selection: Selection::All,
        pin: true,
        cpu_time: false,
        failures: Failures::All,
    };
    let never = Interrupt::never();
    let assignment = strategy.assign(work, servers, 0);
    let mut workers = Workers::start(engine(kind), vec![assignment], &request).map_err(|e| e.to_string())?;
    workers.ready(LIMIT, &never).map_err(|e| e.to_string())?;
    let round = workers.round(LIMIT, &never).map_err(|e| e.to_string())?;
    let done = &round.dones[0];
    if done.ops != OPS {
        return Err(format!(
            "{} of {OPS} operations done: {:?}",
            done.ops, done.errors
        ));
    }
    match workers.finish(LIMIT).map_err(|e| e.to_string())?.tallies {
        Measured::Known(tallies) => Ok(tallies.run_loop),
        Measured::NotMeasured(why) => Err(why),
    }
}

/// A debug build of Rust asks whether a descriptor is open before it closes it (`fcntl` with `F_GETFD`,
/// one for each close).
fn of_debug_builds(row: &Row, call: &str) -> bool {
    cfg!(debug_assertions) && call == "fcntl" && row.strategy.starts_with("redis-rs/")
}

fn by_name(tally: &Tally) -> BTreeMap<String, f64> {
    let mut names = BTreeMap::new();
    for (call, counted) in &tally.calls {
        *names.entry(call.name().into_owned()).or_insert(0.0) += counted.calls as f64 / OPS as f64;
    }
    names
}

/// What does not agree with the table.
fn differences(row: &Row, seen: &BTreeMap<String, f64>) -> Option<String> {
    let mut wrong: Vec<String> = row
        .calls
        .iter()
        .filter_map(|(call, (least, most))| {
            let seen = seen.get(call).copied().unwrap_or(0.0);
            (!(*least..=*most).contains(&seen)).then(|| format!("{call} {seen} is not in {least}..{most}"))
        })
        .collect();
    wrong.extend(
        seen.iter()
            .filter(|(call, n)| {
                !row.calls.contains_key(*call)
                    && !RUNTIME.contains(&call.as_str())
                    && !of_debug_builds(row, call)
                    && **n > row.others
            })
            .map(|(call, n)| format!("{call} {n} is not in the table")),
    );
    (!wrong.is_empty()).then(|| format!("{} ({}): {}", row.measured_as, row.strategy, wrong.join("; ")))
}
