//! Performance guidelines: what the library's own figures owe each other, with no rival in sight.
//!
//! `auto` is near the best of its algorithms and not behind the static leader; less data is not slower; one call is not slower
//! than others that do its work together; a prepared call is not slower than a plain one. The idea is that of Träff, Gropp
//! and Thakur, *Self-consistent MPI performance guidelines*, IEEE TPDS 21(5), 2010; the limits are ours.
//!
//! A cell is over a limit when the medians are, and violates the guideline when the intervals that hold the medians with 95 %
//! confidence are too: what noise can explain fails nobody.

use super::stats::quantile;
use comfy_table::{CellAlignment, Table, presets};

/// The tail of one variant under one size, pattern and delay: the median, and its 95 % confidence interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub bytes: u64,
    pub pattern: &'static str,
    pub mif: f64,
    pub variant: String,
    pub tail_us: Bounds,
}

/// A median, and the interval around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Bounds {
    /// Of a sample, by its order: whatever the distribution, the interval misses the median once in twenty times.
    pub fn of(values: &[f64]) -> Bounds {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (n, half) = (sorted.len() as f64, 0.98 * (sorted.len() as f64).sqrt());
        let at = |place: f64| sorted.get(place.clamp(0.0, (n - 1.0).max(0.0)) as usize).copied().unwrap_or(f64::NAN);
        let (low, high) = (at((n / 2.0 - half).floor()), at((n / 2.0 + half).ceil()));
        Bounds { low, median: quantile(values, 0.5), high }
    }
}

/// One guideline: what may be how many times as long as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guideline {
    Best,
    StaticLeader,
    LessData,
    Composed,
    Persistent,
}

use Guideline::{Best, Composed, LessData, Persistent, StaticLeader};

impl Guideline {
    const ALL: [Guideline; 5] = [Best, StaticLeader, LessData, Composed, Persistent];

    fn limit(self) -> f64 {
        match self {
            Best | LessData | Composed => 1.10,
            StaticLeader | Persistent => 1.05,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Best => "auto <= 1.10 x the best single algorithm",
            StaticLeader => "auto <= 1.05 x static-leader",
            LessData => "auto <= 1.10 x auto of the next larger size",
            Composed => "auto <= 1.10 x other calls that do its work",
            Persistent => "persistent <= 1.05 x auto",
        }
    }
}

/// A comparison: `a` over `b`.
#[derive(Debug, Clone, PartialEq)]
struct Finding {
    guideline: Guideline,
    /// The cell of `a`.
    bytes: u64,
    pattern: &'static str,
    what: String,
    ratio: Bounds,
}

impl Finding {
    fn is_over(&self) -> bool {
        self.ratio.median > self.guideline.limit()
    }

    fn is_violation(&self) -> bool {
        self.is_over() && self.ratio.low > self.guideline.limit()
    }
}

/// The result of checking the guidelines.
pub struct GuidelineReport {
    findings: Vec<Finding>,
}

/// Holds the cells of one operation against every guideline they allow.
pub fn judge(cells: &[Cell]) -> GuidelineReport {
    let mut findings = Vec::new();
    for auto in cells.iter().filter(|cell| cell.variant == "auto") {
        let same = |cell: &&Cell| cell.bytes == auto.bytes && cell.pattern == auto.pattern && cell.mif == auto.mif;
        let mut compare = |guideline, a: &Cell, b: &Cell| {
            let what = match guideline {
                LessData => format!("{} of {} bytes / of {} bytes", a.variant, a.bytes, b.bytes),
                _ => format!("{} / {}", a.variant, b.variant),
            };
            let ratio = Bounds {
                low: a.tail_us.low / b.tail_us.high,
                median: a.tail_us.median / b.tail_us.median,
                high: a.tail_us.high / b.tail_us.low,
            };
            findings.push(Finding { guideline, bytes: a.bytes, pattern: a.pattern, what, ratio });
        };
        let rivals = || cells.iter().filter(same).filter(|cell| cell.variant != "auto");
        let single = |cell: &&Cell| earlybird::Algorithm::ALL.iter().any(|algorithm| algorithm.name() == cell.variant);
        if let Some(best) = rivals().filter(single).min_by(|a, b| a.tail_us.median.total_cmp(&b.tail_us.median)) {
            compare(Best, auto, best);
        }
        for rival in rivals() {
            match &*rival.variant {
                "static-leader" => compare(StaticLeader, auto, rival),
                "persistent" => compare(Persistent, rival, auto),
                variant if variant.contains('+') || variant.starts_with("as-") => compare(Composed, auto, rival),
                _ => {}
            }
        }
        let larger = cells.iter().filter(|cell| {
            cell.variant == auto.variant
                && cell.pattern == auto.pattern
                && cell.mif == auto.mif
                && cell.bytes > auto.bytes
        });
        if let Some(next) = larger.min_by_key(|cell| cell.bytes) {
            compare(LessData, auto, next);
        }
    }
    GuidelineReport { findings }
}

