//! Tidy CSV: one row for each strategy, each system call of a phase, and each errno of a call.
//!
//! The first column, `row`, says what a row is about; take the rows of one kind and every number in them
//! appears once:
//!
//! | `row` | one for each | filled beside the columns that name the strategy |
//! |---|---|---|
//! | `strategy` | strategy | `rounds` to `total_per_op`: what was timed, and what was counted altogether |
//! | `syscall` | phase and system call | `phase`, `syscall`, `calls` to `peeks` |
//! | `errno` | phase, system call and errno | `phase`, `syscall`, `errno`; `calls` are those that failed so, which the `syscall` row has counted |
//! | `restart` | the same, for calls that the kernel restarted | as `errno` |
//! | `witness` | count that tracing changed | `engine` is the one that counted at native speed; `errno`, when the failures of the call are meant; `per_op_low` and `per_op_high` are at native speed |
//! | `published` | figure that an article printed of the strategy | `published` has the article, `published_as` its name of the strategy; `ops_per_s`, `seconds`, `counter_*`, or `syscall` and `per_op` |
//! | `client_error` | error in the client's words | `reason` has the words, `client_errors` how often |
//!
//! `per_op_low` and `per_op_high` of other rows are the range over several counted passes.
//!
//! Units are in the names: `_ns` nanoseconds, `_per_op` per completed operation, `ops_per_s`. A number that
//! was not measured is an empty field, and `not_measured` says which and why; a row whose `status` is `failed` has no
//! speed. `noise` says it of a number that is there and is no sound measurement: the rounds were uneven, or the row is
//! `unverified` and its speed only the client's word. Findings and limits are not in here; JSON has them.
//!
//! Text that a spreadsheet would take for a formula begins with an apostrophe.

use super::{RenderError, failures, noise, shown};
use crate::record::{
    CallCounts, Counted, PhaseCounts, PublishedFigure, Record, Span, StrategyResult, Timed, Varied,
};
use crate::units::{Measured, Ops};

/// The columns, in order. A row is filled by name, so that no field can land in the wrong column.
const COLUMNS: [&str; 56] = [
    "row",
    "strategy",
    "client",
    "client_version",
    "status",
    "op",
    "transport",
    "pipeline",
    "payload_bytes",
    "clients",
    "engine",
    "ops",
    "phase",
    "syscall",
    "errno",
    "rounds",
    "ops_per_s",
    "ops_per_s_low",
    "ops_per_s_high",
    "vs_baseline",
    "vs_baseline_low",
    "vs_baseline_high",
    "latency_per",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "slowdown",
    "connects_per_op",
    "round_trips_per_op",
    "sends_per_batch",
    "floor_ratio",
    "total_per_op",
    "calls",
    "per_op",
    "per_op_low",
    "per_op_high",
    "unfinished",
    "wall_ns",
    "cpu_ns",
    "bytes",
    "peeks",
    "client_errors",
    "settings",
    "seconds",
    "counter_asked",
    "counter_early",
    "counter_ended",
    "published",
    "published_as",
    "server",
    "complete",
    "reason",
    "not_measured",
    "noise",
];

pub(super) fn write(record: &Record) -> Result<String, RenderError> {
    let mut sheet = Sheet {
        writer: csv::Writer::from_writer(Vec::new()),
    };
    sheet.write(&COLUMNS)?;
    let server = record.server.as_ref();
    let server = server.map(|server| format!("{} {}", server.kind, server.version));
    for strategy in &record.strategies {
        let mut base = Row::default();
        base.text("server", server.as_deref().unwrap_or_default());
        base.text("complete", if record.complete { "true" } else { "false" });
        identify(&mut base, strategy);
        sheet.strategy(&base, strategy)?;
    }
    let bytes = sheet.writer.into_inner().map_err(|e| csv_error(&e))?;
    String::from_utf8(bytes).map_err(|e| csv_error(&e))
}

fn csv_error(error: &dyn std::fmt::Display) -> RenderError {
    RenderError::Csv(error.to_string())
}

/// The numbers of a strategy that are noise, and why.
fn noisy(strategy: &StrategyResult) -> String {
    let Some(timed) = strategy.speed().known().copied() else {
        return String::new();
    };
    if let Some(why) = noise::of_row(strategy) {
        return format!("ops_per_s to max_ns, slowdown: {why}");
    }
    let ratio = timed.vs_baseline.known();
    let marks = [
        ("ops_per_s", noise::of_speed(strategy)),
        ("vs_baseline", ratio.and_then(|_| noise::of_ratio(strategy))),
        ("slowdown", noise::of_slowdown(strategy)),
    ];
    let said: Vec<String> = marks
        .iter()
        .filter_map(|(column, why)| Some(format!("{column}: {}", (*why)?)))
        .collect();
    said.join("; ")
}

/// One row under construction: fields by column name, and the reasons for those that are empty.
#[derive(Default, Clone)]
struct Row {
    fields: Vec<(&'static str, String)>,
    absent: Vec<String>,
}

impl Row {
    fn text(&mut self, column: &'static str, text: &str) {
        self.fields.push((column, guarded(&shown(text))));
    }

