//! Running a plan: the timed rounds, the counted pass and the ledger, into a record.
//!
//! Throughput and counts come from two passes that never mix: rounds without a tracer, interleaved over
//! all rows, then the same work once under an engine.

pub mod interrupt;
pub mod ledger;

mod counted;
mod failure;
pub mod prove;
mod readings;
pub mod sampler;
mod state;
mod timed;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::{Engine, Request};
use crate::explain::explain;
use crate::limits::{self, Load};
use crate::plan::rows::{Common, Row, share};
use crate::proc::{self, Root};
use crate::record::{Counters, Host, Kind, PlanInfo, Record};
use crate::server::{Server, Snapshot};
use crate::strategy::Presence;
use crate::strategy::contract::{Connect, Endpoint, Stop, Transport};
use crate::strategy::worker::{WorkerError, Workers};
use interrupt::Interrupt;
use sampler::{Sampler, Watch};
use state::RowState;

/// How long a timed round is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RoundLength {
    /// So many operations over all workers.
    Ops(u64),
    /// So long.
    Span(Duration),
}

/// How to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Timed rounds that are kept.
    pub runs: u32,
    /// Rounds before them that are not.
    pub warmup: u32,
    /// Their length.
    pub length: RoundLength,
    /// Operations of the counted pass over all workers; `None`: those of a round when they are given,
    /// else 1,000 batches.
    pub counted_ops: Option<u64>,
    /// How long to wait for a worker beyond the time its work should take.
    pub patience: Duration,
    /// The row that others are compared with; `None`: the first one measured.
    pub baseline: Option<usize>,
    /// What the record keeps of the command line, by long flag name.
    pub plan: PlanInfo,
}

/// Told how far a run is; shown by whoever wants to.
pub trait Progress {
    /// So many steps will come.
    fn begin(&self, steps: u64);
    /// The next one begins, and this is what it does.
    fn step(&self, what: &str);
    /// No more steps.
    fn end(&self);
}

/// Everything a run needs.
pub struct Bench<'a> {
    /// The rows, in the order they are shown.
    pub rows: &'a [Row],
    /// What the rows share.
    pub common: &'a Common,
    /// How to measure.
    pub settings: &'a Settings,
    /// The server, already running.
    pub server: &'a mut Server,
    /// Runs programs untraced.
    pub timing: &'a dyn Engine,
    /// Counts; or why nothing is counted.
    pub counting: Result<&'a dyn Engine, String>,
    /// Whether to stop.
    pub interrupt: &'a Interrupt,
    /// Told of every step.
    pub progress: &'a dyn Progress,
    /// The server's counters as they were read last; starts as `None`.
    pub last_seen: Option<Snapshot>,
    /// Reads queues while rows run; starts as `None`.
    pub sampler: Option<Sampler>,
    /// Given the record after every step that adds to it, when somebody wants it so soon.
    pub save: Option<&'a mut Save<'a>>,
}

/// Keeps a record that may not be finished yet. What goes wrong with that is for its owner to say when
/// the run is over: a full disk must not cost what was measured.
pub type Save<'a> = dyn FnMut(&Record) + 'a;

/// Above so many worker processes in all, workers are started for each round and ended after it instead
/// of waiting, warm, for their next turn: a thousand idle interpreters would use up the memory.
const WARM_WORKERS: u64 = 64;

