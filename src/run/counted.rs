//! The counted pass: the work of every row once more, under an engine.

use std::time::Duration;

use crate::engine::{Engine, Failures, Outcome, Request, Selection, Window};
use crate::plan::rows::Row;
use crate::record::{Counted, Phases, ServerView};
use crate::strategy::contract::Done;
use crate::units::{Measured, Nanos, Ops};

use super::state::{RowState, merged};
use super::timed::{Broken, Played};
use super::{Bench, Frame, RoundLength};

/// Batches of a counted pass when nobody says how much to do.
const DEFAULT_BATCHES: u64 = 1_000;

/// How long traced workers are given to end after `exit`.
const GOODBYE: Duration = Duration::from_secs(20);

impl Bench<'_> {
    /// Counts every row that still lives; the record is saved after each.
    pub(super) fn counted_pass(&mut self, states: &mut [RowState], frame: &Frame) {
        let engine = match &self.counting {
            Ok(engine) => *engine,
            Err(why) => {
                for state in states.iter_mut() {
                    state.counted = Measured::NotMeasured(why.clone());
                }
                return;
            }
        };
        for i in 0..self.rows.len() {
            for _ in 0..self.settings.counted_runs {
                if self.interrupt.requested() {
                    return;
                }
                if !states[i].is_live() {
                    break;
                }
                let what = format!("{} counted by {}", self.rows[i].title(), engine.kind());
                self.progress.step(i, &what);
                self.count_row(i, &mut states[i], engine);
                self.recount_row(i, &mut states[i]);
            }
            self.save_step(states, frame);
        }
    }

    fn count_row(&mut self, i: usize, state: &mut RowState, engine: &dyn Engine) {
        if let Some(failure) = self.gone(i, true) {
            return state.fail(failure);
        }
        let request = Request {
            window: Window::Markers,
            selection: Selection::All,
            pin: true,
            cpu_time: false,
            failures: Failures::All,
        };
        let counted = if self.rows[i].strategy.client.is_program() {
            self.counted_twice(i, state, engine, &request)
        } else {
            let pass = self.counted_once(i, state, engine, &request, 1);
            pass.map(|pass| (pass.round.outcome.dones.clone(), pass))
        };
        match counted {
            Ok((counted, pass)) => {
                state.add_counted(
                    &self.rows[i],
                    engine,
                    &pass.round.outcome.dones,
                    &counted,
                    pass.outcome,
                    pass.view,
                );
                self.settle(i, state, false);
                if let Some(failure) = pass.round.trouble {
                    state.trouble(failure);
                }
            }
            Err(Broken::Workers(error)) => self.fail(i, state, error, true),
            Err(Broken::Server(failure)) => state.fail(*failure),
        }
    }

    /// The counted work of a row whose worker starts another program in its window: once, and once with
    /// twice the operations. The difference is the operations alone; what starting the program costs is in
    /// both. Returns the results of the difference with the longer pass, whose tally is the difference too.
    fn counted_twice(
        &mut self,
        i: usize,
        state: &mut RowState,
        engine: &dyn Engine,
        request: &Request,
    ) -> Result<(Vec<Done>, Pass), Broken> {
        let once = self.counted_once(i, state, engine, request, 1)?;
        state.add_uncounted(&once.round.outcome.dones, &once.view);
        let mut twice = self.counted_once(i, state, engine, request, 2)?;
        if let (Measured::Known(long), Measured::Known(short)) =
            (&mut twice.outcome.tallies, &once.outcome.tallies)
        {
            long.run_loop = long.run_loop.beyond(&short.run_loop);
        }
        twice.outcome.notes.push(
            "counted twice, the second time with twice the operations, and subtracted: what starting the program \
             costs is in neither figure"
                .to_owned(),
        );
        let pairs = twice.round.outcome.dones.iter().zip(&once.round.outcome.dones);
        let counted = pairs
            .map(|(long, short)| Done {
                ops: long.ops.saturating_sub(short.ops),
                asked: long.asked.saturating_sub(short.asked),
                elapsed_ns: Nanos(long.elapsed_ns.0.saturating_sub(short.elapsed_ns.0)),
                ..long.clone()
            })
            .collect();
        Ok((counted, twice))
    }

    /// The counted work of a row under an engine, from the start of its workers to their end; `times` as
    /// many operations as are to be counted.
    pub(super) fn counted_once(
        &mut self,
        i: usize,
        state: &mut RowState,
        engine: &dyn Engine,
        request: &Request,
        times: u64,
    ) -> Result<Pass, Broken> {
        let row = &self.rows[i];
        let length = RoundLength::Ops(self.counted_ops(row).saturating_mul(times));
        let mut workers = self
            .start(row, engine, request, length)
            .map_err(Broken::Workers)?;
        let ready = workers
            .ready(self.settings.patience, self.interrupt)
            .map_err(Broken::Workers)?;
        state.introduce(&ready);
        let (round, view) = self.witnessed(i, &mut workers, self.round_limit(length), true)?;
        let outcome = workers.finish(GOODBYE).map_err(Broken::Workers)?;
        Ok(Pass { round, outcome, view })
    }

    /// Operations of the counted pass of a row, over all its workers.
    fn counted_ops(&self, row: &Row) -> u64 {
        let asked = self.settings.counted_ops.or(match self.settings.length {
            RoundLength::Ops(total) => Some(total),
            RoundLength::Span(_) => None,
        });
        asked
            .unwrap_or(DEFAULT_BATCHES * u64::from(row.batch))
            .max(u64::from(row.clients))
    }
}