impl GuidelineReport {
    /// Cells that violate a guideline.
    pub fn violations(&self) -> usize {
        self.findings.iter().filter(|finding| finding.is_violation()).count()
    }

    /// The guidelines with what was compared under each, and every cell that is over a limit with its ratio and spread.
    pub fn to_text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(["guideline", "compared", "violated", "over, but within noise"]);
        for guideline in Guideline::ALL {
            let of = || self.findings.iter().filter(|finding| finding.guideline == guideline);
            let (violated, over) = (of().filter(|f| f.is_violation()).count(), of().filter(|f| f.is_over()).count());
            let counts = [of().count(), violated, over - violated].map(|count| count.to_string());
            table.add_row([&[guideline.words().to_owned()], &counts[..]].concat());
        }
        for column in 1..4 {
            table.column_mut(column).expect("four columns").set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("{table}\n");
        let mut over: Vec<&Finding> = self.findings.iter().filter(|finding| finding.is_over()).collect();
        over.sort_by(|a, b| {
            (b.is_violation(), b.ratio.median).partial_cmp(&(a.is_violation(), a.ratio.median)).expect("numbers")
        });
        for finding in over {
            let Finding { bytes, pattern, what, ratio, guideline } = finding;
            text += &format!(
                "  {} {:.2}x ({:.2} to {:.2})  {bytes:>9} bytes  {pattern:<10} {what}, limit {:.2}\n",
                if finding.is_violation() { "violated" } else { "noise   " },
                ratio.median,
                ratio.low,
                ratio.high,
                guideline.limit(),
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(bytes: u64, variant: &str, median: f64, spread: f64) -> Cell {
        let tail_us = Bounds { low: median * (1.0 - spread), median, high: median * (1.0 + spread) };
        Cell { bytes, pattern: "random", mif: 10.0, variant: variant.into(), tail_us }
    }

    fn good() -> Vec<Cell> {
        let variants = [
            ("auto", 1.0),
            ("flat", 0.95),
            ("static-leader", 2.0),
            ("reduce+broadcast", 1.5),
            ("persistent", 0.9),
            ("plan:ring", 0.1),
        ];
        let of = |bytes: u64| variants.map(|(variant, us)| cell(bytes, variant, us * (bytes as f64).sqrt(), 0.01));
        [8, 64, 1024].map(of).concat()
    }

    #[test]
    fn figures_as_they_should_be_pass() {
        let verdict = judge(&good());
        assert_eq!((verdict.violations(), verdict.findings.len()), (0, 3 * 4 + 2));
        assert!(!verdict.to_text().lines().any(|line| line.contains("limit")), "{}", verdict.to_text());
    }

    #[test]
    fn each_guideline_refuses_what_breaks_it() {
        for (variant, us, says) in [
            ("flat", 0.8, "auto / flat"),
            ("static-leader", 0.92, "auto / static-leader"),
            ("reduce+broadcast", 0.88, "auto / reduce+broadcast"),
            ("as-allreduce", 0.88, "auto / as-allreduce"),
            ("persistent", 1.1, "persistent / auto"),
            ("auto", 0.2, "auto of 8 bytes / of 64 bytes"),
        ] {
            let mut cells = good();
            cells.retain(|cell| (cell.bytes, &*cell.variant) != (64, variant));
            cells.push(cell(64, variant, us * 8.0, 0.01));
            let verdict = judge(&cells);
            let text = verdict.to_text();
            assert!(verdict.violations() >= 1, "{variant}: {text}");
            assert!(text.lines().any(|line| line.contains("violated") && line.contains(says)), "{variant}: {text}");
        }
    }

    #[test]
    fn what_noise_can_explain_is_told_and_fails_nobody() {
        let mut cells = good();
        cells.push(cell(64, "chain", 0.8 * 8.0, 0.3));
        let verdict = judge(&cells);
        assert_eq!(verdict.violations(), 0);
        assert!(verdict.to_text().contains("noise    1.25x (0.95 to 1.80)"), "{}", verdict.to_text());
    }

    #[test]
    fn cells_of_other_patterns_and_delays_are_not_compared() {
        let mut cells = good();
        cells.push(Cell { pattern: "balanced", ..cell(64, "flat", 0.1, 0.0) });
        cells.push(Cell { mif: 50.0, ..cell(64, "flat", 0.1, 0.0) });
        assert_eq!(judge(&cells).violations(), 0);
    }

    #[test]
    fn the_interval_of_a_median_is_that_of_its_order() {
        let values: Vec<f64> = (0..100).map(f64::from).rev().collect();
        assert_eq!(Bounds::of(&values), Bounds { low: 40.0, median: 49.0, high: 60.0 });
        assert_eq!(Bounds::of(&[3.0]), Bounds { low: 3.0, median: 3.0, high: 3.0 });
        assert!(Bounds::of(&[]).median.is_nan());
    }
}
