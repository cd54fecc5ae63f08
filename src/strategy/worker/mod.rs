//! Drives the workers of a strategy through the worker contract: systally's side of it.
//!
//! One thread serves all of them with poll(2). Nothing that a worker does can hold it up: every wait has
//! a limit and looks at [`Interrupt`], standard output and standard error are both read as they come, and
//! what is kept of them is bounded. After an error nothing is left running.

mod channel;
mod check;
mod end;
mod error;
mod listen;
mod notes;
mod wait;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::channel::Channel;
pub use self::error::{Fault, Phase, Problem, WorkerError};
use self::notes::Notes;
use super::assignment::Assignment;
use super::contract::{Done, Event, Spec};
use crate::engine::{Engine, EngineError, EngineKind, Request, Session};
use crate::proc::Root;
use crate::proc::process::{CpuTime, cpu_time, is_alive};
use crate::run::interrupt::Interrupt;
use crate::units::{Nanos, Ops};

/// The workers of one strategy, running under an engine.
pub struct Workers {
    /// `None` after an error has ended them.
    session: Option<Box<dyn Session>>,
    engine: EngineKind,
    channels: Vec<Channel>,
    specs: Vec<Spec>,
    notes: Notes,
}

/// What a worker says of itself when it is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// The process that works; another one than was started where a wrapper stands between.
    pub pid: i32,
    /// Versions and what else matters of its environment, escaped. What it does not have is left out.
    pub versions: BTreeMap<String, String>,
}

/// The results of one round.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundOutcome {
    /// In the order of the workers.
    pub dones: Vec<Done>,
    /// From the first `go` to the last result, as systally's clock saw it.
    pub wall: Nanos,
    /// User and kernel CPU time of all workers in this time; `None` when it could not be read, or was so
    /// little that no tick tells the two apart.
    pub cpu: Option<(Nanos, Nanos)>,
}

/// User and kernel time between two readings: the exact sum, divided by the ticks.
fn used(before: &[CpuTime], after: &[CpuTime]) -> Option<(Nanos, Nanos)> {
    let (mut total, mut user, mut system) = (0u64, 0u64, 0u64);
    for (before, after) in before.iter().zip(after) {
        total += after.total.0.saturating_sub(before.total.0);
        user += after.ticks.0.saturating_sub(before.ticks.0);
        system += after.ticks.1.saturating_sub(before.ticks.1);
    }
    let share = Ops(user + system).per_op(user)?;
    let user = (total as f64 * share) as u64;
    Some((Nanos(user), Nanos(total.saturating_sub(user))))
}

impl Workers {
    /// Starts a worker for each assignment.
    ///
    /// # Errors
    /// What the engine says; nothing is left running then.
    pub fn start(
        engine: &dyn Engine,
        assignments: Vec<Assignment>,
        request: &Request,
    ) -> Result<Workers, WorkerError> {
        let first_lines: Vec<Option<String>> = assignments.iter().map(Assignment::first_line).collect();
        let (programs, specs): (Vec<_>, Vec<_>) =
            assignments.into_iter().map(|a| (a.program, a.spec)).unzip();
        let mut session = engine.launch(programs, request)?;
        let pids = session.pids().to_vec();
        let pipes = session.pipes();
        let mut workers = Workers {
            session: Some(session),
            engine: engine.kind(),
            channels: Vec::with_capacity(pipes.len()),
            specs,
            notes: Notes::default(),
        };
        // From here on, dropping `workers` ends what was started.
        if pipes.len() != workers.specs.len() || pids.len() != workers.specs.len() {
            return Err(workers.broken("it gave another number of workers than it was given"));
        }
        for ((pid, pipes), first_line) in pids.into_iter().zip(pipes).zip(first_lines) {
            let mut channel = Channel::new(pid, pipes).map_err(WorkerError::pipes)?;
            channel.send(first_line.unwrap_or_default().as_bytes());
            workers.channels.push(channel);
        }
        Ok(workers)
    }

    /// The process ids of all workers.
    pub fn pids(&self) -> Vec<i32> {
        self.channels.iter().map(|channel| channel.pid).collect()
    }

    /// The process id of a worker, by its number.
    pub fn pid(&self, worker: usize) -> Option<i32> {
        self.channels.get(worker).map(|channel| channel.pid)
    }

    /// Waits, `limit` at most, until every worker has said `ready`.
    ///
    /// # Errors
    /// Workers that fail, end, keep silent or write something else. All of them are ended then.
    pub fn ready(&mut self, limit: Duration, interrupt: &Interrupt) -> Result<Vec<Ready>, WorkerError> {
        let events = self.await_all(Phase::StartUp, limit, interrupt)?;
        Ok(events
            .into_iter()
            .filter_map(|event| match event {
                Event::Ready { pid, versions, .. } => Some(Ready {
                    pid,
                    versions: check::shown(versions),
                }),
                Event::Done(_) | Event::Fail { .. } => None,
            })
            .collect())
    }

    /// Says `go` to all and waits, `limit` at most, for their results. Every worker is ready or has
    /// finished its round before, so that they begin together.
    ///
    /// # Errors
    /// As [`Workers::ready`]; also results that cannot be true. Failed operations are no errors here:
    /// they are in the results.
    pub fn round(&mut self, limit: Duration, interrupt: &Interrupt) -> Result<RoundOutcome, WorkerError> {
        self.between_rounds()?;
        let before = self.cpu_times();
        let started = Instant::now();
        for channel in &mut self.channels {
            channel.send(b"go\n");
        }
        let events = self.await_all(Phase::Round, limit, interrupt)?;
        let wall = Nanos::from(started.elapsed());
        let cpu = before
            .zip(self.cpu_times())
            .and_then(|(before, after)| used(&before, &after));
        let mut dones = Vec::with_capacity(events.len());
        let mut faults = Vec::new();
        for (worker, event) in events.into_iter().enumerate() {
            let Event::Done(done) = event else { continue };
            match check::done(done, &self.specs[worker], wall) {
                Ok(done) => dones.push(done),
                Err(what) => faults.push((worker, Problem::Miscounted { what })),
            }
        }
        if faults.is_empty() {
            return Ok(RoundOutcome { dones, wall, cpu });
        }
        Err(self.abort(Phase::Round, faults))
    }

    /// The CPU time of every worker so far.
    fn cpu_times(&self) -> Option<Vec<CpuTime>> {
        let root = Root::live();
        let times = self
            .channels
            .iter()
            .map(|channel| cpu_time(&root, channel.pid).ok());
        times.collect()
    }

    fn broken(&self, what: &str) -> WorkerError {
        WorkerError::Engine(EngineError::Broken {
            engine: self.engine,
            what: what.to_owned(),
        })
    }
}

/// Whether a process is over: reaped, or a zombie that waits to be.
fn has_ended(pid: i32) -> bool {
    !is_alive(&Root::live(), pid).unwrap_or(false)
}
