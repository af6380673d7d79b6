//! The reported quantities, computed from the time stamps of all ranks: tail, latency, medians with their intervals, and reasons to
//! distrust them. They are defined here and nowhere else.

use crate::lineup::{now_ns, thread_cpu_ns};
use earlybird::Error;

/// One rank's measurement of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The arrival, on the clock that all ranks share.
    pub arrival_ns: i64,
    /// The exit.
    pub exit_ns: i64,
    /// Processor time that it used in between.
    pub cpu_ns: i64,
    /// Elements that it found wrong.
    pub wrong: i64,
    /// Time of the computation in between, which does not count as time of the call.
    pub computed_ns: i64,
}

impl Sample {
    /// Numbers per sample in messages.
    pub const WORDS: usize = 5;

    /// Carries out a call and stamps its begin and its end.
    ///
    /// # Errors
    /// The error of the call.
    pub fn of<R>(call: impl FnOnce() -> Result<R, Error>) -> Result<(Sample, R), Error> {
        let (cpu_before_ns, arrival_ns) = (thread_cpu_ns(), now_ns());
        let result = call()?;
        let exit_ns = now_ns();
        Ok((Sample { arrival_ns, exit_ns, cpu_ns: thread_cpu_ns() - cpu_before_ns, wrong: 0, computed_ns: 0 }, result))
    }

    /// The numbers of a message.
    pub fn to_words(self) -> [i64; Self::WORDS] {
        [self.arrival_ns, self.exit_ns, self.cpu_ns, self.wrong, self.computed_ns]
    }
}

impl From<[i64; Sample::WORDS]> for Sample {
    fn from([arrival_ns, exit_ns, cpu_ns, wrong, computed_ns]: [i64; Sample::WORDS]) -> Self {
        Sample { arrival_ns, exit_ns, cpu_ns, wrong, computed_ns }
    }
}

/// All samples of a cell, by call and rank.
pub struct Samples {
    by_call: Vec<Vec<Sample>>,
}

impl Samples {
    /// The samples in the words of all ranks, which lie one after the other, each rank's calls in order.
    ///
    /// # Errors
    /// [`Error::Usage`] if the ranks did not send the same number of whole samples.
    pub fn from_words(words: &[i64], ranks: usize) -> Result<Samples, Error> {
        if ranks == 0 || words.is_empty() || !words.len().is_multiple_of(ranks * Sample::WORDS) {
            return Err(Error::usage(format!("{} stamps cannot be those of {ranks} ranks", words.len())));
        }
        let samples: Vec<Sample> = words.as_chunks().0.iter().copied().map(Sample::from).collect();
        let calls = samples.len() / ranks;
        let call = |call| samples.iter().skip(call).step_by(calls).copied().collect();
        Ok(Samples { by_call: (0..calls).map(call).collect() })
    }

    /// Last exit minus last arrival, in microseconds, call by call: the time after all ranks have come.
    pub fn tails_us(&self) -> Vec<f64> {
        self.by_call.iter().map(|call| micro(last_exit(call) - last_arrival(call))).collect()
    }

    /// Last exit minus first arrival, in microseconds, call by call.
    pub fn latencies_us(&self) -> Vec<f64> {
        let first = |call: &[Sample]| call.iter().map(|sample| sample.arrival_ns).min().expect("a call has ranks");
        self.by_call.iter().map(|call| micro(last_exit(call) - first(call))).collect()
    }

    /// The samples themselves, by call and rank.
    pub fn calls(&self) -> &[Vec<Sample>] {
        &self.by_call
    }

    /// Mean over the ranks from `first` on and over calls of a rank's own time in the call, without what it computed meanwhile, in
    /// microseconds; NaN without such ranks.
    pub fn call_us_mean(&self, first: usize) -> f64 {
        self.mean(first, |sample| micro(sample.exit_ns - sample.arrival_ns - sample.computed_ns))
    }

    /// Mean over ranks and calls of the processor time that a rank used in the call, in microseconds.
    pub fn cpu_us_mean(&self) -> f64 {
        self.mean(0, |sample| micro(sample.cpu_ns))
    }

    /// Wrong elements, over all ranks and calls.
    pub fn wrong(&self) -> u64 {
        self.by_call.iter().flatten().map(|sample| sample.wrong as u64).sum()
    }

