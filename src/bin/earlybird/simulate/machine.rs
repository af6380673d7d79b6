//! The simulated machine as the command line describes it.

use super::runner::Runner;
use crate::arguments::parse_cost;
use crate::chart::Failure;
use clap::Args;
use earlybird::units::parse_size;
use earlybird_hier::PlanError;
use earlybird_hier::cost::Topology;
use earlybird_hier::sim::{Costs, Duplex, Machine, Partition};
use std::str::FromStr;

/// Costs, ports, nodes and network.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The machine")]
#[group(id = "machine")]
pub struct MachineArgs {
    /// Seconds per message, spent by the sender (o_s of LogGP)
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost, required_unless_present = "preset")]
    pub alpha: Option<f64>,
    /// Seconds per byte sent (G of LogGP)
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost, required_unless_present = "preset")]
    pub beta: Option<f64>,
    /// Seconds per byte reduced
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost, required_unless_present = "preset")]
    pub gamma: Option<f64>,
    /// Seconds of a message on the wire (L of LogGP) [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost)]
    pub latency: Option<f64>,
    /// Seconds per message, spent by the receiver (o_r of LogGP) [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost)]
    pub receive_overhead: Option<f64>,
    /// Least seconds between two messages of a sender (g of LogGP) [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost)]
    pub gap: Option<f64>,
    /// Seconds for every message of a round beyond the first [default: alpha]
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost)]
    pub port_cost: Option<f64>,
    /// Consecutive ranks per node
    #[arg(long, value_name = "K", group = "nodes", requires = "inside_alpha", value_parser = at_least_one)]
    pub ranks_per_node: Option<usize>,
    /// Seconds per message inside a node
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost, requires_all = ["inside_beta", "nodes"])]
    pub inside_alpha: Option<f64>,
    /// Seconds per byte inside a node
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost, requires = "inside_alpha")]
    pub inside_beta: Option<f64>,
    /// A rank sends and receives through one port
    #[arg(long)]
    pub half_duplex: bool,
    /// Messages of more bytes wait for their receiver (Ki, Mi, Gi) [default: none does]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub eager_limit: Option<u64>,
    /// Cut vectors at whole elements of so many bytes [default: blocks are exact shares]
    #[arg(long, value_name = "BYTES", value_parser = at_least_one)]
    pub element_bytes: Option<usize>,
    /// Tree of switches: star:K (machines of K ranks on a switch), tree:KxM (M such machines per leaf switch), or a
    /// TOML file as for `earlybird plan`
    #[arg(long, value_name = "TREE", group = "nodes")]
    pub topology: Option<NetworkShape>,
    /// Seconds per byte on a link of the tree [default: beta]
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost, requires = "topology")]
    pub link_beta: Option<f64>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n >= 1).ok_or_else(|| format!("`{text}`: expected a whole number of at least 1"))
}

/// A tree of switches, for any number of ranks or from a file.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkShape {
    Star(usize),
    Tree(usize, usize),
    File(Box<Topology>),
}

impl FromStr for NetworkShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}`: expected star:K, tree:KxM, or a file{why}");
        if let Some((kind @ ("star" | "tree"), numbers)) = text.split_once(':') {
            let numbers: Result<Vec<_>, _> = numbers.split('x').map(at_least_one).collect();
            return match (kind, &numbers.unwrap_or_default()[..]) {
                ("star", &[k]) => Ok(NetworkShape::Star(k)),
                ("tree", &[k, m]) => Ok(NetworkShape::Tree(k, m)),
                _ => Err(wrong("")),
            };
        }
        let file = std::fs::read_to_string(text).map_err(|error| wrong(&format!(": {error}")))?;
        Topology::from_toml(&file).map(|tree| NetworkShape::File(Box::new(tree))).map_err(|error| error.to_string())
    }
}

impl NetworkShape {
    fn tree(&self, ranks: usize) -> Result<Topology, PlanError> {
        match self {
            NetworkShape::Star(per_machine) => Topology::star(ranks, *per_machine),
            NetworkShape::Tree(per_machine, per_switch) => Topology::tree(ranks, *per_machine, *per_switch),
            NetworkShape::File(tree) => Ok((**tree).clone()),
        }
    }
}

impl MachineArgs {
    /// The machine for a number of ranks.
    pub fn build(&self, ranks: usize) -> Result<Runner, Failure> {
        if ranks == 0 {
            return Err("--ranks: 0 ranks cannot call anything; give at least 1".into());
        }
        let (Some(alpha), Some(beta), Some(gamma)) = (self.alpha, self.beta, self.gamma) else {
            return Err("--alpha, --beta and --gamma say what messages and reductions cost".into());
        };
        let between = Costs {
            latency_s: self.latency.unwrap_or(0.0),
            receive_s: self.receive_overhead.unwrap_or(0.0),
            gap_s: self.gap.unwrap_or(0.0),
            next_port_s: self.port_cost.unwrap_or(alpha),
            ..Costs::linear(alpha, beta, gamma)
        };
        let inside = match (self.inside_alpha, self.inside_beta) {
            (Some(alpha), Some(beta)) => Costs::linear(alpha, beta, gamma),
            _ => between,
        };
        let machine = Machine {
            inside,
            between,
            ranks_per_node: self.ranks_per_node.unwrap_or(1),
            duplex: if self.half_duplex { Duplex::Half } else { Duplex::Full },
            eager_bytes: self.eager_limit.map(|bytes| bytes as f64),
            partition: self.element_bytes.map_or(Partition::Even, Partition::Elements),
        };
        let runner = Runner::new(ranks, machine);
        match &self.topology {
            Some(shape) => {
                let tree = shape.tree(ranks)?;
                if tree.ranks() != ranks {
                    return Err(
                        format!("the tree of --topology has {} ranks, --ranks asks for {ranks}", tree.ranks()).into()
                    );
                }
                Ok(runner.on(&tree, self.link_beta.unwrap_or(beta))?)
            }
            None => Ok(runner),
        }
    }
}
