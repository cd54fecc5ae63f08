//! The timed rounds: every row once a round, nobody tracing.

use std::time::Duration;

use crate::engine::{Request, Selection, Window};
use crate::plan::order::balanced;
use crate::record::Record;
use crate::strategy::worker::WorkerError;
use crate::units::Measured;

use super::state::RowState;
use super::{Bench, Frame, WARM_WORKERS, Workers, failure};

/// How long ended workers are given to go away.
const GOODBYE: Duration = Duration::from_secs(5);

/// Timed rounds run under no engine, so nothing of a request but its shape matters.
fn request() -> Request {
    Request { window: Window::Markers, selection: Selection::All, pin: false, cpu_time: false }
}

impl Bench<'_> {
    /// Warm-up and timed rounds over all live rows. The record is saved after every round, so that an
    /// interrupted run keeps the rounds it had.
    pub(super) fn timed_rounds(&mut self, states: &mut [RowState], frame: &mut Frame) -> anyhow::Result<()> {
        let processes: u64 =
            self.rows.iter().zip(&*states).filter(|(_, s)| s.is_live()).map(|(r, _)| u64::from(r.clients)).sum();
        let keep_warm = processes <= WARM_WORKERS;
        let mut warm: Vec<Option<Workers>> = self.rows.iter().map(|_| None).collect();
        let rounds = self.settings.warmup + self.settings.runs;
        for (round, order) in balanced(self.rows.len(), rounds as usize).into_iter().enumerate() {
            let kept = round >= self.settings.warmup as usize;
            for i in order {
                if self.interrupt.requested() {
                    return Ok(());
                }
                if !states[i].is_live() {
                    continue;
                }
                self.progress.step(&format!("{} round {} of {rounds}", self.rows[i].strategy.name(), round + 1));
                let workers = warm[i].take();
                warm[i] = self.one_round(i, &mut states[i], workers, kept, keep_warm);
            }
            if kept {
                let record: Record = self.record(states, frame, false);
                (self.save)(&record)?;
            }
        }
        for workers in warm.into_iter().flatten() {
            // A worker that does not end on `exit` has done its work all the same; it is killed.
            let _ = workers.finish(GOODBYE);
        }
        Ok(())
    }

    /// Takes a row out because its workers failed; an interruption is no failure.
    pub(super) fn fail(&mut self, i: usize, state: &mut RowState, error: WorkerError, counted: bool) {
        if self.interrupt.requested() {
            return;
        }
        if let Some(endpoint) = self.servers(&self.rows[i]).first() {
            state.fail(failure::of_workers(&error, counted, endpoint, self.server));
        }
    }

    /// Reads the machine when operations of a row have failed for the first time.
    pub(super) fn note_failed_operations(&mut self, i: usize, state: &mut RowState, counted: bool) {
        let Some(text) = state.new_trouble() else { return };
        if let Some(endpoint) = self.servers(&self.rows[i]).first() {
            let failure = failure::of_operations(&text, counted, endpoint, self.server);
            state.trouble(failure);
        }
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
        let started = match workers {
            Some(workers) => Ok(workers),
            None => self.start(row, self.timing, &request(), length).and_then(|mut workers| {
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
        let before = self.server.snapshot();
        let outcome = workers.round(self.round_limit(length), self.interrupt);
        let after = self.server.snapshot();
        let view = match (before, after) {
            (Ok(before), Ok(after)) => after.since(&before),
            (Err(error), _) | (_, Err(error)) => Measured::NotMeasured(error.to_string()),
        };
        match outcome {
            Ok(outcome) => {
                state.add_round(&outcome, view, kept);
                self.note_failed_operations(i, state, false);
                if keep_warm {
                    return Some(workers);
                }
                let _ = workers.finish(GOODBYE);
                None
            }
            Err(error) => {
                self.fail(i, state, error, false);
                None
            }
        }
    }
}
