//! What can be wrong with a request for a plan ([`PlanError`]) and with a plan itself ([`Violation`]).

use crate::plan::{Contract, Order};

/// A request that cannot be met: each variant says what was given, what was expected, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No schedule has this name.
    #[error("there is no algorithm `{given}`; there are: {known}")]
    UnknownAlgorithm {
        /// The name as given.
        given: String,
        /// All names.
        known: String,
    },
    /// A parameter has a value the schedule is not defined for.
    #[error("{algorithm}: {parameter} = {given} is not possible; expected {expected}")]
    Parameter {
        /// The schedule asked for.
        algorithm: String,
        /// The parameter's name on the command line, without dashes.
        parameter: &'static str,
        /// The value as given.
        given: String,
        /// What would be accepted.
        expected: String,
    },
    /// The schedule does not know this parameter.
    #[error("{algorithm} does not use {parameter}; leave it out (it uses: {known})")]
    UnusedParameter {
        /// The schedule asked for.
        algorithm: String,
        /// The parameter it would ignore.
        parameter: &'static str,
        /// The parameters it reads.
        known: String,
    },
    /// The schedule cannot be asked for this contract.
    #[error("{algorithm} makes no plan for {contract}; it makes: {known}")]
    UnknownContract {
        /// The schedule asked for.
        algorithm: String,
        /// The contract asked for.
        contract: Contract,
        /// The contracts it offers.
        known: String,
    },
    /// The plan is correct but the operator or the caller's wish forbids it.
    #[error("{algorithm} is not admitted: {reason}; {instead}")]
    NotAdmitted {
        /// The schedule asked for.
        algorithm: String,
        /// Why it is refused.
        reason: String,
        /// What could be had.
        instead: String,
    },
    /// A plan or topology text does not parse.
    #[error("{what}: {reason}")]
    Parse {
        /// Which kind of text.
        what: &'static str,
        /// What is wrong in it.
        reason: String,
    },
    /// The plan does not do what it says.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// One step of one rank: where a violation sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The rank whose program is meant.
    pub rank: usize,
    /// Index into that rank's program.
    pub step: usize,
    /// The step's round; -1 is before round 0.
    pub round: i32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {}, step {} (round {})", self.rank, self.step, self.round)
    }
}

/// Why a plan is refused: the first thing found, with the step and rank.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The plan's header contradicts itself.
    #[error("the plan's header is malformed: {reason}")]
    Header {
        /// What is wrong.
        reason: String,
    },
    /// A step names something that does not exist, or stands in the wrong place.
    #[error("{at}: malformed step: {reason}")]
    Malformed {
        /// The step.
        at: Place,
        /// What is wrong.
        reason: String,
    },
    /// A send that nobody receives, or a receive that nobody serves.
    #[error("{at}: {kind} rank {peer} has no counterpart")]
    Unmatched {
        /// The step.
        at: Place,
        /// "send to" or "receive from".
        kind: &'static str,
        /// The other rank.
        peer: usize,
    },
    /// Both ends of a message disagree on its blocks.
    #[error("{send} sends blocks {sent}, {receive} expects {expected}")]
    BlocksDiffer {
        /// The sending step.
        send: Place,
        /// The receiving step.
        receive: Place,
        /// Blocks at the sender.
        sent: String,
        /// Blocks at the receiver.
        expected: String,
    },
    /// Ranks wait for each other in a circle.
    #[error("deadlock: {}", .cycle.iter().map(|(rank, round)| format!("rank {rank} in round {round}")).collect::<Vec<_>>().join(" waits for "))]
    Deadlock {
        /// (rank, round) of each waiting party, the first repeated at the end.
        cycle: Vec<(usize, i32)>,
    },
    /// A message leaves in one round and is awaited in another.
    #[error("{send} is received by {receive}: the rounds differ")]
    RoundsDiffer {
        /// The sending step.
        send: Place,
        /// The receiving step.
        receive: Place,
    },
    /// Two steps of one round touch the same data in a way that depends on timing.
    #[error("{at} and step {other} of the same round both touch block {block} of buffer {buffer}: {kind}")]
    Hazard {
        /// The later step.
        at: Place,
        /// The earlier step of the same rank and round.
        other: usize,
        /// Buffer.
        buffer: usize,
        /// First block both touch.
        block: usize,
        /// "write over a send" or "two writes".
        kind: &'static str,
    },
    /// More partners in a round than the plan's ports.
    #[error("rank {rank} {kind} {used} ranks in round {round}; the plan declares {allowed} port(s)")]
    Ports {
        /// The rank.
        rank: usize,
        /// The round.
        round: i32,
        /// "sends to" or "receives from".
        kind: &'static str,
        /// Distinct partners.
        used: usize,
        /// Declared ports.
        allowed: usize,
    },
    /// A step reads a block nothing was ever put into.
    #[error("{at}: block {block} of buffer {buffer} of rank {owner} is read before anything was written to it")]
    Undefined {
        /// The reading step.
        at: Place,
        /// The rank whose buffer is read.
        owner: usize,
        /// Buffer.
        buffer: usize,
        /// Block.
        block: usize,
    },
    /// A reduction counts a contribution twice.
    #[error("{at}: block {block} would hold the contribution of rank {contributor} twice")]
    Twice {
        /// The reducing step.
        at: Place,
        /// Block.
        block: usize,
        /// A rank present on both sides.
        contributor: usize,
    },
    /// At the end a block is not what the contract promises.
    #[error("rank {rank} ends with {found} in block {block}; the contract says {expected}")]
    WrongResult {
        /// The rank.
        rank: usize,
        /// Block.
        block: usize,
        /// What is there.
        found: String,
        /// What should be there.
        expected: String,
    },
    /// The plan claims a stricter operand order than it keeps.
    #[error("block {block} of rank {rank} is combined in {found} order; the plan claims {claimed}")]
    Order {
        /// The rank.
        rank: usize,
        /// Block.
        block: usize,
        /// Order class found.
        found: Order,
        /// Order class claimed.
        claimed: Order,
    },
    /// The plan claims identical bits on all ranks and does not give them.
    #[error(
        "ranks {first} and {second} get block {block} from different expression trees; the plan claims identical bits"
    )]
    Inconsistent {
        /// Block.
        block: usize,
        /// A rank.
        first: usize,
        /// A rank with another tree.
        second: usize,
    },
    /// A counter written in the plan's text is not what its steps give.
    #[error("the plan says {name} = {claimed}, its steps give {found}")]
    Counter {
        /// The counter.
        name: &'static str,
        /// As written.
        claimed: u64,
        /// As counted.
        found: u64,
    },
}
