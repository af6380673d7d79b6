//! Argument values that several commands share.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use earlybird::{Error, RanksPerNode, launch};
use std::time::Duration;

/// Parses the virtual nodes of `ranks` ranks: their number, or the ranks of each.
pub fn parse_nodes(text: &str, ranks: usize) -> Result<RanksPerNode, Error> {
    let nodes = match text.parse() {
        Ok(nodes) => RanksPerNode::on_nodes(ranks, nodes)?,
        Err(_) => text.parse()?,
    };
    nodes.sizes(ranks).map(|_| nodes)
}

/// Parses a time in seconds, 0 included.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds, for example 0.5"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text} s is not a time; give seconds from 0 upwards"))
}

/// Parses a number of ranks that one node can hold.
pub fn parse_ranks(text: &str) -> Result<usize, String> {
    let ranks = text.parse().ok().filter(|ranks| (1..=launch::MAX_RANKS).contains(ranks));
    ranks.ok_or_else(|| format!("{text:?} is not a number of ranks from 1 to {}", launch::MAX_RANKS))
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
