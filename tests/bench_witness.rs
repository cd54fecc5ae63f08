//! `systally bench --witness`: the same work counted again at native speed, and what is made of it.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bench_support;

use bench_support::{Run, codes, have_php, may_trace, row};
use systally::engine::{Availability, EngineKind, engine};
use systally::record::{Record, Status};

const RAW: &str = "raw/persistent/unix";

fn ready(kind: EngineKind) -> bool {
    match engine(kind).availability() {
        Availability::Ready => true,
        Availability::Unavailable { why, fix } => {
            println!("SKIP: the {kind} engine is not available: {why}; {fix}");
            false
        }
    }
}

/// A short bench of some strategies: 200 operations, counted as often as the arguments say.
fn bench(args: &[&str]) -> Run {
    Run::bench(["--builtin-server", "--runs", "1", "--warmup", "0", "-n", "200"]).args(args)
}

fn recorded(args: &[&str]) -> (String, Record) {
    let (ended, record) = bench(args).record();
    ended.code(0);
    (ended.all(), record)
}

#[test]
fn a_deterministic_client_is_the_same_at_native_speed() {
    for witness in [EngineKind::Bpf, EngineKind::Perf] {
        if !may_trace() || !ready(witness) {
            continue;
        }
        let (said, record) = recorded(&[RAW, "--engine", "ptrace", "--witness", witness.name()]);
        assert!(
            said.contains(&format!("recounted at nearly native speed by {witness}")),
            "{said}"
        );
        let row = row(&record, RAW);
        // The recount is in the ledger as every other pass.
        assert_eq!(row.status, Status::Ok, "{:?}", row.reason);
        assert_eq!(row.server_view.known().unwrap().served(&["get", "set"]), 600);
        let seen = row.witness.known().unwrap();
        assert_eq!((seen.engine.as_str(), seen.passes), (witness.name(), 1));
        assert_eq!(seen.moved, []);
        assert!(seen.slowdown.known().is_some());
        let calls = seen.calls.as_ref();
        match witness {
            EngineKind::Perf => {
                let calls = calls.unwrap();
                assert!(calls.iter().any(|call| call == "sendto"), "{calls:?}");
            }
            _ => assert_eq!(calls, None),
        }
        assert!(!codes(&record).contains(&"TRACER_CHANGED"));
        assert!(said.contains("tracing changed no count"), "{said}");
    }
}

#[test]
fn passes_are_repeated_and_shown_as_ranges() {
    if !may_trace() || !ready(EngineKind::Bpf) {
        return;
    }
    let (_, record) = recorded(&[RAW, "--counted-runs", "3"]);
    let row = row(&record, RAW);
    assert_eq!(row.witness.known().unwrap().passes, 3);
    assert_eq!(row.varied, []);
    assert_eq!(row.counted.known().unwrap().ops.unwrap().0, 200);
    assert_eq!(
        row.server_view.known().unwrap().served(&["get", "set"]),
        200 + 3 * 200 + 3 * 200
    );
}

/// What the client looks for before the reply can be there depends on timing; the witness says how much,
/// and the finding names nothing else.
#[test]
fn a_client_that_looks_first_is_explained_by_what_was_seen() {
    const PHP: &str = "phpredis/persistent/unix";
    if !have_php() || !may_trace() || !ready(EngineKind::Bpf) {
        return;
    }
    let (ended, record) = bench(&[PHP]).record();
    ended.code(0);
    let row = row(&record, PHP);
    let seen = row.witness.known().unwrap();
    // All that moves in this client are its empty looks; its calls are the same at every speed.
    assert!(
        seen.moved.iter().all(|moved| moved.syscall == "recvfrom"),
        "{seen:?}"
    );
    assert!(
        seen.moved
            .iter()
            .all(|moved| moved.errno.as_deref() == Some("EAGAIN")),
        "{seen:?}"
    );
    let found = record
        .findings
        .iter()
        .find(|finding| finding.code == "TRACER_CHANGED");
    assert_eq!(found.is_some(), !seen.moved.is_empty());
    if let Some(found) = found {
        assert!(found.says.contains("recvfrom EAGAIN"), "{}", found.says);
        assert!(!found.says.contains("poll"), "{}", found.says);
        assert!(ended.all().contains("at native speed"), "{}", ended.all());
    }
}

#[test]
fn engines_that_hardly_slow_a_client_need_no_witness() {
    for kind in [EngineKind::Bpf, EngineKind::Perf] {
        if !ready(kind) {
            continue;
        }
        let (said, record) = recorded(&[RAW, "--engine", kind.name()]);
        assert!(said.contains("not recounted"), "{said}");
        let row = row(&record, RAW);
        assert_eq!(row.counted.known().unwrap().engine, kind.name());
        let why = row.witness.reason().unwrap();
        assert!(why.contains("hardly slows"), "{why}");
        assert!(!codes(&record).contains(&"TRACER_CHANGED"));

        let refused = bench(&[RAW, "--engine", kind.name(), "--witness", "bpf"]).end();
        refused.code(2);
        assert!(refused.error().contains("--witness bpf"), "{}", refused.error());
    }
}

#[test]
fn a_witness_can_be_declined() {
    if !may_trace() {
        return;
    }
    let (said, record) = recorded(&[RAW, "--witness", "none"]);
    assert!(said.contains("not recounted (--witness none)"), "{said}");
    assert_eq!(row(&record, RAW).witness.reason(), Some("--witness none"));
    assert!(!said.contains("Everything was counted once more"), "{said}");
}

#[test]
fn an_installed_strace_counts_a_bench_too() {
    if !ready(EngineKind::Strace) {
        return;
    }
    let (_, record) = recorded(&[RAW, "--engine", "strace"]);
    let row = row(&record, RAW);
    assert_eq!(row.status, Status::Ok, "{:?}", row.reason);
    let counted = row.counted.known().unwrap();
    assert_eq!(counted.engine, "strace");
    let calls = &counted.phases.run_loop.syscalls;
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!((calls["sendto"].calls, calls["recvfrom"].calls), (200, 200));
    // strace does not say where a call leads.
    assert!(counted.round_trips_per_op.known().is_none());
    if ready(EngineKind::Bpf) {
        assert_eq!(row.witness.known().unwrap().moved, []);
    }
}
