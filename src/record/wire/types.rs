//! The shapes of the JSON. Names and units here are a contract with whoever reads records; they may gain
//! keys only together with a new schema name, because unknown keys are refused.
//!
//! A doc comment here is what the published JSON Schema says of the key.

use std::collections::BTreeMap;

use crate::record::{Experiment, Failure, Import, NodeView, Proof, Sampled};
use crate::tally::Talk;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reasons for nulls, by the path of the key they stand in.
pub(super) type Reasons = BTreeMap<String, String>;

/// A result of systally: what was planned, measured, counted, read and found. Numbers that were not
/// measured are null, and `not_measured` of the record or of the strategy says why, by path.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "systally record")]
pub(super) struct WireRecord {
    /// Always `systally/1`.
    pub(super) schema: String,
    /// The command that made the record.
    pub(super) kind: WireKind,
    /// False while strategies are still to come, or when the run was cut short.
    pub(super) complete: bool,
    /// What wrote it.
    pub(super) tool: WireTool,
    /// The machine.
    pub(super) host: WireHost,
    /// The server, the Redis one where there are several kinds; null where there was none.
    pub(super) server: Option<WireServer>,
    /// The other kinds of servers that rows ran against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) more_servers: Vec<WireServer>,
    /// What was asked for: long flag names without dashes and their values.
    pub(super) plan: BTreeMap<String, String>,
    /// A row each.
    pub(super) strategies: Vec<WireStrategy>,
    /// The limits that bear on the run.
    pub(super) limits: Vec<WireLimit>,
    /// Kernel and server counters around the whole run, by dotted name.
    pub(super) counters: WireCounters,
    /// What was read many times during the run: queues and pressures that no counter keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sampled: Option<Sampled>,
    /// What the rules found, the gravest first.
    pub(super) findings: Vec<WireFinding>,
    /// Findings that were put to the test, each with all its runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) proofs: Vec<Proof>,
    /// The foreign files that an import was made of, with what was read from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) imports: Vec<Import>,
    /// Why keys of `host` and `limits` are null, by path (`host.cpu`, `limits.0.demand`).
    #[serde(default)]
    pub(super) not_measured: Reasons,
}

/// The command that made a record.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireKind {
    Bench,
    Count,
    Import,
    Preflight,
}

/// What wrote a record.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireTool {
    /// systally's version.
    pub(super) version: String,
}

/// The machine of a run.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireHost {
    /// Kernel release.
    pub(super) kernel: Option<String>,
    /// Model name of the CPU.
    pub(super) cpu: Option<String>,
    /// CPUs that the process could use.
    pub(super) cores: Option<u64>,
    /// Memory in bytes.
    pub(super) memory_bytes: Option<u64>,
    /// The kernel's clocksource.
    pub(super) clocksource: Option<String>,
}

/// The server of a run.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireServer {
    /// What several servers are to each other: `cluster`, `shards` or `twemproxy`; absent for a single one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) place: String,
    /// How many they are.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(super) servers: u32,
    /// Which program (`redis`, `valkey`, `systally-responder` …).
    pub(super) kind: String,
    /// Its version as it says.
    pub(super) version: String,
    /// Whose it is.
    pub(super) origin: WireOrigin,
    /// Its addresses, never with a password.
    pub(super) addresses: Vec<String>,
    /// Its settings that matter for a load.
    pub(super) settings: BTreeMap<String, String>,
}

/// Where a server came from: the user named it, it was started for this run alone, or it is systally's
/// own small one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireOrigin {
    External,
    Private,
    BuiltIn,
}

/// A row: a strategy and everything known about it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireStrategy {
    /// Its name, `client/mode/transport`.
    pub(super) name: String,
    /// What it ran.
    pub(super) axes: WireAxes,
    /// The client library or program.
    pub(super) client: WireClient,
    /// How it ended: `unverified` when the server does not confirm what the client claims.
    pub(super) status: WireStatus,
    /// Why, for every status but `ok`.
    pub(super) reason: Option<String>,
    /// The first failure of the row, with what was read at that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Failure>,
    /// The untraced rounds.
    pub(super) timed: Option<WireTimed>,
    /// The counted pass.
    pub(super) counted: Option<WireCounted>,
    /// Counts of the loop that were not the same in all counted passes; `counted` has the first pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) varied: Vec<WireVaried>,
    /// The same work counted once more by an engine that hardly slows it, and what that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) witness: Option<WireWitness>,
    /// What the server saw over all rounds of this row, the counted pass included.
    pub(super) server_view: Option<WireServerView>,
    /// What a scenario adds to the row; left out in a plain bench.
    #[serde(default, skip_serializing_if = "Experiment::is_empty")]
    pub(super) experiment: Experiment,
    /// Why keys of this row are null, by path (`counted.cpu_ns`, `timed.rounds.0.server_view`).
    #[serde(default)]
    pub(super) not_measured: Reasons,
}

