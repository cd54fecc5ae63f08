//! Histograms without a key: values of what the script looked at, of which call nobody can tell.

use serde_json::{Value, json};

use crate::units::Grouped;

/// Buckets kept of one histogram; `hist()` has 64 and more only with a finer step.
pub(super) const MOST_BUCKETS: usize = 512;

/// One histogram, over all times it was printed.
#[derive(Debug, Default)]
pub(super) struct Keyless {
    last: Vec<(String, u64)>,
    sum: Vec<(String, u64)>,
    last_count: u64,
    sum_count: u64,
    prints: u64,
    fell: bool,
}

impl Keyless {
    /// Takes a print of it.
    pub(super) fn print(&mut self, count: u64, buckets: Vec<(String, u64)>) {
        let now = |range: &str| {
            let found = buckets.iter().find(|(name, _)| name == range);
            found.map_or(0, |(_, n)| *n)
        };
        self.fell |= count < self.last_count || self.last.iter().any(|(range, n)| now(range) < *n);
        self.prints += 1;
        self.sum_count = self.sum_count.saturating_add(count);
        for (range, n) in &buckets {
            match self.sum.iter().position(|(name, _)| name == range) {
                Some(at) => self.sum[at].1 = self.sum[at].1.saturating_add(*n),
                None if self.sum.len() < MOST_BUCKETS => self.sum.push((range.clone(), *n)),
                None => {}
            }
        }
        self.last_count = count;
        self.last = buckets;
    }

    /// How many values, and the buckets: of a running total the last print, else all prints together.
    fn whole(&self) -> (u64, &[(String, u64)]) {
        if self.fell {
            (self.sum_count, &self.sum)
        } else {
            (self.last_count, &self.last)
        }
    }

    /// For the values of a record.
    pub(super) fn value(&self) -> Value {
        let (count, buckets) = self.whole();
        json!({ "count": count, "buckets": buckets })
    }

    /// In words.
    pub(super) fn says(&self, name: &str) -> String {
        let (count, buckets) = self.whole();
        let mut before: u64 = 0;
        let middle = buckets.iter().find(|(_, n)| {
            before = before.saturating_add(*n);
            count > 0 && before >= count.div_ceil(2)
        });
        let middle = middle
            .filter(|_| !self.fell)
            .map_or_else(String::new, |(range, _)| format!(", the middle one in {range}"));
        let printed = match (self.prints, self.fell) {
            (1, _) => String::new(),
            (n, true) => {
                format!("; it was printed {n} times and cleared between, so the prints are added up")
            }
            (n, false) => format!("; it was printed {n} times and only grows, so the last print is taken"),
        };
        format!(
            "{name} is a histogram of {} values{middle}, without a key: of which calls, the output does not say{printed}",
            Grouped(count)
        )
    }
}
