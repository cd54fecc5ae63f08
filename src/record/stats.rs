//! Medians, bootstrap intervals, and ratios taken round by round.
//!
//! Nothing here reads a clock or a random device: the same samples give the same interval on every
//! machine, so that two renderings of one record never differ.

/// Resamples of a bootstrap. With 2,000 the ends of the interval of typical rounds move by less than
/// the digits that are shown.
const RESAMPLES: usize = 2_000;

/// Below this many samples a bootstrap says nothing that the samples do not.
const FEWEST_FOR_BOOTSTRAP: usize = 3;

/// A median with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The median of the samples and the 95 % percentile-bootstrap interval around it: the medians of
    /// 2,000 resamples, without the lowest and the highest 2.5 %.
    ///
    /// For fewer than three samples the interval is the smallest and the largest of them, which is not
    /// a 95 % interval: it says only what was seen. Samples that are not finite are left out; `None`
    /// when none is left.
    pub fn of(samples: &[f64]) -> Option<Interval> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let median = median_of_sorted(&sorted)?;
        if sorted.len() < FEWEST_FOR_BOOTSTRAP {
            return Some(Interval {
                median,
                low: *sorted.first()?,
                high: *sorted.last()?,
            });
        }
        let mut random = SplitMix64(0x5f73_7973_7461_6c6c);
        let mut resample = vec![0.0; sorted.len()];
        let mut medians = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            for slot in &mut resample {
                *slot = sorted[random.below(sorted.len())];
            }
            resample.sort_by(f64::total_cmp);
            medians.push(median_of_sorted(&resample)?);
        }
        medians.sort_by(f64::total_cmp);
        let cut = RESAMPLES / 40;
        Some(Interval {
            median,
            low: medians[cut],
            high: medians[RESAMPLES - 1 - cut],
        })
    }

    /// The farther end's distance from the median, as a share of the median: 0.02 is ±2 %. `None` for a
    /// median of zero or an interval that is not finite.
    pub fn relative_error(&self) -> Option<f64> {
        let share = self.half_width() / self.median.abs();
        (self.median != 0.0 && share.is_finite()).then_some(share)
    }

    /// Whether the farther end lies more than a quarter of the median away: two rows of which one is half as fast
    /// again as the other cannot be told apart then.
    pub fn is_noisy(&self) -> bool {
        const MOST: f64 = 0.25;
        self.relative_error().is_some_and(|error| error > MOST)
    }

    /// The farther end's distance from the median.
    pub fn half_width(&self) -> f64 {
        (self.high - self.median).max(self.median - self.low)
    }

    /// Whether the value lies within the interval, its ends included.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Whether all three values are numbers that a record can hold.
    pub fn is_finite(&self) -> bool {
        self.median.is_finite() && self.low.is_finite() && self.high.is_finite()
    }
}

/// The middle of the samples, or the mean of the two in the middle. Samples that are not finite are left
/// out; `None` when none is left.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

/// The ratio of a row to the baseline, round 1 by round 1, round 2 by round 2: what disturbs a whole
/// round (another process, a CPU that slows down) then falls out of the ratio.
///
/// `rows` and `baseline` are the rates of the rounds in the order in which they ran; `None` stands for a
/// round without a rate. A pair counts only when both are known and finite and the baseline is above
/// zero. `None` when no pair counts.
pub fn ratio_by_round(rows: &[Option<f64>], baseline: &[Option<f64>]) -> Option<Interval> {
    let ratios: Vec<f64> = rows
        .iter()
        .zip(baseline)
        .filter_map(|(row, base)| Some((row.as_ref()?, base.as_ref()?)))
        .filter(|(_, base)| **base > 0.0)
        .map(|(row, base)| row / base)
        .collect();
    Interval::of(&ratios)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    // Halved before they are added, so that two huge samples do not overflow to infinity.
    Some(sorted[middle - 1] / 2.0 + upper / 2.0)
}

/// The SplitMix64 generator (Steele, Lea, Flood 2014): eight bytes of state, and good enough to draw
/// samples with.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An index below `bound`: the high half of a product, whose bias is far below what 2,000 draws
    /// could show.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// One more server that adds less than this share adds nothing worth a server.
const WORTH_A_SERVER: f64 = 0.05;

