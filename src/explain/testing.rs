//! Small records for the tests of rules.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::Fact;
use super::{Finding, docs, explain};
use crate::record::witness::UNSAID;
use crate::record::{
    Axes, CallCounts, ClientInfo, Counted, Counters, Experiment, Failure, FailureKind, Host, Interval, Kind,
    Latency, PhaseCounts, Phases, PlanInfo, Record, Round, ServerInfo, ServerOrigin, ServerView, Stage,
    Status, StrategyResult, Timed,
};
use crate::tally::Talk;
use crate::units::{Measured, Nanos, Ops};

fn not<T>() -> Measured<T> {
    Measured::NotMeasured("not in this test".to_owned())
}

/// A bench of a private Redis without rows.
pub(crate) fn empty() -> Record {
    Record {
        kind: Kind::Bench,
        tool_version: "0".to_owned(),
        complete: true,
        host: Host {
            kernel: not(),
            cpu: not(),
            cores: not(),
            memory_bytes: not(),
            clocksource: not(),
        },
        server: Some(ServerInfo {
            kind: "redis".to_owned(),
            version: "7.0.15".to_owned(),
            origin: ServerOrigin::Private,
            addresses: vec!["127.0.0.1:6379".to_owned(), "unix:/run/r.sock".to_owned()],
            ..ServerInfo::default()
        }),
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

/// A clean row of 1,000 GETs: one send, one receive each, all served.
pub(crate) fn row(name: &str) -> StrategyResult {
    let transport = name.split('/').nth(2).unwrap_or_default().to_owned();
    let mut result = StrategyResult {
        name: name.to_owned(),
        axes: Axes {
            op: "get".to_owned(),
            transport,
            pipeline: 1,
            payload_bytes: 4,
            ..Axes::default()
        },
        client: ClientInfo::default(),
        status: Status::Ok,
        reason: None,
        failure: None,
        timed: not(),
        counted: Measured::Known(Counted {
            engine: "ptrace".to_owned(),
            ops: Some(Ops(1000)),
            elapsed: Nanos(1_000_000),
            slowdown: Measured::Known(1.4),
            phases: Phases::default(),
            connects_per_op: Measured::Known(0.0),
            round_trips_per_op: Measured::Known(1.0),
            sends_per_batch: Measured::Known(1.0),
            floor_ratio: Measured::Known(1.0),
            client_errors: BTreeMap::new(),
            cpu: not(),
            notes: Vec::new(),
        }),
        varied: Vec::new(),
        witness: Measured::NotMeasured(UNSAID.to_owned()),
        server_view: Measured::Known(ServerView::default()),
        experiment: Experiment::default(),
    };
    set_rounds(&mut result, vec![round(1000, 1000, 1000)], 50_000.0);
    set_call(&mut result, "sendto", 1000, &[]);
    set_call(&mut result, "recvfrom", 1000, &[]);
    result
}

/// A round in which the server executed so many GETs.
pub(crate) fn round(ops: u64, asked: u64, served: u64) -> Round {
    Round {
        ops: Ops(ops),
        asked: Ops(asked),
        elapsed: Nanos(1_000_000),
        errors: BTreeMap::new(),
        server: Measured::Known(ServerView {
            commands: BTreeMap::from([("get".to_owned(), served)]),
            ..ServerView::default()
        }),
        cpu: None,
    }
}

pub(crate) fn set_rounds(result: &mut StrategyResult, rounds: Vec<Round>, median: f64) {
    result.timed = Measured::Known(Timed {
        rounds,
        ops_per_s: Interval {
            median,
            low: median,
            high: median,
        },
        vs_baseline: not(),
        latency: not(),
    });
}

pub(super) fn set_counted(result: &mut StrategyResult, change: impl FnOnce(&mut Counted)) {
    match &mut result.counted {
        Measured::Known(counted) => change(counted),
        Measured::NotMeasured(why) => panic!("{why}"),
    }
}

/// Sets turns and waits of the measured window.
pub(super) fn set_talk(result: &mut StrategyResult, change: impl FnOnce(&mut Talk)) {
    set_counted(result, |counted| {
        change(counted.phases.run_loop.talk.get_or_insert_default());
    });
}

/// Gives the timed rounds a histogram in which everything took equally long.
pub(super) fn set_latency(result: &mut StrategyResult, time: Nanos) {
    match &mut result.timed {
        Measured::Known(timed) => {
            timed.latency = Measured::Known(Latency {
                per_batch: false,
                p50: time,
                p90: time,
                p99: time,
                p999: time,
                max: time,
                hdr: String::new(),
            });
        }
        Measured::NotMeasured(why) => panic!("{why}"),
    }
}

/// Sets a call of the measured window.
pub(super) fn set_call(result: &mut StrategyResult, name: &str, calls: u64, errors: &[(&str, u64)]) {
    let errors = errors.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
    set_counted(result, |counted| {
        let phase: &mut PhaseCounts = &mut counted.phases.run_loop;
        phase.syscalls.insert(
            name.to_owned(),
            CallCounts {
                calls,
                unfinished: 0,
                errors: Measured::Known(errors),
                restarts: BTreeMap::new(),
                wall: not(),
                cpu: not(),
                bytes: not(),
                peeks: Measured::Known(0),
                peers: BTreeMap::new(),
            },
        );
    });
}

/// Gives a call of the measured window a time, made when it is new.
pub(super) fn set_call_time(result: &mut StrategyResult, name: &str, time: Nanos) {
    let known =
        matches!(&result.counted, Measured::Known(c) if c.phases.run_loop.syscalls.contains_key(name));
    if !known {
        set_call(result, name, 1, &[]);
    }
    set_counted(result, |counted| {
        for (call, counts) in &mut counted.phases.run_loop.syscalls {
            let mine = call == name;
            match &mut counts.wall {
                wall if mine => *wall = Measured::Known(time),
                wall @ Measured::NotMeasured(_) => *wall = Measured::Known(Nanos(0)),
                Measured::Known(_) => {}
            }
        }
    });
}

/// Says where the calls of that name in the measured window led.
pub(super) fn set_peers(result: &mut StrategyResult, name: &str, peers: &[(&str, u64)]) {
    set_counted(result, |counted| {
        if let Some(call) = counted.phases.run_loop.syscalls.get_mut(name) {
            call.peers = peers.iter().map(|(peer, n)| ((*peer).to_owned(), *n)).collect();
        }
    });
}

/// Sets a call made before the measured window.
pub(super) fn set_startup(result: &mut StrategyResult, name: &str, calls: u64) {
    set_call(result, name, calls, &[]);
    set_counted(result, |counted| {
        if let Some(call) = counted.phases.run_loop.syscalls.remove(name) {
            counted.phases.startup.syscalls.insert(name.to_owned(), call);
        }
    });
}

/// Adds a call that always failed with one errno.
pub(super) fn set_errno(result: &mut StrategyResult, name: &str, calls: u64, errno: &str) {
    set_call(result, name, calls, &[(errno, calls)]);
}

/// Sets the kernel's counters of a full accept queue of TCP before and after the run.
pub(super) fn set_overflows(record: &mut Record, before: u64, after: u64) {
    for name in [
        "TcpExt.ListenOverflows",
        "TcpExt.ListenDrops",
        "TcpExt.TCPSynRetrans",
    ] {
        record.counters.before.insert(name.to_owned(), before);
        record.counters.after.insert(name.to_owned(), after);
    }
}

/// A bench of one row whose worker said that it failed before it was ready.
pub(super) fn failed(name: &str, class: &str, message: &str) -> Record {
    let mut record = empty();
    let mut result = row(name);
    let endpoint = match result.axes.transport.as_str() {
        "unix" => "unix:/run/r.sock",
        _ => "127.0.0.1:6379",
    };
    result.status = Status::Failed;
    result.reason = Some(message.to_owned());
    result.timed = not();
    result.counted = not();
    result.server_view = not();
    result.failure = Some(Failure {
        stage: Stage::Startup,
        kind: FailureKind::Said,
        class: class.to_owned(),
        message: message.to_owned(),
        errno: None,
        pid: None,
        exit: None,
        stderr_tail: String::new(),
        endpoint: endpoint.to_owned(),
        facts: BTreeMap::new(),
    });
    record.strategies.push(result);
    record
}

/// The record with one more fact in the failure of its first row.
pub(super) fn with_fact(mut record: Record, fact: Fact, value: &str) -> Record {
    let failure = record.strategies[0].failure.as_mut().unwrap();
    failure.facts.insert(fact.key().to_owned(), value.to_owned());
    record
}

/// What is found, each finding checked for the form that all must have.
pub(super) fn explained(record: &Record) -> Vec<Finding> {
    let described: BTreeSet<_> = docs().map(|doc| doc.code).collect();
    let found = explain(record);
    for finding in &found {
        assert!(
            described.contains(finding.code.as_ref()),
            "{} is not described",
            finding.code
        );
        assert!(
            !finding.says.is_empty() && !finding.try_next.is_empty(),
            "{}",
            finding.code
        );
        assert!(!finding.says.ends_with('.'), "{}", finding.says);
        assert!(!finding.evidence.is_empty(), "{}", finding.code);
    }
    found
}

/// The codes of what is found.
pub(super) fn codes(record: &Record) -> Vec<String> {
    explained(record)
        .into_iter()
        .map(|finding| finding.code.into_owned())
        .collect()
}
