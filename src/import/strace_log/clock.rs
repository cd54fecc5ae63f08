//! The stamps in front of lines as one clock that never goes back.

use crate::foreign::strace::Stamp;

const DAY: u64 = 86_400_000_000_000;

/// The clock of a run.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Nanoseconds by `-r`.
    relative: u64,
    /// Nanoseconds of whole days since the first stamp of `-t`.
    day: u64,
    last_of_day: u64,
    epoch_base: Option<u64>,
}

impl Clock {
    /// When a line was written, in nanoseconds since some moment before the first line; `None` without a stamp.
    pub(super) fn at(&mut self, stamp: Option<Stamp>) -> Option<u64> {
        match stamp? {
            Stamp::OfDay(nanos) => {
                if nanos + DAY / 2 < self.last_of_day {
                    self.day = self.day.saturating_add(DAY);
                }
                self.last_of_day = nanos;
                Some(self.day.saturating_add(nanos))
            }
            Stamp::Epoch(nanos) => {
                let base = *self.epoch_base.get_or_insert(nanos);
                // Kept small and positive; files of -ff begin at different times.
                Some((nanos.saturating_add(DAY)).saturating_sub(base))
            }
            Stamp::Delta(nanos) => {
                self.relative = self.relative.saturating_add(nanos);
                Some(self.relative)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_more_days_than_there_are_stands_still() {
        let mut clock = Clock::default();
        let mut last = 0;
        for _ in 0..300_000 {
            for of_day in [86_399_000_000_000, 0] {
                let at = clock.at(Some(Stamp::OfDay(of_day))).unwrap_or_default();
                assert!(at >= last);
                last = at;
            }
        }
        assert_eq!(last, u64::MAX);
    }
}
