//! The session as its owner sees it: programs that were launched, traced by tracer threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::launch::Started;
use super::orders::Control;
use super::tracing::{Found, Job, Tracing};
use super::workers::{End, LOOK_EVERY, Workers, broken};
use crate::engine::start::Target;
use crate::engine::{CpuTimes, EngineError, Exit, Order, Outcome, Pipes, Session};
use crate::sys::process::Usage;
use crate::tally::PhaseTallies;
use crate::units::{Measured, Nanos};

/// Programs under ptrace. Dropping it kills what still runs.
pub(super) struct PtraceSession {
    pids: Vec<i32>,
    targets: Vec<Target>,
    pipes: Vec<Pipes>,
    workers: Workers<Vec<Started>>,
    control: Arc<Control>,
    notes: BTreeSet<String>,
}

impl PtraceSession {
    /// Starts a tracer thread for each job, and waits until all their programs are executed.
    pub(super) fn launch(
        jobs: Vec<Job>,
        control: Arc<Control>,
        notes: BTreeSet<String>,
    ) -> Result<PtraceSession, EngineError> {
        let (workers, started) = Workers::start(jobs, Arc::clone(&control), End::Kill, Tracing::launch)?;
        let mut programs: Vec<Started> = started.into_iter().flatten().collect();
        programs.sort_by_key(|program| program.index);
        let mut session = PtraceSession {
            pids: Vec::new(),
            targets: Vec::new(),
            pipes: Vec::new(),
            workers,
            control,
            notes,
        };
        for program in programs {
            session.pids.push(program.pid.as_raw());
            session
                .targets
                .push(Target::new(program.pid, program.pidfd, program.own_group));
            session.pipes.extend(program.pipes);
        }
        Ok(session)
    }
}

impl Session for PtraceSession {
    fn pids(&self) -> &[i32] {
        &self.pids
    }

    fn pipes(&mut self) -> Vec<Pipes> {
        std::mem::take(&mut self.pipes)
    }

    fn signal(&self, signal: i32) {
        for target in &self.targets {
            target.signal(signal);
        }
    }

    fn order(&self) -> Order {
        let control = Arc::clone(&self.control);
        Order::new(move |signal| control.signal.store(signal, std::sync::atomic::Ordering::Relaxed))
    }

    fn finish(mut self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        while !self.workers.all_ended() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.workers.end();
                break;
            }
            self.workers
                .hear(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)));
            self.workers.ring();
        }
        if !self.workers.all_ended() {
            return Err(broken(
                "processes were killed but did not end; they are probably stuck in the kernel",
            ));
        }
        Ok(outcome(self.workers.found()?, std::mem::take(&mut self.notes)))
    }
}

/// One outcome from the parts of all tracer threads.
fn outcome(found: Vec<Found>, mut notes: BTreeSet<String>) -> Outcome {
    let mut tallies = PhaseTallies::default();
    let mut programs = Vec::new();
    let mut tracees = 0;
    for part in found {
        tallies.merge(&part.tallies);
        programs.extend(part.programs);
        tracees += part.tracees;
        notes.extend(part.notes);
    }
    programs.sort_by_key(|(index, ..)| *index);
    let cpu = programs
        .iter()
        .map(|(_, _, usage, _)| *usage)
        .try_fold(Usage::default(), |sum, usage| {
            let usage = usage?;
            Some(Usage {
                user: sum.user + usage.user,
                system: sum.system + usage.system,
            })
        });
    let window = |length: Option<Nanos>| Measured::from_option(length, "the program never opened its window");
    Outcome {
        exits: programs.iter().map(|(_, exit, ..)| *exit).collect::<Vec<Exit>>(),
        windows: programs.iter().map(|(.., length)| window(*length)).collect(),
        tallies: Measured::Known(tallies),
        cpu: Measured::from_option(
            cpu.map(|usage| CpuTimes {
                user: usage.user,
                system: usage.system,
            }),
            "a program was killed before its CPU time could be read",
        ),
        tracees,
        left: Vec::new(),
        notes: notes.into_iter().collect(),
    }
}
