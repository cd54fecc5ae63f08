//! Drives the workers of a strategy through the worker contract: systally's side of it.
//!
//! One thread serves all of them with poll(2). Nothing that a worker does can hold it up: every wait has
//! a limit and looks at [`Interrupt`], standard output and standard error are both read as they come, and
//! what is kept of them is bounded. After an error nothing is left running.

mod channel;
mod check;
mod error;
mod notes;
mod wait;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::channel::{Channel, STEP, pump};
use self::check::Line;
pub use self::error::{Fault, Phase, Problem, WorkerError};
use self::notes::Notes;
use self::wait::Wait;
use super::assignment::Assignment;
use super::contract::{Done, Event, PROTOCOL, Spec};
use crate::engine::{Engine, EngineError, EngineKind, Exit, Outcome, Request, Session};
use crate::proc::Root;
use crate::proc::process::{CpuTime, cpu_time};
use crate::run::interrupt::Interrupt;
use crate::units::{Nanos, Ops, escape};

/// How long a worker that has closed its standard output may take to end.
const TO_END: Duration = Duration::from_secs(1);

/// How long other workers are listened to after the first fault, to tell one from all.
const AFTER_A_FAULT: Duration = Duration::from_millis(250);

/// How long the engine gets to end everything after an error.
const TO_ABORT: Duration = Duration::from_secs(5);

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

    /// Says `exit`, waits until all have ended, `limit` at most, and hands over what the engine counted.
    /// How a worker ended is a note of the outcome, not an error: its results are in by then.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn finish(mut self, limit: Duration) -> Result<Outcome, WorkerError> {
        let deadline = Instant::now() + limit;
        for channel in &mut self.channels {
            channel.send(b"exit\n");
            channel.close_input();
        }
        self.drain(deadline);
        let Some(session) = self.session.take() else {
            return Err(WorkerError::Over);
        };
        // Whoever still writes now gets EPIPE instead of waiting for a reader.
        self.channels.clear();
        let mut outcome = session.finish(Some(deadline.saturating_duration_since(Instant::now())))?;
        for (worker, exit) in outcome.exits.iter().enumerate() {
            if *exit != Exit::Code(0) {
                self.notes
                    .add(worker, format!("after its last round it ended with {exit}"));
            }
        }
        outcome.notes.extend(self.notes.sentences());
        Ok(outcome)
    }

    /// Reads until every worker has closed its streams or has ended.
    fn drain(&mut self, deadline: Instant) {
        while Instant::now() < deadline {
            if !self
                .channels
                .iter()
                .any(|channel| channel.is_open() && !has_ended(channel.pid))
            {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if pump(&mut self.channels, STEP.min(left)).is_err() {
                break;
            }
            for channel in &mut self.channels {
                channel.forget_output();
            }
        }
    }

    /// What was written since the last round is outside of every window.
    fn between_rounds(&mut self) -> Result<(), WorkerError> {
        if self.session.is_none() {
            return Err(WorkerError::Over);
        }
        pump(&mut self.channels, Duration::ZERO).map_err(WorkerError::pipes)?;
        let mut faults = Vec::new();
        for worker in 0..self.channels.len() {
            while let Some(line) = self.channels[worker].next_line() {
                match check::line(&line) {
                    Line::Text(text) => self.note_output(worker, &text),
                    Line::Event(event) => faults.push((worker, out_of_order(&event))),
                    Line::Garbage(why) => faults.push((worker, self.garbage(worker, &line, why))),
                }
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(self.abort(Phase::Idle, faults))
    }

    /// Waits for one event of each worker.
    fn await_all(
        &mut self,
        phase: Phase,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<Vec<Event>, WorkerError> {
        if self.session.is_none() {
            return Err(WorkerError::Over);
        }
        let deadline = Instant::now() + limit;
        let mut wait = Wait::new(phase, self.channels.len());
        loop {
            for worker in 0..self.channels.len() {
                if let Err(problem) = self.look_at(worker, &mut wait) {
                    wait.faults.push((worker, problem));
                    wait.silence(worker);
                }
            }
            if wait.is_over() {
                break;
            }
            if let Some(signal) = interrupt.signal() {
                self.end();
                return Err(WorkerError::Interrupted { signal });
            }
            let now = Instant::now();
            if now >= deadline {
                for worker in wait.waiting() {
                    let unfinished = self.channels[worker].unfinished_line();
                    let unfinished = unfinished.map(|line| self.shown(worker, line));
                    wait.faults
                        .push((worker, Problem::TimedOut { limit, unfinished }));
                }
                break;
            }
            pump(&mut self.channels, STEP.min(deadline - now)).map_err(WorkerError::pipes)?;
        }
        if wait.faults.is_empty() {
            return Ok(wait.events.into_iter().flatten().collect());
        }
        Err(self.abort(phase, wait.faults))
    }

    /// Takes in what a worker has written.
    fn look_at(&mut self, worker: usize, wait: &mut Wait) -> Result<(), Problem> {
        if wait.is_silenced(worker) {
            self.channels[worker].forget_output();
            return Ok(());
        }
        if let Some(bytes) = self.channels[worker].flooded() {
            return Err(Problem::TooMuch { bytes });
        }
        while let Some(line) = self.channels[worker].next_line() {
            match check::line(&line) {
                Line::Text(text) if wait.is_outside_of_the_window(worker) => self.note_output(worker, &text),
                Line::Text(_) => {
                    return Err(self.garbage(worker, &line, "text"));
                }
                Line::Garbage(why) => return Err(self.garbage(worker, &line, why)),
                Line::Event(event) => self.take(worker, event, wait)?,
            }
        }
        if wait.events[worker].is_none() && !self.channels[worker].output_is_open() {
            let since = *wait.closed[worker].get_or_insert_with(Instant::now);
            if has_ended(self.channels[worker].pid) {
                return Err(Problem::Ended { exit: None });
            }
            if since.elapsed() >= TO_END {
                return Err(Problem::ClosedOutput);
            }
        }
        Ok(())
    }

    fn take(&self, worker: usize, event: Event, wait: &mut Wait) -> Result<(), Problem> {
        let spec = &self.specs[worker];
        match (&event, wait.phase) {
            (Event::Fail { class, message }, _) => Err(Problem::Failed {
                class: escape(&spec.redact(class), 40),
                message: escape(&spec.redact(message), 400),
            }),
            (Event::Ready { protocol, .. }, Phase::StartUp) if *protocol != PROTOCOL => {
                Err(Problem::WrongProtocol { said: *protocol })
            }
            (Event::Ready { .. }, Phase::StartUp) | (Event::Done(_), Phase::Round)
                if wait.events[worker].is_none() =>
            {
                wait.events[worker] = Some(event);
                Ok(())
            }
            (Event::Ready { .. } | Event::Done(_), _) => Err(out_of_order(&event)),
        }
    }

    fn note_output(&mut self, worker: usize, text: &str) {
        let text = self.shown(worker, text.as_bytes());
        self.notes.add(
            worker,
            format!("outside of its rounds it wrote to standard output: {text}"),
        );
    }

    fn garbage(&self, worker: usize, line: &[u8], why: &'static str) -> Problem {
        Problem::Garbage {
            line: self.shown(worker, line),
            why,
        }
    }

    /// What a worker wrote, safe to show.
    fn shown(&self, worker: usize, line: &[u8]) -> String {
        let text = String::from_utf8_lossy(line);
        escape(&self.specs[worker].redact(&text), 200)
    }

    fn broken(&self, what: &str) -> WorkerError {
        WorkerError::Engine(EngineError::Broken {
            engine: self.engine,
            what: what.to_owned(),
        })
    }

    /// Ends all workers and turns what is wrong into an error that says how they ended and what they
    /// said last.
    fn abort(&mut self, phase: Phase, mut problems: Vec<(usize, Problem)>) -> WorkerError {
        let until = Instant::now() + AFTER_A_FAULT;
        let mut wait = Wait::new(phase, self.channels.len());
        for (worker, _) in &problems {
            wait.silence(*worker);
        }
        while problems.len() < self.channels.len() && Instant::now() < until {
            if pump(&mut self.channels, STEP.min(AFTER_A_FAULT)).is_err() {
                break;
            }
            for worker in 0..self.channels.len() {
                if let Err(problem) = self.look_at(worker, &mut wait) {
                    problems.push((worker, problem));
                    wait.silence(worker);
                }
            }
        }
        let ended: Vec<bool> = self
            .channels
            .iter()
            .map(|channel| has_ended(channel.pid))
            .collect();
        let exits = self.end();
        problems.sort_by_key(|(worker, _)| *worker);
        let faults = problems
            .into_iter()
            .map(|(worker, problem)| {
                let channel = &self.channels[worker];
                let problem = match problem {
                    Problem::Ended { .. } => Problem::Ended {
                        exit: exits.get(worker).copied().filter(|_| ended[worker]),
                    },
                    other => other,
                };
                Fault {
                    worker,
                    pid: channel.pid,
                    phase,
                    problem,
                    stderr: self.specs[worker].redact(&channel.stderr_tail()),
                }
            })
            .collect();
        WorkerError::Workers {
            faults,
            workers: self.channels.len(),
        }
    }

    /// Ends all workers, whatever they do, and says how each ended.
    fn end(&mut self) -> Vec<Exit> {
        let Some(session) = self.session.take() else {
            return Vec::new();
        };
        for channel in &mut self.channels {
            channel.close_input();
        }
        session.signal(nix::libc::SIGKILL);
        // The last words of those that were killed.
        let _ = pump(&mut self.channels, Duration::ZERO);
        for channel in &mut self.channels {
            channel.close();
        }
        session
            .finish(Some(TO_ABORT))
            .map(|outcome| outcome.exits)
            .unwrap_or_default()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

fn out_of_order(event: &Event) -> Problem {
    Problem::OutOfOrder {
        said: match event {
            Event::Ready { .. } => "ready",
            Event::Done(_) => "done",
            Event::Fail { .. } => "fail",
        },
    }
}

/// Whether a process is over: reaped, or a zombie that waits to be.
fn has_ended(pid: i32) -> bool {
    match Root::live().read(&format!("proc/{pid}/stat")) {
        // The name before the state is in brackets and may hold anything.
        Ok(stat) => stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}
