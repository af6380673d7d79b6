//! The file of `earlybird tune`: the measured best algorithms on one node, by ranks and message size, with the tails of all that were
//! measured, and the measured costs of messages between nodes.
//!
//! ```toml
//! ranks.4.allreduce = "chain:16Ki-64Ki,plan:ring:1Mi-"                    # tables as the environment's
//! tails.4.allreduce.flat = [[8, 9.1e-7], [4096, 3.2e-6]]                  # bytes, seconds from the last arrival to the last exit
//! between.messages = [[8, 3.1e-5], [4096, 4.0e-5], [1048576, 1.1e-3]]     # bytes, seconds of a round in which every node sends to one other
//! between.port = 1.2e-6                                                   # seconds for every further node that one sends to in a round
//! between.reduced = 1.1e-10                                               # seconds for every byte reduced
//! ```
//!
//! The lines of several files may stand in one. A file with an error is refused as a whole.

use crate::costs::Costs;
use crate::size_table::{SizeTable, Tables};
use crate::tails::{MeasuredTails, Tails};
use crate::units::located;
use crate::{Collective, Error};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::str::FromStr;
use toml::Spanned;

/// Measured tables and costs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    tables: BTreeMap<usize, Tables>,
    tails: Tails,
    costs: Option<Costs>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TuningFile {
    /// Tables by number of ranks and operation.
    #[serde(default)]
    ranks: BTreeMap<String, BTreeMap<String, Spanned<String>>>,
    /// Measured tails by number of ranks, operation and algorithm.
    #[serde(default)]
    tails: BTreeMap<String, BTreeMap<String, BTreeMap<String, MeasuredTails>>>,
    between: Option<Costs>,
}

impl Tuning {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Usage`] if it cannot be read, and as [`Tuning::from_str`].
    pub fn read(path: &str) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|error| Error::usage(format!("cannot read {path:?}: {error}")))?;
        text.parse().map_err(|error| located(path, error))
    }

    /// The costs of messages between nodes, if measured.
    pub fn costs(&self) -> Option<&Costs> {
        self.costs.as_ref()
    }

    /// The measured tails on one node.
    pub(crate) fn tails(&self) -> &Tails {
        &self.tails
    }

    /// The tables for a communicator of `ranks` ranks; empty where nothing was measured for so many.
    pub(crate) fn tables(&self, ranks: usize) -> Tables {
        self.tables.get(&ranks).cloned().unwrap_or_default()
    }
}

impl FromStr for Tuning {
    type Err = Error;

    /// [`Error::Usage`] with the line or the key, for text that is not such TOML, for an unknown number of ranks, operation, algorithm
    /// or table, and for times and costs that cannot be.
    fn from_str(text: &str) -> Result<Self, Error> {
        let file: TuningFile = toml::from_str(text).map_err(|error| Error::usage(error.to_string()))?;
        let mut tables: BTreeMap<usize, Tables> = BTreeMap::new();
        for (ranks, operations) in file.ranks {
            let count = number_of_ranks("ranks", &ranks)?;
            for (operation, table) in operations {
                let collective = collective("ranks", &ranks, &operation)?;
                let line = text[..table.span().start].lines().count().max(1);
                let table = SizeTable::of(collective, table.get_ref())
                    .map_err(|error| located(format_args!("line {line}"), error))?;
                let of_ranks = tables.entry(count).or_default();
                *of_ranks = std::mem::take(of_ranks).with(collective, table);
            }
        }
        let mut tails = Tails::default();
        for (ranks, operations) in file.tails {
            let count = number_of_ranks("tails", &ranks)?;
            for (operation, measured) in operations {
                tails
                    .add(count, collective("tails", &ranks, &operation)?, measured)
                    .map_err(|error| located(format_args!("tails.{ranks}.{operation}"), error))?;
            }
        }
        Ok(Tuning { tables, tails, costs: file.between })
    }
}

/// The ranks that a key of this part of the file names.
fn number_of_ranks(part: &str, ranks: &str) -> Result<usize, Error> {
    let count = ranks.parse().ok().filter(|ranks| *ranks >= 1);
    count.ok_or_else(|| Error::usage(format!("{part}.{ranks}: {ranks:?} is no number of ranks")))
}

/// The collective that a key below that names.
fn collective(part: &str, ranks: &str, operation: &str) -> Result<Collective, Error> {
    operation.parse().map_err(|error| located(format_args!("{part}.{ranks}"), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;
    use crate::{Algorithm, Choice};

    #[test]
    fn tables_are_those_of_the_number_of_ranks() {
        let text = "# measured\nranks.4.allreduce = 'chain:16Ki-64Ki,plan:ring:1Mi-' # large\n\nranks.8.allreduce = 'flat:0-'\n\
                    ranks.4.barrier = 'flat:0-'\n";
        let tuning: Tuning = text.parse().unwrap();
        let four = tuning.tables(4);
        assert_eq!(four.choice_for(Collective::AllReduce, 20_000), Algorithm::Chain);
        assert_eq!(four.choice_for(Collective::AllReduce, 1 << 20), Choice::Plan("ring"));
        assert_eq!(
            (four.choice_for(Collective::AllReduce, 8), four.choice_for(Collective::Barrier, 0)),
            (Choice::default(), Algorithm::Flat.into())
        );
        assert_eq!(tuning.tables(8).choice_for(Collective::AllReduce, 8), Algorithm::Flat);
        assert_eq!(tuning.tables(5), Tables::default());
    }

    #[test]
    fn a_file_that_cannot_be_meant_is_refused_with_its_line() {
        for (text, says) in [
            ("4 allreduce flat:0-", "line 1"),
            ("\nranks.4.allreduce = 1", "line 2"),
            ("ranks.many.allreduce = 'flat:0-'", "\"many\" is no number of ranks"),
            ("ranks.0.allreduce = 'flat:0-'", "no number of ranks"),
            ("ranks.4.sort = 'flat:0-'", "allreduce, barrier, reduce"),
            ("\nranks.4.allreduce = 'fast:0-'", "line 2: "),
            ("ranks.4.allreduce = 'fast:0-'", "static-leader"),
            ("ranks.4.reduce = 'leader:0-'", "reduce is not carried out by leader"),
            ("ranks.4.reduce = 'plan:binomial:0-'", "not carried out by plan:binomial"),
            ("ranks.4.allreduce = 'flat:0-'\nranks.4.allreduce = 'chain:0-'", "duplicate key"),
            ("between.messages = [[8, 1e-5], [4096, 2e-5]]", "missing field `port`"),
            ("between.port = 1e-6\nbetween.port = 1e-6", "duplicate key"),
            ("between.messages = ['8:1e-5']", "line 1"),
            ("between.messages = [[8, -1.0], [9, 1.0]]\nbetween.port = 0.0\nbetween.reduced = 0.0", "finite times"),
            ("between.alpha = 1e-5", "`messages`, `port`, `reduced`"),
            ("between.messages = [[8, 1e-5]]\nbetween.port = 0.0\nbetween.reduced = 0.0", "two points"),
            ("nodes.4.allreduce = 'flat:0-'", "`ranks`, `tails`, `between`"),
        ] {
            let message = usage(text.parse::<Tuning>());
            assert!(message.contains(says), "{text}: {message}");
        }
        assert!(usage(Tuning::read("/no/such/file")).contains("/no/such/file"));
    }
}
