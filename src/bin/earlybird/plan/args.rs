//! The arguments of `earlybird plan`.

use crate::arguments::parse_cost;
use clap::{Args, ValueEnum};
use earlybird::units::parse_size;
use earlybird_hier::schedule::Params;
use earlybird_hier::{Consistency, PlanError};
use std::path::{Path, PathBuf};

/// Heading of the options that find the fastest schedule.
const BEST: &str = "The fastest schedule";

const EXAMPLES: &str = "\
Examples:
  earlybird plan ring --ranks 5
  earlybird plan butterfly --ranks 12 --group 4,3 --format svg > butterfly.svg
  earlybird plan --best --ranks 12 --bytes 64Ki --alpha 3e-5 --beta 1e-8 --gamma 2e-10";

/// Print a schedule, verified: a table of rounds, a drawing, or JSON; or say which one would be fastest
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// The schedule: ring butterfly recursive-doubling halving-doubling elimination-3-2 elimination-2-1 odd-ring
    /// cyclic-shift radix prefix census chain pre-reduced-ring binomial rsg smp-binomial smp-butterfly dissemination bruck
    /// direct
    #[arg(required_unless_present = "best", conflicts_with = "best")]
    pub(super) name: Option<String>,
    #[command(flatten)]
    pub(super) params: Params,
    /// Tree of switches and machines (TOML): orders a ring, and counts what each link carries
    #[arg(long, value_name = "FILE")]
    pub(super) topology: Option<PathBuf>,
    /// Length of the vector: also count elements
    #[arg(long, value_name = "M")]
    pub(super) elements: Option<usize>,
    /// identical: refuse a plan whose results may differ in their last bits from rank to rank; per-rank: allow it
    #[arg(long)]
    pub(super) consistency: Option<Consistency>,
    /// table, svg or json
    #[arg(long, value_enum, default_value_t = PlanFormat::Table)]
    pub(super) format: PlanFormat,
    /// Say which schedule is the fastest allreduce for the given costs
    #[arg(long, help_heading = BEST, requires = "bytes")]
    pub(super) best: bool,
    /// Size of the vector in bytes (Ki, Mi, Gi)
    #[arg(long, help_heading = BEST, requires = "best", value_parser = parse_size)]
    pub(super) bytes: Option<u64>,
    /// Measured costs instead of alpha, beta and gamma, on one level or several (TOML, see docs/plans.md)
    #[arg(long, help_heading = BEST, requires = "best", value_name = "FILE",
          conflicts_with_all = ["alpha", "beta", "gamma", "port_cost", "inside_alpha", "inside_beta"])]
    pub(super) times: Option<PathBuf>,
    /// Seconds per message
    #[arg(long, help_heading = BEST, requires = "best", value_name = "SECONDS", value_parser = parse_cost)]
    pub(super) alpha: Option<f64>,
    /// Seconds per byte sent
    #[arg(long, help_heading = BEST, requires = "best", value_name = "SECONDS", value_parser = parse_cost)]
    pub(super) beta: Option<f64>,
    /// Seconds per byte reduced
    #[arg(long, help_heading = BEST, requires = "best", value_name = "SECONDS", value_parser = parse_cost)]
    pub(super) gamma: Option<f64>,
    /// Seconds per port beyond the first, per round (default: alpha)
    #[arg(long, help_heading = BEST, requires = "best", value_name = "SECONDS", value_parser = parse_cost)]
    pub(super) port_cost: Option<f64>,
    /// Seconds per message inside a node of --ranks-per-node ranks; then alpha and beta are those between nodes
    #[arg(long, help_heading = BEST, requires_all = ["best", "ranks_per_node", "inside_beta"], value_name = "SECONDS", value_parser = parse_cost)]
    pub(super) inside_alpha: Option<f64>,
    /// Seconds per byte inside a node
    #[arg(long, help_heading = BEST, requires_all = ["best", "inside_alpha"], value_name = "SECONDS", value_parser = parse_cost)]
    pub(super) inside_beta: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PlanFormat {
    Table,
    Svg,
    Json,
}

pub(super) fn usage(parameter: &'static str, given: impl ToString, expected: impl ToString) -> PlanError {
    let (given, expected) = (given.to_string(), expected.to_string());
    PlanError::Parameter { algorithm: "plan".to_string(), parameter, given, expected }
}

pub(super) fn read(file: &Path, what: &'static str) -> Result<String, PlanError> {
    let failed = |e| PlanError::Parse { what, reason: format!("cannot read {}: {e}", file.display()) };
    std::fs::read_to_string(file).map_err(failed)
}
