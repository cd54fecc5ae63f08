use std::borrow::Cow;
use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::explain::{Finding, Severity};
use crate::record::{
    Axes, CallCounts, ClientInfo, Counted, Counters, Experiment, Fix, Host, Interval, Kind, Latency,
    LimitReading, Moved, NodeView, PhaseCounts, Phases, PlanInfo, Round, ServerInfo, ServerOrigin,
    ServerView, Span, Status, StrategyResult, Timed, Varied, Verdict, Witness,
};
use crate::units::{Measured, Nanos, Ops};

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/._]{0,12}", any::<String>()]
}

fn measured<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Measured<T>> {
    prop_oneof![
        value.prop_map(Measured::Known),
        text().prop_map(Measured::NotMeasured)
    ]
}

fn number() -> impl Strategy<Value = f64> {
    // All but NaN and infinities, which no record holds.
    proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::SUBNORMAL
}

fn ratio() -> impl Strategy<Value = Measured<f64>> {
    measured(number())
}

fn counts() -> impl Strategy<Value = BTreeMap<String, u64>> {
    btree_map(text(), any::<u64>(), 0..3)
}

fn words() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(text(), text(), 0..3)
}

fn nanos() -> impl Strategy<Value = Nanos> {
    any::<u64>().prop_map(Nanos)
}

/// What seconds hold exactly: 26 days.
fn span() -> impl Strategy<Value = Nanos> {
    (0..1_u64 << 51).prop_map(Nanos)
}

fn interval() -> impl Strategy<Value = Interval> {
    (number(), number(), number()).prop_map(|(median, low, high)| Interval { median, low, high })
}

fn server_view() -> impl Strategy<Value = ServerView> {
    (
        counts(),
        counts(),
        option::of(nanos()),
        any::<u64>(),
        any::<u64>(),
        btree_map(text(), (counts(), any::<u64>()), 0..3),
    )
        .prop_map(
            |(commands, failed, busy, connections, rejected, nodes)| ServerView {
                commands,
                failed,
                busy,
                connections,
                rejected,
                nodes: nodes
                    .into_iter()
                    .map(|(address, (commands, connections))| {
                        (
                            address,
                            NodeView {
                                commands,
                                connections,
                            },
                        )
                    })
                    .collect(),
            },
        )
}

fn latency() -> impl Strategy<Value = Latency> {
    (any::<bool>(), nanos(), nanos(), nanos(), nanos(), nanos(), text()).prop_map(
        |(per_batch, p50, p90, p99, p999, max, hdr)| Latency {
            per_batch,
            p50,
            p90,
            p99,
            p999,
            max,
            hdr,
        },
    )
}

fn timed() -> impl Strategy<Value = Timed> {
    let round = (
        any::<u64>(),
        any::<u64>(),
        span(),
        counts(),
        measured(server_view()),
        proptest::option::of((span(), span())),
    )
        .prop_map(|(ops, asked, elapsed, errors, server, cpu)| Round {
            ops: Ops(ops),
            asked: Ops(asked),
            elapsed,
            errors,
            server,
            cpu,
        });
    (
        vec(round, 0..4),
        interval(),
        measured(interval()),
        measured(latency()),
    )
        .prop_map(|(rounds, ops_per_s, vs_baseline, latency)| Timed {
            rounds,
            ops_per_s,
            vs_baseline,
            latency,
        })
}

fn phase() -> impl Strategy<Value = PhaseCounts> {
    let call = (
        (any::<u64>(), any::<u64>()),
        measured(counts()),
        counts(),
        (measured(nanos()), measured(nanos())),
        (measured(any::<u64>()), measured(any::<u64>())),
        counts(),
    )
        .prop_map(
            |((calls, unfinished), errors, restarts, (wall, cpu), (bytes, peeks), peers)| CallCounts {
                calls,
                unfinished,
                errors,
                restarts,
                wall,
                cpu,
                bytes,
                peeks,
                peers,
            },
        );
    btree_map(text(), call, 0..4).prop_map(|syscalls| PhaseCounts { syscalls, talk: None })
}

