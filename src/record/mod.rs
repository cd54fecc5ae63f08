//! The result of a run as values: what was planned, measured, counted, read and found.
//!
//! Everything before this stage fills a [`Record`]; everything after reads one. The JSON form is apart,
//! in [`wire`], so that names there can stay when types here change.

pub mod experiment;
pub mod failure;
mod from_tally;
pub mod join;
pub mod label;
pub mod latency;
pub mod proof;
pub mod sampled;
pub mod stats;
pub mod wire;
pub mod witness;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::explain::Finding;
use crate::import::Imported;
use crate::tally::Talk;
use crate::units::{Measured, Nanos, Ops, total};

pub use experiment::{CounterReading, Experiment, PublishedFigure, Spent, Usage};
pub use failure::{Failure, FailureKind, Stage};
pub use latency::Latency;
pub use proof::{Proof, ProofArm, ProofRun, ProofVerdict};
pub use sampled::{Peak, Sampled};
pub use stats::Interval;
pub use witness::{Moved, Span, Varied, Witness};

/// What made the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `systally bench`.
    Bench,
    /// `systally count`.
    Count,
    /// `systally import`.
    Import,
    /// `systally preflight`.
    Preflight,
}

/// A whole result.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// What made it.
    pub kind: Kind,
    /// systally's version.
    pub tool_version: String,
    /// False while strategies are still to come, or when the run was cut short.
    pub complete: bool,
    /// The machine.
    pub host: Host,
    /// The server, the Redis one where there are several kinds; `None` where there was none (a counted
    /// program, an import).
    pub server: Option<ServerInfo>,
    /// The other kinds of servers that rows ran against.
    pub more_servers: Vec<ServerInfo>,
    /// What was asked for.
    pub plan: PlanInfo,
    /// A row each.
    pub strategies: Vec<StrategyResult>,
    /// The limits that bear on the run.
    pub limits: Vec<LimitReading>,
    /// Kernel and server counters around the whole run.
    pub counters: Counters,
    /// What was read many times during the run; `None` where nobody did.
    pub sampled: Option<Sampled>,
    /// What the rules found.
    pub findings: Vec<Finding>,
    /// Findings that were put to the test, with what came of it.
    pub proofs: Vec<Proof>,
    /// The foreign files it was made of; empty for systally's own runs.
    pub imports: Vec<Import>,
}

impl Record {
    /// The server that a row ran against.
    pub fn server_of(&self, row: &StrategyResult) -> Option<&ServerInfo> {
        let several = |info: &&ServerInfo| info.place == row.axes.store;
        let memcached = |info: &&ServerInfo| {
            let unix = |address: &String| address.starts_with("unix:");
            info.kind == "memcached"
                && info
                    .addresses
                    .iter()
                    .any(|a| unix(a) == (row.axes.transport == "unix"))
        };
        let all = || self.server.iter().chain(&self.more_servers);
        match row.axes.store.as_str() {
            "none" => None,
            "memcached" => all().find(memcached),
            "cluster" | "shards" | "twemproxy" => all().find(several),
            _ => self.server.as_ref(),
        }
    }
}

/// A foreign file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// Its name, escaped; `stdin` for standard input.
    pub file: String,
    /// What was read from it.
    pub imported: Imported,
}

/// The machine a run was made on. Empty strings and zeroes never stand for "unknown": imports have
/// `NotMeasured` here.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Kernel release (uname(2)).
    pub kernel: Measured<String>,
    /// Model name from `/proc/cpuinfo`.
    pub cpu: Measured<String>,
    /// CPUs that this process may use (sched_getaffinity(2)).
    pub cores: Measured<u64>,
    /// Memory in bytes.
    pub memory_bytes: Measured<u64>,
    /// The kernel's clocksource; clock calls are real system calls on some.
    pub clocksource: Measured<String>,
}

/// The server of a run, or several that serve together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// What several are to each other: `cluster`, `shards` or `twemproxy`; empty for a single one.
    pub place: String,
    /// How many they are.
    pub servers: u32,
    /// Which program (`redis`, `valkey`, `systally-responder`, …).
    pub kind: String,
    /// Its version as it says.
    pub version: String,
    /// Whose it is.
    pub origin: ServerOrigin,
    /// Its addresses as [`crate::strategy::contract::Endpoint`] writes them, never with a password.
    pub addresses: Vec<String>,
    /// Its settings that matter for a load (`maxclients`, `tcp-backlog`, `timeout`, `maxmemory` …).
    pub settings: BTreeMap<String, String>,
}

