//! Errors of requests for plans ([`PlanError`]) and of plans themselves ([`Violation`]).

use super::{Collective, Order};

/// A request that cannot be met. Each variant names the given value, the expected ones and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
        /// The requested schedule.
        algorithm: String,
        /// The parameter's name on the command line, without dashes.
        parameter: &'static str,
        /// The value as given.
        given: String,
        /// The accepted values.
        expected: String,
    },
    /// The schedule does not know this parameter.
    #[error("{algorithm} does not use {parameter}; leave it out (it uses: {known})")]
    UnusedParameter {
        /// The requested schedule.
        algorithm: String,
        /// The parameter that it would ignore.
        parameter: &'static str,
        /// The parameters that it uses.
        known: String,
    },
    /// The schedule does not carry out this collective.
    #[error("{algorithm} makes no plan for {collective}; it makes: {known}")]
    UnsupportedCollective {
        /// The requested schedule.
        algorithm: String,
        /// The requested collective.
        collective: Collective,
        /// The collectives that it carries out.
        known: String,
    },
    /// The plan is correct, but the operator or the required consistency does not admit it.
    #[error("{algorithm} is not admitted: {reason}; {instead}")]
    NotAdmitted {
        /// The requested schedule.
        algorithm: String,
        /// The reason for the refusal.
        reason: String,
        /// Plans or settings that can be used instead.
        instead: String,
    },
    /// A plan or topology text does not parse.
    #[error("{what}: {reason}")]
    Parse {
        /// The kind of text.
        what: &'static str,
        /// The fault in the text.
        reason: String,
    },
    /// The plan does not do what it claims.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// The location of one step of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLocation {
    /// The rank whose program contains the step.
    pub rank: usize,
    /// Index into that rank's program.
    pub step: usize,
    /// The step's round; -1 is before round 0.
    pub round: i32,
}

impl std::fmt::Display for StepLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {}, step {} (round {})", self.rank, self.step, self.round)
    }
}

/// The first fault found in a plan, with rank and step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The plan's header contradicts itself.
    #[error("the plan's header is malformed: {reason}")]
    Header {
        /// The fault.
        reason: String,
    },
    /// A step names something that does not exist, or stands in the wrong position.
    #[error("{at}: malformed step: {reason}")]
    Malformed {
        /// The step.
        at: StepLocation,
        /// The fault.
        reason: String,
    },
    /// A send or a receive without its counterpart.
    #[error("{at}: {kind} rank {peer} has no counterpart")]
    Unmatched {
        /// The step.
        at: StepLocation,
        /// "send to" or "receive from".
        kind: &'static str,
        /// The other rank.
        peer: usize,
    },
    /// Both ends of a message disagree on its blocks.
    #[error("{send} sends blocks {sent}, {receive} expects {expected}")]
    BlocksDiffer {
        /// The sending step.
        send: StepLocation,
        /// The receiving step.
        receive: StepLocation,
        /// Blocks at the sender.
        sent: String,
        /// Blocks at the receiver.
        expected: String,
    },
    /// Ranks wait for each other in a circle: a deadlock.
    #[error("deadlock: {}", .cycle.iter().map(|(rank, round)| format!("rank {rank} in round {round}")).collect::<Vec<_>>().join(" waits for "))]
    Deadlock {
        /// (rank, round) of each waiting party, the first repeated at the end.
        cycle: Vec<(usize, i32)>,
    },
    /// A message leaves in one round and is awaited in another.
    #[error("{send} is received by {receive}: the rounds differ")]
    RoundsDiffer {
        /// The sending step.
        send: StepLocation,
        /// The receiving step.
        receive: StepLocation,
    },
    /// Two steps of one round touch the same data in a way that depends on timing.
    #[error("{at} and step {other} of the same round both touch block {block} of buffer {buffer}: {kind}")]
    Hazard {
        /// The later step.
        at: StepLocation,
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
    /// A step reads a block that was never written.
    #[error("{at}: block {block} of buffer {buffer} of rank {owner} is read before anything was written to it")]
    Undefined {
        /// The reading step.
        at: StepLocation,
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
        at: StepLocation,
        /// Block.
        block: usize,
        /// A rank present on both sides.
        contributor: usize,
    },
    /// A block does not hold the result of the collective at the end.
    #[error("rank {rank} ends with {found} in block {block}; {expected} should be there")]
    WrongResult {
        /// The rank.
        rank: usize,
        /// Block.
        block: usize,
        /// The contents found.
        found: String,
        /// The contents that the collective requires.
        expected: String,
    },
    /// The plan claims a stricter operand order than it has.
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
    /// The plan claims identical bits on all ranks, which differ.
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
}
