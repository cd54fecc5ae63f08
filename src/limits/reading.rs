//! The verdict: a demand set against a capacity.

use crate::record::{Fix, LimitReading, Verdict};
use crate::units::Measured;

/// A demand above this share of the capacity, in percent, is a warning.
const WARN_PERCENT: u128 = 80;

/// A capacity without an end.
pub(super) const NO_LIMIT: u64 = u64::MAX;

/// Builds the reading of one limit.
pub(super) struct Reading {
    inner: LimitReading,
}

impl Reading {
    /// A limit with its name, whose it is, and where it is read.
    pub(super) fn of(id: &str, scope: &str, source: &str) -> Reading {
        Reading {
            inner: LimitReading {
                id: id.to_owned(),
                scope: scope.to_owned(),
                verdict: Verdict::Unknown,
                demand: Measured::NotMeasured("not computed".to_owned()),
                formula: String::new(),
                capacity: Measured::NotMeasured("not read".to_owned()),
                source: source.to_owned(),
                effect: String::new(),
                fix: Fix::default(),
            },
        }
    }

    /// It does not bear on this load, and why.
    pub(super) fn not_applicable(mut self, why: impl Into<String>) -> LimitReading {
        let why = why.into();
        self.inner.verdict = Verdict::NotApplicable;
        self.inner.fix = Fix::default();
        self.inner.demand = Measured::NotMeasured(why.clone());
        self.inner.capacity = Measured::NotMeasured(why.clone());
        self.inner.effect = why;
        self.inner
    }

    /// It cannot be decided, and why; what is known stays.
    pub(super) fn unknown(mut self, why: impl Into<String>) -> LimitReading {
        let why = why.into();
        self.inner.verdict = Verdict::Unknown;
        for value in [&mut self.inner.demand, &mut self.inner.capacity] {
            if value.known().is_none() {
                *value = Measured::NotMeasured(why.clone());
            }
        }
        self.inner.effect = why;
        self.inner
    }

    /// Nothing is to be set against it, and it is as it should be.
    pub(super) fn fine(mut self, why: impl Into<String>) -> LimitReading {
        self.inner.verdict = Verdict::Ok;
        self.inner.fix = Fix::default();
        let why = why.into();
        for value in [&mut self.inner.demand, &mut self.inner.capacity] {
            if value.known().is_none() {
                *value = Measured::NotMeasured(why.clone());
            }
        }
        self.inner.effect = why;
        self.inner
    }

    /// What the load needs, with the formula and its numbers.
    pub(super) fn demand(mut self, demand: u64, formula: impl Into<String>) -> Reading {
        self.inner.demand = Measured::Known(demand);
        self.inner.formula = formula.into();
        self
    }

    /// What there is.
    pub(super) fn capacity(mut self, capacity: u64) -> Reading {
        self.inner.capacity = Measured::Known(capacity);
        self
    }

    /// What there is, where "no limit" is possible.
    pub(super) fn capacity_or_none(self, capacity: Option<u64>) -> Reading {
        self.capacity(capacity.unwrap_or(NO_LIMIT))
    }

    /// How to raise it: now, for good, in a container.
    pub(super) fn fix(
        mut self,
        now: impl Into<String>,
        kept: impl Into<String>,
        container: impl Into<String>,
    ) -> Reading {
        self.inner.fix = Fix {
            now: now.into(),
            kept: kept.into(),
            container: container.into(),
        };
        self
    }

    /// Decides from demand and capacity; `effect` words what it means for the run, given the verdict.
    pub(super) fn decide(mut self, effect: impl FnOnce(Verdict) -> String) -> LimitReading {
        let (Some(demand), Some(capacity)) = (self.inner.demand.known(), self.inner.capacity.known()) else {
            return self.unknown("a term is not known");
        };
        // Nothing comes near to no limit, not even a demand that is too large to be counted.
        self.inner.verdict = match *capacity {
            NO_LIMIT => Verdict::Ok,
            capacity => verdict(*demand, capacity),
        };
        self.inner.effect = effect(self.inner.verdict);
        // What fits needs no remedy, and one worked out from its small demand would lower the limit.
        if self.inner.verdict == Verdict::Ok {
            self.inner.fix = Fix::default();
        }
        self.inner
    }

    /// As [`Reading::decide`], where a term of the demand is assumed: what would fail is a warning, since
    /// a guess alone turns no load down.
    pub(super) fn guess(self, effect: impl FnOnce(Verdict) -> String) -> LimitReading {
        let mut reading = self.decide(|verdict| match verdict {
            Verdict::Fail => effect(Verdict::Warn),
            verdict => effect(verdict),
        });
        if reading.verdict == Verdict::Fail {
            reading.verdict = Verdict::Warn;
        }
        reading
    }
}

/// Whether a demand fits.
pub(super) fn verdict(demand: u64, capacity: u64) -> Verdict {
    if demand > capacity {
        Verdict::Fail
    } else if u128::from(demand) * 100 > u128::from(capacity) * WARN_PERCENT {
        Verdict::Warn
    } else {
        Verdict::Ok
    }
}

/// To how much a capacity is to be raised: to the demand, and where that fits only barely, so far that it is
/// no warning any more.
pub(super) fn enough(demand: u64, capacity: u64) -> u64 {
    match verdict(demand, capacity) {
        Verdict::Warn => u64::try_from((u128::from(demand) * 5).div_ceil(4)).unwrap_or(u64::MAX),
        Verdict::Fail | Verdict::Ok | Verdict::Unknown | Verdict::NotApplicable => demand,
    }
}

/// The gravest of the readings of a limit that is set in several places, of two alike the one that is used
/// up further; `None` without any.
pub(super) fn gravest(readings: impl IntoIterator<Item = LimitReading>) -> Option<LimitReading> {
    let used = |reading: &LimitReading| match (reading.demand.known(), reading.capacity.known()) {
        (Some(demand), Some(capacity)) => {
            u128::from(*demand).saturating_mul(1 << 32) / u128::from(*capacity).max(1)
        }
        _ => 0,
    };
    readings
        .into_iter()
        .max_by_key(|reading| (reading.verdict, used(reading)))
}

/// The gravest verdict of a set of readings; `NotApplicable` for an empty one.
pub fn worst(readings: &[LimitReading]) -> Verdict {
    readings
        .iter()
        .map(|reading| reading.verdict)
        .max()
        .unwrap_or(Verdict::NotApplicable)
}

/// A capacity as people read it: beyond 2^62 it is no limit (systemd writes the largest long).
pub(super) fn amount(value: u64) -> String {
    if value >= 1 << 62 {
        "no limit".to_owned()
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_enough_is_no_warning() {
        assert_eq!(enough(101, 100), 101);
        assert_eq!(enough(1, 100), 1);
        for demand in [81, 97, 100] {
            assert_eq!(verdict(demand, enough(demand, 100)), Verdict::Ok);
        }
        assert_eq!(enough(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn eighty_percent_still_fits() {
        assert_eq!(verdict(80, 100), Verdict::Ok);
        assert_eq!(verdict(81, 100), Verdict::Warn);
        assert_eq!(verdict(100, 100), Verdict::Warn);
        assert_eq!(verdict(101, 100), Verdict::Fail);
        assert_eq!(verdict(0, 0), Verdict::Ok);
        assert_eq!(verdict(u64::MAX, u64::MAX), Verdict::Warn);
    }
}
