//! Selection of a call's algorithm: a pure function of values that are equal on all ranks.
//!
//! The choice between ticketless (`flat`) and ticketed must never depend on observations of one rank: ranks that wait in
//! different lanes would never meet. Inside the ticketed lane the first arriver's proposal counts, since it travels in the
//! arrival word.

use super::collective::Collective;
use crate::config::Algorithm;
use crate::kernels::Maker;
use crate::op::{DType, FoldOrder, Op};
use std::fmt;

/// Bytes of the blocks that `single-copy` carries: from, and up to but not including.
pub type SingleCopySizes = (usize, usize);

/// No block.
const NEVER: SingleCopySizes = (usize::MAX, usize::MAX);

/// Thresholds of `auto`, the same on all ranks: they follow from numbers that all know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Largest message of the ticketless lane, bytes.
    pub flat_bytes: usize,
    /// Largest message that `leader` carries, bytes; above it `chain` runs (in arrival order).
    pub leader_bytes: usize,
    /// Largest broadcast without a ticket, bytes: the root's own deposit instead of the accumulator.
    pub broadcast_flat_bytes: usize,
    /// Largest reduce in arrival order without a ticket, bytes.
    pub reduce_flat_bytes: usize,
    /// Smallest allreduce by rank that `slices` carries, bytes; below it `leader` does.
    pub slices_bytes: usize,
    /// Smallest reduce by rank that `slices` carries, bytes; below it `flat` does.
    pub reduce_slices_bytes: usize,
    /// Blocks of an allgather that are read out of their owners' private buffers, bytes; others are deposited.
    pub all_gather_single_copy: SingleCopySizes,
    /// Blocks of an alltoall that are read out of their owners' private buffers, bytes.
    pub all_to_all_single_copy: SingleCopySizes,
    /// Smallest part of each block in the first operation of an alltoall whose lengths no rank knows, bytes, with which longer blocks are
    /// read out of their owners' private buffers.
    pub pairs_single_copy_bytes: usize,
    /// Blocks of a scatter that are read out of the root's private buffer, bytes.
    pub scatter_single_copy: SingleCopySizes,
}

impl Thresholds {
    /// Defaults for `ranks` ranks that may run on `cpus` CPUs of `maker`: from the measurements in `docs/results/2026-11-26.md` where each rank has
    /// a CPU of its own, and for folds by rank; for two ranks in `docs/results/2026-11-27.md`; for broadcasts and reduces of ranks that
    /// outnumber the CPUs, and for blocks whose lengths no rank knows, in `docs/results/2026-11-29.md`; else in `docs/results/2026-11-20.md` and `docs/results/2026-11-25.md`.
    pub fn default_for(ranks: usize, cpus: usize, maker: Maker) -> Self {
        let outnumber_cpus = ranks > cpus;
        // Of data that go one way between two ranks.
        let one_way_flat_bytes = match maker {
            Maker::Intel => 256 << 10,
            Maker::Other => 64 << 10,
        };
        // Larger results are written past the caches, which the kernel's copies are not. What fits a deposit, 1 MiB, takes one operation.
        let of_two_ranks = match maker {
            Maker::Intel => (512 << 10, 8 << 20),
            Maker::Other => ((1 << 20) + 1, 2 << 20),
        };
        let flat_bytes = match ranks {
            0..=2 => 8 << 10,
            3..=8 => 2 << 10,
            _ => 512,
        };
        let slices_bytes = match ranks {
            0..=3 => 512 << 10,
            4 => 64 << 10,
            _ if outnumber_cpus => 64 << 10,
            _ => 16 << 10,
        };
        Thresholds {
            flat_bytes,
            // Balanced ranks would queue up in `chain`: 16 of them for 20 us.
            leader_bytes: if ranks <= 4 || outnumber_cpus { 0 } else { 4 << 10 },
            broadcast_flat_bytes: match () {
                () if ranks <= 2 => one_way_flat_bytes,
                () if outnumber_cpus => 1 << 20,
                () => 4 << 10,
            },
            reduce_flat_bytes: match () {
                () if ranks <= 2 => one_way_flat_bytes,
                () if outnumber_cpus => 8 << 10,
                () => flat_bytes,
            },
            slices_bytes,
            reduce_slices_bytes: match ranks {
                0..=3 => usize::MAX,
                4..=7 if outnumber_cpus => usize::MAX,
                _ => slices_bytes,
            },
            all_gather_single_copy: if ranks <= 2 { of_two_ranks } else { NEVER },
            all_to_all_single_copy: match ranks {
                0..=2 => of_two_ranks,
                _ if outnumber_cpus => ((2 << 20) / ranks, usize::MAX),
                _ => (64 << 10, usize::MAX),
            },
            pairs_single_copy_bytes: if ranks <= 2 { usize::MAX } else { 16 << 10 },
            // Where the blocks do not fit into the two areas, so that the root waits for its readers in any case.
            scatter_single_copy: {
                let least = if outnumber_cpus { 1 << 20 } else { 128 << 10 };
                (((2 << 20) / ranks.max(1) + 1).max(least), usize::MAX)
            },
        }
    }