    /// Ranks that left before the last one had come, over all calls: what a barrier must not do.
    pub fn left_too_early(&self) -> u64 {
        let early =
            |call: &Vec<Sample>| call.iter().filter(|sample| sample.exit_ns < last_arrival(call)).count() as u64;
        self.by_call.iter().map(early).sum()
    }

    fn mean(&self, first: usize, of: impl Fn(&Sample) -> f64) -> f64 {
        let samples = || self.by_call.iter().flat_map(|call| call.iter().skip(first));
        samples().map(of).sum::<f64>() / samples().count() as f64
    }
}

/// The arrival of the last rank.
pub fn last_arrival(call: &[Sample]) -> i64 {
    call.iter().map(|sample| sample.arrival_ns).max().expect("a call has ranks")
}

/// The exit of the last rank.
pub fn last_exit(call: &[Sample]) -> i64 {
    call.iter().map(|sample| sample.exit_ns).max().expect("a call has ranks")
}

fn micro(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// The smallest value that at least this part of all values does not exceed (nearest rank); NaN for no values.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let rank = (part * values.len() as f64).ceil() as usize;
    nth(values, rank.saturating_sub(1))
}

/// The value at this place of their order.
fn nth(values: &[f64], place: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// A median, and the interval around it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bounds {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Bounds {
    /// The bounds of a sample of positive values, by order statistics: for any distribution the interval misses the median once in
    /// twenty times. Fewer than six values are too few for that, and bound nothing.
    pub fn of(values: &[f64]) -> Bounds {
        let median = quantile(values, 0.5);
        if values.len() < 6 {
            return Bounds { low: 0.0, median, high: f64::INFINITY };
        }
        let (n, half) = (values.len() as f64, 0.98 * (values.len() as f64).sqrt());
        let place = |place: f64| nth(values, place.clamp(0.0, n - 1.0) as usize);
        Bounds { low: place((n / 2.0 - half).floor()), median, high: place((n / 2.0 + half).ceil()) }
    }

    /// The bounds of the ratios of two samples that were taken in turn, call by call, so that both met the same disturbances.
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Bounds {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Bounds::of(&ratios)
    }
}

/// The verdict on two times by the interval of their ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Verdict {
    #[strum(to_string = "faster")]
    Faster,
    #[strum(to_string = "slower")]
    Slower,
    /// The interval holds 1: noise alone may have made the difference.
    #[strum(to_string = "no difference here")]
    NoDifference,
}

impl Verdict {
    /// Judges by the interval, never by the median alone.
    pub fn of(ratio: Bounds) -> Verdict {
        match ratio {
            Bounds { high, .. } if high < 1.0 => Verdict::Faster,
            Bounds { low, .. } if low > 1.0 => Verdict::Slower,
            _ => Verdict::NoDifference,
        }
    }
}

/// A reason to distrust the figures of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::VariantArray)]
pub enum Caveat {
    #[strum(to_string = "the quartiles lie more than half the median apart: other load, or too few calls")]
    Spread,
    #[strum(to_string = "more than one call in twenty is far above the quartiles: something else ran now and then")]
    Outliers,
    #[strum(to_string = "the first tenth of the calls took half as long again as the others: the machine was not warm")]
    WarmUp,
}