/// What a row ran: the axes that a run can vary.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireAxes {
    /// The operation; empty for a counted program.
    pub(super) op: String,
    /// `tcp`, `unix`, or empty.
    pub(super) transport: String,
    /// Operations per batch.
    pub(super) pipeline: u32,
    /// Payload length in bytes.
    pub(super) payload_bytes: u64,
    /// Worker processes, one connection each.
    pub(super) clients: u32,
    /// What the client speaks to: `redis`, `memcached`, `cluster`, `shards`, `twemproxy` or `none`; absent
    /// where nobody knows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) store: String,
    /// Servers that the client spreads its keys over.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(super) servers: u32,
}

/// What a number of servers is when it is left out.
fn one() -> u32 {
    1
}

fn is_one(servers: &u32) -> bool {
    *servers == 1
}

/// A client as it describes itself.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireClient {
    /// Its name.
    pub(super) name: String,
    /// Its version; empty when it was never started.
    pub(super) version: String,
    /// What else it says of itself.
    pub(super) environment: BTreeMap<String, String>,
}

/// How a row ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireStatus {
    Ok,
    Failed,
    Skipped,
    Unverified,
}

/// The untraced rounds of a row.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireTimed {
    /// Every round, in order.
    pub(super) rounds: Vec<WireRound>,
    /// Throughput: median of the rounds with a 95 % bootstrap interval.
    pub(super) ops_per_s: WireInterval,
    /// Ratio to the baseline row, computed round by round.
    pub(super) vs_baseline: Option<WireInterval>,
    /// Times of operations or batches over all rounds, in nanoseconds.
    pub(super) latency_ns: Option<WireLatencies>,
}

/// One timed round of all workers of a row.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireRound {
    /// Operations the clients say they completed.
    pub(super) ops: u64,
    /// Operations begun.
    pub(super) asked: u64,
    /// The longest of the workers' own times.
    pub(super) seconds: f64,
    /// Failed operations by the client's own words, `class:message`.
    pub(super) errors: BTreeMap<String, u64>,
    /// What the server saw in this round.
    pub(super) server_view: Option<WireServerView>,
    /// CPU time of all workers in this round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpu_ns: Option<WireCpu>,
}

/// A median with its 95 % interval.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireInterval {
    /// The median.
    pub(super) median: f64,
    /// Lower end.
    pub(super) low: f64,
    /// Upper end.
    pub(super) high: f64,
}

/// Percentiles in nanoseconds and the histogram they come from.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireLatencies {
    /// Whether one value is one operation or one batch.
    pub(super) per: WirePer,
    /// Median.
    pub(super) p50: u64,
    /// 90th percentile.
    pub(super) p90: u64,
    /// 99th percentile.
    pub(super) p99: u64,
    /// 99.9th percentile.
    pub(super) p999: u64,
    /// Largest.
    pub(super) max: u64,
    /// HDR histogram of nanoseconds, V2 deflate or V2, base64.
    pub(super) hdr: String,
}

/// What one timed value is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WirePer {
    Op,
    Batch,
}

/// The counted pass of a row.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireCounted {
    /// The engine that counted.
    pub(super) engine: String,
    /// Operations done in the window; null when nobody can know.
    pub(super) ops: Option<u64>,
    /// Length of the window under the engine, which is not the client's speed.
    pub(super) seconds: f64,
    /// Untraced throughput over throughput under the engine.
    pub(super) slowdown: Option<f64>,
    /// The calls, apart by part of the worker's life.
    pub(super) phases: WirePhases,
    /// Connections begun per operation, in the loop.
    pub(super) connects_per_op: Option<f64>,
    /// Turns of send, wait, receive per operation, in the loop.
    pub(super) round_trips_per_op: Option<f64>,
    /// Sends per batch, in the loop.
    pub(super) sends_per_batch: Option<f64>,
    /// Calls per operation over the least that a client can make: one send and one receive per batch.
    pub(super) floor_ratio: Option<f64>,
    /// Failed operations in the counted pass, by the client's words.
    pub(super) client_errors: BTreeMap<String, u64>,
    /// CPU time of the whole counted process tree.
    pub(super) cpu_ns: Option<WireCpu>,
    /// What a reader of the counts must know.
    pub(super) notes: Vec<String>,
}

/// A count of the loop that was not the same in all counted passes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireVaried {
    /// The system call.
    pub(super) syscall: String,
    /// The errno of the failures that are meant; null for all calls of that name.
    pub(super) errno: Option<String>,
    /// Per operation, over the passes.
    pub(super) per_op: WireSpan,
}

/// The least and the greatest of a count over passes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireSpan {
    /// The least.
    pub(super) low: f64,
    /// The greatest.
    pub(super) high: f64,
}

/// The second count of a row, at nearly native speed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireWitness {
    /// The engine that made it.
    pub(super) engine: String,
    /// How many passes it made.
    pub(super) passes: u32,
    /// The calls that it counted; null for all.
    pub(super) calls: Option<Vec<String>>,
    /// Untraced throughput over throughput under this engine.
    pub(super) slowdown: Option<f64>,
    /// The counts of the loop that the slower engine changed; empty when it changed none.
    pub(super) moved: Vec<WireMoved>,
}

