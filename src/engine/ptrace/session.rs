//! The session as its owner sees it: the tracer threads from outside.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::tracing::{Control, Found, Job, Started, Tracing};
use crate::engine::start::{self, Target};
use crate::engine::{CpuTimes, EngineError, EngineKind, Exit, Outcome, Pipes, Session};
use crate::sys::process::{Bell, Usage};
use crate::tally::PhaseTallies;
use crate::units::{Measured, Nanos};

/// How often a tracer thread is rung that has to notice an order.
const RING_EVERY: Duration = Duration::from_millis(10);
/// How often the tracer threads are rung so that they look at who wants a CPU, and are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long killed processes may take to end before the session gives up on them.
const PATIENCE: Duration = Duration::from_secs(10);

/// A tracer thread.
struct Worker {
    thread: JoinHandle<()>,
    bell: Option<Bell>,
    found: Option<Result<Found, EngineError>>,
}

/// What a tracer thread says, with its number.
struct Report(usize, Stage);

enum Stage {
    Started(Bell, Vec<Started>),
    Ended(Box<Result<Found, EngineError>>),
}

/// Programs under ptrace. Dropping it kills what still runs.
pub(super) struct PtraceSession {
    pids: Vec<i32>,
    targets: Vec<Target>,
    pipes: Vec<Pipes>,
    workers: Vec<Worker>,
    reports: Receiver<Report>,
    control: Arc<Control>,
    /// Whether the tracer threads decide where tracees run, and so have to look at them now and then.
    pinned: bool,
    notes: BTreeSet<String>,
}

impl PtraceSession {
    /// Starts a tracer thread for each job, and waits until all their programs are executed.
    pub(super) fn launch(
        jobs: Vec<Job>,
        control: Arc<Control>,
        pinned: bool,
        notes: BTreeSet<String>,
    ) -> Result<PtraceSession, EngineError> {
        let (sender, reports) = std::sync::mpsc::channel();
        let mut session = PtraceSession {
            pids: Vec::new(),
            targets: Vec::new(),
            pipes: Vec::new(),
            workers: Vec::new(),
            reports,
            control,
            pinned,
            notes,
        };
        for (number, job) in jobs.into_iter().enumerate() {
            let sender = sender.clone();
            let thread = std::thread::Builder::new()
                .name(format!("systally-trace-{number}"))
                .spawn(move || trace(number, job, &sender))
                .map_err(|error| start::system("start a tracer thread", &error))?;
            session.workers.push(Worker {
                thread,
                bell: None,
                found: None,
            });
        }
        drop(sender);
        session.wait_for_start()?;
        Ok(session)
    }

    fn wait_for_start(&mut self) -> Result<(), EngineError> {
        let mut programs = Vec::new();
        while self
            .workers
            .iter()
            .any(|worker| worker.bell.is_none() && worker.found.is_none())
        {
            self.hear(LOOK_EVERY, &mut programs);
        }
        for worker in &mut self.workers {
            if worker.bell.is_none()
                && let Some(Err(_)) = worker.found
                && let Some(Err(error)) = worker.found.take()
            {
                worker.found = Some(Err(broken("it was never started")));
                return Err(error);
            }
        }
        programs.sort_by_key(|program: &Started| program.index);
        for program in programs {
            self.pids.push(program.pid.as_raw());
            self.targets
                .push(Target::new(program.pid, program.pidfd, program.own_group));
            self.pipes.extend(program.pipes);
        }
        Ok(())
    }

    /// Waits for a report, `limit` at most.
    fn hear(&mut self, limit: Duration, programs: &mut Vec<Started>) {
        // Seen before the wait, so that everything such a thread has said is heard by its end.
        let finished: Vec<bool> = self
            .workers
            .iter()
            .map(|worker| worker.thread.is_finished())
            .collect();
        match self.reports.recv_timeout(limit) {
            Ok(Report(number, Stage::Started(bell, started))) => {
                self.workers[number].bell = Some(bell);
                programs.extend(started);
            }
            Ok(Report(number, Stage::Ended(found))) => self.workers[number].found = Some(*found),
            Err(_) => {
                let silent = self
                    .workers
                    .iter_mut()
                    .zip(finished)
                    .filter(|(_, finished)| *finished);
                for (worker, _) in silent.filter(|(worker, _)| worker.found.is_none()) {
                    worker.found = Some(Err(broken("a tracer thread ended without a report")));
                }
            }
        }
    }

    fn all_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.found.is_some())
    }

    fn ring(&self) {
        for worker in self.workers.iter().filter(|worker| worker.found.is_none()) {
            if let Some(bell) = worker.bell {
                bell.ring();
            }
        }
    }

    /// Kills everything and waits for its end.
    fn kill(&mut self) {
        self.control.kill.store(true, Ordering::Relaxed);
        let give_up = Instant::now() + PATIENCE;
        while !self.all_ended() && Instant::now() < give_up {
            self.ring();
            self.hear(RING_EVERY, &mut Vec::new());
        }
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

    fn finish(mut self: Box<Self>, limit: Option<Duration>) -> Result<Outcome, EngineError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        while !self.all_ended() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.kill();
                break;
            }
            self.hear(
                left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)),
                &mut Vec::new(),
            );
            if self.pinned {
                self.ring();
            }
        }
        if !self.all_ended() {
            return Err(broken(
                "processes were killed but did not end; they are probably stuck in the kernel",
            ));
        }
        let mut found = Vec::with_capacity(self.workers.len());
        for worker in &mut self.workers {
            // Every report has come; the thread has nothing left to do but to end.
            found.extend(worker.found.take().transpose()?);
            worker.found = Some(Err(broken("its report was taken")));
        }
        Ok(outcome(found, std::mem::take(&mut self.notes)))
    }
}

impl Drop for PtraceSession {
    fn drop(&mut self) {
        if !self.all_ended() {
            self.kill();
        }
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
        notes: notes.into_iter().collect(),
    }
}

/// The life of a tracer thread.
fn trace(number: usize, job: Job, reports: &Sender<Report>) {
    // Sending fails when nobody listens any more, and then nobody needs the report.
    let result = Bell::here()
        .map_err(|source| EngineError::System {
            operation: "set up the tracer thread",
            pid: 0,
            source,
        })
        .and_then(|bell| {
            let mut tracing = Tracing::new(job);
            let started = tracing.launch()?;
            let _ = reports.send(Report(number, Stage::Started(bell, started)));
            tracing.run_to_end()?;
            Ok(tracing.found())
        });
    let _ = reports.send(Report(number, Stage::Ended(Box::new(result))));
}

fn broken(what: &str) -> EngineError {
    EngineError::Broken {
        engine: EngineKind::Ptrace,
        what: what.to_owned(),
    }
}
