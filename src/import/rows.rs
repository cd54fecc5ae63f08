//! Collecting rows in the order in which they first appear.

use std::collections::HashMap;

use super::model::{ImportedTable, Row};

/// Distinct names that one table may have. Foreign text can pose as any number of names; beyond this
/// they are lines that nobody understands.
const MOST_NAMES: usize = 4096;

/// Rows by name and ABI.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    index: HashMap<(String, Option<String>), usize>,
}

impl Rows {
    /// Whether a row of that name is there.
    pub(super) fn has(&self, name: &str, abi: Option<&str>) -> bool {
        self.index
            .contains_key(&(name.to_owned(), abi.map(str::to_owned)))
    }

    /// Whether there is no row.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The row of that name, made when it is new; `None` when there are too many names already.
    pub(super) fn of(&mut self, name: &str, abi: Option<&str>) -> Option<&mut Row> {
        let key = (name.to_owned(), abi.map(str::to_owned));
        let next = self.rows.len();
        let at = match self.index.get(&key) {
            Some(at) => *at,
            None if next >= MOST_NAMES => return None,
            None => {
                self.rows.push(Row {
                    syscall: key.0.clone(),
                    abi: key.1.clone(),
                    ..Row::default()
                });
                self.index.insert(key, next);
                next
            }
        };
        self.rows.get_mut(at)
    }

    /// Adds a row to the one of the same name; false when there are too many names already.
    pub(super) fn add(&mut self, row: Row) -> bool {
        let Some(have) = self.of(&row.syscall, row.abi.as_deref()) else {
            return false;
        };
        have.calls = both(have.calls, row.calls, u64::saturating_add);
        have.unfinished = have.unfinished.saturating_add(row.unfinished);
        have.errors = both(have.errors, row.errors, u64::saturating_add);
        have.time = both(have.time, row.time, |a, b| a + b);
        have.wall = both(have.wall, row.wall, |a, b| a + b);
        have.shortest = both(have.shortest, row.shortest, std::cmp::min);
        have.longest = both(have.longest, row.longest, std::cmp::max);
        for (errno, n) in row.errnos {
            let sum = have.errnos.entry(errno).or_default();
            *sum = sum.saturating_add(n);
        }
        true
    }

    /// The calls of all rows of an ABI.
    pub(super) fn sum_calls(&self, abi: Option<&str>) -> u64 {
        let same = |row: &&Row| row.abi.as_deref() == abi;
        self.rows
            .iter()
            .filter(same)
            .fold(0, |n, row| n.saturating_add(row.calls()))
    }

    /// The rows as a table.
    pub(super) fn into_table(self, label: impl Into<String>) -> ImportedTable {
        ImportedTable {
            label: label.into(),
            rows: self.rows,
            stated: None,
        }
    }

    /// Hands out the rows and begins anew.
    pub(super) fn take(&mut self) -> Vec<Row> {
        self.index.clear();
        std::mem::take(&mut self.rows)
    }
}

fn both<T>(a: Option<T>, b: Option<T>, join: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    }
}