/// The counted work of a row, done once.
pub(super) struct Pass {
    pub(super) round: Played,
    pub(super) outcome: Outcome,
    pub(super) view: Measured<ServerView>,
}

/// Puts a counted pass together.
pub(super) fn counted(
    row: &Row,
    engine: &dyn Engine,
    dones: &[Done],
    outcome: Outcome,
    untraced: Option<f64>,
) -> Measured<Counted> {
    let (ops, errors, elapsed) = merged(dones);
    let capabilities = engine.capabilities();
    let tallies = match outcome.tallies {
        Measured::Known(tallies) => tallies,
        Measured::NotMeasured(why) => return Measured::NotMeasured(why),
    };
    let window = &tallies.run_loop;
    let per_op = |count: u64| Measured::from_option(ops.per_op(count), "no operation was completed");
    let peers = |value: Measured<f64>| {
        if capabilities.peers {
            value
        } else {
            Measured::NotMeasured(format!(
                "the {} engine does not see where a call leads",
                engine.kind()
            ))
        }
    };
    let batches = Ops(dones.iter().fold(0u64, |sum, done| {
        sum.saturating_add(done.asked.div_ceil(u64::from(row.batch.max(1))))
    }));
    let traced = ops.per_second(elapsed);
    let slowdown = match (untraced, traced) {
        (Some(untraced), Some(traced)) if traced > 0.0 => Measured::Known(untraced / traced),
        _ => Measured::NotMeasured("there is no untraced figure to compare with".to_owned()),
    };
    let floor = 2.0 / f64::from(row.batch.max(1));
    let counted = Counted {
        engine: engine.kind().name().to_owned(),
        ops: Some(ops),
        elapsed,
        slowdown,
        connects_per_op: peers(per_op(window.connects)),
        round_trips_per_op: peers(per_op(window.round_trips)),
        sends_per_batch: peers(Measured::from_option(
            batches.per_op(window.sends),
            "no operation was completed",
        )),
        // A few chosen calls are no total, and no multiple of the floor.
        floor_ratio: if capabilities.all_calls {
            per_op(window.total()).map(|total| total / floor)
        } else {
            Measured::NotMeasured(format!("the {} engine counts chosen calls only", engine.kind()))
        },
        phases: Phases::from_tallies(&tallies, capabilities, false),
        client_errors: errors,
        cpu: outcome.cpu.map(|cpu| (cpu.user, cpu.system)),
        notes: outcome.notes,
    };
    Measured::Known(counted)
}

/// Adds a view of the server to the sum of a row.
pub(super) fn add_view(sum: &mut Measured<ServerView>, view: &Measured<ServerView>) {
    match (&mut *sum, view) {
        (Measured::Known(sum), Measured::Known(view)) => sum.merge(view),
        (_, Measured::NotMeasured(why)) => *sum = Measured::NotMeasured(why.clone()),
        (Measured::NotMeasured(_), Measured::Known(_)) => {}
    }
}