impl Bench<'_> {
    /// Runs everything and returns the record; an interrupted run returns what it has, marked
    /// incomplete. What goes wrong with one row is in that row, and the others go on.
    pub fn run(mut self) -> Record {
        let root = Root::live();
        let frame = Frame {
            host: proc::host(&root),
            before: self.counters(&root),
        };
        self.sampler = Some(Sampler::start(self.watch()));
        let mut states: Vec<RowState> = self.rows.iter().map(RowState::new).collect();
        self.skip_what_cannot_run(&mut states);
        self.progress.begin(self.steps(&states));
        self.timed_rounds(&mut states, &frame);
        self.counted_pass(&mut states, &frame);
        self.progress.end();
        let record = self.record(&states, &frame, !self.interrupt.requested());
        if let Some(save) = &mut self.save {
            save(&record);
        }
        record
    }

    /// Hands over what there is so far, marked incomplete.
    fn save_step(&mut self, states: &[RowState], frame: &Frame) {
        // Taken out and put back, since the record is made by all of `self`.
        if let Some(save) = self.save.take() {
            save(&self.record(states, frame, false));
            self.save = Some(save);
        }
    }

    /// Marks the rows whose client is missing or whose transport the server does not offer.
    fn skip_what_cannot_run(&self, states: &mut [RowState]) {
        for (row, state) in self.rows.iter().zip(states) {
            match row.strategy.client.presence() {
                Presence::Ready { version } => state.client.version = version,
                Presence::Missing { why, install } => state.skip(format!("{why}; to install: {install}")),
            }
            if let Some(why) = row.strategy.client.store().out_of_reach() {
                state.skip(why.to_owned());
            } else if self.server.endpoint(row.strategy.transport).is_none() {
                state.skip(match row.strategy.transport {
                    Transport::Tcp => {
                        "the server was named by its UNIX socket only; add -h HOST -p PORT".to_owned()
                    }
                    Transport::Unix => {
                        "the server was named by its TCP address only; add -s SOCKET".to_owned()
                    }
                    Transport::Local => "the transport local leads to no server".to_owned(),
                });
            }
        }
    }

    fn steps(&self, states: &[RowState]) -> u64 {
        let live = states.iter().filter(|s| s.is_live()).count() as u64;
        let rounds = u64::from(self.settings.runs + self.settings.warmup);
        live * (rounds + u64::from(self.counting.is_ok()))
    }

    /// The rows in the terms of the limits: a load for each way to connect, with the most clients that
    /// connect so and the highest rate of connections that was measured.
    fn loads(&self, states: &[RowState]) -> Vec<Load> {
        let server = limits::Witness {
            answered: true,
            named: self.server.info().settings.clone(),
            pid: self.server.pid(),
            ..limits::Witness::default()
        }
        .facts(&Root::live());
        let mut loads = Vec::new();
        for transport in Transport::SOCKETS {
            let Some(endpoint) = self.server.endpoint(transport) else {
                continue;
            };
            for per_op in [false, true] {
                let alike = |row: &Row| {
                    row.strategy.transport == transport
                        && (row.strategy.mode.connect == Connect::PerOp) == per_op
                };
                let rows = self.rows.iter().zip(states).filter(|(row, _)| alike(row));
                let Some(clients) = rows.clone().map(|(row, _)| u64::from(row.clients)).max() else {
                    continue;
                };
                let rates = rows
                    .filter_map(|(_, state)| state.median())
                    .map(|rate| rate as u64);
                loads.push(Load {
                    processes: clients,
                    connect_per_op: per_op,
                    connects_per_second: rates.max().filter(|_| per_op && transport == Transport::Tcp),
                    server_pid: self.server.pid(),
                    server: server.clone(),
                    ..Load::to(endpoint)
                });
            }
        }
        loads
    }

    fn counters(&mut self, root: &Root) -> BTreeMap<String, u64> {
        let watch = self.watch();
        let mut counters = readings::counters(root, watch.server, &watch.endpoints);
        if let Ok(snapshot) = self.server.snapshot() {
            counters.extend(snapshot.named());
        }
        counters
    }

    /// What is read while rows run.
    fn watch(&self) -> Watch {
        let of = |transport| self.server.endpoint(transport).cloned();
        Watch {
            endpoints: Transport::SOCKETS.into_iter().filter_map(of).collect(),
            server: self.server.pid(),
        }
    }

    /// Starts the workers of a row; each is given its share of the round.
    fn start(
        &self,
        row: &Row,
        engine: &dyn Engine,
        request: &Request,
        length: RoundLength,
    ) -> Result<Workers, WorkerError> {
        if let Some(sampler) = &self.sampler {
            sampler.row(self.rows.iter().position(|one| std::ptr::eq(one, row)));
        }
        let servers = self.servers(row);
        let assignments = (0..row.clients)
            .map(|worker| {
                let stop = match length {
                    RoundLength::Ops(total) => Stop::Ops(share(total, row.clients, worker)),
                    RoundLength::Span(span) => Stop::Seconds(span.as_secs_f64()),
                };
                row.strategy
                    .assign(&row.work(self.common, stop), &servers, worker)
            })
            .collect();
        Workers::start(engine, assignments, request)
    }

    /// The addresses that the workers of a row are given.
    fn servers(&self, row: &Row) -> Vec<Endpoint> {
        self.server
            .endpoint(row.strategy.transport)
            .cloned()
            .into_iter()
            .collect()
    }

    /// How long a round may take before its workers count as hung. Rounds by operations are given 5 ms
    /// for each, which the slowest client under the slowest engine does not use up.
    fn round_limit(&self, length: RoundLength) -> Duration {
        let work = match length {
            RoundLength::Ops(total) => Duration::from_millis(total.saturating_mul(5)),
            RoundLength::Span(span) => span * 2,
        };
        work.saturating_add(self.settings.patience)
    }

    fn record(&mut self, states: &[RowState], frame: &Frame, complete: bool) -> Record {
        let baseline = self
            .settings
            .baseline
            .filter(|row| !states[*row].rounds.is_empty())
            .or_else(|| states.iter().position(|state| !state.rounds.is_empty()));
        let origin = self.server.info().origin;
        let strategies = states
            .iter()
            .zip(self.rows)
            .enumerate()
            .map(|(i, (state, row))| {
                let reference = baseline.filter(|b| *b != i).map(|b| states[b].rounds.as_slice());
                state.result(row, reference, origin)
            })
            .collect();
        let mut record = Record {
            kind: Kind::Bench,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            complete,
            host: frame.host.clone(),
            server: Some(self.server.info().clone()),
            plan: self.settings.plan.clone(),
            strategies,
            limits: limits::check_bench(&Root::live(), &self.loads(states)),
            counters: Counters {
                before: frame.before.clone(),
                after: self.counters(&Root::live()),
            },
            sampled: self.sampler.as_ref().and_then(Sampler::so_far),
            findings: Vec::new(),
            proofs: Vec::new(),
            imports: Vec::new(),
        };
        record.findings = explain(&record);
        record
    }
}

/// What is read once, around all rows.
struct Frame {
    host: Host,
    before: BTreeMap<String, u64>,
}
