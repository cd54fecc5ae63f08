//! One map, over all times it was printed.

use super::super::Map as Hash;
use super::entry::Value;

/// Values that must not have fallen from print to print before a map is taken for a running total.
const COMPARISONS: u64 = 3;

/// One map, over all times it was printed.
#[derive(Debug, Default)]
pub(super) struct Printed {
    /// The keys of the print that is being read, and those of the one before.
    pub(super) now: Hash<Box<[u8]>, Value>,
    before: Hash<Box<[u8]>, Value>,
    /// All prints added up.
    pub(super) sum: Hash<Box<[u8]>, Value>,
    /// Keys in the order of their first appearance.
    pub(super) order: Vec<Box<[u8]>>,
    pub(super) prints: u64,
    pub(super) compared: u64,
    fell: bool,
    pub(super) scalar: Option<Value>,
}

impl Printed {
    /// Ends a print.
    pub(super) fn end(&mut self) {
        if self.now.is_empty() {
            return;
        }
        self.prints += 1;
        if self.prints > 1 {
            for (key, value) in &self.before {
                self.compared += 1;
                self.fell |= self.now.get(key).is_none_or(|now| now.count() < value.count());
            }
        }
        for (key, value) in &self.now {
            self.sum
                .entry(key.clone())
                .and_modify(|sum| *sum = sum.plus(*value))
                .or_insert(*value);
        }
        self.before = std::mem::take(&mut self.now);
    }

    /// Whether a script printed it again and again without clearing it.
    pub(super) fn is_running(&self) -> bool {
        self.prints > 1 && !self.fell && self.compared >= COMPARISONS
    }

    fn value(&self, key: &[u8]) -> Option<Value> {
        let from = if self.is_running() {
            &self.before
        } else {
            &self.sum
        };
        from.get(key).copied()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], Value)> {
        self.order
            .iter()
            .filter_map(|key| Some((&**key, self.value(key)?)))
    }
}