impl Default for ServerInfo {
    /// One server of which nothing is known.
    fn default() -> Self {
        ServerInfo {
            place: String::new(),
            servers: 1,
            kind: String::new(),
            version: String::new(),
            origin: ServerOrigin::External,
            addresses: Vec::new(),
            settings: BTreeMap::new(),
        }
    }
}

/// Where the server came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerOrigin {
    /// The user named it; others may use it too.
    External,
    /// systally started it for this run alone.
    Private,
    /// systally's own small RESP server.
    BuiltIn,
}

/// What was asked for, as the header of a run prints it: long flag names and their values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanInfo {
    /// By flag name without dashes (`runs`, `clients`, `pipeline` …), or facts of an import.
    pub settings: BTreeMap<String, String>,
}

/// How a row ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Measured and confirmed by the server.
    Ok,
    /// It could not do its work; the reason says why.
    Failed,
    /// It was not run; the reason says why and what would make it run.
    Skipped,
    /// Measured, but the server does not confirm what the client claims.
    Unverified,
}

impl Status {
    /// The word in records and tables.
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Failed => "failed",
            Status::Skipped => "skipped",
            Status::Unverified => "unverified",
        }
    }
}

/// What a row ran: the axes that a run can vary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axes {
    /// The operation (`get`, `set`, `setget`, `incr`, `ping`); empty for a counted program.
    pub op: String,
    /// `tcp`, `unix`, or empty.
    pub transport: String,
    /// Operations per batch.
    pub pipeline: u32,
    /// Payload length in bytes.
    pub payload_bytes: u64,
    /// Worker processes, one connection each.
    pub clients: u32,
    /// What the client speaks to: `redis`, `memcached`, `cluster`, `shards`, `twemproxy`, or `none`; empty
    /// where nobody knows.
    pub store: String,
    /// Servers that the client spreads its keys over.
    pub servers: u32,
}

impl Default for Axes {
    /// A row of which nothing is known.
    fn default() -> Self {
        Axes {
            op: String::new(),
            transport: String::new(),
            pipeline: 1,
            payload_bytes: 0,
            clients: 1,
            store: String::new(),
            servers: 1,
        }
    }
}

/// One row: a strategy and everything known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct StrategyResult {
    /// Its name, `client/mode/transport`.
    pub name: String,
    /// What it ran.
    pub axes: Axes,
    /// The client library or program.
    pub client: ClientInfo,
    /// How it ended.
    pub status: Status,
    /// Why, for every status but `Ok`.
    pub reason: Option<String>,
    /// The first failure, with what was read at that moment.
    pub failure: Option<Failure>,
    /// The untraced rounds.
    pub timed: Measured<Timed>,
    /// The counted pass; the first one, when there were several.
    pub counted: Measured<Counted>,
    /// Counts of the loop that were not the same in all counted passes.
    pub varied: Vec<Varied>,
    /// The same work counted by an engine that hardly slows it.
    pub witness: Measured<Witness>,
    /// What the server saw over all rounds of this row, the counted pass included.
    pub server_view: Measured<ServerView>,
    /// What a scenario adds.
    pub experiment: Experiment,
}

/// A client as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientInfo {
    /// `phpredis`, `redis-rs`, …
    pub name: String,
    /// Its version; empty when it was never started.
    pub version: String,
    /// What else it says of itself (`php` → `8.2.36`, `xdebug` → `3.2`).
    pub environment: BTreeMap<String, String>,
}

/// The untraced rounds of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// Every round, in order.
    pub rounds: Vec<Round>,
    /// Throughput: median of the rounds with a 95 % bootstrap interval.
    pub ops_per_s: Interval,
    /// Ratio to the baseline row, computed round by round; `NotMeasured` for the baseline itself.
    pub vs_baseline: Measured<Interval>,
    /// Times of single operations, or of batches, over all rounds.
    pub latency: Measured<Latency>,
}

