//! The algorithm of an operation by message size, as users write it: `leader:0-4Ki,plan:butterfly:r=1:64Ki-`.

use crate::units::parse_range;
use crate::{Algorithm, Choice, Collective, Error};
use std::str::FromStr;

/// Ranges of message sizes, each with an algorithm or plan; `auto` everywhere else.
///
/// Written as `ALGORITHM:FIRST-LAST`, comma separated, both ends included, sizes as in
/// [`parse_size`](crate::units::parse_size); without `LAST` the range has no end. The range is what follows the last colon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SizeTable {
    /// First byte count, last byte count, choice; ascending and disjoint.
    ranges: Vec<(u64, u64, Choice)>,
}

impl SizeTable {
    /// Parses the table of one operation, and refuses algorithms that do not carry it out.
    ///
    /// # Errors
    /// The errors of [`SizeTable::from_str`], and [`Error::Usage`] with the algorithms that carry out the operation.
    pub fn of(collective: Collective, text: &str) -> Result<SizeTable, Error> {
        let table: SizeTable = text.parse()?;
        let has = collective.traits().algorithms;
        let is_known = |choice: &Choice| match choice {
            Choice::Node(algorithm) => *algorithm == Algorithm::Auto || has.contains(algorithm),
            Choice::Plan(_) => matches!(collective, Collective::AllReduce | Collective::Barrier),
        };
        let Some(other) = table.choices().find(|choice| !is_known(choice)) else { return Ok(table) };
        let valid = Vec::from_iter(has.iter().map(|algorithm| algorithm.name())).join(", ");
        let name = collective.name();
        Err(Error::usage(format!("{name} is not carried out by {other}; use one of: auto, {valid}")))
    }

    /// The choice for a message of `bytes` bytes; `auto` outside all ranges.
    pub fn choice_for(&self, bytes: u64) -> Choice {
        let found = self.ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&bytes));
        found.map_or(Choice::default(), |(.., choice)| *choice)
    }

    /// The choices of all ranges.
    pub fn choices(&self) -> impl Iterator<Item = Choice> {
        self.ranges.iter().map(|(.., choice)| *choice)
    }
}

impl FromStr for SizeTable {
    type Err = Error;

    /// An algorithm alone is for all sizes. [`Error::Usage`] for an entry of another form, an unknown algorithm, a reversed range, or an overlap.
    fn from_str(given: &str) -> Result<Self, Error> {
        let mut ranges = Vec::new();
        for entry in given.split(',') {
            let parts = entry.rsplit_once(':').and_then(|(name, range)| Some((name, range.split_once('-')?)));
            let (choice, (first, last)): (Choice, _) = match (entry.parse(), parts) {
                (Ok(choice), _) => (choice, (0, u64::MAX)),
                (Err(_), Some((name, range))) => (name.parse()?, parse_range(entry, range)?),
                (Err(unknown), None) if !entry.is_empty() && !entry.contains(':') => return Err(unknown),
                (Err(_), None) => {
                    return Err(Error::usage(format!(
                        "{entry:?} is not of the form ALGORITHM, ALGORITHM:FIRST-LAST or ALGORITHM:FIRST- (without end), such as leader:0-4Ki"
                    )));
                }
            };
            ranges.push((first, last, choice, entry));
        }
        ranges.sort_by_key(|range| range.0);
        for pair in ranges.windows(2) {
            if pair[1].0 <= pair[0].1 {
                return Err(Error::usage(format!(
                    "{:?} and {:?} both cover {} bytes; the ranges include both their ends and must not overlap",
                    pair[0].3, pair[1].3, pair[1].0
                )));
            }
        }
        Ok(SizeTable { ranges: ranges.into_iter().map(|(first, last, choice, _)| (first, last, choice)).collect() })
    }
}

/// The algorithm by message size, for each collective: bytes of a block, 0 for a barrier. `auto` for those without a table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tables(Vec<(Collective, SizeTable)>);

impl Tables {
    /// The same tables, with this one for `collective`.
    pub fn with(mut self, collective: Collective, table: SizeTable) -> Self {
        self.0.retain(|(other, _)| *other != collective);
        self.0.push((collective, table));
        self
    }

    /// The choice for a message of `bytes` bytes of `collective`.
    pub fn choice_for(&self, collective: Collective, bytes: usize) -> Choice {
        let table = self.0.iter().find(|(of, _)| *of == collective);
        table.map_or(Choice::default(), |(_, table)| table.choice_for(bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;

    #[test]
    fn ranges_include_both_ends_and_holes_are_auto() {
        let table: SizeTable = "chain:64Ki-,leader:1-4Ki,flat:0-0".parse().unwrap();
        for (bytes, algorithm) in [
            (0, Algorithm::Flat),
            (1, Algorithm::Leader),
            (4096, Algorithm::Leader),
            (4097, Algorithm::Auto),
            (65535, Algorithm::Auto),
            (65536, Algorithm::Chain),
            (u64::MAX, Algorithm::Chain),
        ] {
            assert_eq!(table.choice_for(bytes), algorithm, "{bytes}");
        }
        assert_eq!(SizeTable::default().choice_for(1), Algorithm::Auto);
        let plans: SizeTable = "plan:ring:1Mi-,plan:butterfly:r=1:group=2x2:64Ki-128Ki".parse().unwrap();
        assert_eq!(plans.choice_for(1 << 20), Choice::Plan("ring"));
        assert_eq!(plans.choice_for(70_000), Choice::Plan("butterfly:r=1:group=2x2"));
    }

    #[test]
    fn an_algorithm_alone_is_for_all_sizes() {
        for name in ["flat", "auto", "plan:ring", "plan:pre-reduced-ring", "plan:butterfly:r=1:group=2x2"] {
            let (table, choice): (SizeTable, Choice) = (name.parse().unwrap(), name.parse().unwrap());
            assert!([0, 1, 4096, u64::MAX].into_iter().all(|bytes| table.choice_for(bytes) == choice), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (given, says) in [
            ("", "form"),
            ("laeder", "leader"),
            ("plan:ring:r=1", "form"),
            ("leader,chain:4Ki-", "both cover 4096 bytes"),
            ("leader:4Ki", "form"),
            ("leader:0-1,", "form"),
            ("leader:0-1;chain:2-", "not known"),
            ("fast:0-1", "static-leader-early"),
            (" leader:0-1", "not known"),
            ("plan:0-1", "not known"),
            ("plan:ring:r=1:0-1", "it uses: order"),
            ("leader:-1", "size"),
            ("leader:0-1KB", "size"),
            ("leader:0-inf", "size"),
            ("leader:5-4", "ends before"),
            ("leader:0-4Ki,chain:4Ki-", "both cover 4096 bytes"),
            ("chain:10-,leader:20-30", "both cover 20 bytes"),
            ("chain:0-,leader:0-", "both cover 0 bytes"),
        ] {
            let message = usage(given.parse::<SizeTable>());
            assert!(message.contains(says), "{given}: {message}");
        }
    }
}
