//! How the workers are ended: when their rounds are over, and after an error.

use std::time::{Duration, Instant};

use super::channel::{STEP, pump};
use super::wait::Wait;
use super::{Fault, Phase, Problem, WorkerError, Workers, has_ended};
use crate::engine::{Exit, Outcome};

/// How long other workers are listened to after the first fault, to tell one from all.
const AFTER_A_FAULT: Duration = Duration::from_millis(250);

/// How long the engine gets to end everything after an error.
const TO_ABORT: Duration = Duration::from_secs(5);

impl Workers {
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

    /// Ends all workers and turns what is wrong into an error that says how they ended and what they
    /// said last.
    pub(super) fn abort(&mut self, phase: Phase, mut problems: Vec<(usize, Problem)>) -> WorkerError {
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
    pub(super) fn end(&mut self) -> Vec<Exit> {
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
