//! A hypercube of factors: P = q₀·q₁·…, one protocol per dimension (RS).
//!
//! Digit 0 of the rank varies fastest and is reduced first, so partial results are contiguous intervals of ranks. A
//! bandwidth dimension splits the region of its lines among their members; a latency dimension keeps it whole. The
//! return walks the dimensions backwards: a bandwidth dimension is undone, a latency dimension only serves the ranks
//! that were eliminated. Ranks eliminated in a dimension take no part in later ones.

use super::{direct, elimination, odd_ring, prefix};
use crate::plan::{Blocks, PlanBuilder};

/// How a line of ranks combines.
#[derive(Debug, Clone)]
pub(super) enum Method {
    Eliminate32,
    Eliminate21,
    Ring,
    Direct,
    Prefix(Vec<usize>),
}

/// One dimension.
#[derive(Debug, Clone)]
pub(super) struct Dim {
    pub(super) size: usize,
    pub(super) method: Method,
    pub(super) bandwidth: bool,
}

impl Dim {
    /// Into how many parts the dimension cuts its region.
    fn parts(&self) -> usize {
        match self.method {
            _ if !self.bandwidth => 1,
            Method::Eliminate32 | Method::Eliminate21 => 1 << super::floor_log2(self.size),
            Method::Ring | Method::Direct => self.size,
            Method::Prefix(_) => 1,
        }
    }
}

/// Half-open interval of blocks.
pub(super) type Region = (usize, usize);

/// Ranks that differ in one digit only, in order, all with the same region.
pub(super) struct Line<'a> {
    pub(super) ranks: &'a [usize],
    pub(super) region: Region,
    pub(super) bandwidth: bool,
    pub(super) round: usize,
}

/// A message of the return, its round counted from the start of the dimension's return.
pub(super) struct Back {
    pub(super) round: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) blocks: Blocks,
}

/// What a line did.
pub(super) struct Folded {
    /// Rounds taken.
    pub(super) rounds: usize,
    /// What each member of the line is left with; nothing if it was eliminated.
    pub(super) regions: Vec<Option<Region>>,
    /// The return.
    pub(super) back: Vec<Back>,
}

/// Blocks needed for a list of dimensions.
pub(super) fn blocks(dims: &[Dim]) -> usize {
    dims.iter().map(Dim::parts).product()
}

/// Writes the allreduce of all ranks, dimension by dimension and back.
pub(super) fn allreduce(b: &mut PlanBuilder, dims: &[Dim], blocks: usize) {
    let n = b.ranks();
    let mut regions: Vec<Option<Region>> = vec![Some((0, blocks)); n];
    let (mut round, mut stride) = (0, 1);
    let mut returns: Vec<Vec<Back>> = Vec::new();
    for dim in dims {
        let (mut back, mut rounds) = (Vec::new(), 0);
        for start in (0..n).filter(|r| r / stride % dim.size == 0) {
            let Some(region) = regions[start] else { continue };
            let ranks: Vec<usize> = (0..dim.size).map(|j| start + j * stride).collect();
            let line = Line { ranks: &ranks, region, bandwidth: dim.bandwidth, round };
            let folded = match &dim.method {
                Method::Eliminate32 => elimination::fold_3_2(b, &line),
                Method::Eliminate21 => elimination::fold_2_1(b, &line),
                Method::Ring => odd_ring::fold(b, &line),
                Method::Direct => direct::fold(b, &line),
                Method::Prefix(factors) => prefix::fold(b, &line, factors),
            };
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
