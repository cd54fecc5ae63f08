//! From the JSON shapes to a record. Every null must have its reason, and every reason its null: a record
//! that does not keep to this was changed by hand or written by something else.

use std::borrow::Cow;

use super::WireError;
use super::types::{
    Reasons, WireCall, WireCounted, WireFinding, WireHost, WireLatencies, WireLimit, WirePer, WirePhase,
    WireRecord, WireRound, WireStrategy, WireTimed, WireWitness,
};
use crate::explain::Finding;
use crate::record::witness::UNSAID;
use crate::record::{
    CallCounts, Counted, Counters, Host, Latency, LimitReading, Moved, PhaseCounts, Phases, PlanInfo, Record,
    Round, StrategyResult, Timed, Witness,
};
use crate::units::{Measured, Nanos, Ops, escape};

/// How much of a foreign name a message repeats.
const SHOWN: usize = 120;

/// The reasons that no null has claimed yet.
struct Unclaimed {
    /// Where the paths begin, for messages.
    within: String,
    reasons: Reasons,
}

impl Unclaimed {
    fn measured<W, T: From<W>>(&mut self, path: &str, value: Option<W>) -> Result<Measured<T>, WireError> {
        self.or_reason(path, value, |_, known| Ok(known.into()))
    }

    fn or_reason<W, T>(
        &mut self,
        path: &str,
        value: Option<W>,
        convert: impl FnOnce(&mut Unclaimed, W) -> Result<T, WireError>,
    ) -> Result<Measured<T>, WireError> {
        match value {
            Some(known) => convert(self, known).map(Measured::Known),
            None => match self.reasons.remove(path) {
                Some(reason) => Ok(Measured::NotMeasured(reason)),
                None => Err(self.error(path, "it is null or missing, and `not_measured` gives no reason")),
            },
        }
    }

    /// Fails when a reason is left over.
    fn finish(self) -> Result<(), WireError> {
        match self.reasons.keys().next() {
            None => Ok(()),
            Some(path) => Err(self.error(path, "`not_measured` names it, but it is not null")),
        }
    }

    fn error(&self, path: &str, what: &'static str) -> WireError {
        WireError::Inconsistent {
            path: escape(&format!("{}{path}", self.within), SHOWN),
            what,
        }
    }
}

pub(super) fn record(wire: WireRecord) -> Result<Record, WireError> {
    let mut unclaimed = Unclaimed {
        within: String::new(),
        reasons: wire.not_measured,
    };
    let host = host(wire.host, &mut unclaimed)?;
    let limits = wire
        .limits
        .into_iter()
        .enumerate()
        .map(|(i, one)| limit(one, &format!("limits.{i}"), &mut unclaimed))
        .collect::<Result<_, _>>()?;
    unclaimed.finish()?;
    let strategies = wire.strategies.into_iter().enumerate();
    Ok(Record {
        kind: wire.kind.into(),
        tool_version: wire.tool.version,
        complete: wire.complete,
        host,
        server: wire.server.map(Into::into),
        more_servers: wire.more_servers.into_iter().map(Into::into).collect(),
        plan: PlanInfo { settings: wire.plan },
        strategies: strategies
            .map(|(i, one)| strategy(one, i))
            .collect::<Result<_, _>>()?,
        limits,
        counters: Counters {
            before: wire.counters.before,
            after: wire.counters.after,
        },
        sampled: wire.sampled,
        findings: wire.findings.into_iter().map(finding).collect(),
        proofs: wire.proofs,
        imports: wire.imports,
    })
}

fn host(host: WireHost, unclaimed: &mut Unclaimed) -> Result<Host, WireError> {
    Ok(Host {
        kernel: unclaimed.measured("host.kernel", host.kernel)?,
        cpu: unclaimed.measured("host.cpu", host.cpu)?,
        cores: unclaimed.measured("host.cores", host.cores)?,
        memory_bytes: unclaimed.measured("host.memory_bytes", host.memory_bytes)?,
        clocksource: unclaimed.measured("host.clocksource", host.clocksource)?,
    })
}

