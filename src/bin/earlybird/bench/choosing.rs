//! The table for `EARLYBIRD_TUNE` from measured rows: the algorithms that beat `auto`, and the sizes at which they do.

use super::row::Row;
use earlybird::{Algorithm, Choice};
use itertools::Itertools;

/// A size goes to the variant that is faster than `auto` by this much beyond the noise under some pattern ...
const FASTER: f64 = 0.95;
/// ... and under none slower by more than this.
const SLOWER: f64 = 1.02;

/// Returns the size table that follows from the `rows` of one operation; nothing where `auto` is as good as anything.
pub fn size_table(rows: &[Row]) -> Option<String> {
    let sizes: Vec<u64> = rows.iter().map(|row| row.bytes).sorted().dedup().collect();
    let winners = sizes.iter().map(|bytes| best(&rows.iter().filter(|row| row.bytes == *bytes).collect_vec()));
    let mut first = 0;
    let mut ranges = Vec::new();
    for (count, winner) in winners.dedup_with_count() {
        let last = sizes.get(first + count).map_or(String::new(), |next| (next - 1).to_string());
        let from = if first == 0 { 0 } else { sizes[first] };
        ranges.extend(winner.map(|name| format!("{name}:{from}-{last}")));
        first += count;
    }
    (!ranges.is_empty()).then(|| ranges.join(","))
}

/// The algorithm of one size that wins somewhere and loses nowhere; of several the one with the shortest tails over all.
fn best<'a>(rows: &[&'a Row]) -> Option<&'a str> {
    let is_choice = |name: &&str| name.parse::<Choice>().is_ok_and(|choice| choice != Algorithm::Auto);
    let mut found: Option<(f64, &str)> = None;
    for name in rows.iter().map(|row| &*row.algorithm).unique().filter(is_choice) {
        let (mut product, mut wins, mut loses) = (1.0, false, false);
        for row in rows.iter().filter(|row| row.algorithm == name) {
            let is_rival = |other: &&&Row| other.algorithm == "auto" && other.is_comparable_to(row);
            let Some(auto) = rows.iter().find(is_rival) else { continue };
            let ratio = row.tail_us.median / auto.tail_us.median;
            product *= ratio;
            wins |= row.tail_us.high < auto.tail_us.low * FASTER;
            loses |= ratio > SLOWER;
        }
        if wins && !loses && found.is_none_or(|(best, _)| product < best) {
            found = Some((product, name));
        }
    }
    found.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    fn rows(of: impl Fn(u64, &'static str) -> [(&'static str, f64); 3]) -> Vec<Row> {
        let all = [8, 1024, 65536].into_iter().flat_map(|bytes| ["balanced", "random"].map(|pattern| (bytes, pattern)));
        all.flat_map(|(bytes, pattern)| of(bytes, pattern).map(|(name, us)| Row { pattern, ..row(bytes, name, us) }))
            .collect()
    }

    #[test]
    fn where_auto_is_as_good_nothing_is_listed() {
        assert_eq!(size_table(&rows(|_, _| [("auto", 1.0), ("flat", 0.97), ("plan:ring", 3.0)])), None);
    }

    #[test]
    fn winners_have_their_sizes() {
        let of = |bytes, _| match bytes {
            8 => [("auto", 1.0), ("flat", 0.5), ("plan:ring", 3.0)],
            _ => [("auto", 1.0), ("flat", 0.9), ("plan:butterfly:r=1", 0.5)],
        };
        assert_eq!(size_table(&rows(of)).as_deref(), Some("flat:0-1023,plan:butterfly:r=1:1024-"));
    }

    #[test]
    fn who_loses_under_one_pattern_is_not_listed() {
        let of = |_, pattern| [("auto", 1.0), ("flat", if pattern == "random" { 0.2 } else { 1.2 }), ("mpi", 0.1)];
        assert_eq!(size_table(&rows(of)), None);
    }
}