/// A count that came out differently at nearly native speed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireMoved {
    /// The system call.
    pub(super) syscall: String,
    /// The errno of the failures that are meant; null for all calls of that name.
    pub(super) errno: Option<String>,
    /// Per operation in the counted passes.
    pub(super) counted: WireSpan,
    /// Per operation at nearly native speed.
    pub(super) native: WireSpan,
}

/// CPU time in nanoseconds.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireCpu {
    /// In user mode.
    pub(super) user: u64,
    /// In the kernel.
    pub(super) system: u64,
}

/// The phases of a counted pass.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WirePhases {
    /// Up to `go`.
    pub(super) startup: WirePhase,
    /// The measured window; a program without markers is all loop.
    #[serde(rename = "loop")]
    pub(super) run_loop: WirePhase,
    /// After `done`.
    pub(super) shutdown: WirePhase,
}

/// The calls of one phase. `per_op` and the totals are for readers: they follow from the other keys, and
/// systally computes them anew.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WirePhase {
    /// By name of the system call.
    pub(super) syscalls: BTreeMap<String, WireCall>,
    /// All calls that returned.
    pub(super) total_calls: u64,
    /// The same per operation; null outside the loop, or when the operations are not known.
    pub(super) total_per_op: Option<f64>,
    /// Turns and waits, where the engine looks at single calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) talk: Option<Talk>,
}

/// One system call over one phase.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireCall {
    /// Calls that returned.
    pub(super) calls: u64,
    /// The same per operation; null outside the loop, or when the operations are not known.
    pub(super) per_op: Option<f64>,
    /// Calls that were entered and never returned.
    pub(super) unfinished: u64,
    /// Failed calls by errno name.
    pub(super) errors: Option<BTreeMap<String, u64>>,
    /// Calls that the kernel restarted after a signal, by code; they are not failures.
    pub(super) restarts: BTreeMap<String, u64>,
    /// Wall time in the call, tracing included.
    pub(super) time_ns: Option<u64>,
    /// System CPU time in the call.
    pub(super) cpu_ns: Option<u64>,
    /// Bytes moved.
    pub(super) bytes: Option<u64>,
    /// Receives that only peeked.
    pub(super) peeks: Option<u64>,
    /// Calls by what the descriptor leads to.
    pub(super) peers: BTreeMap<String, u64>,
}

/// What a server's own counters say about a span of time, without systally's control connection.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireServerView {
    /// Calls that did not fail, by command in lower case.
    pub(super) commands: BTreeMap<String, u64>,
    /// Calls that failed or were refused, by command.
    pub(super) failed: BTreeMap<String, u64>,
    /// Time the server spent in commands; null where it does not tell.
    pub(super) busy_ns: Option<u64>,
    /// Connections accepted.
    pub(super) connections: u64,
    /// Connections refused because of `maxclients`.
    pub(super) rejected: u64,
    /// What each server did, by address, where several serve together; absent for a single one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) nodes: BTreeMap<String, NodeView>,
}

/// One limit, what the load demands of it, and what it can carry.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireLimit {
    /// Stable name.
    pub(super) id: String,
    /// Whose limit it is.
    pub(super) scope: String,
    /// Whether the load fits.
    pub(super) verdict: WireVerdict,
    /// What the load needs.
    pub(super) demand: Option<u64>,
    /// The demand as a formula with its numbers.
    pub(super) formula: String,
    /// What there is.
    pub(super) capacity: Option<u64>,
    /// Where it was read.
    pub(super) source: String,
    /// What happens beyond it.
    pub(super) effect: String,
    /// How to raise it.
    pub(super) fix: WireFix,
}

/// Whether a planned load fits a limit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireVerdict {
    Ok,
    Warn,
    Fail,
    Unknown,
    NotApplicable,
}

/// How to raise a limit, three ways.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireFix {
    /// A command for now.
    pub(super) now: String,
    /// Configuration that stays.
    pub(super) kept: String,
    /// In a container.
    pub(super) container: String,
}

/// Counters before and after a run.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireCounters {
    /// Before.
    pub(super) before: BTreeMap<String, u64>,
    /// After.
    pub(super) after: BTreeMap<String, u64>,
}

/// One thing found.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WireFinding {
    /// The stable code, in capitals.
    pub(super) code: String,
    /// How much it matters.
    pub(super) severity: WireSeverity,
    /// The strategy it is about; null for the whole run.
    pub(super) strategy: Option<String>,
    /// The row it is about, by its place in `strategies`, from 0: several rows can have one name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) row: Option<usize>,
    /// The numbers it rests on.
    pub(super) evidence: BTreeMap<String, serde_json::Value>,
    /// The cause in one sentence.
    pub(super) says: String,
    /// What to try.
    pub(super) try_next: String,
    /// Usual suspects that were looked at and are fine.
    pub(super) not_the_cause: Vec<String>,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireSeverity {
    Info,
    Warning,
    Error,
}
