//! The timed rounds: every row once a round, nobody tracing.

use std::time::{Duration, Instant};

use crate::engine::{Failures, Request, Selection, Window};
use crate::plan::order::balanced;
use crate::record::{Failure, ServerView, Usage};
use crate::server::Health;
use crate::strategy::worker::{RoundOutcome, WorkerError};
use crate::units::Measured;

use super::state::{RowState, merged, most_frequent};
use super::{Bench, Frame, NO_SERVER, WARM_WORKERS, Workers, failure, usage};

/// How long ended workers are given to go away.
const GOODBYE: Duration = Duration::from_secs(5);

/// How long a server without commands counts as quiet, and how long it is waited for.
const QUIET: Duration = Duration::from_millis(20);
const LONGEST_SETTLE: Duration = Duration::from_secs(3);

/// Timed rounds run under no engine, so nothing of a request but its shape matters.
fn request() -> Request {
    Request {
        window: Window::Markers,
        selection: Selection::All,
        pin: false,
        cpu_time: false,
        failures: Failures::Free,
    }
}

/// A round that was run to its end.
pub(super) struct Played {
    pub(super) outcome: RoundOutcome,
    /// What was read when operations failed in it.
    pub(super) trouble: Option<Failure>,
    /// What both sides spent in it, when that was asked for.
    pub(super) usage: Option<Usage>,
}

/// Why a round was not run to its end.
pub(super) enum Broken {
    /// The workers failed.
    Workers(WorkerError),
    /// The server is gone.
    Server(Box<Failure>),
}

