//! The result of `systally count`: the record, and how it is shown.

use std::collections::BTreeMap;
use std::path::Path;

use crate::engine::{self, EngineKind, Outcome, Request};
use crate::explain::explain;
use crate::proc::{self, Root};
use crate::record::{
    Axes, ClientInfo, Counted, Counters, Experiment, Kind, Phases, PlanInfo, Record, Status, StrategyResult,
    wire,
};
use crate::render::{self, Format, TimeKind, View, on_peers};
use crate::units::{Measured, Nanos, Ops};

use super::count::CountArgs;
use super::count_server::Served;
use super::{CommandError, print, print_beside, terminal};

/// The calls that a turn of send and receive can be made of. Whoever leaves one out may miss turns.
const SENDS_AND_RECEIVES: &[&str] = &[
    "sendto", "sendmsg", "write", "writev", "recvfrom", "recvmsg", "read", "readv",
];

/// What a count found out.
pub(super) struct Finished {
    /// The program's name, escaped.
    pub(super) name: String,
    /// What was asked for and how it went, for the record.
    pub(super) settings: BTreeMap<String, String>,
    /// What the engine says.
    pub(super) outcome: Outcome,
    /// Completed operations, where they are known.
    pub(super) ops: Option<Ops>,
    /// How long it was counted.
    pub(super) elapsed: Nanos,
    /// What the server that was named counted meanwhile.
    pub(super) served: Option<Served>,
    /// What counted.
    pub(super) engine: EngineKind,
}

fn record(request: &Request, finished: Finished) -> Record {
    let Finished {
        name,
        settings,
        outcome,
        ops,
        elapsed,
        served,
        engine: kind,
    } = finished;
    let can = engine::engine(kind).learns(request);
    let chosen = |names: &[&str]| names.iter().all(|name| request.selection.contains_all(name));
    let per_op = |count: u64, needed: &[&str]| match ops.and_then(|ops| ops.per_op(count)) {
        _ if !can.peers => Measured::NotMeasured(format!("the {kind} engine does not see peers")),
        _ if !chosen(needed) => {
            Measured::NotMeasured(format!("{} is not among the chosen calls", needed.join(", ")))
        }
        Some(value) => Measured::Known(value),
        None => Measured::NotMeasured("the operations of the program are not known".to_owned()),
    };
    let mut notes = outcome.notes;
    notes.extend(served.iter().flat_map(|served| served.notes.clone()));
    let counted = outcome.tallies.map(|tallies| {
        let mut phases = Phases::from_tallies(&tallies, can, request.cpu_time);
        too_coarse(&mut phases);
        Counted {
            engine: kind.name().to_owned(),
            ops,
            elapsed,
            slowdown: Measured::NotMeasured("the program was not run untraced".to_owned()),
            connects_per_op: per_op(tallies.run_loop.connects, &["connect"]),
            round_trips_per_op: per_op(tallies.run_loop.round_trips, SENDS_AND_RECEIVES),
            sends_per_batch: Measured::NotMeasured("the batches of the program are not known".to_owned()),
            floor_ratio: Measured::NotMeasured("the batches of the program are not known".to_owned()),
            phases,
            client_errors: BTreeMap::new(),
            cpu: outcome.cpu.map(|cpu| (cpu.user, cpu.system)),
            notes,
        }
    });
    let (server, server_view) = match served {
        Some(served) => (Some(served.info), served.view),
        None => (None, Measured::NotMeasured("no server was asked".to_owned())),
    };
    let row = StrategyResult {
        name: name.clone(),
        axes: Axes::default(),
        client: ClientInfo {
            name,
            ..ClientInfo::default()
        },
        status: Status::Ok,
        reason: None,
        failure: None,
        timed: Measured::NotMeasured("count does not time".to_owned()),
        counted,
        varied: Vec::new(),
        witness: Measured::NotMeasured("count counts once".to_owned()),
        server_view,
        experiment: Experiment::default(),
    };
    let mut record = Record {
        kind: Kind::Count,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        complete: true,
        host: proc::host(&Root::live()),
        server,
        more_servers: Vec::new(),
        plan: PlanInfo { settings },
        strategies: vec![row],
        limits: Vec::new(),
        counters: Counters::default(),
        sampled: None,
        findings: Vec::new(),
        proofs: Vec::new(),
        imports: Vec::new(),
    };
    record.findings = explain(&record);
    record
}

