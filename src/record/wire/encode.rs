//! From a record to the JSON shapes.

use std::collections::BTreeMap;

use super::SCHEMA;
use super::types::{
    Reasons, WireCall, WireCounted, WireCounters, WireCpu, WireFinding, WireHost, WireLatencies, WireLimit,
    WireMoved, WirePer, WirePhase, WirePhases, WireRecord, WireRound, WireStrategy, WireTimed, WireTool,
    WireWitness,
};
use crate::explain::Finding;
use crate::record::witness::UNSAID;
use crate::record::{
    CallCounts, Counted, Host, Interval, Latency, LimitReading, PhaseCounts, Record, Round, StrategyResult,
    Timed, Witness,
};
use crate::units::{Measured, Ops};

/// What stands in `not_measured` for a number that JSON cannot hold.
const NOT_FINITE: &str = "it is not a finite number";

/// Collects the reasons of the nulls it leaves.
struct Nulls(Reasons);

impl Nulls {
    /// A known value as `convert` shapes it, or a null whose reason is kept under `path`.
    fn value<T, U>(
        &mut self,
        path: &str,
        value: &Measured<T>,
        convert: impl FnOnce(&mut Nulls, &T) -> Option<U>,
    ) -> Option<U> {
        match value {
            Measured::Known(known) => {
                let converted = convert(self, known);
                if converted.is_none() {
                    self.0.insert(path.to_owned(), NOT_FINITE.to_owned());
                }
                converted
            }
            Measured::NotMeasured(reason) => {
                self.0.insert(path.to_owned(), reason.clone());
                None
            }
        }
    }

    fn plain<T: Clone>(&mut self, path: &str, value: &Measured<T>) -> Option<T> {
        self.value(path, value, |_, known| Some(known.clone()))
    }

    fn number(&mut self, path: &str, value: &Measured<f64>) -> Option<f64> {
        self.value(path, value, |_, known| known.is_finite().then_some(*known))
    }

    fn interval(&mut self, path: &str, value: &Measured<Interval>) -> Option<super::types::WireInterval> {
        self.value(path, value, |_, known| known.is_finite().then(|| known.into()))
    }
}

pub(super) fn record(record: &Record) -> WireRecord {
    let mut nulls = Nulls(Reasons::new());
    let host = host(&record.host, &mut nulls);
    let limits = record
        .limits
        .iter()
        .enumerate()
        .map(|(i, reading)| limit(reading, &format!("limits.{i}"), &mut nulls))
        .collect();
    WireRecord {
        schema: SCHEMA.to_owned(),
        kind: record.kind.into(),
        complete: record.complete,
        tool: WireTool {
            version: record.tool_version.clone(),
        },
        host,
        server: record.server.as_ref().map(Into::into),
        more_servers: record.more_servers.iter().map(Into::into).collect(),
        plan: record.plan.settings.clone(),
        strategies: record.strategies.iter().map(strategy).collect(),
        limits,
        counters: WireCounters {
            before: record.counters.before.clone(),
            after: record.counters.after.clone(),
        },
        sampled: record.sampled.clone(),
        findings: record.findings.iter().map(finding).collect(),
        proofs: record.proofs.clone(),
        imports: record.imports.clone(),
        not_measured: nulls.0,
    }
}

fn host(host: &Host, nulls: &mut Nulls) -> WireHost {
    WireHost {
        kernel: nulls.plain("host.kernel", &host.kernel),
        cpu: nulls.plain("host.cpu", &host.cpu),
        cores: nulls.plain("host.cores", &host.cores),
        memory_bytes: nulls.plain("host.memory_bytes", &host.memory_bytes),
        clocksource: nulls.plain("host.clocksource", &host.clocksource),
    }
}

fn limit(reading: &LimitReading, path: &str, nulls: &mut Nulls) -> WireLimit {
    WireLimit {
        id: reading.id.clone(),
        scope: reading.scope.clone(),
        verdict: reading.verdict.into(),
        demand: nulls.plain(&format!("{path}.demand"), &reading.demand),
        formula: reading.formula.clone(),
        capacity: nulls.plain(&format!("{path}.capacity"), &reading.capacity),
        source: reading.source.clone(),
        effect: reading.effect.clone(),
        fix: (&reading.fix).into(),
    }
}

fn strategy(row: &StrategyResult) -> WireStrategy {
    let mut nulls = Nulls(Reasons::new());
    let timed = nulls.value("timed", &row.timed, |nulls, known| timed(known, nulls));
    let counted = nulls.value("counted", &row.counted, |nulls, known| counted(known, nulls));
    // A record of an older build stays as it was.
    let witness = match row.witness.reason() {
        Some(UNSAID) => None,
        Some(_) | None => nulls.value("witness", &row.witness, |nulls, known| {
            Some(witness(known, nulls))
        }),
    };
    let server_view = nulls.value("server_view", &row.server_view, |_, known| Some(known.into()));
    WireStrategy {
        name: row.name.clone(),
        axes: (&row.axes).into(),
        client: (&row.client).into(),
        status: row.status.into(),
        reason: row.reason.clone(),
        failure: row.failure.clone(),
        timed,
        counted,
        varied: row.varied.iter().map(Into::into).collect(),
        witness,
        server_view,
        experiment: row.experiment.clone(),
        not_measured: nulls.0,
    }
}