    /// Defaults for ranks on this machine, or on one with processors of the same maker.
    pub fn of_this_machine(ranks: usize, cpus: usize) -> Self {
        Self::default_for(ranks, cpus, Maker::of_this_processor())
    }

    /// The thresholds for a system that forbids reading private buffers of other processes.
    pub fn without_single_copy(self) -> Self {
        let [all_gather_single_copy, all_to_all_single_copy, scatter_single_copy] = [NEVER; 3];
        let pairs_single_copy_bytes = usize::MAX;
        Thresholds {
            all_gather_single_copy,
            all_to_all_single_copy,
            scatter_single_copy,
            pairs_single_copy_bytes,
            ..self
        }
    }

    /// The algorithm to run, or to propose, for a `collective` with blocks of `bytes`.
    pub fn choose(&self, collective: Collective, requested: Algorithm, bytes: usize, in_rank_order: bool) -> Algorithm {
        self.decide(collective, requested, bytes, in_rank_order).0
    }

    /// Returns whether longer blocks are read out of their owners' private buffers, in an alltoall whose lengths no rank knows and whose first
    /// operation moves `bytes` of each block.
    pub fn reads_pairs(&self, requested: Algorithm, bytes: usize) -> bool {
        match requested {
            Algorithm::SingleCopy => bytes > 0,
            Algorithm::Flat => false,
            _ => bytes >= self.pairs_single_copy_bytes,
        }
    }

    /// The algorithm of [`Thresholds::choose`], and the rule that selected it.
    #[inline]
    pub fn decide(
        &self,
        collective: Collective,
        requested: Algorithm,
        bytes: usize,
        in_rank_order: bool,
    ) -> (Algorithm, SelectionRule) {
        let has = collective.traits().algorithms;
        let leader_bytes = if has.contains(&Algorithm::Leader) { self.leader_bytes } else { 0 };
        let flat_bytes = match collective {
            Collective::Broadcast => self.broadcast_flat_bytes,
            Collective::Reduce if !in_rank_order => self.reduce_flat_bytes,
            _ => self.flat_bytes,
        };
        match requested {
            chosen if chosen != Algorithm::Auto && has.contains(&chosen) => (chosen, SelectionRule::Requested),
            _ if has.contains(&Algorithm::SingleCopy) => {
                let traits = collective.traits();
                let (from, end) = match (traits.in_parts, traits.has_root()) {
                    (true, true) => self.scatter_single_copy,
                    (true, false) => self.all_to_all_single_copy,
                    (false, _) => self.all_gather_single_copy,
                };
                match bytes {
                    _ if bytes < from => (Algorithm::Flat, SelectionRule::Below(from)),
                    _ if bytes < end => (Algorithm::SingleCopy, SelectionRule::From(from)),
                    _ => (Algorithm::Flat, SelectionRule::From(end)),
                }
            }
            // An algorithm requested for all collectives applies to those that have it; the others run `auto`.
            _ if has.len() == 1 => (Algorithm::Flat, SelectionRule::OnlyOne),
            _ if bytes <= flat_bytes => (Algorithm::Flat, SelectionRule::UpTo(flat_bytes)),
            // In rank order a chain would stall behind a late low rank; deposits do not.
            _ if in_rank_order => {
                let (smaller, from) = match has.contains(&Algorithm::Leader) {
                    true => (Algorithm::Leader, self.slices_bytes),
                    false => (Algorithm::Flat, self.reduce_slices_bytes),
                };
                match from {
                    usize::MAX => (smaller, SelectionRule::RankOrder),
                    from if bytes < from => (smaller, SelectionRule::RankOrderBelow(from)),
                    from => (Algorithm::Slices, SelectionRule::RankOrderFrom(from)),
                }
            }
            _ if bytes <= leader_bytes => (Algorithm::Leader, SelectionRule::UpTo(leader_bytes)),
            _ => (Algorithm::Chain, SelectionRule::Above(flat_bytes.max(leader_bytes))),
        }
    }
}

