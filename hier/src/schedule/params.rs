//! The parameters of all schedules, named as on the command line.

use crate::plan::{Collective, Order, PlanBuilder, PlanError, unknown};
use std::str::FromStr;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// A factor of a product group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Factor {
    /// Number of elements.
    pub size: usize,
    /// Fold it one slot at a time (neighbour traffic only) instead of by halves.
    pub ring: bool,
}

/// The abelian group a butterfly works on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GroupSpec {
    /// Integers modulo the number of ranks.
    #[default]
    Cyclic,
    /// Bitwise exclusive or; the number of ranks must be a power of two.
    Xor,
    /// A product of cyclic groups, the first factor the most significant digit.
    Factors(Vec<Factor>),
}

impl FromStr for GroupSpec {
    type Err = String;

    /// `cyclic`, `xor`, or factors such as `4,3`; `3r` folds that factor as a ring.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cyclic" => return Ok(GroupSpec::Cyclic),
            "xor" => return Ok(GroupSpec::Xor),
            _ => {}
        }
        let factor = |part: &str| {
            let (digits, ring) = match part.strip_suffix('r') {
                Some(digits) => (digits, true),
                None => (part, false),
            };
            let size = digits.parse().ok().filter(|n| *n >= 2);
            size.map(|size| Factor { size, ring }).ok_or_else(|| {
                format!("`{part}` in `{text}`: expected cyclic, xor, or factors of at least 2 like 4,3 or 4,3r")
            })
        };
        text.split(',').map(factor).collect::<Result<_, _>>().map(GroupSpec::Factors)
    }
}

impl std::fmt::Display for GroupSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GroupSpec::Cyclic => f.write_str("cyclic"),
            GroupSpec::Xor => f.write_str("xor"),
            GroupSpec::Factors(factors) => {
                let name = |x: &Factor| format!("{}{}", x.size, if x.ring { "r" } else { "" });
                f.write_str(&factors.iter().map(name).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// The split of a hypercube: dimensions that split the data (bandwidth) and those that send it whole (latency).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// None splits: few rounds, whole vectors.
    #[default]
    Latency,
    /// All split: more rounds, few bytes.
    Bandwidth,
    /// The first N split.
    Mixed(usize),
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("mixed:").map(str::parse)) {
            ("latency", _) => Ok(Protocol::Latency),
            ("bandwidth", _) => Ok(Protocol::Bandwidth),
            (_, Some(Ok(n))) => Ok(Protocol::Mixed(n)),
            _ => Err(format!("`{text}`: expected latency, bandwidth, or mixed:N with N dimensions that split")),
        }
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Protocol::Latency => f.write_str("latency"),
            Protocol::Bandwidth => f.write_str("bandwidth"),
            Protocol::Mixed(n) => write!(f, "mixed:{n}"),
        }
    }
}

/// The first distance of halving + doubling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = unknown::<Distance>)]
pub enum Distance {
    /// Nearest partner first: keeps rank order, large messages stay near.
    #[default]
    Doubling,
    /// Farthest partner first.
    Halving,
}

/// The sizes of a cyclic shift whose factors have a product above the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = unknown::<ShiftRule>)]
pub enum ShiftRule {
    /// Balanced: each step divides the rest by its factor, rounded up.
    #[default]
    Ceil,
    /// Bruck: full windows later, the ragged step first.
    Cap,
}

/// Most segments times ranks of a pipelined schedule.
pub(crate) const MAX_CELLS: usize = 1 << 20;

