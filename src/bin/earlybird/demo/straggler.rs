//! One rank is late: both algorithms' tails, and whether they differ.

use crate::bench::{Bounds, Cell, Measured, Sample, Verdict, quantile};
use crate::chart::in_bytes;
use crate::table::table;
use earlybird::Error;

/// Both algorithms with vectors of one size.
pub struct Comparison {
    pub bytes: u64,
    /// The static leader.
    pub classic: MeasuredAlgorithm,
    /// The library's own choice.
    pub auto: MeasuredAlgorithm,
    /// The tail of `auto` over that of the static leader in the same round.
    pub ratio: Bounds,
    /// Elements that were wrong.
    pub wrong: u64,
}

/// The calls of one algorithm.
pub struct MeasuredAlgorithm {
    /// The algorithm, and what `auto` chose.
    pub name: String,
    pub tails_us: Vec<f64>,
    /// Median time from the first arrival to the last exit.
    pub step_us: f64,
    /// The samples by call and rank.
    pub calls: Vec<Vec<Sample>>,
}

impl MeasuredAlgorithm {
    fn of(measured: &Measured) -> MeasuredAlgorithm {
        let (variant, ran) = (measured.variant.to_string(), &measured.chosen);
        MeasuredAlgorithm {
            name: if variant == *ran { variant } else { format!("{variant} ({ran})") },
            tails_us: measured.samples.tails_us(),
            step_us: quantile(&measured.samples.latencies_us(), 0.5),
            calls: measured.samples.calls().to_vec(),
        }
    }
}

impl Comparison {
    /// The comparison of the two variants of a cell, the static leader first.
    ///
    /// # Errors
    /// [`Error::Usage`] if the cell does not have two.
    pub fn of(cell: Cell) -> Result<Comparison, Error> {
        let [classic, auto] = &cell.measured[..] else {
            return Err(Error::usage("two algorithms are compared"));
        };
        let wrong = classic.samples.wrong() + auto.samples.wrong();
        let (classic, auto) = (MeasuredAlgorithm::of(classic), MeasuredAlgorithm::of(auto));
        let ratio = Bounds::of_ratios(&auto.tails_us, &classic.tails_us);
        Ok(Comparison { bytes: cell.bytes, classic, auto, ratio, wrong })
    }

    /// The comparison as a sentence.
    pub fn verdict(&self) -> String {
        let Bounds { low, median, high } = self.ratio;
        let verdict = Verdict::of(self.ratio);
        let [classic_us, auto_us] = [&self.classic, &self.auto].map(|algorithm| quantile(&algorithm.tails_us, 0.5));
        let (saved_us, step_us) = (classic_us - auto_us, self.classic.step_us);
        let share = match verdict {
            Verdict::NoDifference => String::new(),
            _ => {
                format!("; {:+.1} µs of a step of {:.0} µs, {:+.1} %", -saved_us, step_us, -100.0 * saved_us / step_us)
            }
        };
        let size = in_bytes(self.bytes as f64);
        format!("{size}: auto / static-leader {median:.2} ({low:.2} to {high:.2}), {verdict}{share}")
    }
}

/// The table of tails and the verdicts.
pub fn text(comparisons: &[Comparison]) -> String {
    let rows = comparisons.iter().flat_map(|comparison| {
        [&comparison.classic, &comparison.auto].map(|MeasuredAlgorithm { name, tails_us, .. }| {
            let Bounds { low, median, high } = Bounds::of(tails_us);
            let quartiles = [0.25, 0.75].map(|part| format!("{:.1}", quantile(tails_us, part))).join(" to ");
            let interval = format!("{low:.1} to {high:.1}");
            vec![in_bytes(comparison.bytes as f64), name.clone(), format!("{median:.1}"), quartiles, interval]
        })
    });
    let header = ["bytes", "algorithm", "tail µs, median", "quartiles", "95 % interval"];
    let verdicts: String = comparisons.iter().map(|comparison| format!("{}\n", comparison.verdict())).collect();
    let wrong: u64 = comparisons.iter().map(|comparison| comparison.wrong).sum();
    let wrong = if wrong > 0 { format!("{wrong} elements of the results were wrong\n") } else { String::new() };
    format!(
        "{}\n\ntail = last exit - last arrival, step = last exit - first arrival\n\n{verdicts}{wrong}",
        table(&header, rows.collect())
    )
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Calls of three ranks of which the last is 5 ms late.
    fn algorithm(name: &str, tails_us: impl Iterator<Item = f64>) -> MeasuredAlgorithm {
        let tails_us: Vec<f64> = tails_us.collect();
        let sample = |arrival_ns, exit_ns| Sample { arrival_ns, exit_ns, cpu_ns: 0, wrong: 0, computed_ns: 0 };
        let call = |us: &f64| {
            vec![sample(0, 5_000_000 + (us * 1e3) as i64), sample(0, 5_008_000), sample(5_000_000, 5_010_000)]
        };
        MeasuredAlgorithm { name: name.into(), step_us: 5040.0, calls: tails_us.iter().map(call).collect(), tails_us }
    }

    /// A comparison in which `auto` takes `ratio` of the static leader's time but for every fifth call, in which it takes as much more.
    pub fn comparison(ratio: f64) -> Comparison {
        let classic = algorithm("static-leader", (0..30).map(|call| 40.0 + f64::from(call)));
        let part = |call: u32| if call.is_multiple_of(5) { 1.0 / ratio } else { ratio };
        let auto = algorithm("auto (chain)", (0..30).map(|call| (40.0 + f64::from(call)) * part(call)));
        let ratio = Bounds::of_ratios(&auto.tails_us, &classic.tails_us);
        Comparison { bytes: 1 << 20, classic, auto, ratio, wrong: 0 }
    }

    #[test]
    fn the_verdict_is_that_of_the_interval() {
        assert!(comparison(0.5).verdict().contains("1Mi: auto / static-leader 0.50"), "{}", comparison(0.5).verdict());
        let alternating = |call: u32| if call.is_multiple_of(2) { 0.9 } else { 1.2 };
        let classic = algorithm("static-leader", (0..30).map(|_| 40.0));
        let auto = algorithm("auto", (0..30).map(|call| 40.0 * alternating(call)));
        let ratio = Bounds::of_ratios(&auto.tails_us, &classic.tails_us);
        let noise = Comparison { bytes: 8, classic, auto, ratio, wrong: 0 };
        assert!(noise.verdict().ends_with("0.90 (0.90 to 1.20), no difference here"), "{}", noise.verdict());
    }

    #[test]
    fn the_sentence_names_the_share_of_a_step() {
        let text = text(&[comparison(0.5)]);
        assert!(text.contains("faster; ") && text.contains("µs of a step of 5040 µs, -0."), "{text}");
    }
}
