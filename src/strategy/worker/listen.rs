//! Listening to the workers: what each writes, and when it counts as an answer, a note or a fault.

use std::time::{Duration, Instant};

use super::channel::{STEP, pump};
use super::check::{self, Line};
use super::wait::Wait;
use super::{Phase, Problem, WorkerError, Workers, has_ended};
use crate::run::interrupt::Interrupt;
use crate::strategy::contract::{Event, PROTOCOL};
use crate::units::escape;

/// How long a worker that has closed its standard output may take to end.
const TO_END: Duration = Duration::from_secs(1);

impl Workers {
    /// What was written since the last round is outside of every window.
    pub(super) fn between_rounds(&mut self) -> Result<(), WorkerError> {
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
    pub(super) fn await_all(
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
    pub(super) fn look_at(&mut self, worker: usize, wait: &mut Wait) -> Result<(), Problem> {
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