impl Timed {
    /// Fewer rounds have no interval to speak of.
    const FEWEST_ROUNDS: usize = 3;

    /// Whether the rounds differ so much that the throughput is no more than an order of size.
    pub fn is_noisy(&self) -> bool {
        self.rounds.len() >= Timed::FEWEST_ROUNDS && self.ops_per_s.is_noisy()
    }

    /// Whether the same is so of the ratio to the baseline. Noise that both rows share cancels in it, so it can
    /// also be sounder than the throughput; a row that is noisy by itself is never taken for sound.
    pub fn ratio_is_noisy(&self) -> bool {
        let ratio = self.vs_baseline.known();
        let wide = self.rounds.len() >= Timed::FEWEST_ROUNDS && ratio.is_some_and(Interval::is_noisy);
        ratio.is_some() && (wide || self.is_noisy())
    }
}

/// One timed round of all workers of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Operations the clients say they completed.
    pub ops: Ops,
    /// Operations begun.
    pub asked: Ops,
    /// The longest of the workers' own times.
    pub elapsed: Nanos,
    /// Failed operations by the client's own words, `class:message`, escaped.
    pub errors: BTreeMap<String, u64>,
    /// What the server saw in this round.
    pub server: Measured<ServerView>,
    /// User and kernel CPU time of all workers in this round; `None` when it could not be read.
    pub cpu: Option<(Nanos, Nanos)>,
}

/// What a server's own counters say about a span of time, without systally's own control connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerView {
    /// Calls that did not fail, by command in lower case.
    pub commands: BTreeMap<String, u64>,
    /// Calls that failed or were refused, by command.
    pub failed: BTreeMap<String, u64>,
    /// Time the server spent in commands (its `usec`), where it tells.
    pub busy: Option<Nanos>,
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused because of `maxclients`.
    pub rejected: u64,
    /// What each server did, by address, where several serve together; empty for a single one.
    pub nodes: BTreeMap<String, NodeView>,
}

/// What one of several servers did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeView {
    /// Calls that did not fail, by command in lower case.
    pub commands: BTreeMap<String, u64>,
    /// Connections accepted.
    pub connections: u64,
}

impl ServerView {
    /// How many of the named commands it served.
    pub fn served(&self, commands: &[&str]) -> u64 {
        total(
            commands
                .iter()
                .filter_map(|name| self.commands.get(*name).copied()),
        )
    }

    /// Adds another span.
    pub fn merge(&mut self, other: &ServerView) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        for (name, n) in &other.commands {
            add(self.commands.entry(name.clone()).or_default(), *n);
        }
        for (name, n) in &other.failed {
            add(self.failed.entry(name.clone()).or_default(), *n);
        }
        self.busy = match (self.busy, other.busy) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        add(&mut self.connections, other.connections);
        add(&mut self.rejected, other.rejected);
        for (address, node) in &other.nodes {
            let sum = self.nodes.entry(address.clone()).or_default();
            for (name, n) in &node.commands {
                add(sum.commands.entry(name.clone()).or_default(), *n);
            }
            add(&mut sum.connections, node.connections);
        }
    }
}

/// The counted pass of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// The engine's name.
    pub engine: String,
    /// Operations done in the window; `None` when nobody can know (a counted program).
    pub ops: Option<Ops>,
    /// Length of the window under the engine.
    pub elapsed: Nanos,
    /// Untraced throughput over throughput under the engine.
    pub slowdown: Measured<f64>,
    /// The calls.
    pub phases: Phases,
    /// Per operation, in the window.
    pub connects_per_op: Measured<f64>,
    /// Turns of send, wait, receive per operation, in the window.
    pub round_trips_per_op: Measured<f64>,
    /// Sends per batch, in the window.
    pub sends_per_batch: Measured<f64>,
    /// Calls per operation as a multiple of the least a client can make: one send and one receive per
    /// batch (what the `raw` strategy makes).
    pub floor_ratio: Measured<f64>,
    /// Failed operations in the counted pass, by the client's words.
    pub client_errors: BTreeMap<String, u64>,
    /// User and system CPU time of the whole counted process tree.
    pub cpu: Measured<(Nanos, Nanos)>,
    /// What a reader of the counts must know, one sentence each.
    pub notes: Vec<String>,
}

