//! How far a run is, on standard error: a bar on a terminal; elsewhere a line for each row of a scenario.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::plan::scenario::estimate::about;
use crate::run::Progress;

use super::warn;

/// A progress bar on standard error when that is a terminal.
pub(super) struct Bar {
    bar: ProgressBar,
    /// Which part of a scenario it is; empty elsewhere.
    part: String,
}

impl Bar {
    pub(super) fn new(quiet: bool) -> Bar {
        Bar::of_part(quiet, String::new())
    }

    fn of_part(quiet: bool, part: String) -> Bar {
        let target = if quiet || !io::stderr().is_terminal() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        Bar {
            bar: ProgressBar::with_draw_target(None, target),
            part,
        }
    }
}

impl Progress for Bar {
    fn begin(&self, steps: u64) {
        self.bar.set_length(steps);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} eta {eta} {wide_msg}") {
            self.bar.set_style(style);
        }
    }

    fn step(&self, _row: usize, what: &str) {
        self.bar.set_message(format!("{}{what}", self.part));
        self.bar.inc(1);
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The progress of a scenario: its parts follow each other.
pub(super) struct Parts {
    quiet: bool,
    /// What each part is thought to take, in seconds.
    costs: Vec<f64>,
    /// Rows of each part.
    rows: Vec<usize>,
    started: Instant,
}

/// A line again after so long within one row; else a line for each row is enough.
const QUIET: Duration = Duration::from_secs(60);

impl Parts {
    /// Parts with so many rows, each with what it is thought to take in seconds.
    pub(super) fn new(quiet: bool, rows: Vec<usize>, costs: Vec<f64>) -> Parts {
        Parts {
            quiet,
            costs,
            rows,
            started: Instant::now(),
        }
    }

    /// The progress of one part, which begins now; `settings` says what is special about it.
    pub(super) fn part(&self, number: usize, settings: &str) -> Box<dyn Progress> {
        let left = self.left(number);
        if self.quiet || io::stderr().is_terminal() {
            let left = left.map_or_else(String::new, |left| format!(", {} left", about(left)));
            let part = format!("part {} of {}{left}: ", number + 1, self.costs.len());
            return Box::new(Bar::of_part(self.quiet, part));
        }
        Box::new(Lines {
            settings: settings.to_owned(),
            before: self.rows.iter().take(number).sum(),
            all: self.rows.iter().sum(),
            left,
            started: self.started,
            seen: RefCell::new((BTreeSet::new(), Instant::now())),
        })
    }

    /// Seconds that are left when this part begins, by what the ones before it took; `None` before any did.
    fn left(&self, number: usize) -> Option<f64> {
        let done: f64 = self.costs.iter().take(number).sum();
        let rest: f64 = self.costs.iter().skip(number).sum();
        (done > 0.0).then(|| rest * self.started.elapsed().as_secs_f64() / done)
    }
}

/// A line for each row when it begins.
struct Lines {
    settings: String,
    /// Rows of the parts before.
    before: usize,
    /// Rows of all parts.
    all: usize,
    /// Seconds that are left, when the part begins.
    left: Option<f64>,
    started: Instant,
    /// The rows that had a line, and when the last line was.
    seen: RefCell<(BTreeSet<usize>, Instant)>,
}

impl Progress for Lines {
    fn begin(&self, _steps: u64) {}

    fn step(&self, row: usize, what: &str) {
        let mut seen = self.seen.borrow_mut();
        let new = seen.0.insert(row);
        if !new && seen.1.elapsed() < QUIET {
            return;
        }
        // What is left is told once a part.
        let left = match self.left {
            Some(left) if new && seen.0.len() == 1 => format!(", {} left", about(left)),
            Some(_) | None => String::new(),
        };
        seen.1 = Instant::now();
        let settings = match self.settings.trim_start() {
            "" => String::new(),
            settings => format!(" ({settings})"),
        };
        warn(&format!(
            "row {} of {}, {:.0} s{left}: {what}{settings}",
            self.before + row + 1,
            self.all,
            self.started.elapsed().as_secs_f64(),
        ));
    }

    fn end(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_was_done() {
        let mut parts = Parts::new(true, vec![2, 2, 4], vec![10.0, 10.0, 40.0]);
        parts.started = Instant::now() - Duration::from_secs(40);
        assert_eq!(parts.left(0), None);
        let left = parts.left(2).unwrap();
        assert!((79.0..90.0).contains(&left), "{left}");
    }
}
