//! The lines for `EARLYBIRD_TUNE` from measured rows: the algorithms that beat `auto` with the sizes at which they do, and the tails
//! of all.

use super::row::Row;
use earlybird::pattern::Pattern;
use earlybird::{Algorithm, Choice};
use itertools::Itertools;

/// A size goes to the variant that is faster than `auto` by this much beyond the noise under some pattern ...
const FASTER: f64 = 0.95;
/// ... and under none slower by more than this.
const SLOWER: f64 = 1.02;

/// Returns the lines that follow from the `rows` of one operation.
pub fn tuning_lines(rows: &[Row]) -> String {
    let Some(Row { ranks, op, .. }) = rows.first() else { return String::new() };
    let mut lines = match size_table(rows) {
        Some(table) => format!("ranks.{ranks}.{op} = \"{table}\"\n"),
        None => format!("# ranks.{ranks}.{op}: auto everywhere\n"),
    };
    let balanced = rows.iter().filter(|row| row.pattern == Pattern::Balanced.name() && is_choice(&row.algorithm));
    for (name, rows) in balanced.into_group_map_by(|row| &*row.algorithm).into_iter().sorted_by_key(|(name, _)| *name) {
        let points = rows.iter().sorted_by_key(|row| row.bytes);
        let points = points.map(|row| format!("[{}, {:.2e}]", row.bytes, row.tail_us_median / 1e6)).join(", ");
        lines += &format!("tails.{ranks}.{op}.\"{name}\" = [{points}]\n");
    }
    lines
}

/// Returns whether a row is that of an algorithm or a plan, and not of `auto`, another library or another form of call.
fn is_choice(name: &str) -> bool {
    name.parse::<Choice>().is_ok_and(|choice| choice != Algorithm::Auto)
}

/// Returns the size table that follows from the `rows` of one operation; nothing where `auto` is as good as anything.
fn size_table(rows: &[Row]) -> Option<String> {
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
    let mut found: Option<(f64, &str)> = None;
    for name in rows.iter().map(|row| &*row.algorithm).unique().filter(|name| is_choice(name)) {
        let (mut product, mut wins, mut loses) = (1.0, false, false);
        for row in rows.iter().filter(|row| row.algorithm == name) {
            let is_rival = |other: &&&Row| other.algorithm == "auto" && other.is_comparable_to(row);
            let Some(auto) = rows.iter().find(is_rival) else { continue };
            let ratio = row.compared_us.median / auto.compared_us.median;
            product *= ratio;
            wins |= row.compared_us.high < auto.compared_us.low * FASTER;
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
    fn the_tails_of_balanced_calls_are_lines_that_are_read_again() {
        let mut rows = rows(|bytes, _| [("auto", 1.0), ("flat", 2.0 + bytes as f64), ("plan:ring", 3.0)]);
        rows.iter_mut().filter(|row| row.pattern == "random").for_each(|row| row.tail_us_median = 77.0);
        let lines = tuning_lines(&rows);
        assert!(lines.starts_with("# ranks.2.allreduce: auto everywhere\n"), "{lines}");
        assert!(
            lines.contains("tails.2.allreduce.\"flat\" = [[8, 1.00e-5], [1024, 1.03e-3], [65536, 6.55e-2]]\n"),
            "{lines}"
        );
        assert!(
            lines.contains("tails.2.allreduce.\"plan:ring\" = [[8, 3.00e-6]") && !lines.contains("auto\""),
            "{lines}"
        );
        lines.parse::<earlybird::Tuning>().unwrap();
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
