//! The vocabulary of plans: blocks, operand sides, and the five kinds of step.

use serde::Serialize;
use smallvec::SmallVec;

/// Half-open range of blocks `[first, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(into = "(u32, u32)")]
pub struct BlockRange {
    /// First block.
    pub first: u32,
    /// One past the last block.
    pub end: u32,
}

impl From<BlockRange> for (u32, u32) {
    fn from(range: BlockRange) -> Self {
        (range.first, range.end)
    }
}

/// A set of blocks as ascending, disjoint, non-touching runs. Most messages have one or two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Blocks(SmallVec<[BlockRange; 2]>);

/// The given half-open runs as ascending, disjoint, non-touching ones, without the empty ones.
pub(crate) fn joined(mut runs: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    runs.retain(|(first, end)| first < end);
    runs.sort_unstable();
    runs.dedup_by(|next, run| {
        let touches = run.1 >= next.0;
        if touches {
            run.1 = run.1.max(next.1);
        }
        touches
    });
    runs
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
        Self::from_runs(indices.into_iter().map(|block| (block, block + 1)).collect())
    }

    /// The set of the blocks in the given half-open runs, in any order.
    pub(crate) fn from_runs(runs: Vec<(usize, usize)>) -> Self {
        let block_range = |(first, end)| BlockRange { first: first as u32, end: end as u32 };
        Self(joined(runs).into_iter().map(block_range).collect())
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
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

/// One step of one rank. Block indices are the same in all buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The round that it belongs to; round -1 holds local steps before round 0.
    pub round: i32,
    /// The work on the blocks.
    pub kind: StepKind,
    /// The buffer that a send reads and that others write.
    pub buffer: u32,
    /// The blocks that are read or written.
    pub blocks: Blocks,
}

/// The work of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// Sends the blocks with their contents at the start of the round.
    Send {
        /// Receiving rank.
        to: u32,
    },
    /// Receives the blocks.
    Receive {
        /// Sending rank.
        from: u32,
        /// The use of the arriving data.
        action: Action,
    },
    /// Copies or combines with another buffer of the rank, after the round's messages.
    Local {
        /// Buffer read.
        source: u32,
        /// The use of its data.
        action: Action,
    },
}

impl StepKind {
    /// Returns whether the step combines data.
    pub fn reduces(self) -> bool {
        let (StepKind::Receive { action, .. } | StepKind::Local { action, .. }) = self else { return false };
        action != Action::Copy
    }
}