/// The parameters of a schedule. A parameter a schedule does not use is refused, not ignored. With the feature `clap` they are
/// the arguments of a command line, and these descriptions its help.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
pub struct Params {
    /// Number of ranks, at least 1.
    #[cfg_attr(feature = "clap", arg(long, value_name = "P"))]
    pub ranks: usize,
    /// Group of a butterfly: cyclic, xor, or factors such as 4,3 (3r folds a factor as a ring).
    #[cfg_attr(feature = "clap", arg(long))]
    pub group: Option<GroupSpec>,
    /// Number of latency-optimal steps of a butterfly.
    #[cfg_attr(feature = "clap", arg(long, conflicts_with = "rounds"))]
    pub r: Option<usize>,
    /// Total number of rounds of a butterfly.
    #[cfg_attr(feature = "clap", arg(long, value_name = "K"))]
    pub rounds: Option<usize>,
    /// Largest message of a butterfly, in blocks.
    #[cfg_attr(feature = "clap", arg(long, value_name = "BLOCKS"))]
    pub cap: Option<usize>,
    /// Protocol of a hypercube of factors: latency, bandwidth, or mixed:N.
    #[cfg_attr(feature = "clap", arg(long))]
    pub protocol: Option<Protocol>,
    /// Order of distances of halving + doubling: doubling (keeps rank order) or halving.
    #[cfg_attr(feature = "clap", arg(long))]
    pub distance: Option<Distance>,
    /// Sizes of a cyclic shift for inexact products: ceil or cap.
    #[cfg_attr(feature = "clap", arg(long))]
    pub rule: Option<ShiftRule>,
    /// Factors, in the order of use.
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "F,F"))]
    pub radices: Option<Vec<usize>>,
    /// Merge prime factors up to this size.
    #[cfg_attr(feature = "clap", arg(long, value_name = "F"))]
    pub target: Option<usize>,
    /// Ranks a rank may send to in a round.
    #[cfg_attr(feature = "clap", arg(long, value_name = "K"))]
    pub ports: Option<usize>,
    /// Segments of a pipelined chain or ring.
    #[cfg_attr(feature = "clap", arg(long, value_name = "K"))]
    pub segments: Option<usize>,
    /// The number of late ranks, the last ones of an order of arrival.
    #[cfg_attr(feature = "clap", arg(long, value_name = "K"))]
    pub late: Option<usize>,
    /// Use the variant that keeps rank order.
    #[cfg_attr(feature = "clap", arg(long))]
    pub keep_order: bool,
    /// Consecutive ranks per node.
    #[cfg_attr(feature = "clap", arg(long, value_name = "K"))]
    pub ranks_per_node: Option<usize>,
    /// Logical order, or order of arrival: position i holds the i-th rank given.
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "R,R"))]
    pub order: Option<Vec<usize>>,
    /// The collective: allreduce, reduce, broadcast, allgather, reduce-scatter or barrier; by default the schedule's first.
    #[cfg_attr(feature = "clap", arg(long = "contract", value_name = "COLLECTIVE"))]
    pub collective: Option<Collective>,
    /// Root of a reduce or broadcast.
    #[cfg_attr(feature = "clap", arg(long, value_name = "R"))]
    pub root: Option<usize>,
    /// Keep the steps of rounds `first..end` only; [`LazyPlan`](super::LazyPlan) sets it.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub window: Option<(i32, i32)>,
}

impl Params {
    /// Defaults for `ranks` ranks.
    pub fn ranks(ranks: usize) -> Self {
        Self { ranks, ..Self::default() }
    }

    /// A plan builder for the requested rounds.
    pub(super) fn builder(&self, algorithm: &str, ranks: usize, blocks: usize) -> PlanBuilder {
        let mut builder = PlanBuilder::new(algorithm, ranks, blocks);
        if let Some((first, end)) = self.window {
            builder.keep(first, end);
        }
        builder
    }

    /// The parameters that were given, with their texts, in the order of the help text.
    fn texts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let number = |value: Option<usize>| value.map(|n| n.to_string());
        let table = [
            ("group", self.group.as_ref().map(GroupSpec::to_string)),
            ("r", number(self.r)),
            ("rounds", number(self.rounds)),
            ("cap", number(self.cap)),
            ("protocol", self.protocol.map(|p| p.to_string())),
            ("distance", self.distance.map(|d| <&str>::from(d).to_owned())),
            ("rule", self.rule.map(|r| <&str>::from(r).to_owned())),
            ("radices", self.radices.as_deref().map(list)),
            ("target", number(self.target)),
            ("ports", number(self.ports)),
            ("segments", number(self.segments)),
            ("late", number(self.late)),
            ("keep-order", self.keep_order.then(String::new)),
            ("ranks-per-node", number(self.ranks_per_node)),
            ("order", self.order.as_deref().map(list)),
            ("contract", self.collective.map(|c| c.to_string())),
            ("root", number(self.root)),
        ];
        table.into_iter().filter_map(|(name, text)| Some((name, text?)))
    }

    /// The parameters as arguments of the command line, such as `--ranks 7 --r 1`.
    pub fn to_arguments(&self) -> String {
        let argument =
            |(name, text): (&str, String)| format!(" --{name}{}{text}", if text.is_empty() { "" } else { " " });
        format!("--ranks {}{}", self.ranks, self.texts().map(argument).collect::<String>())
    }

    /// The names of the parameters that were given, without collective and root, which every schedule takes.
    pub fn given(&self) -> Vec<&'static str> {
        self.texts().map(|(name, _)| name).filter(|name| !["contract", "root"].contains(name)).collect()
    }

    /// The logical order, checked to be a permutation; rank order if none is given.
    pub(super) fn order_or_ranks(&self, algorithm: &str) -> Result<Vec<usize>, PlanError> {
        let Some(order) = &self.order else { return Ok((0..self.ranks).collect()) };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted.iter().copied().eq(0..self.ranks) {
            return Ok(order.clone());
        }
        let expected = format!("each of the ranks 0..{} exactly once", self.ranks);
        Err(bad(algorithm, "order", list(order), expected))
    }
}

/// A parameter error.
pub(crate) fn bad(
    algorithm: &str,
    parameter: &'static str,
    given: impl ToString,
    expected: impl ToString,
) -> PlanError {
    PlanError::Parameter {
        algorithm: algorithm.to_string(),
        parameter,
        given: given.to_string(),
        expected: expected.to_string(),
    }
}

/// Numbers with commas between.
pub(super) fn list(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// The operand order of a reduction along `order`.
pub(super) fn order_along(order: &[usize]) -> Order {
    match order.windows(2).all(|pair| pair[1] == (pair[0] + 1) % order.len()) {
        true if order[0] == 0 => Order::Ordered,
        true => Order::Rotated,
        false => Order::Commutative,
    }
}
