//! From stamps to the figures that are reported. Definitions of the words are here and nowhere else.

use earlybird::Error;

/// One rank's measurement of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it arrived, on the clock that all ranks share.
    pub arrival_ns: i64,
    /// When it left.
    pub exit_ns: i64,
    /// Processor time that it used in between.
    pub cpu_ns: i64,
    /// Elements that it found wrong.
    pub wrong: i64,
}

impl Sample {
    /// Numbers per sample when samples travel.
    pub const WORDS: usize = 4;

    /// For travelling.
    pub fn to_words(self) -> [i64; Self::WORDS] {
        [self.arrival_ns, self.exit_ns, self.cpu_ns, self.wrong]
    }

    fn from_words(words: &[i64]) -> Sample {
        Sample { arrival_ns: words[0], exit_ns: words[1], cpu_ns: words[2], wrong: words[3] }
    }
}

/// All samples of a cell, by call and rank.
pub struct Samples {
    by_call: Vec<Vec<Sample>>,
}

impl Samples {
    /// From what the ranks sent, one after the other, each its calls in order.
    ///
    /// # Errors
    /// [`Error::Usage`] if the ranks did not send the same number of whole samples.
    pub fn from_words(words: &[i64], ranks: usize) -> Result<Samples, Error> {
        if ranks == 0 || words.is_empty() || !words.len().is_multiple_of(ranks * Sample::WORDS) {
            return Err(Error::usage(format!("{} stamps cannot be those of {ranks} ranks", words.len())));
        }
        let calls = words.len() / ranks / Sample::WORDS;
        let sample = |call, rank| {
            let first = (rank * calls + call) * Sample::WORDS;
            Sample::from_words(&words[first..first + Sample::WORDS])
        };
        let call = |call| (0..ranks).map(|rank| sample(call, rank)).collect();
        Ok(Samples { by_call: (0..calls).map(call).collect() })
    }

    /// Last exit minus last arrival, in microseconds, call by call: what is left to do once everybody is there.
    pub fn tails_us(&self) -> Vec<f64> {
        self.by_call.iter().map(|call| micro(last_exit(call) - last_arrival(call))).collect()
    }

    /// Last exit minus first arrival, in microseconds, call by call.
    pub fn latencies_us(&self) -> Vec<f64> {
        let first = |call: &[Sample]| call.iter().map(|sample| sample.arrival_ns).min().expect("a call has ranks");
        self.by_call.iter().map(|call| micro(last_exit(call) - first(call))).collect()
    }

    /// From last exit to last exit, in microseconds: one value less than there are calls.
    pub fn steps_us(&self) -> Vec<f64> {
        self.by_call.windows(2).map(|pair| micro(last_exit(&pair[1]) - last_exit(&pair[0]))).collect()
    }

    /// The samples themselves, by call and rank.
    pub fn calls(&self) -> &[Vec<Sample>] {
        &self.by_call
    }

    /// Mean over the ranks from `first` on and over calls of a rank's own time in the call, in microseconds; NaN
    /// without such ranks.
    pub fn call_us_mean(&self, first: usize) -> f64 {
        self.mean(first, |sample| micro(sample.exit_ns - sample.arrival_ns))
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

fn last_arrival(call: &[Sample]) -> i64 {
    call.iter().map(|sample| sample.arrival_ns).max().expect("a call has ranks")
}

fn last_exit(call: &[Sample]) -> i64 {
    call.iter().map(|sample| sample.exit_ns).max().expect("a call has ranks")
}

fn micro(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// The smallest value that at least this part of all values does not exceed (nearest rank); NaN for no values.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two calls of two ranks.
    fn samples() -> Samples {
        let sample = |arrival_ns, exit_ns, cpu_ns, wrong| Sample { arrival_ns, exit_ns, cpu_ns, wrong };
        let rank_0 = [sample(1_000, 9_000, 500, 0), sample(20_000, 25_000, 750, 2)];
        let rank_1 = [sample(7_000, 8_000, 1_000, 0), sample(20_500, 20_250, 250, 1)];
        let words: Vec<i64> = rank_0.into_iter().chain(rank_1).flat_map(Sample::to_words).collect();
        Samples::from_words(&words, 2).expect("whole samples")
    }

    #[test]
    fn figures_follow_their_definitions() {
        let samples = samples();
        assert_eq!(samples.tails_us(), [2.0, 4.5]);
        assert_eq!(samples.latencies_us(), [8.0, 5.0]);
        assert_eq!(samples.steps_us(), [16.0]);
        assert_eq!(samples.call_us_mean(0), (8.0 + 5.0 + 1.0 - 0.25) / 4.0);
        assert_eq!(samples.call_us_mean(1), (1.0 - 0.25) / 2.0);
        assert_eq!(samples.cpu_us_mean(), 2.5 / 4.0);
        assert_eq!(samples.wrong(), 3);
        assert_eq!(samples.left_too_early(), 1);
    }

    #[test]
    fn incomplete_stamps_are_refused() {
        for (words, ranks) in [(0, 1), (7, 1), (12, 2), (8, 0)] {
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
}