impl Bench<'_> {
    /// Warm-up and timed rounds over all live rows. The record is saved after every round, so that an
    /// interrupted run keeps the rounds it had.
    pub(super) fn timed_rounds(&mut self, states: &mut [RowState], frame: &Frame) {
        let processes: u64 = self
            .rows
            .iter()
            .zip(&*states)
            .filter(|(_, s)| s.is_live())
            .map(|(r, _)| u64::from(r.clients))
            .sum();
        let keep_warm = processes <= WARM_WORKERS;
        let mut warm: Vec<Option<Workers>> = self.rows.iter().map(|_| None).collect();
        let rounds = self.settings.warmup + self.settings.runs;
        for (round, order) in balanced(self.rows.len(), rounds as usize).into_iter().enumerate() {
            // With everybody out, rounds without work would still ask a server that may be gone.
            if !states.iter().any(RowState::is_live) {
                break;
            }
            let kept = round >= self.settings.warmup as usize;
            for i in order {
                if self.interrupt.requested() {
                    return;
                }
                if !states[i].is_live() {
                    continue;
                }
                let what = format!("{} round {} of {rounds}", self.rows[i].title(), round + 1);
                self.progress.step(i, &what);
                let workers = warm[i].take();
                warm[i] = self.one_round(i, &mut states[i], workers, kept, keep_warm);
            }
            if kept {
                self.save_step(states, frame);
            }
        }
        for (workers, state) in warm.into_iter().zip(states) {
            if let Some(workers) = workers {
                goodbye(workers, state);
            }
        }
    }

    /// Why nothing may be run against the server any more; `None` while it lives.
    pub(super) fn gone(&mut self, i: usize, counted: bool) -> Option<Failure> {
        match self.server(i)?.describe_alive() {
            Health::Running => None,
            health @ (Health::Ended { .. } | Health::Silent(_)) => {
                Some(failure::of_health(health, counted, &mut self.scene(i)))
            }
        }
    }

    /// One round of the workers, with what the server saw between its first `go` and its last result.
    ///
    /// A round in which the server went away is none: what the client did before that says nothing of its
    /// speed.
    pub(super) fn witnessed(
        &mut self,
        i: usize,
        workers: &mut Workers,
        limit: Duration,
        counted: bool,
    ) -> Result<(Played, Measured<ServerView>), Broken> {
        if let Some(sampler) = &self.sampler {
            sampler.row(Some(i));
        }
        let before = match self.reading(i) {
            Some(Err(error)) => {
                let failure = failure::of_server(&error, counted, &mut self.scene(i));
                return Err(Broken::Server(Box::new(failure)));
            }
            Some(Ok(before)) => Some(before),
            None => None,
        };
        let asked = self.settings.usage && !counted;
        let servers = match self.server(i) {
            Some(server) if asked => server.pids(),
            _ => Vec::new(),
        };
        let spent = asked.then(|| usage::before(workers, &servers));
        let outcome = workers.round(limit, self.interrupt).map_err(Broken::Workers)?;
        let usage = spent.and_then(|before| usage::since(&before, workers, &servers, &outcome));
        let view = match (self.reading(i), before) {
            (Some(Ok(after)), Some(before)) => after.since(&before),
            (Some(Err(error)), _) => Measured::NotMeasured(error.to_string()),
            (None, _) | (_, None) => Measured::NotMeasured(NO_SERVER.to_owned()),
        };
        let (_, errors, _) = merged(&outcome.dones);
        let trouble = most_frequent(&errors).map(|(text, _)| {
            let worker = outcome.dones.iter().position(|done| !done.errors.is_empty());
            let pid = worker.and_then(|worker| workers.pid(worker));
            failure::of_operations(text, pid, counted, &mut self.scene(i))
        });
        match trouble {
            Some(failure) if failure::is_loss(&failure) => Err(Broken::Server(Box::new(failure))),
            trouble => Ok((
                Played {
                    outcome,
                    trouble,
                    usage,
                },
                view,
            )),
        }
    }

    /// Waits until the server is quiet when a row claims more than was served: what its client still
    /// sends must not be counted for the next row. `kept`: it has just had a timed round that is kept.
    pub(super) fn settle(&mut self, i: usize, state: &mut RowState, kept: bool) {
        let op = self.rows[i].op;
        if !state.claims_too_much(op) {
            return;
        }
        let end = Instant::now() + LONGEST_SETTLE;
        while Instant::now() < end && !self.interrupt.requested() {
            let Some(Ok(before)) = self.reading(i) else {
                return;
            };
            std::thread::sleep(QUIET);
            let Some(Ok(after)) = self.reading(i) else {
                return;
            };
            match after
                .since(&before)
                .known()
                .map(|view| view.served(op.commands()))
            {
                None | Some(0) => return,
                Some(late) => state.arrived_late(late, kept),
            }
        }
    }

    /// Takes a row out because its workers failed; an interruption is no failure.
    pub(super) fn fail(&mut self, i: usize, state: &mut RowState, error: WorkerError, counted: bool) {
        if self.interrupt.requested() {
            return;
        }
        state.fail(failure::of_workers(&error, counted, &mut self.scene(i)));
    }

    /// One round of one row. Returns its workers when they can serve another round.
    fn one_round(
        &mut self,
        i: usize,
        state: &mut RowState,
        workers: Option<Workers>,
        kept: bool,
        keep_warm: bool,
    ) -> Option<Workers> {
        let row = &self.rows[i];
        let length = self.settings.length;
        if workers.is_none()
            && let Some(failure) = self.gone(i, false)
        {
            state.fail(failure);
            return None;
        }
        let started = match workers {
            Some(workers) => Ok(workers),
            None => self
                .start(row, self.timing, &request(), length)
                .and_then(|mut workers| {
                    let ready = workers.ready(self.settings.patience, self.interrupt)?;
                    state.introduce(&ready);
                    Ok(workers)
                }),
        };
        let mut workers = match started {
            Ok(workers) => workers,
            Err(error) => {
                self.fail(i, state, error, false);
                return None;
            }
        };
        match self.witnessed(i, &mut workers, self.round_limit(length), false) {
            Ok((round, view)) => {
                state.add_round(&round.outcome, view, kept);
                if kept && let Some(usage) = round.usage {
                    state.spend(usage);
                }
                self.settle(i, state, kept);
                if let Some(failure) = round.trouble {
                    state.trouble(failure);
                }
                if keep_warm {
                    return Some(workers);
                }
                goodbye(workers, state);
            }
            Err(Broken::Workers(error)) => self.fail(i, state, error, false),
            Err(Broken::Server(failure)) => state.fail(*failure),
        }
        None
    }
}

/// Ends the workers of a row. One that does not end on `exit` has done its work all the same; it is killed.
fn goodbye(workers: Workers, state: &mut RowState) {
    if let Ok(outcome) = workers.finish(GOODBYE) {
        state.left_running(outcome.left);
    }
}
