//! Recursive halving, then recursive doubling, with the classic fold (Rabenseifner's algorithm).
//!
//! Round k exchanges halves of the current region with the partner at distance 2^k (`doubling`, keeps rank order,
//! large messages stay near) or p₂/2^(k+1) (`halving`). Blocks = p₂.
//! Cost 2⌊log₂ P⌋α + 2(1 - 1/p₂)mβ + (1 - 1/p₂)mγ; with fold 2α + 2mβ + mγ more. Defined for every P; as
//! reduce-scatter or allgather for powers of two. Ordered (halving: commutative), identical bits. Source: RS.

use super::arithmetic::floor_log2;
use super::params::{Distance, Params, bad};
use super::surplus::Surplus;
use crate::plan::{Action, Blocks, Collective, Order, Plan, PlanBuilder, PlanError, Side};

const NAME: &str = "halving-doubling";

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let distance = params.distance.unwrap_or_default();
    let ranks: Vec<usize> = (0..n).collect();
    let surplus = Surplus::of(&ranks);
    let p2 = surplus.participants.len();
    if collective != Collective::Allreduce && n != p2 {
        return Err(bad(NAME, "ranks", n, format!("a power of two for {collective}")));
    }
    let mut b = params.builder(NAME, n, p2);
    b.collective(collective, 0);
    b.parameter("distance", if distance == Distance::Doubling { "doubling" } else { "halving" });
    let keeps = distance == Distance::Doubling || collective == Collective::Allgather;
    b.claim(if keeps || p2 <= 2 { Order::Ordered } else { Order::Commutative }, true);
    let mut round = surplus.fold_in(&mut b, p2, 0);
    let exchange =
        HalvingDoubling { participants: &surplus.participants, distance, natural: collective == Collective::Allreduce };
    if collective != Collective::Allgather {
        round = exchange.halve(&mut b, round);
    }
    if collective != Collective::ReduceScatter {
        round = exchange.double(&mut b, round);
    }
    surplus.fold_out(&mut b, p2, round);
    Ok(b.finish())
}

/// Both phases among a power of two participants with as many blocks.
pub(super) struct HalvingDoubling<'a> {
    pub(super) participants: &'a [usize],
    pub(super) distance: Distance,
    /// Regions are intervals of blocks. If not, blocks are renumbered so that participant i ends with block i.
    pub(super) natural: bool,
}

impl HalvingDoubling<'_> {
    fn levels(&self) -> usize {
        floor_log2(self.participants.len())
    }

    fn bit(&self, level: usize) -> usize {
        match self.distance {
            Distance::Doubling => level,
            Distance::Halving => self.levels() - 1 - level,
        }
    }

    /// The region of participant `i` before `level`, as positions.
    fn region(&self, i: usize, level: usize) -> (usize, usize) {
        let (mut lo, mut hi) = (0, self.participants.len());
        for k in 0..level {
            let mid = (lo + hi) / 2;
            if i >> self.bit(k) & 1 == 0 { hi = mid } else { lo = mid }
        }
        (lo, hi)
    }

    fn blocks(&self, (lo, hi): (usize, usize)) -> Blocks {
        let levels = self.levels();
        if self.natural || self.distance == Distance::Halving || levels == 0 {
            return Blocks::range(lo, hi);
        }
        // with distance doubling participant i ends at the position whose bits are those of i reversed
        Blocks::from_indices((lo..hi).map(|x| x.reverse_bits() >> (usize::BITS as usize - levels)))
    }

    /// Recursive halving. Returns the next round.
    pub(super) fn halve(&self, b: &mut PlanBuilder, first: usize) -> usize {
        for level in 0..self.levels() {
            let bit = self.bit(level);
            for (i, rank) in self.participants.iter().enumerate() {
                let partner = i ^ (1 << bit);
                let given = self.blocks(self.region(partner, level + 1));
                let side = if i < partner { Side::Left } else { Side::Right };
                b.message(first + level, *rank, self.participants[partner], 0, 0, given, Action::Reduce(side));
            }
        }
        first + self.levels()
    }

    /// Recursive doubling of what [`Self::halve`] left. Returns the next round.
    pub(super) fn double(&self, b: &mut PlanBuilder, first: usize) -> usize {
        for (step, level) in (0..self.levels()).rev().enumerate() {
            for (i, rank) in self.participants.iter().enumerate() {
                let partner = self.participants[i ^ (1 << self.bit(level))];
                b.message(first + step, *rank, partner, 0, 0, self.blocks(self.region(i, level + 1)), Action::Copy);
            }
        }
        first + self.levels()
    }

    /// Gathers what [`Self::halve`] left to participant 0 along a binomial tree. Returns the next round.
    pub(super) fn gather(&self, b: &mut PlanBuilder, first: usize) -> usize {
        for (step, level) in (0..self.levels()).rev().enumerate() {
            let bit = self.bit(level);
            let done: usize = (level + 1..self.levels()).map(|k| 1 << self.bit(k)).sum();
            for (i, rank) in self.participants.iter().enumerate() {
                if i & done == 0 && i >> bit & 1 == 1 {
                    let held = self.blocks(self.region(i, level + 1));
                    b.message(first + step, *rank, self.participants[i ^ (1 << bit)], 0, 0, held, Action::Copy);
                }
            }
        }
        first + self.levels()
    }
}
