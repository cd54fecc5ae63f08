//! Remarks on workers that are no errors.

use std::collections::BTreeMap;

/// Remarks kept apart.
const MAX_NOTES: usize = 20;

/// Remarks on workers, each text once with the number of workers it is about.
#[derive(Default)]
pub(super) struct Notes {
    by_text: BTreeMap<String, (usize, usize)>,
}

impl Notes {
    pub(super) fn add(&mut self, worker: usize, text: String) {
        if self.by_text.len() < MAX_NOTES || self.by_text.contains_key(&text) {
            self.by_text.entry(text).or_insert((worker, 0)).1 += 1;
        }
    }

    pub(super) fn sentences(&self) -> impl Iterator<Item = String> {
        self.by_text.iter().map(|(text, (worker, times))| match times {
            1 => format!("worker {worker}: {text}"),
            n => format!("worker {worker} and others, {n} times: {text}"),
        })
    }
}