fn counted() -> impl Strategy<Value = Counted> {
    (
        (text(), option::of(any::<u64>().prop_map(Ops)), span()),
        (phase(), phase(), phase()),
        (ratio(), ratio(), ratio(), ratio(), ratio()),
        (counts(), measured((nanos(), nanos())), vec(text(), 0..2)),
    )
        .prop_map(
            |((engine, ops, elapsed), (startup, run_loop, shutdown), ratios, (client_errors, cpu, notes))| {
                Counted {
                    engine,
                    ops,
                    elapsed,
                    slowdown: ratios.0,
                    phases: Phases {
                        startup,
                        run_loop,
                        shutdown,
                    },
                    connects_per_op: ratios.1,
                    round_trips_per_op: ratios.2,
                    sends_per_batch: ratios.3,
                    floor_ratio: ratios.4,
                    client_errors,
                    cpu,
                    notes,
                }
            },
        )
}

fn moving() -> impl Strategy<Value = (Vec<Varied>, Measured<Witness>)> {
    let span = || (number(), number()).prop_map(|(low, high)| Span { low, high });
    let varied = (text(), option::of(text()), span()).prop_map(|(syscall, errno, per_op)| Varied {
        syscall,
        errno,
        per_op,
    });
    let moved = (text(), option::of(text()), span(), span()).prop_map(|(syscall, errno, slow, fast)| Moved {
        syscall,
        errno,
        slow,
        fast,
    });
    let witness = (
        (text(), any::<u32>()),
        option::of(vec(text(), 0..3)),
        ratio(),
        vec(moved, 0..3),
    )
        .prop_map(|((engine, passes), calls, slowdown, moved)| Witness {
            engine,
            passes,
            calls,
            slowdown,
            moved,
        });
    (vec(varied, 0..3), measured(witness))
}

fn row() -> impl Strategy<Value = StrategyResult> {
    let status = prop_oneof![
        Just(Status::Ok),
        Just(Status::Failed),
        Just(Status::Skipped),
        Just(Status::Unverified),
    ];
    let axes = (
        (text(), text(), text()),
        (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>()),
    )
        .prop_map(
            |((op, transport, store), (pipeline, payload_bytes, clients, servers))| Axes {
                op,
                transport,
                pipeline,
                payload_bytes,
                clients,
                store,
                servers,
            },
        );
    let client = (text(), text(), words()).prop_map(|(name, version, environment)| ClientInfo {
        name,
        version,
        environment,
    });
    (
        (text(), axes, client, status, option::of(text())),
        (
            measured(timed()),
            measured(counted()),
            moving(),
            measured(server_view()),
        ),
    )
        .prop_map(
            |((name, axes, client, status, reason), (timed, counted, (varied, witness), server_view))| {
                StrategyResult {
                    name,
                    axes,
                    client,
                    status,
                    reason,
                    failure: None,
                    timed,
                    counted,
                    varied,
                    witness,
                    server_view,
                    experiment: Experiment::default(),
                }
            },
        )
}

fn limit() -> impl Strategy<Value = LimitReading> {
    let verdict = prop_oneof![
        Just(Verdict::Ok),
        Just(Verdict::Warn),
        Just(Verdict::Fail),
        Just(Verdict::Unknown),
        Just(Verdict::NotApplicable),
    ];
    (
        (text(), text(), verdict),
        (measured(any::<u64>()), text(), measured(any::<u64>())),
        (text(), text(), text(), text(), text()),
    )
        .prop_map(
            |((id, scope, verdict), (demand, formula, capacity), (source, effect, now, kept, container))| {
                LimitReading {
                    id,
                    scope,
                    verdict,
                    demand,
                    formula,
                    capacity,
                    source,
                    effect,
                    fix: Fix { now, kept, container },
                }
            },
        )
}

