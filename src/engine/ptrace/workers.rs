//! The tracer threads from outside: started, heard, rung, and ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::orders::Control;
use super::tracing::{Found, Job, Tracing};
use crate::engine::start;
use crate::engine::{EngineError, EngineKind};
use crate::sys::process::Bell;

/// How often a tracer thread is rung that has to notice an order.
const RING_EVERY: Duration = Duration::from_millis(10);
/// How often the tracer threads are looked after, and rung so that they look at who wants a CPU.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long tracer threads may take to carry out their last order before they are given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What becomes of the tracees when nobody counts them any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// They were started for the count and are killed.
    Kill,
    /// They were there before and run on.
    LetGo,
}

/// A tracer thread.
struct Worker {
    thread: JoinHandle<()>,
    bell: Option<Bell>,
    found: Option<Result<Found, EngineError>>,
}

/// What a tracer thread says, with its number.
struct Report<S>(usize, Stage<S>);

enum Stage<S> {
    Started(Bell, S),
    Ended(Box<Result<Found, EngineError>>),
}

/// Tracer threads. Dropping them ends what they trace.
pub(super) struct Workers<S> {
    workers: Vec<Worker>,
    reports: Receiver<Report<S>>,
    control: Arc<Control>,
    end: End,
}

impl<S: Send + 'static> Workers<S> {
    /// Starts a tracer thread for each job, waits until all have begun, and returns what they say of it.
    pub(super) fn start(
        jobs: Vec<Job>,
        control: Arc<Control>,
        end: End,
        begin: fn(&mut Tracing) -> Result<S, EngineError>,
    ) -> Result<(Workers<S>, Vec<S>), EngineError> {
        let (sender, reports) = std::sync::mpsc::channel();
        let mut all = Workers {
            workers: Vec::new(),
            reports,
            control,
            end,
        };
        for (number, job) in jobs.into_iter().enumerate() {
            let sender = sender.clone();
            let thread = std::thread::Builder::new()
                .name(format!("systally-trace-{number}"))
                .spawn(move || trace(number, job, begin, &sender))
                .map_err(|error| start::no_process("start a tracer thread", &error))?;
            all.workers.push(Worker {
                thread,
                bell: None,
                found: None,
            });
        }
        drop(sender);
        let started = all.wait_for_start()?;
        Ok((all, started))
    }
}

impl<S> Workers<S> {
    fn wait_for_start(&mut self) -> Result<Vec<S>, EngineError> {
        let mut started = Vec::new();
        while self
            .workers
            .iter()
            .any(|worker| worker.bell.is_none() && worker.found.is_none())
        {
            started.extend(self.hear(LOOK_EVERY));
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
        Ok(started)
    }

    /// Waits for a report, `limit` at most.
    pub(super) fn hear(&mut self, limit: Duration) -> Option<S> {
        // Seen before the wait, so that everything such a thread has said is heard by its end.
        let finished: Vec<bool> = self
            .workers
            .iter()
            .map(|worker| worker.thread.is_finished())
            .collect();
        match self.reports.recv_timeout(limit) {
            Ok(Report(number, Stage::Started(bell, started))) => {
                self.workers[number].bell = Some(bell);
                return Some(started);
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
        None
    }

    pub(super) fn all_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.found.is_some())
    }

    /// Wakes the threads that wait, so that they look at their orders and at who wants a CPU.
    pub(super) fn ring(&self) {
        for worker in self.workers.iter().filter(|worker| worker.found.is_none()) {
            if let Some(bell) = worker.bell {
                bell.ring();
            }
        }
    }

    /// Gives the last order and waits until it is carried out.
    pub(super) fn end(&mut self) {
        let order = match self.end {
            End::Kill => &self.control.kill,
            End::LetGo => &self.control.let_go,
        };
        order.store(true, Ordering::Relaxed);
        let give_up = Instant::now() + PATIENCE;
        while !self.all_ended() && Instant::now() < give_up {
            self.ring();
            self.hear(RING_EVERY);
        }
    }

    /// What they have found. All must have ended.
    pub(super) fn found(&mut self) -> Result<Vec<Found>, EngineError> {
        let mut found = Vec::with_capacity(self.workers.len());
        for worker in &mut self.workers {
            // Every report has come; the thread has nothing left to do but to end.
            found.extend(worker.found.take().transpose()?);
            worker.found = Some(Err(broken("its report was taken")));
        }
        Ok(found)
    }
}

impl<S> Drop for Workers<S> {
    fn drop(&mut self) {
        if !self.all_ended() {
            self.end();
        }
    }
}

/// The life of a tracer thread.
fn trace<S>(
    number: usize,
    job: Job,
    begin: fn(&mut Tracing) -> Result<S, EngineError>,
    reports: &Sender<Report<S>>,
) {
    // Sending fails when nobody listens any more, and then nobody needs the report.
    let result = Bell::here()
        .map_err(|source| EngineError::System {
            operation: "set up the tracer thread",
            pid: 0,
            source,
        })
        .and_then(|bell| {
            let mut tracing = Tracing::new(job);
            let started = begin(&mut tracing)?;
            let _ = reports.send(Report(number, Stage::Started(bell, started)));
            tracing.run_to_end()?;
            Ok(tracing.found())
        });
    let _ = reports.send(Report(number, Stage::Ended(Box::new(result))));
}

pub(super) fn broken(what: &str) -> EngineError {
    EngineError::Broken {
        engine: EngineKind::Ptrace,
        what: what.to_owned(),
    }
}
