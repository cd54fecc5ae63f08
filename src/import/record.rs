//! An import as a record: where other people's traces join the data flow.

use std::collections::BTreeMap;

use super::ImportFormat;
use super::errnos::bare;
use super::model::{Imported, ImportedTable, Row, TimeKind};
use crate::record::UNNAMED_ERRNO;
use crate::record::{
    Axes, CallCounts, ClientInfo, Counted, Counters, Experiment, Host, Kind, Phases, PlanInfo, Record,
    Status, StrategyResult,
};
use crate::tally::Abi;
use crate::units::{Measured, Nanos, Ops, total};

fn not<T>(why: &str) -> Measured<T> {
    Measured::NotMeasured(why.to_owned())
}

/// Makes a record of imports, one per file. `ops` is the number of operations that the traced program
/// completed, when the user knows it; it then holds for every table.
///
/// The tables become rows of the record, with all calls in the loop: a foreign trace has no markers. The
/// imports themselves are kept in [`Record::imports`].
pub fn into_record(mut files: Vec<(String, Imported)>, ops: Option<Ops>) -> Record {
    let mut settings = BTreeMap::new();
    let mut strategies = Vec::new();
    for (_, imported) in &mut files {
        if let Some(ops) = ops {
            imported.ops = Some(ops.0);
            imported.ops_source = "--ops".to_owned();
        }
    }
    let one = files.len() == 1;
    for (name, imported) in &files {
        let prefix = if one { String::new() } else { format!("{name}:") };
        let mut set = |key: &str, value: String| {
            settings.insert(format!("{prefix}{key}"), value);
        };
        set("file", name.clone());
        set("format", imported.format.name());
        set("time", imported.time_kind.name().to_owned());
        if let Some(ops) = imported.ops {
            set("ops", ops.to_string());
        }
        if imported.incomplete {
            set("incomplete", imported.incomplete_because.join("; "));
        }
        if imported.unknown_lines.count > 0 {
            set("unknown lines", imported.unknown_lines.count.to_string());
        }
        if !imported.unusable_values.is_empty() {
            set("unusable values", imported.unusable_values.count.to_string());
        }
        let several = imported.tables.len() > 1;
        for table in &imported.tables {
            let row_name = if several {
                format!("{name}/{}", table.label)
            } else {
                name.clone()
            };
            strategies.push(strategy(row_name, imported, table));
        }
    }
    Record {
        kind: Kind::Import,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        complete: files.iter().all(|(_, imported)| !imported.incomplete),
        host: unknown_host(),
        server: None,
        more_servers: Vec::new(),
        plan: PlanInfo { settings },
        strategies,
        limits: Vec::new(),
        counters: Counters::default(),
        sampled: None,
        findings: Vec::new(),
        proofs: Vec::new(),
        imports: files
            .into_iter()
            .map(|(file, imported)| crate::record::Import { file, imported })
            .collect(),
    }
}

fn unknown_host() -> Host {
    const WHY: &str = "imported: the file does not tell on which machine it was made";
    Host {
        kernel: not(WHY),
        cpu: not(WHY),
        cores: not(WHY),
        memory_bytes: not(WHY),
        clocksource: not(WHY),
    }
}

fn strategy(name: String, imported: &Imported, table: &ImportedTable) -> StrategyResult {
    const UNTIMED: &str = "imported: the file tells no throughput";
    StrategyResult {
        name,
        axes: Axes::default(),
        client: ClientInfo::default(),
        status: Status::Ok,
        reason: None,
        failure: None,
        timed: not(UNTIMED),
        counted: Measured::Known(counted(imported, table)),
        varied: Vec::new(),
        witness: not("imported: it was counted once"),
        server_view: not("imported: the server was not asked"),
        experiment: Experiment::default(),
    }
}

