//! From measured cells to a table for `EARLYBIRD_TUNE`: what beats `auto`, where it does.

use super::check::Cell;
use earlybird::{Algorithm, Choice};

/// A size goes to the variant that is faster than `auto` by this much beyond the noise under some pattern ...
const FASTER: f64 = 0.95;
/// ... and under none slower by more than this.
const SLOWER: f64 = 1.02;

/// Returns the size table that follows from the `cells` of one operation; nothing where `auto` is as good as anything.
pub fn table(cells: &[Cell]) -> Option<String> {
    let mut sizes: Vec<u64> = cells.iter().map(|cell| cell.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut ranges: Vec<(u64, Option<u64>, String)> = Vec::new();
    for (at, &bytes) in sizes.iter().enumerate() {
        let Some(variant) = best(&cells.iter().filter(|cell| cell.bytes == bytes).collect::<Vec<_>>()) else {
            continue;
        };
        let first = if at == 0 { 0 } else { bytes };
        let last = sizes.get(at + 1).map(|next| next - 1);
        match ranges.last_mut() {
            Some((_, end, before)) if *before == variant && *end == Some(first.wrapping_sub(1)) => *end = last,
            _ => ranges.push((first, last, variant)),
        }
    }
    let text = |(first, last, variant): &(u64, Option<u64>, String)| match last {
        Some(last) => format!("{variant}:{first}-{last}"),
        None => format!("{variant}:{first}-"),
    };
    (!ranges.is_empty()).then(|| ranges.iter().map(text).collect::<Vec<_>>().join(","))
}

/// The variant of one size that wins somewhere and loses nowhere; of several the one with the shortest tails over all.
fn best(cells: &[&Cell]) -> Option<String> {
    let is_choice = |cell: &&&Cell| cell.variant.parse::<Choice>().is_ok_and(|choice| choice != Algorithm::Auto);
    let mut variants: Vec<&str> = cells.iter().filter(is_choice).map(|cell| &*cell.variant).collect();
    variants.dedup();
    let mut found: Option<(f64, &str)> = None;
    for variant in variants {
        let (mut product, mut wins, mut loses) = (1.0, false, false);
        for cell in cells.iter().filter(|cell| cell.variant == variant) {
            let same =
                |other: &&&Cell| other.variant == "auto" && other.pattern == cell.pattern && other.mif == cell.mif;
            let Some(auto) = cells.iter().find(same) else { continue };
            let ratio = cell.tail_us.median / auto.tail_us.median;
            product *= ratio;
            wins |= cell.tail_us.high < auto.tail_us.low * FASTER;
            loses |= ratio > SLOWER;
        }
        if wins && !loses && found.is_none_or(|(best, _)| product < best) {
            found = Some((product, variant));
        }
    }
    found.map(|(_, variant)| variant.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::check::Bounds;
    use super::*;

    fn cell(bytes: u64, pattern: &'static str, variant: &str, median: f64) -> Cell {
        let tail_us = Bounds { low: median * 0.99, median, high: median * 1.01 };
        Cell { bytes, pattern, mif: 10.0, variant: variant.into(), tail_us }
    }

    fn cells(of: impl Fn(u64, &'static str) -> [(&'static str, f64); 3]) -> Vec<Cell> {
        let all = [8, 1024, 65536].into_iter().flat_map(|bytes| ["balanced", "random"].map(|pattern| (bytes, pattern)));
        all.flat_map(|(bytes, pattern)| of(bytes, pattern).map(|(variant, us)| cell(bytes, pattern, variant, us)))
            .collect()
    }

    #[test]
    fn where_auto_is_as_good_nothing_is_listed() {
        assert_eq!(table(&cells(|_, _| [("auto", 1.0), ("flat", 0.97), ("plan:ring", 3.0)])), None);
    }

    #[test]
    fn winners_have_their_sizes() {
        let of = |bytes, _| match bytes {
            8 => [("auto", 1.0), ("flat", 0.5), ("plan:ring", 3.0)],
            _ => [("auto", 1.0), ("flat", 0.9), ("plan:butterfly:r=1", 0.5)],
        };
        assert_eq!(table(&cells(of)).as_deref(), Some("flat:0-1023,plan:butterfly:r=1:1024-"));
    }

    #[test]
    fn who_loses_under_one_pattern_is_not_listed() {
        let of = |_, pattern| [("auto", 1.0), ("flat", if pattern == "random" { 0.2 } else { 1.2 }), ("mpi", 0.1)];
        assert_eq!(table(&cells(of)), None);
    }
}