    fn number(&mut self, column: &'static str, number: impl std::fmt::Display) {
        self.fields.push((column, number.to_string()));
    }

    fn span(&mut self, span: Span) {
        self.number("per_op_low", span.low);
        self.number("per_op_high", span.high);
    }

    fn measured<T, D: std::fmt::Display>(
        &mut self,
        column: &'static str,
        value: &Measured<T>,
        field: impl FnOnce(&T) -> D,
    ) {
        match value {
            Measured::Known(value) => self.number(column, field(value)),
            Measured::NotMeasured(reason) => self.absent.push(format!("{column}: {reason}")),
        }
    }
}

struct Sheet {
    writer: csv::Writer<Vec<u8>>,
}

impl Sheet {
    fn write<S: AsRef<[u8]>>(&mut self, fields: &[S]) -> Result<(), RenderError> {
        self.writer.write_record(fields).map_err(|e| csv_error(&e))
    }

    fn row(&mut self, mut row: Row) -> Result<(), RenderError> {
        let absent = row.absent.join("; ");
        row.text("not_measured", &absent);
        let fields: Vec<&str> = COLUMNS
            .iter()
            .map(|column| {
                let field = row.fields.iter().find(|(name, _)| name == column);
                field.map_or("", |(_, text)| text.as_str())
            })
            .collect();
        self.write(&fields)
    }

    fn strategy(&mut self, base: &Row, strategy: &StrategyResult) -> Result<(), RenderError> {
        let mut row = base.clone();
        row.text("row", "strategy");
        row.text("reason", strategy.reason.as_deref().unwrap_or_default());
        let speed = strategy.speed();
        match &speed {
            Measured::Known(known) => timed(&mut row, known),
            Measured::NotMeasured(reason) => row.absent.push(format!("ops_per_s: {reason}")),
        }
        match &strategy.counted {
            Measured::Known(known) => {
                counted(&mut row, known, !strategy.axes.op.is_empty());
                // It compares with the timed rounds.
                if strategy.timed.known().is_some() && speed.known().is_none() {
                    row.fields.retain(|(column, _)| *column != "slowdown");
                }
            }
            Measured::NotMeasured(reason) => row.absent.push(format!("calls: {reason}")),
        }
        row.text("noise", &noisy(strategy));
        if let Some(read) = strategy.experiment.counters.last() {
            row.number("counter_asked", read.expected);
            row.number("counter_early", read.early);
            row.number("counter_ended", read.ended);
        }
        self.row(row)?;
        if let Some(counted) = strategy.counted.known() {
            let phases = &counted.phases;
            self.phase(base, "startup", &phases.startup, None, &[])?;
            self.phase(base, "loop", &phases.run_loop, counted.ops, &strategy.varied)?;
            self.phase(base, "shutdown", &phases.shutdown, None, &[])?;
        }
        if let Some(witness) = strategy.witness.known() {
            for moved in &witness.moved {
                let mut row = base.clone();
                row.text("row", "witness");
                row.fields.retain(|(column, _)| *column != "engine");
                row.text("engine", &witness.engine);
                row.text("phase", "loop");
                row.text("syscall", &moved.syscall);
                row.text("errno", moved.errno.as_deref().unwrap_or_default());
                row.span(moved.fast);
                self.row(row)?;
            }
        }
        for figure in &strategy.experiment.published {
            self.published(base, figure)?;
        }
        for (words, n) in failures::of_client(strategy) {
            let mut row = base.clone();
            row.text("row", "client_error");
            row.text("reason", words);
            row.number("client_errors", n);
            self.row(row)?;
        }
        Ok(())
    }

    /// What an article printed, in rows of its own: no figure of it stands in a column of today's rows.
    fn published(&mut self, base: &Row, figure: &PublishedFigure) -> Result<(), RenderError> {
        let mut named = base.clone();
        // Its own transport, processes and shape of values are those of the row; its versions are not.
        named
            .fields
            .retain(|(name, _)| !matches!(*name, "client_version" | "engine" | "ops"));
        named.text("row", "published");
        named.text("published", &figure.article);
        named.text("published_as", &figure.strategy);
        if figure.calls_per_op.is_empty() {
            let mut row = named.clone();
            let numbers = [
                ("ops_per_s", figure.ops_per_s),
                ("seconds", figure.seconds),
                ("counter_ended", figure.counter.map(|n| n as f64)),
                ("counter_asked", figure.expected.map(|n| n as f64)),
            ];
            for (column, number) in numbers {
                if let Some(number) = number {
                    row.number(column, number);
                }
            }
            row.text("reason", figure.error.as_deref().unwrap_or_default());
            self.row(row)?;
        }
        for (syscall, rate) in &figure.calls_per_op {
            let mut row = named.clone();
            row.text("syscall", syscall);
            row.number("per_op", rate);
            self.row(row)?;
        }
        Ok(())
    }