fn witness(witness: &Witness, nulls: &mut Nulls) -> WireWitness {
    let moved = witness.moved.iter().map(|moved| WireMoved {
        syscall: moved.syscall.clone(),
        errno: moved.errno.clone(),
        counted: (&moved.slow).into(),
        native: (&moved.fast).into(),
    });
    WireWitness {
        engine: witness.engine.clone(),
        passes: witness.passes,
        calls: witness.calls.clone(),
        slowdown: nulls.number("witness.slowdown", &witness.slowdown),
        moved: moved.collect(),
    }
}

/// `None` when the throughput is not a finite number, which no run makes.
fn timed(timed: &Timed, nulls: &mut Nulls) -> Option<WireTimed> {
    if !timed.ops_per_s.is_finite() {
        return None;
    }
    let rounds = timed.rounds.iter().enumerate();
    Some(WireTimed {
        rounds: rounds.map(|(i, one)| round(one, i, nulls)).collect(),
        ops_per_s: (&timed.ops_per_s).into(),
        vs_baseline: nulls.interval("timed.vs_baseline", &timed.vs_baseline),
        latency_ns: nulls.value("timed.latency_ns", &timed.latency, |_, known| {
            Some(latency(known))
        }),
    })
}

fn round(round: &Round, number: usize, nulls: &mut Nulls) -> WireRound {
    let path = format!("timed.rounds.{number}.server_view");
    WireRound {
        ops: round.ops.0,
        asked: round.asked.0,
        seconds: round.elapsed.as_secs_f64(),
        errors: round.errors.clone(),
        server_view: nulls.value(&path, &round.server, |_, known| Some(known.into())),
        cpu_ns: round.cpu.map(|(user, system)| WireCpu {
            user: user.0,
            system: system.0,
        }),
    }
}

fn latency(latency: &Latency) -> WireLatencies {
    WireLatencies {
        per: if latency.per_batch {
            WirePer::Batch
        } else {
            WirePer::Op
        },
        p50: latency.p50.0,
        p90: latency.p90.0,
        p99: latency.p99.0,
        p999: latency.p999.0,
        max: latency.max.0,
        hdr: latency.hdr.clone(),
    }
}

fn counted(counted: &Counted, nulls: &mut Nulls) -> Option<WireCounted> {
    let phases = &counted.phases;
    Some(WireCounted {
        engine: counted.engine.clone(),
        ops: counted.ops.map(|ops| ops.0),
        seconds: counted.elapsed.as_secs_f64(),
        slowdown: nulls.number("counted.slowdown", &counted.slowdown),
        phases: WirePhases {
            startup: phase(&phases.startup, None, "counted.phases.startup", nulls),
            run_loop: phase(&phases.run_loop, counted.ops, "counted.phases.loop", nulls),
            shutdown: phase(&phases.shutdown, None, "counted.phases.shutdown", nulls),
        },
        connects_per_op: nulls.number("counted.connects_per_op", &counted.connects_per_op),
        round_trips_per_op: nulls.number("counted.round_trips_per_op", &counted.round_trips_per_op),
        sends_per_batch: nulls.number("counted.sends_per_batch", &counted.sends_per_batch),
        floor_ratio: nulls.number("counted.floor_ratio", &counted.floor_ratio),
        client_errors: counted.client_errors.clone(),
        cpu_ns: nulls.value("counted.cpu_ns", &counted.cpu, |_, (user, system)| {
            Some(WireCpu {
                user: user.0,
                system: system.0,
            })
        }),
        notes: counted.notes.clone(),
    })
}

fn phase(phase: &PhaseCounts, ops: Option<Ops>, path: &str, nulls: &mut Nulls) -> WirePhase {
    let syscalls: BTreeMap<String, WireCall> = phase
        .syscalls
        .iter()
        .map(|(name, one)| {
            let path = format!("{path}.syscalls.{name}");
            (name.clone(), call(one, ops, &path, nulls))
        })
        .collect();
    WirePhase {
        total_calls: phase.total(),
        total_per_op: ops.and_then(|ops| ops.per_op(phase.total())),
        syscalls,
        talk: phase.talk.clone(),
    }
}

fn call(call: &CallCounts, ops: Option<Ops>, path: &str, nulls: &mut Nulls) -> WireCall {
    WireCall {
        calls: call.calls,
        per_op: ops.and_then(|ops| ops.per_op(call.calls)),
        unfinished: call.unfinished,
        errors: nulls.plain(&format!("{path}.errors"), &call.errors),
        restarts: call.restarts.clone(),
        time_ns: nulls.value(&format!("{path}.time_ns"), &call.wall, |_, span| Some(span.0)),
        cpu_ns: nulls.value(&format!("{path}.cpu_ns"), &call.cpu, |_, span| Some(span.0)),
        bytes: nulls.plain(&format!("{path}.bytes"), &call.bytes),
        peeks: nulls.plain(&format!("{path}.peeks"), &call.peeks),
        peers: call.peers.clone(),
    }
}

fn finding(finding: &Finding) -> WireFinding {
    WireFinding {
        code: finding.code.clone().into_owned(),
        severity: finding.severity.into(),
        strategy: finding.strategy.clone(),
        row: finding.row,
        evidence: finding.evidence.clone(),
        says: finding.says.clone(),
        try_next: finding.try_next.clone(),
        not_the_cause: finding.not_the_cause.clone(),
    }
}