fn counted(imported: &Imported, table: &ImportedTable) -> Counted {
    let mut phases = Phases::default();
    for row in &table.rows {
        let name = record_name(imported.format, row);
        phases.run_loop.syscalls.insert(name, counts(imported, row));
    }
    let mut notes = imported.notes.clone();
    notes.extend(
        imported
            .incomplete_because
            .iter()
            .map(|why| format!("incomplete: {why}")),
    );
    let ops = imported.ops.map(Ops);
    let facts = imported.facts.as_deref();
    let per_op = |count: Option<u64>| -> Measured<f64> {
        match (count, ops) {
            (Some(count), Some(ops)) => Measured::from_option(ops.per_op(count), "no operations"),
            (None, _) => not("the format does not tell"),
            (_, None) => not("the number of operations is not known; --ops gives it"),
        }
    };
    let over_peers = |of: fn(&super::facts::Peer) -> u64| facts.map(|f| total(f.peers.values().map(of)));
    Counted {
        engine: format!("imported: {}", imported.format),
        ops,
        elapsed: facts
            .and_then(|f| f.span)
            .or(imported.elapsed)
            .unwrap_or_default(),
        slowdown: not("imported: there is no untraced run to compare with"),
        connects_per_op: per_op(
            over_peers(super::facts::Peer::connect_attempts).or_else(|| Some(table.calls_of(&["connect"]))),
        ),
        round_trips_per_op: per_op(over_peers(|p| p.turns)),
        sends_per_batch: Measured::from_option(
            facts.and_then(|f| {
                let turns = total(f.peers.values().map(|p| p.turns));
                let sends = total(f.peers.values().map(|p| p.sends));
                (turns > 0).then(|| sends as f64 / turns as f64)
            }),
            "the format does not tell what was sent together",
        ),
        floor_ratio: not("imported: the least number of calls is not known"),
        client_errors: BTreeMap::new(),
        cpu: not("imported: not told"),
        phases,
        notes,
    }
}

/// The name in records: foreign ABIs and library functions carry a prefix, so that they never stand in
/// the row of a native system call of the same name.
fn record_name(format: ImportFormat, row: &Row) -> String {
    if format == ImportFormat::LtraceC {
        return match row.syscall.strip_prefix("SYS_") {
            Some(call) => call.to_owned(),
            None => format!("lib:{}", row.syscall),
        };
    }
    match row.abi.as_deref() {
        None | Some("64") => row.syscall.clone(),
        Some("x32") => format!("{}:{}", Abi::X32.name(), row.syscall),
        Some(other) => format!("{other}-bit:{}", row.syscall),
    }
}

fn counts(imported: &Imported, row: &Row) -> CallCounts {
    let mut errors = BTreeMap::new();
    let mut restarts = BTreeMap::new();
    for (label, n) in &row.errnos {
        let name = bare(label);
        let into = if name.starts_with("ERESTART") {
            &mut restarts
        } else {
            &mut errors
        };
        let sum: &mut u64 = into.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(*n);
    }
    let named = total(row.errnos.values().copied());
    let untold = row.errors.unwrap_or(0).saturating_sub(named);
    if untold > 0 {
        errors.insert(UNNAMED_ERRNO.to_owned(), untold);
    }
    let time = |kind: &[TimeKind]| -> Measured<Nanos> {
        match row.time {
            Some(time) if kind.contains(&imported.time_kind) => Measured::Known(time),
            Some(_) if imported.time_kind == TimeKind::Unknown => {
                not("the file does not say whether its times are CPU or wall time")
            }
            Some(_) | None => not("the file does not tell it"),
        }
    };
    CallCounts {
        calls: row.calls().saturating_sub(row.unfinished),
        unfinished: row.unfinished,
        errors: match row.errors {
            Some(_) => Measured::Known(errors),
            None => not("the format does not tell errors"),
        },
        restarts,
        wall: match row.wall {
            Some(wall) => Measured::Known(wall),
            None => time(&[TimeKind::Wall]),
        },
        cpu: time(&[TimeKind::Cpu]),
        bytes: not("the file does not tell it"),
        peeks: not("the file does not tell it per call"),
        peers: BTreeMap::new(),
    }
}