impl Caveat {
    /// The caveats about values in the order in which they were measured.
    pub fn of(values: &[f64]) -> Vec<Caveat> {
        let [first, median, third] = [0.25, 0.5, 0.75].map(|part| quantile(values, part));
        let range = third - first;
        let far = values.iter().filter(|value| **value > third + 3.0 * range).count();
        let (early, rest) = values.split_at(values.len() / 10);
        let caveats = [
            (Caveat::Spread, range > 0.5 * median),
            (Caveat::Outliers, far * 20 > values.len()),
            (Caveat::WarmUp, early.len() >= 5 && quantile(early, 0.5) > 1.5 * quantile(rest, 0.5)),
        ];
        caveats.into_iter().filter_map(|(caveat, holds)| holds.then_some(caveat)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use earlybird::pattern::mix;

    /// Two calls of two ranks.
    fn samples() -> Samples {
        let rank_0 = [[1_000, 9_000, 500, 0, 0], [20_000, 25_000, 750, 2, 4_000]];
        let rank_1 = [[7_000, 8_000, 1_000, 0, 0], [20_500, 20_250, 250, 1, 0]];
        assert_eq!(Sample::from(rank_0[1]).to_words(), rank_0[1]);
        Samples::from_words(&[rank_0, rank_1].as_flattened().concat(), 2).expect("whole samples")
    }

    #[test]
    fn figures_follow_their_definitions() {
        let samples = samples();
        assert_eq!(samples.tails_us(), [2.0, 4.5]);
        assert_eq!(samples.latencies_us(), [8.0, 5.0]);
        assert_eq!(samples.call_us_mean(0), (8.0 + (5.0 - 4.0) + 1.0 - 0.25) / 4.0);
        assert_eq!(samples.call_us_mean(1), (1.0 - 0.25) / 2.0);
        assert_eq!(samples.cpu_us_mean(), 2.5 / 4.0);
        assert_eq!(samples.wrong(), 3);
        assert_eq!(samples.left_too_early(), 1);
    }

    #[test]
    fn incomplete_stamps_are_refused() {
        for (words, ranks) in [(0, 1), (9, 1), (15, 2), (10, 0)] {
            assert!(Samples::from_words(&vec![0; words], ranks).is_err(), "{words} {ranks}");
        }
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!((quantile(&values, 0.5), quantile(&values, 0.99), quantile(&values, 1.0)), (100.0, 198.0, 200.0));
        assert_eq!(quantile(&[3.0], 0.99), 3.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn the_interval_of_a_median_is_that_of_its_order() {
        let values: Vec<f64> = (0..100).map(f64::from).rev().collect();
        assert_eq!(Bounds::of(&values), Bounds { low: 40.0, median: 49.0, high: 60.0 });
        assert_eq!(Bounds::of(&[3.0; 5]), Bounds { low: 0.0, median: 3.0, high: f64::INFINITY });
        assert_eq!(Bounds::of(&[3.0; 6]), Bounds { low: 3.0, median: 3.0, high: 3.0 });
        assert!(Bounds::of(&[]).median.is_nan());
    }

    /// Times as a busy machine gives them: mostly near 40 us, one in eight disturbed by up to 1000 us. Always the same draws.
    fn noisy_us(seed: u64, count: u64) -> Vec<f64> {
        let unit = |draw: u64| (mix(mix(seed) ^ draw) >> 11) as f64 / (1u64 << 53) as f64;
        let disturbance = |call| if unit(3 * call) < 0.125 { 1000.0 * unit(3 * call + 1) } else { 0.0 };
        (0..count).map(|call| 40.0 + 8.0 * unit(3 * call + 2) + disturbance(call)).collect()
    }

    #[test]
    fn noise_is_not_called_a_win() {
        let ratio = |seed: u64| Bounds::of_ratios(&noisy_us(2 * seed, 100), &noisy_us(2 * seed + 1, 100));
        let (mut wins, mut apparent) = (0, 0);
        for seed in 0..400 {
            wins += usize::from(Verdict::of(ratio(seed)) == Verdict::Faster);
            apparent += usize::from(ratio(seed).median < 1.0);
        }
        assert!(apparent > 150, "{apparent} of 400 medians look shorter, so there was something to refuse");
        assert!(wins <= 16, "{wins} of 400 were called wins; 2.5 % may be");
        assert_eq!(Verdict::of(Bounds::of(&[0.1; 5])), Verdict::NoDifference, "five calls prove nothing");
    }

    #[test]
    fn unreliable_samples_are_named() {
        let steady = |count: u32| (0..count).map(|call| 40.0 + f64::from(call % 8));
        assert_eq!(Caveat::of(&steady(100).collect::<Vec<_>>()), []);
        let wide: Vec<f64> = steady(100).enumerate().map(|(call, us)| us * (1 + call % 2) as f64).collect();
        assert_eq!(Caveat::of(&wide), [Caveat::Spread]);
        let disturbed: Vec<f64> = steady(90).chain([900.0; 10]).collect();
        assert_eq!(Caveat::of(&disturbed), [Caveat::Outliers]);
        let varied = (0..180).map(|call| 40.0 + f64::from(call % 24));
        let cold: Vec<f64> = [85.0; 20].into_iter().chain(varied).collect();
        assert_eq!(Caveat::of(&cold), [Caveat::WarmUp]);
    }

    #[test]
    fn a_difference_is_called_one_through_noise() {
        let theirs = noisy_us(1, 100);
        let ours: Vec<f64> = noisy_us(2, 100).iter().map(|us| us * 0.85).collect();
        assert_eq!(Verdict::of(Bounds::of_ratios(&ours, &theirs)), Verdict::Faster);
        assert_eq!(Verdict::of(Bounds::of_ratios(&theirs, &ours)), Verdict::Slower);
    }
}