fn limit(limit: WireLimit, path: &str, unclaimed: &mut Unclaimed) -> Result<LimitReading, WireError> {
    Ok(LimitReading {
        id: limit.id,
        scope: limit.scope,
        verdict: limit.verdict.into(),
        demand: unclaimed.measured(&format!("{path}.demand"), limit.demand)?,
        formula: limit.formula,
        capacity: unclaimed.measured(&format!("{path}.capacity"), limit.capacity)?,
        source: limit.source,
        effect: limit.effect,
        fix: limit.fix.into(),
    })
}

fn strategy(row: WireStrategy, number: usize) -> Result<StrategyResult, WireError> {
    let mut unclaimed = Unclaimed {
        within: format!("strategies.{number}."),
        reasons: row.not_measured,
    };
    if row.witness.is_none() {
        // Records of older builds have neither the key nor a reason.
        let unsaid = || UNSAID.to_owned();
        unclaimed
            .reasons
            .entry("witness".to_owned())
            .or_insert_with(unsaid);
    }
    let result = StrategyResult {
        name: row.name,
        axes: row.axes.into(),
        client: row.client.into(),
        status: row.status.into(),
        reason: row.reason,
        failure: row.failure,
        timed: unclaimed.or_reason("timed", row.timed, |unclaimed, known| timed(known, unclaimed))?,
        counted: unclaimed.or_reason("counted", row.counted, |unclaimed, known| {
            counted(known, unclaimed)
        })?,
        varied: row.varied.into_iter().map(Into::into).collect(),
        witness: unclaimed.or_reason("witness", row.witness, |unclaimed, known| {
            witness(known, unclaimed)
        })?,
        server_view: unclaimed.measured("server_view", row.server_view)?,
        experiment: row.experiment,
    };
    unclaimed.finish()?;
    Ok(result)
}

fn witness(witness: WireWitness, unclaimed: &mut Unclaimed) -> Result<Witness, WireError> {
    let moved = witness.moved.into_iter().map(|moved| Moved {
        syscall: moved.syscall,
        errno: moved.errno,
        slow: moved.counted.into(),
        fast: moved.native.into(),
    });
    Ok(Witness {
        engine: witness.engine,
        passes: witness.passes,
        calls: witness.calls,
        slowdown: unclaimed.measured("witness.slowdown", witness.slowdown)?,
        moved: moved.collect(),
    })
}

fn timed(timed: WireTimed, unclaimed: &mut Unclaimed) -> Result<Timed, WireError> {
    let rounds = timed.rounds.into_iter().enumerate();
    Ok(Timed {
        rounds: rounds
            .map(|(i, one)| round(one, i, unclaimed))
            .collect::<Result<_, _>>()?,
        ops_per_s: timed.ops_per_s.into(),
        vs_baseline: unclaimed.measured("timed.vs_baseline", timed.vs_baseline)?,
        latency: unclaimed.or_reason("timed.latency_ns", timed.latency_ns, |_, known| {
            Ok(latency(known))
        })?,
    })
}

fn round(round: WireRound, number: usize, unclaimed: &mut Unclaimed) -> Result<Round, WireError> {
    let path = format!("timed.rounds.{number}");
    Ok(Round {
        ops: Ops(round.ops),
        asked: Ops(round.asked),
        elapsed: span(round.seconds, &format!("{path}.seconds"), unclaimed)?,
        errors: round.errors,
        server: unclaimed.measured(&format!("{path}.server_view"), round.server_view)?,
        cpu: round.cpu_ns.map(|cpu| (Nanos(cpu.user), Nanos(cpu.system))),
    })
}

