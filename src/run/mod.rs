//! Running a plan: the timed rounds, the counted pass and the ledger, into a record.
//!
//! Throughput and counts come from two passes that never mix: rounds without a tracer, interleaved over
//! all rows, then the same work under an engine, and once more under one that hardly slows it.

pub mod interrupt;
pub mod ledger;

mod counted;
mod failure;
pub mod prove;
mod readings;
pub mod sampler;
mod state;
mod timed;
mod usage;
mod witness;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::{Engine, Request};
use crate::explain::explain;
use crate::limits::{self, Load};
use crate::plan::rows::{Common, Row, share};
use crate::proc::{self, Root};
use crate::record::{Counters, Host, Kind, PlanInfo, Record, ServerOrigin};
use crate::server::{Backend, Place, Reading, ServerError, Servers};
use crate::strategy::Presence;
use crate::strategy::contract::{Connect, Endpoint, Stop, Store, Transport};
use crate::strategy::worker::{WorkerError, Workers};
use interrupt::Interrupt;
use sampler::{Sampler, Watch};
use state::RowState;

/// Why there is no second side of the ledger for a client without a server.
const NO_SERVER: &str = "no server takes part in it";

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
    /// How often a row is counted, and recounted where there is a witness; at least once.
    pub counted_runs: u32,
    /// How long to wait for a worker beyond the time its work should take.
    pub patience: Duration,
    /// The row that others are compared with; `None`: the first one measured.
    pub baseline: Option<usize>,
    /// What the record keeps of the command line, by long flag name.
    pub plan: PlanInfo,
    /// Whether CPU time and context switches of both sides are read around every timed round.
    pub usage: bool,
}

/// Told how far a run is; shown by whoever wants to.
pub trait Progress {
    /// So many steps will come.
    fn begin(&self, steps: u64);
    /// The next one begins: the row it is of, by its place, and what it does.
    fn step(&self, row: usize, what: &str);
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
    /// The servers that the rows need, already running.
    pub servers: &'a mut Servers,
    /// Runs programs untraced.
    pub timing: &'a dyn Engine,
    /// Counts; or why nothing is counted.
    pub counting: Result<&'a dyn Engine, String>,
    /// Counts the same once more, at nearly native speed; or why nothing is recounted.
    pub witness: Result<&'a dyn Engine, String>,
    /// Whether to stop.
    pub interrupt: &'a Interrupt,
    /// Told of every step.
    pub progress: &'a dyn Progress,
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

    /// Marks the rows whose client or server is missing, or whose transport the server does not offer.
    fn skip_what_cannot_run(&self, states: &mut [RowState]) {
        for (row, state) in self.rows.iter().zip(states) {
            match row.strategy.client.presence() {
                Presence::Ready { version } => state.client.version = version,
                Presence::Missing { why, install } => state.skip(format!("{why}; to install: {install}")),
            }
            let Some(place) = row.place() else { continue };
            match self.servers.absence(place) {
                Some(absence) if absence.missing => state.skip(absence.error.to_string()),
                Some(absence) if state.is_live() => state.fail(failure::of_absence(&absence.error)),
                Some(_) => {}
                None => {
                    if let Some(why) = out_of_reach(row, self.servers) {
                        state.skip(why.to_owned());
                    }
                }
            }
        }
    }

    fn steps(&self, states: &[RowState]) -> u64 {
        let live = states.iter().filter(|s| s.is_live()).count() as u64;
        let rounds = u64::from(self.settings.runs + self.settings.warmup);
        let passes = match (&self.counting, &self.witness) {
            (Ok(_), Ok(_)) => 2,
            (Ok(_), Err(_)) => 1,
            (Err(_), _) => 0,
        };
        live * (rounds + passes * u64::from(self.settings.counted_runs))
    }

    /// The rows in the terms of the limits: a load for each server and way to connect, with the most clients
    /// that connect so and the highest rate of connections that was measured.
    fn loads(&self, states: &[RowState], before: &BTreeMap<String, u64>) -> Vec<Load> {
        let mut loads = Vec::new();
        for (place, server) in self.servers.iter() {
            let store = match place {
                Place::Redis | Place::Memcached(_) => place.store().name().to_owned(),
                Place::Cluster | Place::Shards | Place::Twemproxy => format!("{0}.{0}", place.store().name()),
            };
            let mut named = server.info().settings.clone();
            if let Some(connected) = before.get(&format!("{store}.connected_clients")) {
                named.insert("connected_clients".to_owned(), connected.to_string());
            }
            let facts = limits::Witness {
                kind: match place {
                    Place::Memcached(_) => limits::ServerKind::Memcached,
                    Place::Redis | Place::Cluster | Place::Shards => limits::ServerKind::Redis,
                    Place::Twemproxy => limits::ServerKind::Other,
                },
                answered: true,
                named,
                pid: server.pid(),
                ..limits::Witness::default()
            }
            .facts(&Root::live());
            let ways = Transport::SOCKETS.map(|transport| [false, true].map(|per_op| (transport, per_op)));
            for (transport, per_op) in ways.into_iter().flatten() {
                let alike = |row: &Row| {
                    row.place() == Some(place)
                        && row.strategy.transport == transport
                        && (row.strategy.mode.connect == Connect::PerOp) == per_op
                };
                let rows = self.rows.iter().zip(states).filter(|(row, _)| alike(row));
                let Some((clients, endpoint)) = rows
                    .clone()
                    .filter_map(|(row, _)| {
                        Some((u64::from(row.clients), self.endpoints(row).into_iter().next()?))
                    })
                    .max_by_key(|(clients, _)| *clients)
                else {
                    continue;
                };
                let rates = rows
                    .filter_map(|(_, state)| state.median())
                    .map(|rate| rate as u64);
                loads.push(Load {
                    processes: clients,
                    connect_per_op: per_op,
                    connects_per_second: rates.max().filter(|_| per_op && transport == Transport::Tcp),
                    server_pid: server.pid(),
                    server: facts.clone(),
                    ..Load::to(&endpoint)
                });
            }
        }
        loads
    }