/// The phases of a counted pass.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Phases {
    /// Up to `go`.
    pub startup: PhaseCounts,
    /// The measured window.
    pub run_loop: PhaseCounts,
    /// After `done`.
    pub shutdown: PhaseCounts,
}

/// The calls of one phase, by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PhaseCounts {
    /// By system call name; the name is escaped when it came from a file.
    pub syscalls: BTreeMap<String, CallCounts>,
    /// Turns and waits; `None` when the engine does not look at single calls.
    pub talk: Option<Talk>,
}

impl PhaseCounts {
    /// All calls that returned.
    pub fn total(&self) -> u64 {
        // Saturating: a record may come from a file that somebody made.
        self.syscalls
            .values()
            .fold(0, |sum, call| sum.saturating_add(call.calls))
    }
}

/// Stands in the place of an errno name where a table says how many calls failed and not how
/// (`strace -c`).
pub const UNNAMED_ERRNO: &str = "unnamed";

/// One system call over one phase.
#[derive(Debug, Clone, PartialEq)]
pub struct CallCounts {
    /// Calls that returned.
    pub calls: u64,
    /// Calls that were entered and never returned.
    pub unfinished: u64,
    /// Failed calls by errno name; under [`UNNAMED_ERRNO`] those of a source that counts failures without
    /// saying which.
    pub errors: Measured<BTreeMap<String, u64>>,
    /// Calls restarted by the kernel after a signal, by code.
    pub restarts: BTreeMap<String, u64>,
    /// Wall time in the call, tracing included.
    pub wall: Measured<Nanos>,
    /// System CPU time in the call.
    pub cpu: Measured<Nanos>,
    /// Bytes moved.
    pub bytes: Measured<u64>,
    /// Receives that only peeked.
    pub peeks: Measured<u64>,
    /// Calls by what the descriptor leads to.
    pub peers: BTreeMap<String, u64>,
}

impl CallCounts {
    /// Failed calls, restarts apart; `None` when the source does not tell.
    pub fn failed(&self) -> Option<u64> {
        let errors = self.errors.known()?;
        Some(errors.values().fold(0, |sum: u64, n| sum.saturating_add(*n)))
    }
}

/// Whether a planned load fits a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It does not bear on this load.
    NotApplicable,
    /// The load fits.
    Ok,
    /// It could not be read.
    Unknown,
    /// Over 80 % of the capacity, or a term of the demand is a guess.
    Warn,
    /// The load does not fit.
    Fail,
}

impl Verdict {
    /// The word in records and tables.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
            Verdict::Unknown => "unknown",
            Verdict::NotApplicable => "not_applicable",
        }
    }

    /// The word in a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
            Verdict::Unknown => "unknown",
            Verdict::NotApplicable => "not applicable",
        }
    }
}

/// One limit, what the load demands of it, and what it can carry.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitReading {
    /// Stable name (`client_nofile`).
    pub id: String,
    /// Whose limit it is: `process`, `user`, `cgroup`, `client's netns`, `server`, `machine` …
    pub scope: String,
    /// Whether the load fits.
    pub verdict: Verdict,
    /// What the load needs.
    pub demand: Measured<u64>,
    /// The demand as a formula with its numbers.
    pub formula: String,
    /// What there is.
    pub capacity: Measured<u64>,
    /// Where it was read.
    pub source: String,
    /// What happens beyond it, and what the limit means for this run.
    pub effect: String,
    /// How to raise it.
    pub fix: Fix,
}

/// How to raise a limit, three ways.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fix {
    /// A command for now.
    pub now: String,
    /// Configuration that stays.
    pub kept: String,
    /// In a container.
    pub container: String,
}

/// Counters before and after a run, by dotted name (`TcpExt.ListenOverflows`, `redis.rejected_connections`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Before.
    pub before: BTreeMap<String, u64>,
    /// After.
    pub after: BTreeMap<String, u64>,
}

impl Counters {
    /// How much a counter grew; `None` when either reading is missing or it went back (a restart).
    pub fn grew(&self, name: &str) -> Option<u64> {
        self.after.get(name)?.checked_sub(*self.before.get(name)?)
    }
}