/// The rule by which an algorithm of the node was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelectionRule {
    /// The caller requested it, and the collective has it.
    Requested,
    /// The collective has no other.
    OnlyOne,
    /// Messages of up to so many bytes take it.
    UpTo(usize),
    /// Messages of more than so many bytes take it.
    Above(usize),
    /// Blocks of less than so many bytes take it.
    Below(usize),
    /// Blocks of so many bytes and more take it.
    From(usize),
    /// Folding in rank order takes it.
    RankOrder,
    /// Folding in rank order takes it from so many bytes on.
    RankOrderFrom(usize),
    /// Folding in rank order takes it below so many bytes.
    RankOrderBelow(usize),
}

impl fmt::Display for SelectionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelectionRule::Requested => f.write_str("it was asked for"),
            SelectionRule::OnlyOne => f.write_str("the collective has no other"),
            SelectionRule::UpTo(bytes) => write!(f, "messages of up to {bytes} bytes"),
            SelectionRule::Above(bytes) => write!(f, "messages of more than {bytes} bytes"),
            SelectionRule::Below(usize::MAX) => f.write_str("blocks of any size"),
            SelectionRule::Below(bytes) => write!(f, "blocks of less than {bytes} bytes"),
            SelectionRule::From(bytes) => write!(f, "blocks of {bytes} bytes and more"),
            SelectionRule::RankOrder => f.write_str("folding in rank order"),
            SelectionRule::RankOrderFrom(bytes) => write!(f, "folding in rank order from {bytes} bytes on"),
            SelectionRule::RankOrderBelow(bytes) => write!(f, "folding in rank order below {bytes} bytes"),
        }
    }
}

