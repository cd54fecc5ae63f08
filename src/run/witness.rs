//! The witness: the counted work of a row once more, under an engine that hardly slows it, so that what
//! tracing changed can be told from what the client does.

use crate::engine::{Capabilities, EngineError, Failures, Request, Selection, Window, perf};
use crate::record::PhaseCounts;
use crate::strategy::worker::WorkerError;
use crate::tally::{Abi, Errno, PhaseTallies, Syscall};
use crate::units::Measured;

use super::Bench;
use super::state::RowState;
use super::timed::Broken;

impl Bench<'_> {
    /// Recounts a row that was counted. It goes into the ledger as every other pass, but a recount that
    /// fails costs only itself.
    pub(super) fn recount_row(&mut self, i: usize, state: &mut RowState) {
        let engine = match &self.witness {
            Ok(engine) => *engine,
            Err(why) => return state.no_recount(why.clone()),
        };
        if self.rows[i].strategy.client.is_program() {
            return state.no_recount("a program's calls are a difference of two passes".to_owned());
        }
        let Some(counted) = state.counted.known().filter(|_| state.is_live()) else {
            return;
        };
        if self.interrupt.requested() {
            return;
        }
        let what = format!("{} recounted by {}", self.rows[i].title(), engine.kind());
        self.progress.step(i, &what);
        if let Some(failure) = self.gone(i, true) {
            state.no_recount(failure.message.clone());
            return state.trouble(failure);
        }
        let failures = again(&counted.phases.run_loop);
        let mut attempts = selections(engine.capabilities(), &counted.phases.run_loop).into_iter();
        let mut selection = attempts.next().unwrap_or_default();
        let pass = loop {
            let request = Request {
                window: Window::Markers,
                failures: failures.clone(),
                selection,
                pin: true,
                cpu_time: false,
            };
            match (self.counted_once(i, state, engine, &request, 1), attempts.next()) {
                // A call that cannot be counted here; nothing was started.
                (Err(Broken::Workers(WorkerError::Engine(EngineError::Denied { .. }))), Some(next)) => {
                    selection = next;
                }
                (pass, _) => break pass,
            }
        };
        match pass {
            Ok(pass) => {
                let calls = (!engine.capabilities().all_calls).then(|| named(&pass.outcome.tallies));
                state.add_recount(
                    &self.rows[i],
                    engine,
                    &pass.round.outcome.dones,
                    pass.outcome,
                    pass.view,
                    calls,
                );
                self.settle(i, state, false);
                if let Some(failure) = pass.round.trouble {
                    state.trouble(failure);
                }
            }
            Err(Broken::Workers(error)) => {
                if !self.interrupt.requested() {
                    state.no_recount(format!("the recount by {} failed: {error}", engine.kind()));
                }
            }
            Err(Broken::Server(failure)) => {
                state.no_recount(failure.message.clone());
                state.trouble(*failure);
            }
        }
    }
}

/// What to recount: everything where the engine can, else the calls that the loop made most of, and what
/// the engine counts by itself should one of them be out of its reach.
fn selections(can: Capabilities, counted: &PhaseCounts) -> Vec<Selection> {
    if can.all_calls {
        return vec![Selection::All];
    }
    let mut calls: Vec<(u64, Syscall)> = counted
        .syscalls
        .iter()
        .filter_map(|(name, call)| Some((call.calls, Syscall::by_name(Abi::NATIVE, name)?)))
        .filter(|(calls, call)| *calls > 0 && perf::has_counter(*call))
        .collect();
    calls.sort_by_key(|(calls, _)| std::cmp::Reverse(*calls));
    calls.truncate(perf::MOST_CALLS);
    let most: Vec<Syscall> = calls.into_iter().map(|(_, call)| call).collect();
    if most.is_empty() {
        vec![Selection::All]
    } else {
        vec![Selection::Only(most), Selection::All]
    }
}

/// Whose EAGAIN is to be counted: that of calls that met it in the counted pass, and of those that may meet
/// it at another speed. Of other failures a witness that pays for each has nothing to say.
fn again(counted: &PhaseCounts) -> Failures {
    let name = Errno(libc::EAGAIN).name();
    let calls = counted.syscalls.iter().filter_map(|(call, counts)| {
        let met = counts
            .errors
            .known()
            .is_some_and(|errors| errors.contains_key(&*name));
        let call = Syscall::by_name(Abi::NATIVE, call)?;
        (met || perf::may_say_again(call)).then_some(call)
    });
    Failures::Again(calls.collect())
}

/// The names of the calls that were counted, those that were not made included.
fn named(tallies: &Measured<PhaseTallies>) -> Vec<String> {
    let counted = tallies.known().into_iter();
    counted
        .flat_map(|tallies| tallies.run_loop.calls.keys())
        .map(|call| call.name().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::record::CallCounts;

    fn counts(calls: &[(&str, u64)]) -> PhaseCounts {
        let not = || Measured::NotMeasured(String::new());
        let call = |calls| CallCounts {
            calls,
            unfinished: 0,
            errors: Measured::Known(BTreeMap::new()),
            restarts: BTreeMap::new(),
            wall: Measured::NotMeasured(String::new()),
            cpu: Measured::NotMeasured(String::new()),
            bytes: not(),
            peeks: not(),
            peers: BTreeMap::new(),
        };
        PhaseCounts {
            syscalls: calls
                .iter()
                .map(|(name, n)| ((*name).to_owned(), call(*n)))
                .collect(),
            talk: None,
        }
    }

    #[test]
    fn an_engine_for_a_few_calls_is_given_those_made_most() {
        let few = Capabilities::default();
        let made = counts(&[
            ("poll", 5),
            ("sendto", 9),
            ("rt_sigreturn", 7),
            ("i386:brk", 8),
            ("brk", 0),
        ]);
        let poll = Syscall::native(libc::SYS_poll);
        let sendto = Syscall::native(libc::SYS_sendto);
        assert_eq!(
            selections(few, &made),
            [Selection::Only(vec![sendto, poll]), Selection::All]
        );
        assert_eq!(selections(few, &counts(&[])), [Selection::All]);
        let all = Capabilities {
            all_calls: true,
            ..few
        };
        assert_eq!(selections(all, &made), [Selection::All]);
    }
}
