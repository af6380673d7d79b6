//! A plan compiled for one rank and one size: a flat, immutable list of instructions and their dependencies.

use crate::plan::{Action, Collective, Order};

/// The sizes that a plan is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Elements of the vector.
    pub elements: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Longer messages and local steps are cut into packets of at most this many bytes (at least one element), and
    /// dependent steps begin with the first of them. At most the transport's packet.
    pub segment_bytes: usize,
}

/// Bytes `[first, end)` of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: usize,
    pub(super) end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstructionKind {
    /// Sends `source` to the peer.
    Send,
    /// Receives from the peer into `target`.
    Receive(Action),
    /// Moves or folds `source` into `target` on this rank.
    Local(Action),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction {
    pub(super) kind: InstructionKind,
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

impl Instruction {
    /// An instruction on no bytes yet.
    pub(super) fn new(kind: InstructionKind, source: u32, target: u32, round: u32) -> Self {
        Instruction { kind, source, target, spans: (0, 0), after: (0, 0), bytes: 0, round }
    }
}

/// The messages with one other rank, in the order that both ends agree on.
#[derive(Debug, Clone)]
pub(super) struct Channel {
    pub(super) peer: usize,
    pub(super) sends: Vec<u32>,
    pub(super) receives: Vec<u32>,
}

/// A verified plan compiled for one rank: made by [`compile`](super::compile), run by [`Operation`](super::Operation).
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) algorithm: String,
    pub(super) collective: Collective,
    pub(super) order: Order,
    pub(super) consistent: bool,
    pub(super) geometry: Geometry,
    pub(super) buffers: usize,
    pub(super) digest: u64,
    pub(super) instructions: Vec<Instruction>,
    pub(super) spans: Vec<Span>,
    /// Instructions that wait for an instruction, all lists one after the other.
    pub(super) after: Vec<u32>,
    /// The number of instructions that each one waits for.
    pub(super) waits: Vec<u32>,
    /// Instructions per round.
    pub(super) per_round: Vec<u32>,
    pub(super) channels: Vec<Channel>,
}

impl Program {
    /// Bytes of the vector.
    pub fn bytes(&self) -> usize {
        self.geometry.elements * self.geometry.element_bytes
    }

    /// Bytes of the largest packet.
    pub(super) fn largest_packet(&self) -> usize {
        let packets = self.instructions.iter().filter(|i| !matches!(i.kind, InstructionKind::Local(_)));
        packets.map(|i| i.bytes).max().unwrap_or(0)
    }
}