    fn counters(&mut self, root: &Root) -> BTreeMap<String, u64> {
        let watch = self.watch();
        let mut counters = readings::counters(root, watch.server, &watch.endpoints);
        counters.extend(self.servers.counters());
        counters
    }

    /// What is read while rows run.
    fn watch(&self) -> Watch {
        let endpoints = self.rows.iter().flat_map(|row| self.endpoints(row));
        let mut distinct: Vec<Endpoint> = Vec::new();
        for endpoint in endpoints {
            if !distinct.contains(&endpoint) {
                distinct.push(endpoint);
            }
        }
        Watch {
            endpoints: distinct,
            server: self.servers.iter().find_map(|(_, server)| server.pid()),
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
        let servers = self.endpoints(row);
        let workers = row.workers();
        let assignments = (0..workers)
            .map(|worker| {
                let stop = match length {
                    RoundLength::Ops(total) => Stop::Ops(share(total, workers, worker)),
                    RoundLength::Span(span) => Stop::Seconds(span.as_secs_f64()),
                };
                row.strategy
                    .assign(&row.work(self.common, stop), &servers, worker)
            })
            .collect();
        Workers::start(engine, assignments, request)
    }

    /// The addresses that the workers of a row are given.
    fn endpoints(&self, row: &Row) -> Vec<Endpoint> {
        endpoints(row, self.servers)
    }

    /// What row `i` runs against; `None` for a client without a server.
    fn server(&mut self, i: usize) -> Option<&mut Backend> {
        self.servers.get_mut(self.rows[i].place()?)
    }

    /// The counters of what row `i` runs against; `None` for a client without a server.
    fn reading(&mut self, i: usize) -> Option<Result<Reading, ServerError>> {
        let servers = self.rows[i].servers;
        self.server(i).map(|server| server.snapshot(servers))
    }

    /// Where row `i` may have failed.
    fn scene(&mut self, i: usize) -> failure::Scene<'_> {
        failure::Scene {
            endpoint: self.endpoints(&self.rows[i]).into_iter().next(),
            server: self.server(i),
        }
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
        // What a failed row reached is no result, so nothing is compared with it.
        let has_speed = |state: &RowState| state.is_live() && !state.rounds.is_empty();
        let origins: Vec<Option<ServerOrigin>> = self
            .rows
            .iter()
            .map(|row| Some(self.servers.get(row.place()?)?.info().origin))
            .collect();
        let is_sound = |i: &usize| has_speed(&states[*i]) && states[*i].is_sound(&self.rows[*i], origins[*i]);
        let baseline = self
            .settings
            .baseline
            .filter(is_sound)
            .or_else(|| (0..states.len()).find(is_sound))
            .or_else(|| states.iter().position(has_speed));
        let strategies = states
            .iter()
            .zip(self.rows)
            .enumerate()
            .map(|(i, (state, row))| {
                let reference = match baseline {
                    Some(b) if b == i => Err("this row is the baseline"),
                    Some(b) => Ok(states[b].rounds.as_slice()),
                    None => Err("no row has a speed to compare with"),
                };
                state.result(row, reference, origins[i])
            })
            .collect();
        let mut servers = self.servers.iter().map(|(_, server)| server.info().clone());
        let (server, more_servers) = (servers.next(), servers.collect());
        let mut record = Record {
            kind: Kind::Bench,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            complete,
            host: frame.host.clone(),
            server,
            more_servers,
            plan: self.settings.plan.clone(),
            strategies,
            limits: limits::check_bench(&Root::live(), &self.loads(states, &frame.before)),
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

/// The addresses that the workers of a row are given.
fn endpoints(row: &Row, servers: &Servers) -> Vec<Endpoint> {
    let Some(server) = row.place().and_then(|place| servers.get(place)) else {
        return Vec::new();
    };
    let number = match row.strategy.store() {
        // twemproxy is one address, whatever is behind it.
        Store::Twemproxy => 1,
        _ => row.servers,
    };
    server.endpoints(row.strategy.transport, number)
}

/// Why a row whose server runs has no way to it; `None` when it has.
pub fn out_of_reach(row: &Row, servers: &Servers) -> Option<&'static str> {
    let server = row.place().and_then(|place| servers.get(place))?;
    if !endpoints(row, servers).is_empty() {
        return None;
    }
    match row.strategy.transport {
        Transport::Tcp if server.info().origin == ServerOrigin::Private => Some(
            "the server is in a network namespace of its own: 127.0.0.1 does not lead there, its UNIX socket does",
        ),
        Transport::Tcp => Some("the server was named by its UNIX socket only; add -h HOST -p PORT"),
        Transport::Unix => Some("the server was named by its TCP address only; add -s SOCKET"),
        Transport::Local => None,
    }
}

/// What is read once, around all rows.
struct Frame {
    host: Host,
    before: BTreeMap<String, u64>,
}
