//! The parameters of all schedules, in one place, as the command line has them.

use crate::error::PlanError;
use crate::plan::{Contract, PlanBuilder};
use std::str::FromStr;

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

/// Which dimensions of a hypercube split the data (bandwidth) and which send it whole (latency).
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

/// Which exchange of halving + doubling comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distance {
    /// Nearest partner first: keeps rank order, large messages stay near.
    #[default]
    Doubling,
    /// Farthest partner first.
    Halving,
}

impl FromStr for Distance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "doubling" => Ok(Distance::Doubling),
            "halving" => Ok(Distance::Halving),
            _ => Err(format!("`{text}`: expected doubling or halving")),
        }
    }
}

/// How a cyclic shift cuts when the product of its factors exceeds the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// Balanced: each step divides what is left by its factor, rounded up.
    #[default]
    Ceil,
    /// Bruck: full windows later, the ragged step first.
    Cap,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ceil" => Ok(Rule::Ceil),
            "cap" => Ok(Rule::Cap),
            _ => Err(format!("`{text}`: expected ceil or cap")),
        }
    }
}

/// Everything a schedule may be asked for. A parameter a schedule does not use is refused, not ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Params {
    /// Number of ranks, at least 1.
    pub ranks: usize,
    /// Group of a butterfly.
    pub group: Option<GroupSpec>,
    /// Number of latency-optimal steps of a butterfly.
    pub r: Option<usize>,
    /// Total number of rounds of a butterfly.
    pub rounds: Option<usize>,
    /// Largest number of blocks in a message of a butterfly.
    pub cap: Option<usize>,
    /// Protocol of a hypercube of factors.
    pub protocol: Option<Protocol>,
    /// Order of distances of halving + doubling.
    pub distance: Option<Distance>,
    /// Rule of a cyclic shift for inexact products.
    pub rule: Option<Rule>,
    /// Factors, in the order of use.
    pub radices: Option<Vec<usize>>,
    /// Merge prime factors up to this size.
    pub target: Option<usize>,
    /// Ranks a rank may send to in a round.
    pub ports: Option<usize>,
    /// Segments of a pipelined chain or ring.
    pub segments: Option<usize>,
    /// How many of the last ranks of an order of arrival are late.
    pub late: Option<usize>,
    /// Use the variant that keeps rank order.
    pub keep_order: bool,
    /// Consecutive ranks per node.
    pub ranks_per_node: Option<usize>,
    /// Logical order, or order of arrival: position i holds rank `order[i]`.
    pub order: Option<Vec<usize>>,
    /// What the plan is to achieve; allreduce, or what the schedule is for.
    pub contract: Option<Contract>,
    /// Root of a reduce or broadcast.
    pub root: Option<usize>,
    /// Keep the steps of rounds `first..end` only; [`LazyPlan`](super::LazyPlan) sets it.
    pub window: Option<(i32, i32)>,
}

impl Params {
    /// Defaults for `ranks` ranks.
    pub fn ranks(ranks: usize) -> Self {
        Self { ranks, ..Self::default() }
    }

    /// A builder that keeps what was asked for.
    pub(super) fn builder(&self, algorithm: &str, ranks: usize, blocks: usize) -> PlanBuilder {
        let mut builder = PlanBuilder::new(algorithm, ranks, blocks);
        if let Some((first, end)) = self.window {
            builder.keep(first, end);
        }
        builder
    }

    /// The parameters as arguments of the command line, such as `--ranks 7 --r 1`.
    pub fn to_arguments(&self) -> String {
        let word = |name: &str, value: Option<String>| value.map(|v| format!(" --{name} {v}")).unwrap_or_default();
        let number = |name: &str, value: Option<usize>| word(name, value.map(|n| n.to_string()));
        let distance = self.distance.map(|d| if d == Distance::Doubling { "doubling" } else { "halving" });
        let rule = self.rule.map(|r| if r == Rule::Ceil { "ceil" } else { "cap" });
        let parts = [
            word("group", self.group.as_ref().map(GroupSpec::to_string)),
            number("r", self.r),
            number("rounds", self.rounds),
            number("cap", self.cap),
            word("protocol", self.protocol.map(|p| p.to_string())),
            word("distance", distance.map(str::to_string)),
            word("rule", rule.map(str::to_string)),
            word("radices", self.radices.as_deref().map(list)),
            number("target", self.target),
            number("ports", self.ports),
            number("segments", self.segments),
            number("late", self.late),
            if self.keep_order { " --keep-order".to_string() } else { String::new() },
            number("ranks-per-node", self.ranks_per_node),
            word("order", self.order.as_deref().map(list)),
            word("contract", self.contract.map(|c| c.to_string())),
            number("root", self.root),
        ];
        format!("--ranks {}{}", self.ranks, parts.concat())
    }

    /// The parameters that were given, by name.
    pub fn given(&self) -> Vec<&'static str> {
        let table = [
            ("group", self.group.is_some()),
            ("r", self.r.is_some()),
            ("rounds", self.rounds.is_some()),
            ("cap", self.cap.is_some()),
            ("protocol", self.protocol.is_some()),
            ("distance", self.distance.is_some()),
            ("rule", self.rule.is_some()),
            ("radices", self.radices.is_some()),
            ("target", self.target.is_some()),
            ("ports", self.ports.is_some()),
            ("segments", self.segments.is_some()),
            ("late", self.late.is_some()),
            ("keep-order", self.keep_order),
            ("ranks-per-node", self.ranks_per_node.is_some()),
            ("order", self.order.is_some()),
        ];
        table.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
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
pub(super) fn bad(
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