/// Seconds in whole nanoseconds. Exact for what was written from nanoseconds, up to 26 days.
fn span(seconds: f64, path: &str, unclaimed: &Unclaimed) -> Result<Nanos, WireError> {
    let ns = (seconds * 1e9).round();
    if !(0.0..=u64::MAX as f64).contains(&ns) {
        return Err(unclaimed.error(path, "it is not a span of time"));
    }
    Ok(Nanos(ns as u64))
}

fn latency(latency: WireLatencies) -> Latency {
    Latency {
        per_batch: match latency.per {
            WirePer::Op => false,
            WirePer::Batch => true,
        },
        p50: Nanos(latency.p50),
        p90: Nanos(latency.p90),
        p99: Nanos(latency.p99),
        p999: Nanos(latency.p999),
        max: Nanos(latency.max),
        hdr: latency.hdr,
    }
}

fn counted(counted: WireCounted, unclaimed: &mut Unclaimed) -> Result<Counted, WireError> {
    let phases = counted.phases;
    Ok(Counted {
        engine: counted.engine,
        ops: counted.ops.map(Ops),
        elapsed: span(counted.seconds, "counted.seconds", unclaimed)?,
        slowdown: unclaimed.measured("counted.slowdown", counted.slowdown)?,
        phases: Phases {
            startup: phase(phases.startup, "counted.phases.startup", unclaimed)?,
            run_loop: phase(phases.run_loop, "counted.phases.loop", unclaimed)?,
            shutdown: phase(phases.shutdown, "counted.phases.shutdown", unclaimed)?,
        },
        connects_per_op: unclaimed.measured("counted.connects_per_op", counted.connects_per_op)?,
        round_trips_per_op: unclaimed.measured("counted.round_trips_per_op", counted.round_trips_per_op)?,
        sends_per_batch: unclaimed.measured("counted.sends_per_batch", counted.sends_per_batch)?,
        floor_ratio: unclaimed.measured("counted.floor_ratio", counted.floor_ratio)?,
        client_errors: counted.client_errors,
        cpu: unclaimed.or_reason("counted.cpu_ns", counted.cpu_ns, |_, cpu| {
            Ok((Nanos(cpu.user), Nanos(cpu.system)))
        })?,
        notes: counted.notes,
    })
}

fn phase(phase: WirePhase, path: &str, unclaimed: &mut Unclaimed) -> Result<PhaseCounts, WireError> {
    let syscalls = phase
        .syscalls
        .into_iter()
        .map(|(name, one)| {
            let path = format!("{path}.syscalls.{name}");
            Ok((name, call(one, &path, unclaimed)?))
        })
        .collect::<Result<_, WireError>>()?;
    let counts = PhaseCounts {
        syscalls,
        talk: phase.talk,
    };
    if counts.total() != phase.total_calls {
        return Err(unclaimed.error(&format!("{path}.total_calls"), "it is not the sum of the calls"));
    }
    Ok(counts)
}

fn call(call: WireCall, path: &str, unclaimed: &mut Unclaimed) -> Result<CallCounts, WireError> {
    Ok(CallCounts {
        calls: call.calls,
        unfinished: call.unfinished,
        errors: unclaimed.measured(&format!("{path}.errors"), call.errors)?,
        restarts: call.restarts,
        wall: unclaimed.or_reason(&format!("{path}.time_ns"), call.time_ns, |_, ns| Ok(Nanos(ns)))?,
        cpu: unclaimed.or_reason(&format!("{path}.cpu_ns"), call.cpu_ns, |_, ns| Ok(Nanos(ns)))?,
        bytes: unclaimed.measured(&format!("{path}.bytes"), call.bytes)?,
        peeks: unclaimed.measured(&format!("{path}.peeks"), call.peeks)?,
        peers: call.peers,
    })
}

fn finding(finding: WireFinding) -> Finding {
    Finding {
        code: Cow::Owned(finding.code),
        severity: finding.severity.into(),
        strategy: finding.strategy,
        row: finding.row,
        evidence: finding.evidence,
        says: finding.says,
        try_next: finding.try_next,
        not_the_cause: finding.not_the_cause,
    }
}
