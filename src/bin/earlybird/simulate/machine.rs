//! The simulated machine as the command line describes it.

use crate::arguments::parse_cost;
use clap::Args;
use earlybird::units::parse_size;
use earlybird_hier::cost::Topology;
use earlybird_hier::sim::{Costs, Duplex, Machine, Network, Partition};
use std::str::FromStr;

/// Costs, ports, nodes and network.
#[derive(Debug, Clone, Args)]
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
    #[arg(long, value_name = "K", requires_all = ["inside_alpha", "inside_beta"], value_parser = at_least_one)]
    pub ranks_per_node: Option<usize>,
    /// Seconds per message inside a node
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost, requires = "inside_beta")]
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
    #[arg(long, value_name = "TREE")]
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
        let wrong = || format!("`{text}`: expected star:K, tree:KxM, or a file");
        if let Some(k) = text.strip_prefix("star:") {
            return at_least_one(k).map(NetworkShape::Star).map_err(|_| wrong());
        }
        if let Some(numbers) = text.strip_prefix("tree:") {
            let (k, m) = numbers.split_once('x').ok_or_else(wrong)?;
            return Ok(NetworkShape::Tree(
                at_least_one(k).map_err(|_| wrong())?,
                at_least_one(m).map_err(|_| wrong())?,
            ));
        }
        let file = std::fs::read_to_string(text).map_err(|error| format!("{}: {error}", wrong()))?;
        Topology::from_toml(&file).map(|tree| NetworkShape::File(Box::new(tree))).map_err(|error| error.to_string())
    }
}

impl NetworkShape {
    fn tree(&self, ranks: usize) -> Result<Topology, String> {
        match self {
            NetworkShape::Star(per_machine) => Topology::star(ranks, *per_machine),
            NetworkShape::Tree(per_machine, per_switch) => Topology::tree(ranks, *per_machine, *per_switch),
            NetworkShape::File(tree) => Ok((**tree).clone()),
        }
        .map_err(|error| error.to_string())
    }
}

/// A machine and what its ranks hang on.
#[derive(Debug, Clone)]
pub struct Built {
    pub machine: Machine,
    pub network: Option<Network>,
    /// Ranks machine by machine, for a ring.
    pub tour: Option<Vec<usize>>,
}

impl Built {
    /// One rank per node, no network.
    pub fn flat(costs: Costs) -> Self {
        Self { machine: Machine::flat(costs), network: None, tour: None }
    }

    /// The same ranks on a tree of switches.
    pub fn on(self, tree: &Topology, link_s_per_byte: f64) -> Result<Self, String> {
        let network = Network::new(tree, link_s_per_byte).map_err(|error| error.to_string())?;
        Ok(Self { network: Some(network), tour: Some(tree.depth_first_order()), ..self })
    }
}

impl MachineArgs {
    /// An option that was given, if any.
    pub fn given(&self) -> Option<&'static str> {
        let table = [
            ("alpha", self.alpha.is_some()),
            ("beta", self.beta.is_some()),
            ("gamma", self.gamma.is_some()),
            ("latency", self.latency.is_some()),
            ("receive-overhead", self.receive_overhead.is_some()),
            ("gap", self.gap.is_some()),
            ("port-cost", self.port_cost.is_some()),
            ("ranks-per-node", self.ranks_per_node.is_some()),
            ("inside-alpha", self.inside_alpha.is_some()),
            ("half-duplex", self.half_duplex),
            ("eager-limit", self.eager_limit.is_some()),
            ("element-bytes", self.element_bytes.is_some()),
            ("topology", self.topology.is_some()),
        ];
        table.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// The machine for a number of ranks.
    pub fn build(&self, ranks: usize) -> Result<Built, String> {
        if ranks == 0 {
            return Err("--ranks: 0 ranks cannot call anything; give at least 1".to_string());
        }
        let (Some(alpha), Some(beta), Some(gamma)) = (self.alpha, self.beta, self.gamma) else {
            return Err("--alpha, --beta and --gamma say what messages and reductions cost".to_string());
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
        if self.inside_alpha.is_some() && self.ranks_per_node.is_none() && self.topology.is_none() {
            return Err(
                "--inside-alpha needs --ranks-per-node or --topology, which say what is inside a node".to_string()
            );
        }
        if self.ranks_per_node.is_some() && self.topology.is_some() {
            return Err("--topology says what is inside a node; leave out --ranks-per-node".to_string());
        }
        let machine = Machine {
            inside,
            between,
            ranks_per_node: self.ranks_per_node.unwrap_or(1),
            duplex: if self.half_duplex { Duplex::Half } else { Duplex::Full },
            eager_bytes: self.eager_limit.map(|bytes| bytes as f64),
            partition: self.element_bytes.map_or(Partition::Even, Partition::Elements),
        };
        let built = Built { machine, network: None, tour: None };
        match &self.topology {
            Some(shape) => {
                let tree = shape.tree(ranks)?;
                if tree.ranks() != ranks {
                    return Err(format!("the tree of --topology has {} ranks, --ranks asks for {ranks}", tree.ranks()));
                }
                built.on(&tree, self.link_beta.unwrap_or(beta))
            }
            None => Ok(built),
        }
    }
}
