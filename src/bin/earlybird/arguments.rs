//! Argument values that several commands share.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use earlybird::{Algorithm, Config, Error, RanksPerNode, launch};

/// Parses the virtual nodes of `ranks` ranks: their number, or the ranks of each.
pub fn parse_nodes(text: &str, ranks: usize) -> Result<RanksPerNode, Error> {
    let nodes = match text.parse() {
        Ok(nodes) => RanksPerNode::on_nodes(ranks, nodes)?,
        Err(_) => text.parse()?,
    };
    nodes.sizes(ranks).map(|_| nodes)
}

/// Refuses `EARLYBIRD_ALGORITHM` where a command measures what its arguments name.
pub fn refuse_chosen_algorithm(config: &Config) -> Result<(), Error> {
    match config.algorithm == Algorithm::Auto {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "EARLYBIRD_ALGORITHM={} would change nothing here; unset it, and name what is measured with --algorithms",
            config.algorithm
        ))),
    }
}

/// Parses a number of ranks that one node can hold.
pub fn parse_ranks(text: &str) -> Result<usize, String> {
    let ranks = text.parse().ok().filter(|ranks| (1..=launch::MAX_RANKS).contains(ranks));
    ranks.ok_or_else(|| match text {
        "p" => "the option of mpirun, -np P, is -n P here".into(),
        _ => format!("{text:?} is not a number of ranks from 1 to {}", launch::MAX_RANKS),
    })
}

/// Parses a cost in seconds: finite, from 0 up.
pub fn parse_cost(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    seconds.ok_or_else(|| format!("`{text}`: expected seconds, such as 3e-5"))
}

/// A parser of these values by their names, which the help and errors list.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|value| name(*value)))
        .map(move |given| *all.iter().find(|value| name(**value) == given).expect("one of the names"))
}
