//! The vocabulary of plans: blocks, operand sides, and the five kinds of step.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Half-open range of blocks `[first, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct BlockRange {
    /// First block.
    pub first: u32,
    /// One past the last block.
    pub end: u32,
}

impl From<(u32, u32)> for BlockRange {
    fn from((first, end): (u32, u32)) -> Self {
        Self { first, end }
    }
}

impl From<BlockRange> for (u32, u32) {
    fn from(range: BlockRange) -> Self {
        (range.first, range.end)
    }
}

/// A set of blocks as ascending, disjoint, non-touching runs. Most messages have one or two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<BlockRange>", into = "Vec<BlockRange>")]
pub struct Blocks(SmallVec<[BlockRange; 2]>);

impl From<Vec<BlockRange>> for Blocks {
    fn from(runs: Vec<BlockRange>) -> Self {
        Self(runs.into())
    }
}

impl From<Blocks> for Vec<BlockRange> {
    fn from(blocks: Blocks) -> Self {
        blocks.0.into_vec()
    }
}

impl Blocks {
    /// The run `[first, end)`; no blocks if it is empty.
    pub fn range(first: usize, end: usize) -> Self {
        let mut runs = SmallVec::new();
        if first < end {
            runs.push(BlockRange { first: first as u32, end: end as u32 });
        }
        Self(runs)
    }

    /// The set of the given block indices, in any order. Cost O(n log n) for n indices.
    pub fn from_indices(indices: impl IntoIterator<Item = usize>) -> Self {
        let mut sorted: Vec<u32> = indices.into_iter().map(|i| i as u32).collect();
        sorted.sort_unstable();
        let mut runs: SmallVec<[BlockRange; 2]> = SmallVec::new();
        for block in sorted {
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                Some(run) if run.end > block => {}
                _ => runs.push(BlockRange { first: block, end: block + 1 }),
            }
        }
        Self(runs)
    }

    /// The set of the blocks in the given half-open runs, in any order.
    pub(crate) fn from_runs(mut given: Vec<(usize, usize)>) -> Self {
        given.sort_unstable();
        let mut runs: SmallVec<[BlockRange; 2]> = SmallVec::new();
        for (first, end) in given.into_iter().filter(|(first, end)| first < end) {
            let (first, end) = (first as u32, end as u32);
            match runs.last_mut() {
                Some(run) if run.end >= first => run.end = run.end.max(end),
                _ => runs.push(BlockRange { first, end }),
            }
        }
        Self(runs)
    }

    /// The runs, ascending.
    pub fn runs(&self) -> &[BlockRange] {
        &self.0
    }

    /// All block indices, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|run| run.first as usize..run.end as usize)
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.0.iter().map(|run| (run.end - run.first) as usize).sum()
    }

    /// True if there is no block.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, run) in self.0.iter().enumerate() {
            let gap = if i > 0 { " " } else { "" };
            if run.end == run.first + 1 {
                write!(f, "{gap}{}", run.first)?;
            } else {
                write!(f, "{gap}{}..{}", run.first, run.end)?;
            }
        }
        Ok(())
    }
}

/// The side of the incoming operand: `Left` is incoming ⊕ target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// target := incoming ⊕ target
    Left,
    /// target := target ⊕ incoming
    Right,
}

/// The action on incoming data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// target := incoming
    Copy,
    /// target and incoming are combined, the incoming operand on the given side.
    Reduce(Side),
}

/// One step of one rank. Block indices are the same in source and target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Sends the blocks with their contents at the start of the round.
    Send {
        /// Receiving rank.
        to: u32,
        /// Buffer read.
        buffer: u32,
        /// Blocks sent.
        blocks: Blocks,
    },
    /// Receives into the buffer.
    Receive {
        /// Sending rank.
        from: u32,
        /// Buffer written.
        buffer: u32,
        /// Blocks awaited.
        blocks: Blocks,
    },
    /// Receives and combines with the buffer.
    ReceiveReduce {
        /// Sending rank.
        from: u32,
        /// Buffer read and written.
        buffer: u32,
        /// Blocks awaited.
        blocks: Blocks,
        /// Side of the arriving operand.
        side: Side,
    },
    /// Copies between two buffers of the rank, after the round's messages.
    Copy {
        /// Buffer read.
        source: u32,
        /// Buffer written.
        target: u32,
        /// Blocks copied.
        blocks: Blocks,
    },
    /// Combines two buffers of the rank, after the round's messages.
    Reduce {
        /// Buffer read.
        source: u32,
        /// Buffer read and written.
        target: u32,
        /// Blocks combined.
        blocks: Blocks,
        /// Side of the source operand.
        side: Side,
    },
}

impl Step {
    /// The blocks that the step reads or writes.
    pub fn blocks(&self) -> &Blocks {
        match self {
            Step::Send { blocks, .. }
            | Step::Receive { blocks, .. }
            | Step::ReceiveReduce { blocks, .. }
            | Step::Copy { blocks, .. }
            | Step::Reduce { blocks, .. } => blocks,
        }
    }
}

/// A step and the round it belongs to; round -1 holds local steps before round 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledStep {
    /// Round.
    pub round: i32,
    /// The step.
    pub step: Step,
}
