//! The result of a run as values: what was planned, measured, counted, read and found.
//!
//! Everything before this stage fills a [`Record`]; everything after reads one. The JSON form is apart,
//! in [`wire`], so that names there can stay when types here change.

mod counted;
pub mod experiment;
pub mod failure;
mod from_tally;
pub mod join;
pub mod label;
pub mod latency;
mod limit;
pub mod proof;
pub mod sampled;
pub mod stats;
mod timed;
pub mod wire;
pub mod witness;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::explain::Finding;
use crate::import::Imported;
use crate::units::Measured;

pub use counted::{CallCounts, Counted, PhaseCounts, Phases, UNNAMED_ERRNO};
pub use experiment::{CounterReading, Experiment, PublishedFigure, Spent, Usage};
pub use failure::{Failure, FailureKind, Stage};
pub use latency::Latency;
pub use limit::{Fix, LimitReading, Verdict};
pub use proof::{Proof, ProofArm, ProofRun, ProofVerdict};
pub use sampled::{Peak, Sampled};
pub use stats::Interval;
pub use timed::{NodeView, Round, ServerView, Timed};
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

/// Why a failed row has no speed although some of its rounds were timed.
const FAILED: &str =
    "the row failed, so what it reached before that is no result (its rounds are in the record)";

impl StrategyResult {
    /// The timed rounds as far as they are a result: those of a row that failed are none. What an unverified row
    /// reached is its client's word, to be shown as such.
    pub fn speed(&self) -> Measured<&Timed> {
        match (&self.timed, self.status) {
            (Measured::Known(_), Status::Failed) => Measured::NotMeasured(FAILED.to_owned()),
            (Measured::Known(timed), Status::Ok | Status::Skipped | Status::Unverified) => {
                Measured::Known(timed)
            }
            (Measured::NotMeasured(reason), _) => Measured::NotMeasured(reason.clone()),
        }
    }

    /// Whether it is the row of the worker that does nothing, by which others are judged and which is no client.
    pub fn is_noop(&self) -> bool {
        self.name.split('/').next() == Some("noop")
    }
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
