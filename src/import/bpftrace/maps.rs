//! The maps of one output, and what they say together.

use std::collections::BTreeMap;

use super::super::Map as Hash;
use super::super::model::{Imported, ImportedTable, ProcessCount, Row, TimeKind};
use super::super::rows::Rows;
use super::super::{number, text};
use super::entry::Value;
use super::key;
use super::keyless::Keyless;
use super::meaning::{Meaning, Shape, meaning};
use super::printed::Printed;
use crate::units::Nanos;

/// Maps kept apart.
const MOST_MAPS: usize = 64;

/// Keys of all maps together.
const MOST_KEYS: usize = 1 << 17;

/// Bytes of one key; bpftrace's own strings are shorter.
const LONGEST_KEY: usize = 512;

/// All maps of one output.
#[derive(Debug, Default)]
pub(super) struct Maps {
    pub(super) maps: BTreeMap<Vec<u8>, Printed>,
    pub(super) order: Vec<Vec<u8>>,
    last: Option<Vec<u8>>,
    keys: usize,
    pub(super) histograms: BTreeMap<Vec<u8>, Keyless>,
    /// Entries whose key is a call stack.
    pub(super) stacks: u64,
}

impl Maps {
    /// Whether nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.maps.is_empty() && self.histograms.is_empty() && self.stacks == 0
    }

    /// Something else stood between two entries.
    pub(super) fn gap(&mut self) {
        self.last = None;
    }

    /// Takes a histogram without a key; false when there are too many.
    pub(super) fn histogram(&mut self, name: &[u8], count: u64, buckets: Vec<(String, u64)>) -> bool {
        let known = self.histograms.contains_key(name);
        if !known && (self.histograms.len() >= MOST_MAPS || name.len() > LONGEST_KEY) {
            return false;
        }
        self.last = None;
        self.histograms
            .entry(name.to_vec())
            .or_default()
            .print(count, buckets);
        true
    }

    /// Takes an entry; false when there are too many.
    pub(super) fn add(&mut self, name: &[u8], key: Option<&[u8]>, value: Value) -> bool {
        if let (None, Value::Buckets(count)) = (key, value) {
            return self.histogram(name, count, Vec::new());
        }
        if !self.maps.contains_key(name) {
            if self.maps.len() >= MOST_MAPS || name.len() > LONGEST_KEY {
                return false;
            }
            self.order.push(name.to_vec());
        }
        let map = self.maps.entry(name.to_vec()).or_default();
        let Some(key) = key else {
            map.scalar = Some(value);
            return true;
        };
        let known = map.sum.contains_key(key) || map.now.contains_key(key);
        if !known && (self.keys >= MOST_KEYS || key.len() > LONGEST_KEY) {
            return false;
        }
        // One print of a map stands together; only histograms have lines between their keys.
        let apart = self.last.as_deref() != Some(name) && !matches!(value, Value::Buckets(_));
        if apart || map.now.contains_key(key) {
            map.end();
        }
        if !known {
            self.keys += 1;
            map.order.push(key.into());
        }
        map.now.insert(key.into(), value);
        if self.last.as_deref() != Some(name) {
            self.last = Some(name.to_vec());
        }
        true
    }

    /// What the maps say, as rows.
    pub(super) fn into_imported(mut self, imported: &mut Imported) {
        for map in self.maps.values_mut() {
            map.end();
        }
        let shapes: BTreeMap<&[u8], Shape> = self
            .maps
            .iter()
            .map(|(name, map)| (&**name, Shape::of(map)))
            .collect();
        let counting = self.counting(&shapes);
        let single = counting.len() == 1;
        let mut numbers = false;
        let mut several = false;
        for name in &counting {
            let (Some(map), Some(shape)) = (self.maps.get(*name), shapes.get(*name)) else {
                continue;
            };
            numbers |= shape.by_number;
            several |= shape.several;
            let mut table = self.table(name, map, shape, imported);
            if single {
                self.join(&mut table, name, &shapes, imported);
            }
            imported.tables.push(table);
        }
        self.processes(&shapes, !counting.is_empty(), imported);
        self.notes(&shapes, &counting, imported);
        if numbers {
            imported.abi_assumed = Some("x86_64".to_owned());
            imported.notes.push(
                "the keys are system call numbers, taken as x86_64's; another CPU has other numbers (44 is sendto on \
                 x86_64 and fstatfs on arm64)"
                    .to_owned(),
            );
        }
        if several {
            imported
                .notes
                .push("keys with several parts (who, which call) are added up by call".to_owned());
        }
    }

    /// The maps that say how often each call was made.
    fn counting(&self, shapes: &BTreeMap<&[u8], Shape>) -> Vec<&[u8]> {
        let by_call = || {
            self.order
                .iter()
                .map(|name| &**name)
                .filter(|name| shapes.get(name).is_some_and(|shape| shape.call.is_some()))
        };
        for wanted in [Meaning::Calls, Meaning::Unsaid] {
            let found: Vec<&[u8]> = by_call().filter(|name| meaning(name) == wanted).collect();
            if !found.is_empty() {
                return found;
            }
        }
        // Statistics and histograms of times tell how often, too; a sum does not, unless it is all there is.
        let plain = |name: &&[u8]| {
            self.maps
                .get(*name)
                .is_some_and(|map| map.entries().all(|(_, value)| matches!(value, Value::Plain(_))))
        };
        let of_times = by_call().filter(|name| matches!(meaning(name), Meaning::Time(_)) && !plain(name));
        let first = of_times.chain(by_call()).next();
        first.into_iter().collect()
    }

    fn table(&self, name: &[u8], map: &Printed, shape: &Shape, imported: &mut Imported) -> ImportedTable {
        let mut rows = Rows::default();
        let unit = match meaning(name) {
            Meaning::Time(unit) => Some(unit),
            Meaning::Calls | Meaning::Errors | Meaning::Other | Meaning::Unsaid => None,
        };
        for (key, value) in map.entries() {
            let parts = key::parts(key);
            let Some(call) = shape.call.and_then(|index| parts.get(index)) else {
                continue;
            };
            let mut row = Row {
                syscall: key::call(call),
                calls: Some(value.count()),
                ..Row::default()
            };
            if let Value::Stats { total, .. } = value
                && let Some(unit) = unit
            {
                row.time = Some(Nanos(total.saturating_mul(unit)));
                imported.time_kind = TimeKind::Wall;
                imported.time_source = format!("map @{}", text::shown(name, 40));
            }
            if let Some(result) = shape.result.and_then(|index| parts.get(index)) {
                let errno = key::errno(result);
                row.errors = Some(if errno.is_some() { value.count() } else { 0 });
                row.errnos = errno.map(|errno| (errno, value.count())).into_iter().collect();
            }
            if !rows.add(row) {
                imported.unknown_lines.add(0, key);
            }
        }
        rows.into_table(if name.is_empty() {
            "@".to_owned()
        } else {
            format!("@{}", text::shown(name, 40))
        })
    }

    /// Errors and times from other maps with the same calls.
    fn join(
        &self,
        table: &mut ImportedTable,
        counted: &[u8],
        shapes: &BTreeMap<&[u8], Shape>,
        imported: &mut Imported,
    ) {
        for (name, map) in &self.maps {
            let Some(shape) = shapes
                .get(&**name)
                .filter(|s| s.call.is_some() && &**name != counted)
            else {
                continue;
            };
            let other = self.table(b"", map, shape, &mut Imported::new(imported.format));
            let errors = shape.result.is_some() || meaning(name) == Meaning::Errors;
            let mut spent: Hash<String, u64> = Hash::default();
            if let Meaning::Time(unit) = meaning(name) {
                for (key, value) in map.entries() {
                    let nanos = match value {
                        Value::Plain(n) | Value::Stats { total: n, .. } => n.saturating_mul(unit),
                        Value::Buckets(_) => continue,
                    };
                    if let Some(part) = shape.call.and_then(|index| key::parts(key).get(index).copied()) {
                        let sum = spent.entry(key::call(part)).or_default();
                        *sum = sum.saturating_add(nanos);
                    }
                }
            }
            let others: Hash<&str, &Row> = other.rows.iter().map(|r| (&*r.syscall, r)).collect();
            for row in &mut table.rows {
                let found = others.get(&*row.syscall).copied();
                match meaning(name) {
                    _ if errors => {
                        let failed = found.map_or(0, |f| {
                            if shape.result.is_some() {
                                f.errors.unwrap_or(0)
                            } else {
                                f.calls()
                            }
                        });
                        row.errors = Some(row.errors.unwrap_or(0).max(failed));
                        if let Some(found) = found.filter(|f| !f.errnos.is_empty()) {
                            row.errnos = found.errnos.clone();
                        }
                    }
                    Meaning::Time(_) => {
                        if let Some(nanos) = spent.get(&row.syscall) {
                            row.time = Some(Nanos(*nanos));
                            imported.time_kind = TimeKind::Wall;
                            imported.time_source = format!("map @{}", text::shown(name, 40));
                        }
                    }
                    Meaning::Calls | Meaning::Errors | Meaning::Other | Meaning::Unsaid => {}
                }
            }
        }
    }

    /// Counts by command or process, which are none by call.
    fn processes(&self, shapes: &BTreeMap<&[u8], Shape>, calls: bool, imported: &mut Imported) {
        const MOST_PROCESSES: usize = 4096;
        let mut index: Hash<(Option<u32>, String), usize> = Hash::default();
        for name in &self.order {
            let (Some(map), Some(shape)) = (self.maps.get(name), shapes.get(&**name)) else {
                continue;
            };
            let counts = matches!(meaning(name), Meaning::Calls | Meaning::Unsaid);
            // Numbers of threads alone are what a script remembers from entry to return, where calls are counted.
            let who = shape.command.is_some() || shape.process.is_some() && !calls;
            if shape.call.is_some() || !counts || !who {
                continue;
            }
            for (key, value) in map.entries() {
                let parts = key::parts(key);
                let pid = shape
                    .process
                    .and_then(|index| number::uint(parts.get(index)?))
                    .and_then(|n| u32::try_from(n).ok());
                let comm = shape
                    .command
                    .and_then(|index| parts.get(index))
                    .map_or_else(String::new, |part| text::name(part));
                let next = imported.by_process.len();
                let at = *index.entry((pid, comm.clone())).or_insert(next);
                match imported.by_process.get_mut(at) {
                    Some(have) => have.calls = have.calls.saturating_add(value.count()),
                    None if next < MOST_PROCESSES => imported.by_process.push(ProcessCount {
                        pid,
                        comm,
                        calls: value.count(),
                        time: None,
                    }),
                    None => {
                        index.remove(&(pid, comm));
                        imported.unknown_lines.add(0, key);
                    }
                }
            }
        }
    }
}
