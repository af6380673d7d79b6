//! The file of `earlybird tune`: the measured best algorithms on one node, by ranks and message size, and the measured costs of
//! messages between nodes.
//!
//! A line is `RANKS OPERATION TABLE`, such as `4 allreduce chain:16Ki-64Ki,plan:ring:1Mi-`, with tables as the
//! environment's, or one of those of `costs.rs`; what stands behind `#` is a comment. A file with an error is refused
//! as a whole.

use crate::costs::{self, Costs};
use crate::size_table::{SizeTable, Tables};
use crate::{Collective, Error};
use std::str::FromStr;

/// Measured tables and costs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    lines: Vec<(usize, Collective, SizeTable)>,
    costs: Option<Costs>,
}

impl Tuning {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Usage`] if it cannot be read, and as [`Tuning::from_str`].
    pub fn read(path: &str) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|error| Error::usage(format!("cannot read {path:?}: {error}")))?;
        text.parse().map_err(|error| match error {
            Error::Usage { message } => Error::usage(format!("{path}: {message}")),
            other => other,
        })
    }

    /// The costs of messages between nodes, if measured.
    pub fn costs(&self) -> Option<&Costs> {
        self.costs.as_ref()
    }

    /// The tables for a communicator of `ranks` ranks; empty where nothing was measured for so many.
    pub(crate) fn tables(&self, ranks: usize) -> Tables {
        let mut tables = Tables::default();
        for (of, collective, table) in &self.lines {
            if *of == ranks
                && let Some(place) = tables.of_mut(*collective)
            {
                place.clone_from(table);
            }
        }
        tables
    }
}

impl FromStr for Tuning {
    type Err = Error;

    /// [`Error::Usage`] with the line, for what is no number of ranks, operation or table of it, and for a second table of one
    /// operation and number of ranks; and for costs between nodes that are not whole.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut lines: Vec<(usize, Collective, SizeTable)> = Vec::new();
        let mut between = costs::Lines::default();
        for (number, line) in text.lines().enumerate() {
            let refuse = |why: String| Error::usage(format!("line {}: {why}", number + 1));
            let at_line = |error: Error| match error {
                Error::Usage { message } => refuse(message),
                other => other,
            };
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let &[ranks, operation, table] = &words[..] else {
                match words.is_empty() {
                    true => continue,
                    false => return Err(refuse(format!("{line:?} is not of the form RANKS OPERATION TABLE"))),
                }
            };
            if ranks == costs::WORD {
                between.take(operation, table).map_err(at_line)?;
                continue;
            }
            let count = ranks.parse().ok().filter(|ranks| *ranks >= 1);
            let count: usize = count.ok_or_else(|| refuse(format!("{ranks:?} is no number of ranks")))?;
            let Some(collective) = Tables::OPERATIONS.into_iter().find(|known| known.name() == operation) else {
                let known = Tables::OPERATIONS.map(Collective::name).join(", ");
                return Err(refuse(format!("{operation:?} is no operation with a table; there are: {known}")));
            };
            let table = SizeTable::of(collective, table).map_err(at_line)?;
            if lines.iter().any(|(of, other, _)| (*of, *other) == (count, collective)) {
                return Err(refuse(format!("there is another table of {operation} for {count} ranks")));
            }
            lines.push((count, collective, table));
        }
        Ok(Tuning { lines, costs: between.done()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;
    use crate::{Algorithm, Choice};

    #[test]
    fn tables_are_those_of_the_number_of_ranks() {
        let text = "# measured\n4 allreduce chain:16Ki-64Ki,plan:ring:1Mi- # large\n\n8 allreduce flat:0-\n4 barrier flat:0-\n";
        let tuning: Tuning = text.parse().unwrap();
        let four = tuning.tables(4);
        assert_eq!(four.allreduce.choice_for(20_000), Algorithm::Chain);
        assert_eq!(four.allreduce.choice_for(1 << 20), Choice::Plan("ring"));
        assert_eq!(
            (four.allreduce.choice_for(8), four.barrier.choice_for(0)),
            (Choice::default(), Algorithm::Flat.into())
        );
        assert_eq!(tuning.tables(8).allreduce.choice_for(8), Algorithm::Flat);
        assert_eq!(tuning.tables(5), Tables::default());
    }

    #[test]
    fn a_file_that_cannot_be_meant_is_refused_with_its_line() {
        for (text, says) in [
            ("4 allreduce", "line 1: \"4 allreduce\" is not of the form"),
            ("\nmany allreduce flat:0-", "line 2: \"many\""),
            ("0 allreduce flat:0-", "no number of ranks"),
            ("4 scan flat:0-", "allreduce, reduce, broadcast"),
            ("4 allreduce fast:0-", "static-leader"),
            ("4 reduce leader:0-", "reduce is not carried out by leader"),
            ("4 reduce plan:binomial:0-", "not carried out by plan:binomial"),
            ("4 allreduce flat:0-\n4 allreduce chain:0-", "line 2: there is another table"),
            ("between messages 8:1e-5,4Ki:2e-5", "all or none"),
            ("between port 1e-6\nbetween port 1e-6", "line 2: there is another between port"),
            ("between messages 8=1e-5", "BYTES:SECONDS"),
            ("between messages 8:-1", "no time in seconds"),
            ("between alpha 1e-5", "messages, port or reduced"),
            ("between messages 8:1e-5\nbetween port 0\nbetween reduced 0", "two points"),
        ] {
            let message = usage(text.parse::<Tuning>());
            assert!(message.contains(says), "{text}: {message}");
        }
        assert!(usage(Tuning::read("/no/such/file")).contains("/no/such/file"));
    }
}