/// Intervals that reach farther than this share of their median say nothing of a server's worth.
const UNCLEAR: f64 = 0.25;

/// Where more servers add nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enough {
    /// The first number of servers after which the next larger one adds less than 5 %.
    Point(u32),
    /// Each step was worth it, or there is no step.
    More,
    /// The rounds differ by more than servers would change.
    Unclear,
}

/// The point of diminishing returns, by rates in the order of the numbers of servers.
pub fn enough(rates: &[(u32, Interval)]) -> Enough {
    let unclear = |rate: &Interval| rate.relative_error().is_some_and(|error| error > UNCLEAR);
    if rates.iter().any(|(_, rate)| unclear(rate)) {
        return Enough::Unclear;
    }
    rates
        .windows(2)
        .find(|step| step[0].1.median > 0.0 && step[1].1.median < step[0].1.median * (1.0 + WORTH_A_SERVER))
        .map_or(Enough::More, |step| Enough::Point(step[0].0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_nothing() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN, 5.0, f64::INFINITY]), Some(5.0));
        assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
    }

    #[test]
    fn the_interval_holds_the_median_and_stays_within_the_samples() {
        let samples = [25_100.0, 24_800.0, 25_460.0, 25_900.0, 25_300.0];
        let interval = Interval::of(&samples).unwrap();
        assert_eq!(interval.median, 25_300.0);
        assert!(interval.low >= 24_800.0 && interval.low <= interval.median);
        assert!(interval.high <= 25_900.0 && interval.high >= interval.median);
    }

    #[test]
    fn the_interval_does_not_depend_on_order_or_on_the_day() {
        let one = Interval::of(&[1.0, 2.0, 3.0, 4.0, 9.0]);
        assert_eq!(one, Interval::of(&[9.0, 3.0, 1.0, 4.0, 2.0]));
        assert_eq!(one, Interval::of(&[1.0, 2.0, 3.0, 4.0, 9.0]));
    }

    #[test]
    fn a_bootstrap_of_many_samples_is_narrower_than_their_spread() {
        let samples: Vec<f64> = (0..101).map(f64::from).collect();
        let interval = Interval::of(&samples).unwrap();
        assert_eq!(interval.median, 50.0);
        assert!(
            interval.low > 25.0 && interval.high < 75.0,
            "{interval:?} should be about 40 to 60"
        );
    }

    #[test]
    fn one_or_two_samples_give_their_own_range() {
        let one = Interval::of(&[7.0]).unwrap();
        assert_eq!((one.low, one.median, one.high), (7.0, 7.0, 7.0));
        let two = Interval::of(&[10.0, 4.0]).unwrap();
        assert_eq!((two.low, two.median, two.high), (4.0, 7.0, 10.0));
        assert_eq!(Interval::of(&[f64::NAN]), None);
    }

    #[test]
    fn equal_samples_have_no_width() {
        let interval = Interval::of(&[5.0; 6]).unwrap();
        assert_eq!(interval.half_width(), 0.0);
        assert_eq!(interval.relative_error(), Some(0.0));
        assert_eq!(Interval::of(&[0.0; 6]).unwrap().relative_error(), None);
    }

    #[test]
    fn ratios_pair_round_with_round() {
        // The second round was slow for both: the ratio does not notice.
        let row = [Some(50.0), Some(25.0), Some(50.0)];
        let base = [Some(100.0), Some(50.0), Some(100.0)];
        let ratio = ratio_by_round(&row, &base).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.5, 0.5, 0.5));
    }

    #[test]
    fn pairs_that_cannot_be_divided_do_not_count() {
        let row = [Some(10.0), None, Some(30.0), Some(f64::NAN)];
        let base = [Some(0.0), Some(10.0), Some(10.0), Some(10.0)];
        assert_eq!(ratio_by_round(&row, &base).unwrap().median, 3.0);
        assert_eq!(ratio_by_round(&row[..2], &base[..2]), None);
        assert_eq!(ratio_by_round(&[], &base), None);
        // A row with a round more than the baseline: the round without a partner is left out.
        assert_eq!(
            ratio_by_round(&[Some(2.0), Some(9.0)], &[Some(1.0)])
                .unwrap()
                .median,
            2.0
        );
    }
}
