//! Counting by call while a log streams by, without a string per line.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::facts::collect::Class;
use super::model::Row;
use super::{Map, text};
use crate::units::{Nanos, total};

/// Names that one log may have; text that only looks like calls can have any number.
/// (`pending` keeps their ids in sixteen bits.)
const MOST_NAMES: usize = 4096;
/// Calls whose errnos are all kept apart; no kernel has so many.
const WITH_ALL_ERRNOS: usize = 512;
/// Errnos kept apart for one of those.
const MOST_ERRNOS: usize = 64;
/// Errnos kept apart for any other, so that text that only looks like calls stays small.
const FEW_ERRNOS: usize = 2;
/// What the rest stands under.
const OTHER_ERRNOS: &str = "other";

/// The counts of one call.
#[derive(Debug)]
pub(super) struct Counts {
    /// The name, escaped.
    pub(super) name: Rc<str>,
    /// What it does.
    pub(super) class: Class,
    abi: Option<Rc<str>>,
    /// Calls begun.
    pub(super) calls: u64,
    /// Of those, failed ones.
    pub(super) errors: u64,
    /// Of those, ones without end.
    pub(super) unfinished: u64,
    time: Option<u64>,
    longest: Option<u64>,
    errnos: Vec<(String, u64)>,
    most_errnos: usize,
}

impl Counts {
    /// A duration of one call.
    pub(super) fn took(&mut self, nanos: u64) {
        self.time = Some(self.time.unwrap_or(0).saturating_add(nanos));
        self.longest = Some(self.longest.unwrap_or(0).max(nanos));
    }

    /// A failed call.
    pub(super) fn failed(&mut self, errno: &str) {
        self.errors += 1;
        let kept =
            match self.errnos.len() < self.most_errnos || self.errnos.iter().any(|(name, _)| name == errno) {
                true => errno,
                false => OTHER_ERRNOS,
            };
        match self.errnos.iter_mut().find(|(name, _)| name == kept) {
            Some((_, n)) => *n += 1,
            None => self.errnos.push((kept.to_owned(), 1)),
        }
    }

    /// Names the error of the last failed call, when its line did not.
    pub(super) fn name_last_error(&mut self, errno: &str) {
        let Some(at) = self.errnos.iter().position(|(name, _)| name == "errno ?") else {
            return;
        };
        self.errors -= 1;
        self.errnos[at].1 -= 1;
        if self.errnos[at].1 == 0 {
            self.errnos.swap_remove(at);
        }
        self.failed(errno);
    }
}

/// Index of a call in [`Names`].
pub(super) type NameId = usize;

/// Places for names met lately.
const LATELY: usize = 64;

/// All calls of a log.
#[derive(Debug)]
pub(super) struct Names {
    counts: Vec<Counts>,
    /// Their names as they stand in the log.
    raw: Vec<Rc<[u8]>>,
    /// Native ones met lately, where the few calls that make up most of a log are found at once.
    lately: [NameId; LATELY],
    ids: Map<Rc<[u8]>, NameId>,
    foreign: Map<(Rc<str>, Box<[u8]>), NameId>,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            counts: Vec::new(),
            raw: Vec::new(),
            lately: [NameId::MAX; LATELY],
            ids: Map::default(),
            foreign: Map::default(),
        }
    }
}

/// Where a name stands among those met lately.
fn place(name: &[u8]) -> usize {
    let sum = match name {
        [first, .., before_last, last] => {
            usize::from(*first) * 5 + usize::from(*before_last) * 3 + usize::from(*last)
        }
        _ => 0,
    };
    (sum + name.len() * 7) % LATELY
}

impl Names {
    /// The id of a name in an ABI (`None`: the only or native one); `None` when there are too many.
    pub(super) fn id(&mut self, name: &[u8], abi: Option<&Rc<str>>) -> Option<NameId> {
        match abi {
            None => {
                let place = place(name);
                let lately = self.lately[place];
                if self.raw.get(lately).is_some_and(|raw| **raw == *name) {
                    return Some(lately);
                }
                let id = match self.ids.get(name) {
                    Some(id) => *id,
                    None => {
                        let id = self.push(name, None)?;
                        self.ids.insert(Rc::clone(&self.raw[id]), id);
                        id
                    }
                };
                self.lately[place] = id;
                Some(id)
            }
            Some(abi) => {
                let key = (Rc::clone(abi), name.into());
                if let Some(id) = self.foreign.get(&key) {
                    return Some(*id);
                }
                let id = self.push(name, Some(Rc::clone(abi)))?;
                self.foreign.insert(key, id);
                Some(id)
            }
        }
    }

    fn push(&mut self, name: &[u8], abi: Option<Rc<str>>) -> Option<NameId> {
        if self.counts.len() >= MOST_NAMES {
            return None;
        }
        self.raw.push(name.into());
        let name: Rc<str> = text::name(name).into();
        self.counts.push(Counts {
            class: Class::of(&name),
            name,
            abi,
            calls: 0,
            errors: 0,
            unfinished: 0,
            time: None,
            longest: None,
            errnos: Vec::new(),
            most_errnos: if self.counts.len() < WITH_ALL_ERRNOS {
                MOST_ERRNOS
            } else {
                FEW_ERRNOS
            },
        });
        Some(self.counts.len() - 1)
    }

    /// The counts of a call.
    pub(super) fn of(&mut self, id: NameId) -> Option<&mut Counts> {
        self.counts.get_mut(id)
    }

    /// All calls begun.
    pub(super) fn total(&self) -> u64 {
        total(self.counts.iter().map(|c| c.calls))
    }

    /// Whether any call has a duration.
    pub(super) fn timed(&self) -> bool {
        self.counts.iter().any(|c| c.time.is_some())
    }

    /// Whether a call of another ABI was seen.
    pub(super) fn mixed(&self) -> bool {
        !self.foreign.is_empty()
    }

    /// The rows, in the order of first appearance.
    pub(super) fn into_rows(self) -> Vec<Row> {
        let mixed = self.mixed();
        self.counts
            .into_iter()
            .filter(|c| c.calls > 0)
            .map(|c| Row {
                syscall: c.name.to_string(),
                abi: match c.abi {
                    Some(abi) => Some(abi.to_string()),
                    None => mixed.then(|| "64".to_owned()),
                },
                calls: Some(c.calls),
                errors: Some(c.errors),
                // A call that never came back, or whose durations the tool left out, took no known time.
                time: c.time.map(Nanos),
                errnos: c.errnos.into_iter().collect::<BTreeMap<_, _>>(),
                unfinished: c.unfinished,
                longest: c.longest.map(Nanos),
                ..Row::default()
            })
            .collect()
    }
}
