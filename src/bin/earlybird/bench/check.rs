//! Performance guidelines: comparisons among the library's own times, without another library.
//!
//! `auto` is near the best of its algorithms and not behind the static leader; less data is not slower; one call is not slower
//! than others that do its work together; a prepared call is not slower than a plain one. The idea is that of Träff, Gropp
//! and Thakur, *Self-consistent MPI performance guidelines*, IEEE TPDS 21(5), 2010; the limits are ours.
//!
//! A cell is over a limit when the medians are, and violates the guideline when the intervals that hold the medians with 95 %
//! confidence are too: a difference that noise can explain is no failure.

use super::row::Row;
use super::stats::Bounds;
use crate::table::table;
use strum::VariantArray;

/// A guideline: the factor by which one time may exceed another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, strum::Display)]
enum Guideline {
    #[strum(to_string = "auto <= 1.10 x the best single algorithm")]
    Best,
    #[strum(to_string = "auto <= 1.05 x static-leader")]
    StaticLeader,
    #[strum(to_string = "auto <= 1.10 x auto of the next larger size")]
    LessData,
    #[strum(to_string = "auto <= 1.10 x other calls that do its work")]
    Composed,
    #[strum(to_string = "persistent <= 1.05 x auto")]
    Persistent,
}

use Guideline::{Best, Composed, LessData, Persistent, StaticLeader};

impl Guideline {
    fn limit(self) -> f64 {
        match self {
            Best | LessData | Composed => 1.10,
            StaticLeader | Persistent => 1.05,
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

/// Holds the rows of one operation against every guideline they allow.
pub fn judge(rows: &[Row]) -> GuidelineReport {
    let mut findings = Vec::new();
    let mut compare = |guideline, a: &Row, b: &Row| {
        let what = match guideline {
            LessData => format!("{} of {} bytes / of {} bytes", a.algorithm, a.bytes, b.bytes),
            _ => format!("{} / {}", a.algorithm, b.algorithm),
        };
        let ratio = Bounds {
            low: a.compared_us.low / b.compared_us.high,
            median: a.compared_us.median / b.compared_us.median,
            high: a.compared_us.high / b.compared_us.low,
        };
        findings.push(Finding { guideline, bytes: a.bytes, pattern: a.pattern, what, ratio });
    };
    for auto in rows.iter().filter(|row| row.algorithm == "auto") {
        let rivals = || rows.iter().filter(|row| row.is_comparable_to(auto) && row.algorithm != "auto");
        let single = |row: &&Row| row.algorithm.parse::<earlybird::Algorithm>().is_ok();
        if let Some(best) = rivals().filter(single).min_by(|a, b| a.compared_us.median.total_cmp(&b.compared_us.median))
        {
            compare(Best, auto, best);
        }
        for rival in rivals() {
            match &*rival.algorithm {
                "static-leader" => compare(StaticLeader, auto, rival),
                "persistent" => compare(Persistent, rival, auto),
                name if name == "started" || name.contains('+') || name.starts_with("as-") => {
                    compare(Composed, auto, rival)
                }
                _ => {}
            }
        }
        let larger = rows.iter().filter(|row| {
            row.algorithm == "auto" && (row.pattern, row.mif) == (auto.pattern, auto.mif) && row.bytes > auto.bytes
        });
        if let Some(next) = larger.min_by_key(|row| row.bytes) {
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
        let rows = Guideline::VARIANTS.iter().map(|guideline| {
            let of = || self.findings.iter().filter(|finding| finding.guideline == *guideline);
            let (violated, over) = (of().filter(|f| f.is_violation()).count(), of().filter(|f| f.is_over()).count());
            let counts = [of().count(), violated, over - violated].map(|count| count.to_string());
            [&[guideline.to_string()], &counts[..]].concat()
        });
        let header = ["guideline", "compared", "violated", "over, but within noise"];
        let mut text = table(&header, rows.collect()) + "\n";
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
    use super::super::row::tests::row;
    use super::*;

    fn cell(bytes: u64, algorithm: &'static str, median: f64, spread: f64) -> Row {
        let compared_us = Bounds { low: median * (1.0 - spread), median, high: median * (1.0 + spread) };
        Row { compared_us, ..row(bytes, algorithm, median) }
    }

    fn good() -> Vec<Row> {
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
            ("started", 0.88, "auto / started"),
            ("persistent", 1.1, "persistent / auto"),
            ("auto", 0.2, "auto of 8 bytes / of 64 bytes"),
        ] {
            let mut cells = good();
            cells.retain(|cell| (cell.bytes, &*cell.algorithm) != (64, variant));
            cells.push(cell(64, variant, us * 8.0, 0.01));
            let verdict = judge(&cells);
            let text = verdict.to_text();
            assert!(verdict.violations() >= 1, "{variant}: {text}");
            assert!(text.lines().any(|line| line.contains("violated") && line.contains(says)), "{variant}: {text}");
        }
    }

    #[test]
    fn a_difference_within_noise_is_shown_and_passes() {
        let mut cells = good();
        cells.push(cell(64, "chain", 0.8 * 8.0, 0.3));
        let verdict = judge(&cells);
        assert_eq!(verdict.violations(), 0);
        assert!(verdict.to_text().contains("noise    1.25x (0.95 to 1.80)"), "{}", verdict.to_text());
    }

    #[test]
    fn cells_of_other_patterns_and_delays_are_not_compared() {
        let mut cells = good();
        cells.push(Row { pattern: "balanced", ..cell(64, "flat", 0.1, 0.0) });
        cells.push(Row { mif: Some(50.0), ..cell(64, "flat", 0.1, 0.0) });
        assert_eq!(judge(&cells).violations(), 0);
    }
}