/// Returns whether a call by a built-in operator must fold in rank order. All other pairs of type and operator give the same bits
/// in any order, and so do two operands.
pub fn folds_in_rank_order(collective: Collective, order: FoldOrder, dtype: DType, op: Op, ranks: usize) -> bool {
    collective.traits().folds && order == FoldOrder::Rank && dtype.is_inexact(op) && ranks > 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use Algorithm::{Chain, Flat, Leader, SingleCopy, Slices};

    #[test]
    fn more_ranks_than_cpus_fold_by_slices_later() {
        let from = |ranks, cpus| {
            let limits = Thresholds::default_for(ranks, cpus, Maker::Other);
            [Collective::AllReduce, Collective::Reduce].map(|collective| {
                let sizes = [8 << 10, 16 << 10, 64 << 10, 512 << 10];
                sizes.into_iter().find(|bytes| limits.choose(collective, Algorithm::Auto, *bytes, true) == Slices)
            })
        };
        assert_eq!(from(3, 3), [Some(512 << 10), None]);
        assert_eq!([from(4, 4), from(7, 2)], [[Some(64 << 10); 2], [Some(64 << 10), None]]);
        assert_eq!([from(8, 8), from(8, 2)], [[Some(16 << 10); 2], [Some(64 << 10); 2]]);
    }

    #[test]
    fn two_ranks_copy_once_what_stays_in_the_caches() {
        for (maker, from, end) in [(Maker::Other, (1 << 20) + 1, 2 << 20), (Maker::Intel, 512 << 10, 8 << 20)] {
            let limits = Thresholds::default_for(2, 2, maker);
            for collective in [Collective::AllGather, Collective::AllToAll] {
                let chosen = [from - 1, from, end - 1, end, 64 << 20]
                    .map(|bytes| limits.choose(collective, Algorithm::Auto, bytes, false));
                assert_eq!(chosen, [Flat, SingleCopy, SingleCopy, Flat, Flat], "{}, {maker:?}", collective.name());
            }
        }
    }

    #[test]
    fn long_blocks_whose_lengths_no_rank_knows_are_read_among_more_than_two_ranks() {
        let limits = |ranks| Thresholds::default_for(ranks, 2, Maker::Other);
        let reads = |ranks, requested, bytes| limits(ranks).reads_pairs(requested, bytes);
        assert_eq!([2, 3].map(|ranks| reads(ranks, Algorithm::Auto, 256 << 10)), [false, true]);
        assert_eq!([0, 1].map(|more| reads(64, Algorithm::Auto, (16 << 10) - 1 + more)), [false, true]);
        assert_eq!([Flat, SingleCopy].map(|requested| reads(3, requested, 1 << 20)), [false, true]);
        assert_eq!([0, 1].map(|bytes| reads(2, SingleCopy, bytes)), [false, true]);
        assert!(!limits(8).without_single_copy().reads_pairs(Algorithm::Auto, 1 << 20));
    }

    #[test]
    fn data_that_go_one_way_between_two_ranks_are_deposited_further_on_some_processors() {
        let largest = |ranks, maker, collective| {
            let limits = Thresholds::default_for(ranks, 16, maker);
            let is_flat = |bytes: &usize| limits.choose(collective, Algorithm::Auto, *bytes, false) == Flat;
            (0..10).map(|doublings| 512 << doublings).filter(is_flat).max()
        };
        let both = |ranks, maker| [Collective::Broadcast, Collective::Reduce].map(|of| largest(ranks, maker, of));
        assert_eq!(both(2, Maker::Intel), [Some(256 << 10); 2]);
        assert_eq!(both(2, Maker::Other), [Some(64 << 10); 2]);
        assert_eq!([Maker::Intel, Maker::Other].map(|maker| both(3, maker)), [[Some(4 << 10), Some(2 << 10)]; 2]);
    }

    #[test]
    fn more_ranks_than_cpus_choose_otherwise() {
        let cases = [
            (Collective::AllReduce, 4 << 10, [Leader, Chain]),
            (Collective::AllReduce, (4 << 10) + 1, [Chain, Chain]),
            (Collective::Reduce, 8 << 10, [Chain, Flat]),
            (Collective::Reduce, (8 << 10) + 1, [Chain, Chain]),
            (Collective::Broadcast, 1 << 20, [Chain, Flat]),
            (Collective::Broadcast, (1 << 20) + 1, [Chain, Chain]),
            (Collective::AllToAll, 64 << 10, [SingleCopy, Flat]),
            (Collective::AllGather, 64 << 10, [Flat, Flat]),
            (Collective::AllGather, 4 << 20, [Flat, Flat]),
            (Collective::Scatter, 256 << 10, [Flat, Flat]),
            (Collective::Scatter, 512 << 10, [SingleCopy, Flat]),
            (Collective::Scatter, 1 << 20, [SingleCopy, SingleCopy]),
        ];
        for (collective, bytes, expected) in cases {
            let chosen = [8, 7].map(|cpus| {
                Thresholds::default_for(8, cpus, Maker::Other).choose(collective, Algorithm::Auto, bytes, false)
            });
            assert_eq!(chosen, expected, "{} of {bytes} bytes", collective.name());
        }
        let above = |collective| {
            Thresholds::default_for(8, 8, Maker::Other).decide(collective, Algorithm::Auto, 1 << 20, false).1
        };
        assert_eq!(above(Collective::AllReduce), SelectionRule::Above(4 << 10));
        assert_eq!(above(Collective::Reduce), SelectionRule::Above(2 << 10));
    }
}