    fn phase(
        &mut self,
        base: &Row,
        name: &'static str,
        phase: &PhaseCounts,
        ops: Option<Ops>,
        varied: &[Varied],
    ) -> Result<(), RenderError> {
        let range = |syscall: &str, errno: Option<&str>| {
            varied
                .iter()
                .find(|one| one.syscall == syscall && one.errno.as_deref() == errno)
                .map(|one| one.per_op)
        };
        for (syscall, counts) in &phase.syscalls {
            let mut named = base.clone();
            named.text("phase", name);
            named.text("syscall", syscall);
            let mut row = named.clone();
            row.text("row", "syscall");
            call(&mut row, counts, ops);
            if let Some(span) = range(syscall, None) {
                row.span(span);
            }
            self.row(row)?;
            let errors = counts.errors.known().into_iter().flatten();
            let restarts = counts.restarts.iter();
            for (kind, (errno, n)) in errors
                .map(|error| ("errno", error))
                .chain(restarts.map(|restart| ("restart", restart)))
            {
                let mut row = named.clone();
                row.text("row", kind);
                row.text("errno", errno);
                row.number("calls", n);
                if let Some(rate) = ops.and_then(|ops| ops.per_op(*n)) {
                    row.number("per_op", rate);
                }
                if let Some(span) = range(syscall, Some(errno)).filter(|_| kind == "errno") {
                    row.span(span);
                }
                self.row(row)?;
            }
        }
        Ok(())
    }
}

fn identify(row: &mut Row, strategy: &StrategyResult) {
    row.text("strategy", &strategy.name);
    row.text("client", &strategy.client.name);
    row.text("client_version", &strategy.client.version);
    row.text("status", strategy.status.name());
    row.text("op", &strategy.axes.op);
    row.text("transport", &strategy.axes.transport);
    row.number("pipeline", strategy.axes.pipeline);
    row.number("payload_bytes", strategy.axes.payload_bytes);
    row.number("clients", strategy.axes.clients);
    let settings: Vec<String> = strategy
        .experiment
        .settings
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    row.text("settings", &settings.join(" "));
    if let Some(counted) = strategy.counted.known() {
        row.text("engine", &counted.engine);
        if let Some(ops) = counted.ops {
            row.number("ops", ops.0);
        }
    }
}

fn timed(row: &mut Row, timed: &Timed) {
    row.number("rounds", timed.rounds.len());
    row.number("ops_per_s", timed.ops_per_s.median);
    row.number("ops_per_s_low", timed.ops_per_s.low);
    row.number("ops_per_s_high", timed.ops_per_s.high);
    row.measured("vs_baseline", &timed.vs_baseline, |ratio| ratio.median);
    if let Some(ratio) = timed.vs_baseline.known() {
        row.number("vs_baseline_low", ratio.low);
        row.number("vs_baseline_high", ratio.high);
    }
    row.measured("latency_per", &timed.latency, |latency| {
        if latency.per_batch { "batch" } else { "op" }
    });
    if let Some(latency) = timed.latency.known() {
        row.number("p50_ns", latency.p50.0);
        row.number("p90_ns", latency.p90.0);
        row.number("p99_ns", latency.p99.0);
        row.number("p999_ns", latency.p999.0);
        row.number("max_ns", latency.max.0);
    }
}

/// `is_bench` tells a row of a bench from a counted program, whose batches nobody knows.
fn counted(row: &mut Row, counted: &Counted, is_bench: bool) {
    row.measured("slowdown", &counted.slowdown, |value| *value);
    row.measured("connects_per_op", &counted.connects_per_op, |value| *value);
    row.measured("round_trips_per_op", &counted.round_trips_per_op, |value| *value);
    row.measured("sends_per_batch", &counted.sends_per_batch, |value| *value);
    row.measured("floor_ratio", &counted.floor_ratio, |value| *value);
    let total = counted
        .ops
        .and_then(|ops| ops.per_op(counted.phases.run_loop.total()));
    let total = match counted.floor_ratio.reason() {
        // Not all calls were counted.
        Some(why) if is_bench && counted.ops.is_some() => Measured::NotMeasured(why.to_owned()),
        _ => Measured::from_option(total, "nobody knows how many operations were completed"),
    };
    row.measured("total_per_op", &total, |value| *value);
}

fn call(row: &mut Row, counts: &CallCounts, ops: Option<Ops>) {
    row.number("calls", counts.calls);
    if let Some(rate) = ops.and_then(|ops| ops.per_op(counts.calls)) {
        row.number("per_op", rate);
    }
    row.number("unfinished", counts.unfinished);
    row.measured("wall_ns", &counts.wall, |span| span.0);
    row.measured("cpu_ns", &counts.cpu, |span| span.0);
    row.measured("bytes", &counts.bytes, |value| *value);
    row.measured("peeks", &counts.peeks, |value| *value);
    if let Some(reason) = counts.errors.reason() {
        row.absent.push(format!("errno: {reason}"));
    }
}

/// Text that no spreadsheet takes for a formula.
fn guarded(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_text() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)"] {
            assert_eq!(guarded(text), format!("'{text}"));
        }
        assert_eq!(guarded("phpredis/connect/tcp"), "phpredis/connect/tcp");
    }

    #[test]
    fn columns_have_names_of_their_own() {
        let mut names = COLUMNS.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COLUMNS.len());
    }
}