fn finding() -> impl Strategy<Value = Finding> {
    let severity = prop_oneof![
        Just(Severity::Info),
        Just(Severity::Warning),
        Just(Severity::Error)
    ];
    let evidence = prop_oneof![
        any::<u64>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        number().prop_map(serde_json::Value::from),
        text().prop_map(serde_json::Value::from),
        vec(any::<bool>(), 0..2).prop_map(serde_json::Value::from),
    ];
    (
        (text(), severity, option::of(text()), option::of(0_usize..9)),
        btree_map(text(), evidence, 0..4),
        (text(), text(), vec(text(), 0..3)),
    )
        .prop_map(
            |((code, severity, strategy, row), evidence, (says, try_next, not_the_cause))| Finding {
                code: Cow::Owned(code),
                severity,
                strategy,
                row,
                evidence,
                says,
                try_next,
                not_the_cause,
            },
        )
}

fn record() -> impl Strategy<Value = Record> {
    let kind = prop_oneof![
        Just(Kind::Bench),
        Just(Kind::Count),
        Just(Kind::Import),
        Just(Kind::Preflight),
    ];
    let host = (
        measured(text()),
        measured(text()),
        measured(any::<u64>()),
        measured(any::<u64>()),
        measured(text()),
    )
        .prop_map(|(kernel, cpu, cores, memory_bytes, clocksource)| Host {
            kernel,
            cpu,
            cores,
            memory_bytes,
            clocksource,
        });
    let origin = prop_oneof![
        Just(ServerOrigin::External),
        Just(ServerOrigin::Private),
        Just(ServerOrigin::BuiltIn),
    ];
    let server = (text(), text(), origin, vec(text(), 0..2), words()).prop_map(
        |(kind, version, origin, addresses, settings)| ServerInfo {
            place: kind.clone(),
            servers: u32::try_from(addresses.len()).unwrap_or(1),
            kind,
            version,
            origin,
            addresses,
            settings,
        },
    );
    (
        (kind, text(), any::<bool>(), host, option::of(server)),
        words(),
        vec(row(), 0..3),
        vec(limit(), 0..3),
        (counts(), counts()),
        vec(finding(), 0..3),
    )
        .prop_map(
            |(
                (kind, tool_version, complete, host, server),
                settings,
                strategies,
                limits,
                (before, after),
                findings,
            )| {
                Record {
                    kind,
                    tool_version,
                    complete,
                    host,
                    more_servers: server.iter().cloned().collect(),
                    server,
                    plan: PlanInfo { settings },
                    strategies,
                    limits,
                    counters: Counters { before, after },
                    sampled: None,
                    findings,
                    proofs: Vec::new(),
                    imports: Vec::new(),
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_record_read_back_is_the_record(record in record()) {
        let text = to_json(&record).unwrap();
        let again = from_json(&text).unwrap();
        prop_assert_eq!(&again, &record);
        prop_assert_eq!(to_json(&again).unwrap(), text);
    }
}

/// The smallest record: what a run that was stopped at once leaves.
fn empty() -> Record {
    let unknown = || Measured::NotMeasured("a test has no host".to_owned());
    Record {
        kind: Kind::Bench,
        tool_version: "0.1.0".to_owned(),
        complete: false,
        host: Host {
            kernel: unknown(),
            cpu: unknown(),
            cores: Measured::Known(2),
            memory_bytes: Measured::NotMeasured("a test has no host".to_owned()),
            clocksource: unknown(),
        },
        server: None,
        more_servers: Vec::new(),
        plan: PlanInfo::default(),
        strategies: Vec::new(),
        limits: Vec::new(),
        counters: Counters::default(),
        sampled: None,
        findings: Vec::new(),
        proofs: Vec::new(),
        imports: Vec::new(),
    }
}

fn refusal(text: &str) -> String {
    from_json(text).unwrap_err().to_string()
}

#[test]
fn other_text_is_refused_with_what_it_is() {
    assert!(refusal("").starts_with("line 1, column 0: EOF"));
    assert!(refusal("{\n  oops").starts_with("line 2, column 3: key must be a string"));
    assert!(refusal("{}").contains("it has no key \"schema\""));
    assert!(refusal("[1]").contains("not a record of systally"));
    assert!(refusal("7").starts_with("line 1, column 1: invalid type"));
    assert!(refusal("{\"schema\": 1}").contains("its \"schema\" is 1"));
    assert!(refusal("{\"schema\": \"cargo/1\"}").contains("not a record of systally"));
    let newer = refusal("{\"schema\": \"systally/2\", \"later\": 1}");
    assert!(
        newer.contains("systally/2") && newer.contains("reads systally/1"),
        "{newer}"
    );
    assert!(!refusal("{\"schema\": \"\\u001b[31m\"}").contains('\u{1b}'));
}

#[test]
fn an_unknown_key_is_refused_with_its_place() {
    let text = to_json(&empty())
        .unwrap()
        .replace("\"complete\": false,", "\"complete\": false,\n  \"extra\": 1,");
    let message = refusal(&text);
    assert!(
        message.starts_with("line 5, column 9: unknown field `extra`"),
        "{message}"
    );
}

#[test]
fn a_null_needs_its_reason_and_a_reason_its_null() {
    let text = to_json(&empty()).unwrap();
    let without = text.replace("\"host.cpu\": \"a test has no host\",", "");
    assert!(refusal(&without).contains("`host.cpu`: it is null"), "{without}");

    let spare = text.replace("\"host.cpu\":", "\"host.cores\": \"x\", \"host.cpu\":");
    assert!(refusal(&spare).contains("`host.cores`: `not_measured` names it"));
}

#[test]
fn a_number_that_json_cannot_hold_is_not_measured() {
    let mut record = empty();
    record.strategies.push(StrategyResult {
        name: "raw/persistent/tcp".to_owned(),
        axes: Axes {
            op: "get".to_owned(),
            transport: "tcp".to_owned(),
            pipeline: 1,
            payload_bytes: 3,
            ..Axes::default()
        },
        client: ClientInfo::default(),
        status: Status::Ok,
        reason: None,
        failure: None,
        timed: Measured::Known(Timed {
            rounds: Vec::new(),
            ops_per_s: Interval {
                median: 1.0,
                low: 1.0,
                high: 1.0,
            },
            vs_baseline: Measured::Known(Interval {
                median: f64::NAN,
                low: 0.0,
                high: f64::INFINITY,
            }),
            latency: Measured::NotMeasured("not asked for".to_owned()),
        }),
        counted: Measured::NotMeasured("not asked for".to_owned()),
        varied: Vec::new(),
        witness: Measured::NotMeasured("not asked for".to_owned()),
        server_view: Measured::NotMeasured("not asked for".to_owned()),
        experiment: Experiment::default(),
    });
    let again = from_json(&to_json(&record).unwrap()).unwrap();
    let timed = again.strategies[0].timed.known().unwrap();
    assert_eq!(timed.vs_baseline.reason(), Some("it is not a finite number"));
}

#[test]
fn the_schema_refuses_unknown_keys_and_names_the_version() {
    let schema = schema();
    assert_eq!(schema["properties"]["schema"]["const"], SCHEMA);
    assert_eq!(schema["additionalProperties"], false);
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        if definition["type"] == "object" {
            assert_eq!(definition["additionalProperties"], false, "{name}");
            for (key, property) in definition["properties"].as_object().unwrap() {
                let described = property["description"].is_string() || property["$ref"].is_string();
                assert!(described, "{name}.{key} has no description");
            }
        }
    }
}

#[test]
fn files_are_read_back_and_errors_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    save(&empty(), &path).unwrap();
    assert_eq!(load(&path).unwrap(), empty());
    std::fs::write(&path, "{\n\"schema\": \"systally/1\",\n").unwrap();
    let message = load(&path).unwrap_err().to_string();
    assert!(message.contains("run.json: line 3"), "{message}");
    let message = load(&folder.path().join("none.json")).unwrap_err().to_string();
    assert!(
        message.starts_with("cannot read ") && message.contains("none.json: No such file"),
        "{message}"
    );
    let message = save(&empty(), std::path::Path::new("/dev/full"))
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("cannot write /dev/full: No space left"),
        "{message}"
    );
    let message = save(&empty(), &folder.path().join("no/such/run.json"))
        .unwrap_err()
        .to_string();
    assert!(message.contains("no/such/run.json: No such file"), "{message}");
}
