//! A hypercube of factors: P = q₀·q₁·…, one protocol per dimension (RS).
//!
//! Digit 0 of the rank varies fastest and is reduced first, so partial results are contiguous intervals of ranks. A
//! bandwidth dimension splits the region of its lines among their members; a latency dimension keeps it whole. The
//! return walks the dimensions backwards: a bandwidth dimension is undone, a latency dimension only serves the ranks
//! that were eliminated. Ranks eliminated in a dimension take no part in later ones.

use super::params::{Protocol, bad};
use crate::plan::{Blocks, PlanBuilder, PlanError};

/// Writes the messages by which a line of ranks combines.
pub(super) type FoldLine = fn(&mut PlanBuilder, &Line<'_>) -> FoldedLine;

/// One dimension of the hypercube.
#[derive(Debug, Clone)]
pub(super) struct Dimension {
    pub(super) size: usize,
    pub(super) fold: FoldLine,
    /// The number of parts into which the bandwidth form cuts a region.
    pub(super) parts: usize,
    pub(super) bandwidth: bool,
    /// Factors of a line of prefix sums; empty for the others.
    pub(super) factors: Vec<usize>,
}

impl Dimension {
    /// A dimension in the latency form.
    pub(super) fn new(size: usize, fold: FoldLine, parts: usize) -> Dimension {
        Dimension { size, fold, parts, bandwidth: false, factors: Vec::new() }
    }
}

/// Marks the dimensions that split their region.
pub(super) fn split(name: &str, dims: &mut [Dimension], protocol: Protocol) -> Result<(), PlanError> {
    let count = match protocol {
        Protocol::Latency => 0,
        Protocol::Bandwidth => dims.len(),
        Protocol::Mixed(n) if n <= dims.len() => n,
        Protocol::Mixed(_) => {
            let expected = format!("mixed:0 to mixed:{}, as there are {} dimensions", dims.len(), dims.len());
            return Err(bad(name, "protocol", protocol, expected));
        }
    };
    for dim in &mut dims[..count] {
        dim.bandwidth = true;
    }
    Ok(())
}

/// Half-open interval of blocks.
pub(super) type Region = (usize, usize);

/// Ranks that differ in one digit only, in order, all with the same region.
pub(super) struct Line<'a> {
    pub(super) ranks: &'a [usize],
    pub(super) region: Region,
    pub(super) bandwidth: bool,
    pub(super) factors: &'a [usize],
    pub(super) round: usize,
}

/// A message of the return, its round counted from the start of the dimension's return.
pub(super) struct ReturnMessage {
    pub(super) round: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) blocks: Blocks,
}

/// The reduction of a line.
pub(super) struct FoldedLine {
    /// Rounds taken.
    pub(super) rounds: usize,
    /// The region that each member of the line keeps; none if it was eliminated.
    pub(super) regions: Vec<Option<Region>>,
    /// The return.
    pub(super) back: Vec<ReturnMessage>,
}

/// Blocks needed for a list of dimensions.
pub(super) fn blocks(dims: &[Dimension]) -> usize {
    dims.iter().filter(|dim| dim.bandwidth).map(|dim| dim.parts).product()
}

/// Writes the allreduce of all ranks, dimension by dimension and back.
pub(super) fn allreduce(b: &mut PlanBuilder, dims: &[Dimension], blocks: usize) {
    let n = b.ranks();
    let mut regions: Vec<Option<Region>> = vec![Some((0, blocks)); n];
    let (mut round, mut stride) = (0, 1);
    let mut returns: Vec<Vec<ReturnMessage>> = Vec::new();
    for dim in dims {
        let (mut back, mut rounds) = (Vec::new(), 0);
        for start in (0..n).filter(|r| r / stride % dim.size == 0) {
            let Some(region) = regions[start] else { continue };
            let ranks: Vec<usize> = (0..dim.size).map(|j| start + j * stride).collect();
            let line = Line { ranks: &ranks, region, bandwidth: dim.bandwidth, factors: &dim.factors, round };
            let folded = (dim.fold)(b, &line);
            for (rank, left) in ranks.iter().zip(folded.regions) {
                regions[*rank] = left;
            }
            rounds = rounds.max(folded.rounds);
            back.extend(folded.back);
        }
        returns.push(back);
        round += rounds;
        stride *= dim.size;
    }
    for back in returns.into_iter().rev() {
        let rounds = back.iter().map(|m| m.round + 1).max().unwrap_or(0);
        for m in back {
            b.message(round + m.round, m.from, m.to, 0, 0, m.blocks, crate::plan::Action::Copy);
        }
        round += rounds;
    }
}
