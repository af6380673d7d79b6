//! `earlybird explain`: what a call would run in a job of some shape, and why.

use crate::arguments::{one_of, parse_nodes, parse_ranks};
use crate::output::{AnswerFormat, json, print};
use clap::Args;
use earlybird::units::parse_size;
use earlybird::{Collective, Config, Error, JobShape, explain, launch, probe};

/// Tell what a call would run, and what decides it
///
/// The answer is that of the code which decides in a call, for a sum of f32 where the operation reduces, under the EARLYBIRD_
/// variables that are set here. Nothing is started.
#[derive(Args)]
pub struct ExplainArgs {
    /// Operation
    #[arg(value_name = "OP", value_parser = one_of(Collective::PUBLIC, Collective::name))]
    op: Collective,

    /// Bytes of a block, with Ki, Mi or Gi; 0 for a barrier
    #[arg(long, value_name = "B", value_parser = parse_size, default_value = "0")]
    bytes: u64,

    /// Number of ranks, on all nodes together
    #[arg(long, value_name = "P", value_parser = parse_ranks)]
    ranks: usize,

    /// Nodes: their number, or the ranks of each; EARLYBIRD_RANKS_PER_NODE if nothing is given
    #[arg(long, value_name = "N|5,3,1")]
    nodes: Option<String>,

    /// The nodes are machines on a network, and not virtual
    #[arg(long)]
    network: bool,

    /// Processors, of this machine's kind, that the ranks of one machine may use [default: those allowed here]
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u16).range(1..))]
    cpus: Option<u16>,

    /// Form of the answer
    #[arg(long, value_enum, default_value_t = AnswerFormat::Table)]
    format: AnswerFormat,
}

/// Explains and prints.
pub fn run(args: &ExplainArgs) -> Result<u8, Error> {
    let mut config = Config::from_env()?;
    if let Some(nodes) = &args.nodes {
        config.ranks_per_node = Some(parse_nodes(nodes, args.ranks)?);
    }
    let (cpus, quota) = match args.cpus {
        Some(cpus) => (usize::from(cpus), None),
        None => (launch::allowed_cpus()?.len(), probe::cpu_quota()),
    };
    let job = JobShape { ranks: args.ranks, cpus, quota, over_network: args.network };
    let explanation = explain(args.op, usize::try_from(args.bytes).unwrap_or(usize::MAX), &job, &config)?;
    print(&match args.format {
        AnswerFormat::Json => json(&explanation),
        AnswerFormat::Table => explanation.to_string(),
    })?;
    Ok(0)
}
