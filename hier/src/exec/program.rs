//! A plan compiled for one rank and one size: a flat list of instructions and what each waits for. Immutable.

use crate::plan::{Action, Contract, Order};

/// Sizes a plan is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Elements of the vector.
    pub elements: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Longer messages and local steps are cut into packets of at most this many bytes (at least one element), and
    /// what follows begins with the first of them. At most the transport's packet.
    pub segment_bytes: usize,
}

/// Bytes `[first, end)` of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: usize,
    pub(super) end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// From `source` to the lane's peer.
    Send,
    /// From the lane's peer into `target`.
    Receive(Action),
    /// From `source` into `target`.
    Local(Action),
}

#[derive(Debug, Clone)]
pub(super) struct Instruction {
    pub(super) kind: Kind,
    pub(super) source: u32,
    pub(super) target: u32,
    /// Index into [`Program::spans`].
    pub(super) spans: (u32, u32),
    /// Index into [`Program::after`].
    pub(super) after: (u32, u32),
    pub(super) bytes: usize,
    /// Round + 1, so that it can be an index.
    pub(super) round: u32,
}

/// All traffic with one other rank, in the order both ends agree on.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) peer: usize,
    pub(super) sends: Vec<u32>,
    pub(super) receives: Vec<u32>,
}

/// A verified plan compiled for one rank: made by [`compile`](super::compile), run by [`Running`](super::Running).
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) algorithm: String,
    pub(super) contract: Contract,
    pub(super) order: Order,
    pub(super) consistent: bool,
    pub(super) geometry: Geometry,
    pub(super) buffers: usize,
    pub(super) digest: u64,
    pub(super) instructions: Vec<Instruction>,
    pub(super) spans: Vec<Span>,
    /// Instructions that wait for an instruction, all lists one after the other.
    pub(super) after: Vec<u32>,
    /// How many instructions each one waits for.
    pub(super) waits: Vec<u32>,
    /// Instructions per round.
    pub(super) per_round: Vec<u32>,
    pub(super) lanes: Vec<Lane>,
}

impl Program {
    /// The rank it is for.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks that run the plan.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes of the vector.
    pub fn bytes(&self) -> usize {
        self.geometry.elements * self.geometry.element_bytes
    }

    /// The sizes it was compiled for.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// What holds at the end.
    pub fn contract(&self) -> Contract {
        self.contract
    }

    /// Number of instructions, a packet or a piece of a local step each.
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// True where the rank has nothing to do.
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// The ranks it exchanges messages with.
    pub fn peers(&self) -> impl Iterator<Item = usize> + '_ {
        self.lanes.iter().map(|lane| lane.peer)
    }

    /// Bytes of its largest packet.
    pub fn largest_packet(&self) -> usize {
        let packets = self.instructions.iter().filter(|i| !matches!(i.kind, Kind::Local(_)));
        packets.map(|i| i.bytes).max().unwrap_or(0)
    }

    /// Digest of plan and geometry, equal on all ranks that compiled the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}
