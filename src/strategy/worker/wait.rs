//! Where a wait for all workers stands.

use std::time::Instant;

use super::error::{Phase, Problem};
use crate::strategy::contract::Event;

/// A wait for one event of each worker.
pub(super) struct Wait {
    pub(super) phase: Phase,
    pub(super) events: Vec<Option<Event>>,
    /// Since when a worker's standard output is closed.
    pub(super) closed: Vec<Option<Instant>>,
    /// Workers that have had their fault.
    silenced: Vec<bool>,
    pub(super) faults: Vec<(usize, Problem)>,
}

impl Wait {
    pub(super) fn new(phase: Phase, workers: usize) -> Wait {
        Wait {
            phase,
            events: vec![None; workers],
            closed: vec![None; workers],
            silenced: vec![false; workers],
            faults: Vec::new(),
        }
    }

    pub(super) fn silence(&mut self, worker: usize) {
        self.silenced[worker] = true;
    }

    pub(super) fn is_silenced(&self, worker: usize) -> bool {
        self.silenced[worker]
    }

    pub(super) fn waiting(&self) -> Vec<usize> {
        (0..self.events.len())
            .filter(|worker| self.events[*worker].is_none() && !self.silenced[*worker])
            .collect()
    }

    /// Before `ready`, and from `done` on, a worker may write text.
    pub(super) fn is_outside_of_the_window(&self, worker: usize) -> bool {
        self.phase == Phase::StartUp || self.events[worker].is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        !self.faults.is_empty() || self.events.iter().all(Option::is_some)
    }
}