/// The kernel counts CPU time in ticks of some milliseconds. Where no tick fell into any call, the time of
/// the calls is not zero but unknown.
fn too_coarse(phases: &mut Phases) {
    let all = [&mut phases.startup, &mut phases.run_loop, &mut phases.shutdown];
    let mut calls: Vec<_> = all
        .into_iter()
        .flat_map(|phase| phase.syscalls.values_mut())
        .collect();
    let ticked = calls
        .iter()
        .any(|call| call.cpu.known().is_none_or(|time| time.0 > 0));
    if ticked {
        return;
    }
    for call in &mut calls {
        call.cpu = Measured::NotMeasured(
            "no tick of the kernel's CPU clock fell into a call: they were too short or too few".to_owned(),
        );
    }
}

/// Keeps the record where that was asked for, and shows it.
///
/// # Errors
/// What cannot be written.
pub(super) fn show(args: &CountArgs, request: &Request, finished: Finished) -> Result<(), CommandError> {
    let wanted = wanted_peers(args, &finished);
    let record = &record(request, finished);
    let view = View {
        sort: args.sort,
        time: if args.summary_wall_clock {
            TimeKind::Wall
        } else {
            TimeKind::Cpu
        },
        columns: args.columns.clone(),
        peers: args.peers,
        header: false,
        ..terminal::view_of_stderr()
    };
    // What the program wrote last may have no end of line, and JSON and Markdown do not mind an empty one.
    let apart = if args.attaches() { "" } else { "\n" };
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout {
        print(&format!(
            "{apart}{}",
            render::render(record, Format::Json, &view)?
        ))?;
    }
    let shown = match (args.successful_only, args.failed_only, wanted) {
        (false, false, None) => None,
        (false, false, Some(wanted)) => Some(on_peers(record, &wanted)),
        (_, failed, _) => Some(only(record, failed)),
    };
    let text = render::render(shown.as_ref().unwrap_or(record), args.format, &view)?;
    match args.format {
        // Where strace writes it.
        Format::Table | Format::Strace => print_beside(text.trim_end())?,
        Format::Markdown | Format::Json => print(&format!("{apart}{text}"))?,
        Format::Csv => print(&text)?,
    }
    // Last, so that what cannot be kept has been shown.
    match &args.output {
        Some(path) if !to_stdout => Ok(wire::save(record, path)?),
        _ => Ok(()),
    }
}

/// Whether calls that lead to a peer of this name are shown.
type IsWanted = Box<dyn Fn(&str) -> bool>;

/// Which peers' calls to show; `None` for all calls.
fn wanted_peers(args: &CountArgs, finished: &Finished) -> Option<IsWanted> {
    if !args.only_peer.is_empty() {
        let wanted = args.only_peer.clone();
        return Some(Box::new(move |peer| wanted.iter().any(|name| name == peer)));
    }
    if !args.connections {
        return None;
    }
    let Some(served) = &finished.served else {
        return Some(Box::new(render::is_connection));
    };
    let names = served.peers.clone();
    Some(Box::new(move |peer| names.iter().any(|name| name == peer)))
}

/// The record with only the calls that failed, or only those that did not. Times and bytes are of all
/// calls together and cannot be divided, so they are not shown.
fn only(record: &Record, failed: bool) -> Record {
    let mut record = record.clone();
    let why = || "times and bytes are not kept apart for calls that failed".to_owned();
    for row in &mut record.strategies {
        let Measured::Known(counted) = &mut row.counted else {
            continue;
        };
        let phases = &mut counted.phases;
        for phase in [&mut phases.startup, &mut phases.run_loop, &mut phases.shutdown] {
            for call in phase.syscalls.values_mut() {
                let failures = call.failed().unwrap_or(0);
                if failed {
                    call.calls = failures;
                    call.restarts.clear();
                } else {
                    call.calls -= failures.min(call.calls);
                    call.errors = Measured::Known(BTreeMap::new());
                }
                call.unfinished = 0;
                call.wall = Measured::NotMeasured(why());
                call.cpu = Measured::NotMeasured(why());
                call.bytes = Measured::NotMeasured(why());
            }
            phase.syscalls.retain(|_, call| call.calls > 0);
        }
    }
    record
}
