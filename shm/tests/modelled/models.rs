//! The models: every algorithm of the shipping protocol, small ones completely, larger ones to a stated bound.
//!
//! Two operations always share one slot and one area, so the second reuses all memory of the first.

use super::{Bound, Scenario};
use earlybird_shm::Algorithm::{Chain, Flat, Leader, SingleCopy, Slices, StaticLeader, StaticLeaderEarly};
use earlybird_shm::Collective::{
    AllGather, AllToAll, Broadcast, ExclusiveScan, Gather, Reduce, ReduceScatter, Scan, Scatter,
};
use earlybird_shm::protocol::step::Step;

/// A model by name.
pub struct Model {
    /// Name of its test.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Bound of every run.
    pub bound: Bound,
    /// Bound of the long run, where that looks further.
    #[allow(dead_code)]
    pub long: Option<Bound>,
    /// The ranks and their calls.
    pub scenario: fn() -> Scenario,
}

const ALL: Bound = None;
const fn upto(preemptions: usize) -> Bound {
    Some(preemptions)
}

/// Words that fit beside a mark, that fill one piece of a deposit, two, three, and five.
const ONE: usize = 1;
const EIGHT: usize = 8;
const TWO: usize = 16;
const THREE: usize = 24;
const FIVE: usize = 40;

/// Calls `$each!` with the names of all models.
#[allow(unused_macros)]
macro_rules! for_every_model {
    ($each:ident) => {
        $each! {
            flat_2_once flat_2 flat_general_2 flat_mixed_2 flat_deposit_2_once flat_deposit_mixed_2_once
            flat_pieces_2_once flat_pieces_2 flat_3_once flat_mixed_3
            leader_2_once leader_2 leader_pieces_2 leader_3 leader_by_rank_2 leader_by_rank_3
            chain_2_once chain_2 chain_pieces_2 chain_3 chain_by_rank_2 chain_by_rank_3
            static_leader_2 static_leader_3 static_leader_early_2 static_leader_early_3
            static_leader_early_by_rank_3
            two_plans_2 two_plans_3
            mismatch_flat_2 mismatch_flat_pieces_2 mismatch_lanes_2 mismatch_leader_2 mismatch_chain_2
            mismatch_chain_3
            slices_2 slices_pieces_2 slices_3 registered_2 registered_pieces_2 registered_3
            registered_apart_2 registered_apart_pieces_2 registered_apart_3
            shared_2 shared_pieces_2 shared_3 shared_kept_2
            reduce_chain_2 reduce_chain_3 reduce_chain_3_directed reduce_slices_2 reduce_slices_pieces_2
            reduce_slices_3
            reduce_flat_2 reduce_flat_pieces_2 reduce_flat_general_2 reduce_flat_mixed_2 reduce_flat_deposit_2
            reduce_flat_deposit_mixed_2 reduce_flat_by_rank_3 reduce_static_leader_3
            broadcast_2 broadcast_pieces_2 broadcast_pieces_general_2 broadcast_pieces_mixed_2 broadcast_chain_2 broadcast_3
            gather_3 all_gather_2 all_gather_pieces_2 all_gather_pieces_mixed_2 all_gather_pieces_3 all_to_all_2
            broadcast_general_2 broadcast_mixed_2 all_gather_general_2 all_gather_mixed_2 all_to_all_mixed_2
            announced_2 announced_general_2 announced_mixed_2 announced_piece_2 announced_piece_mixed_2 announced_deposit_2 announced_long_2 announced_long_refused_2 announced_long_3 announced_3 mismatch_announced_2
            announced_gather_2 announced_gather_general_2 announced_gather_piece_2 announced_gather_deposit_2 announced_gather_deposit_general_2 announced_gather_parts_2_once announced_gather_parts_2 announced_gather_parts_3
            mismatch_announced_gather_2
            announced_scatter_2 announced_scatter_general_2 announced_scatter_mixed_2 announced_scatter_piece_2 announced_scatter_piece_general_2 announced_scatter_3
            mismatch_announced_scatter_2
            unequal_all_gather_2 unequal_all_gather_mixed_2 unequal_all_gather_deposit_2 unequal_reduce_scatter_2 unequal_scatter_deposit_2
            reduce_scatter_2 reduce_scatter_mixed_2 reduce_scatter_by_rank_3 reduce_scatter_deposit_2
            scan_2 scan_general_2 scan_mixed_2 scan_deposit_2 scan_3 scan_pieces_2 exscan_2 exscan_mixed_2 exscan_pieces_3
            scatter_2 scatter_pieces_2
            single_copy_all_gather_2 single_copy_all_to_all_2 single_copy_all_gather_3 single_copy_refused_2
            single_copy_scatter_2 single_copy_scatter_3 single_copy_handed_over_2 single_copy_handed_over_3
            mismatch_single_copy_2
            mismatch_reduce_flat_pieces_2 mismatch_reduce_chain_2 mismatch_broadcast_chain_2 mismatch_broadcast_2
            mismatch_gather_2 mismatch_and_death_3
            spinning_flat_2 spinning_flat_pieces_2 spinning_chain_2 spinning_leader_2 spinning_slices_2
        }
    };
}
#[allow(unused_imports)]
pub(crate) use for_every_model;

/// The model of this name.
pub fn model(name: &str) -> &'static Model {
    MODELS.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("no model is called {name:?}"))
}

macro_rules! models {
    ($($name:ident: $title:literal, $bound:expr, $long:expr, $scenario:expr;)*) => {
        /// Every model.
        pub const MODELS: &[Model] = &[$(
            Model { name: stringify!($name), title: $title, bound: $bound, long: $long, scenario: || $scenario },
        )*];
    };
}

models! {
    flat_2_once: "flat, 2 ranks, once", ALL, None, Scenario::new(Flat, 2, ONE);
    flat_2: "flat, 2 ranks, reuse", upto(3), Some(ALL), Scenario::new(Flat, 2, ONE).epochs(2);
    flat_general_2: "flat on the general path, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).epochs(2).general(0).general(1);
    flat_mixed_2: "flat, one rank on the fast path, one on the general one, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).epochs(2).general(0);
    flat_deposit_2_once: "flat with a deposit, 2 ranks, once", upto(3), Some(upto(5)), Scenario::new(Flat, 2, EIGHT);
    flat_deposit_mixed_2_once: "flat with a deposit, one rank on the fast path, one on the general one, 2 ranks, once", upto(3),
        Some(upto(5)), Scenario::new(Flat, 2, EIGHT).general(0);
    flat_pieces_2_once: "flat with 2 deposited pieces, 2 ranks, once", upto(3), Some(upto(5)), Scenario::new(Flat, 2, TWO);
    flat_pieces_2: "flat with 2 deposited pieces, 2 ranks, reuse", upto(1), Some(upto(2)),
        Scenario::new(Flat, 2, TWO).epochs(2);
    flat_3_once: "flat, 3 ranks, once", upto(2), Some(upto(3)), Scenario::new(Flat, 3, ONE);
    flat_mixed_3: "flat, one rank on the fast path, two on the general one, 3 ranks, reuse", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, ONE).epochs(2).general(0).general(1);

    leader_2_once: "leader, 2 ranks, once", upto(4), Some(ALL), Scenario::new(Leader, 2, ONE);
    leader_2: "leader, 2 ranks, reuse", upto(2), Some(upto(3)), Scenario::new(Leader, 2, ONE).epochs(2);
    leader_pieces_2: "leader, 2 pieces, 2 ranks, once", upto(3), Some(upto(4)), Scenario::new(Leader, 2, TWO);
    leader_3: "leader, 3 ranks, once", upto(1), Some(upto(2)), Scenario::new(Leader, 3, ONE);
    leader_by_rank_2: "leader by rank, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Leader, 2, ONE).epochs(2).by_rank();
    leader_by_rank_3: "leader by rank, 3 ranks, once", upto(1), Some(upto(2)), Scenario::new(Leader, 3, ONE).by_rank();

    chain_2_once: "chain, 1 chunk, 2 ranks, once", ALL, None, Scenario::new(Chain, 2, ONE);
    chain_2: "chain, 1 chunk, 2 ranks, reuse", upto(3), Some(upto(4)), Scenario::new(Chain, 2, ONE).epochs(2);
    chain_pieces_2: "chain, 2 chunks, 2 ranks, once", upto(2), Some(upto(3)), Scenario::new(Chain, 2, TWO);
    chain_3: "chain, 1 chunk, 3 ranks, once", upto(2), Some(upto(3)), Scenario::new(Chain, 3, ONE);
    chain_by_rank_2: "chain by rank, 1 chunk, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Chain, 2, ONE).epochs(2).by_rank();
    chain_by_rank_3: "chain by rank, 1 chunk, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(Chain, 3, ONE).by_rank();

    static_leader_2: "static-leader, 2 ranks, reuse", upto(3), Some(upto(4)),
        Scenario::new(StaticLeader, 2, ONE).epochs(2);
    static_leader_3: "static-leader, 3 ranks, once", upto(2), None, Scenario::new(StaticLeader, 3, ONE);
    static_leader_early_2: "static-leader-early, 2 ranks, reuse", upto(3), Some(upto(4)),
        Scenario::new(StaticLeaderEarly, 2, ONE).epochs(2);
    static_leader_early_3: "static-leader-early, 3 ranks, once", upto(2), None,
        Scenario::new(StaticLeaderEarly, 3, ONE);
    static_leader_early_by_rank_3: "static-leader-early by rank, 3 ranks, once", upto(2), None,
        Scenario::new(StaticLeaderEarly, 3, ONE).by_rank();

    two_plans_2: "one proposes leader, one chain, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Leader, 2, ONE).proposes(1, Chain).epochs(2);
    two_plans_3: "one proposes chain, two leader, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(Leader, 3, ONE).proposes(1, Chain);

    mismatch_flat_2: "different calls, flat, 2 ranks, once", upto(3), Some(ALL), Scenario::new(Flat, 2, ONE).stranger(1);
    mismatch_flat_pieces_2: "different calls, flat with deposits, 2 ranks, second operation", upto(1), Some(upto(2)),
        Scenario::new(Flat, 2, TWO).epochs(2).stranger(1);
    mismatch_lanes_2: "different calls, one flat and one chain, 2 ranks, once", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).proposes(1, Chain).stranger(1);
    mismatch_leader_2: "different calls, leader, 2 ranks, second operation", upto(2), Some(upto(3)),
        Scenario::new(Leader, 2, ONE).epochs(2).stranger(1);
    mismatch_chain_2: "different calls, chain, 2 ranks, second operation", upto(2), Some(upto(3)),
        Scenario::new(Chain, 2, ONE).epochs(2).stranger(0);
    mismatch_chain_3: "different calls, chain, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(Chain, 3, ONE).stranger(2);

    slices_2: "slices, 2 ranks, reuse", upto(2), Some(upto(3)), Scenario::new(Slices, 2, ONE).epochs(2);
    slices_pieces_2: "slices, 2 chunks, 2 ranks, once", upto(2), Some(upto(3)), Scenario::new(Slices, 2, TWO);
    slices_3: "slices, 3 ranks, once", upto(1), Some(upto(2)), Scenario::new(Slices, 3, ONE);

    registered_2: "registered buffers, 2 ranks, reuse", upto(2), Some(upto(3)), Scenario::new(Slices, 2, ONE).registered().epochs(2);
    registered_pieces_2: "registered buffers, 2 chunks, 2 ranks, once", upto(3), Some(ALL), Scenario::new(Slices, 2, TWO).registered();
    registered_3: "registered buffers, 3 ranks, once", upto(2), Some(upto(3)), Scenario::new(Slices, 3, ONE).registered();
    registered_apart_2: "registered buffers, results of their own, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Slices, 2, ONE).registered_apart().epochs(2);
    registered_apart_pieces_2: "registered buffers, results of their own, 2 chunks, 2 ranks, once", upto(3), Some(ALL),
        Scenario::new(Slices, 2, TWO).registered_apart();
    registered_apart_3: "registered buffers, results of their own, 3 ranks, once", upto(1), Some(upto(3)),
        Scenario::new(Slices, 3, ONE).registered_apart();

    shared_2: "one shared result, 2 ranks, reuse", upto(1), Some(upto(2)),
        Scenario::new(Slices, 2, ONE).shared().epochs(2);
    shared_pieces_2: "one shared result, 2 chunks, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Slices, 2, TWO).shared();
    shared_3: "one shared result, 3 ranks, once", upto(1), Some(upto(2)), Scenario::new(Slices, 3, ONE).shared();
    shared_kept_2: "one shared result, which one of 2 ranks still reads when the next is made", upto(1), Some(upto(2)),
        Scenario::new(Slices, 2, ONE).shared().epochs(2).keeps(1);

    reduce_chain_2: "reduce by chain, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Chain, 2, ONE).of(Reduce).epochs(2);
    reduce_chain_3: "reduce by chain, 3 ranks, reuse", upto(0), Some(upto(1)),
        Scenario::new(Chain, 3, ONE).of(Reduce).epochs(2);
    reduce_chain_3_directed: "reduce by chain, 3 ranks, reuse by one of them", upto(1), Some(upto(2)),
        Scenario::new(Chain, 3, ONE).of(Reduce).epochs(2).stops(0, 1).stops(2, 1);
    reduce_slices_2: "reduce by slices, 2 ranks, reuse", upto(1), Some(upto(2)),
        Scenario::new(Slices, 2, ONE).of(Reduce).epochs(2);
    reduce_slices_pieces_2: "reduce by slices, 2 chunks, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Slices, 2, TWO).of(Reduce);
    reduce_slices_3: "reduce by slices, 3 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Slices, 3, ONE).of(Reduce);

    reduce_flat_2: "reduce by flat, 2 ranks, reuse", upto(3), Some(ALL), Scenario::new(Flat, 2, ONE).of(Reduce).epochs(2);
    reduce_flat_pieces_2: "reduce by flat with 2 deposited pieces, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, TWO).of(Reduce).epochs(2);
    reduce_flat_general_2: "reduce by flat on the general path, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Reduce).epochs(2).general(0).general(1);
    reduce_flat_mixed_2: "reduce by flat, the root on the general path, the other on the fast one, 2 ranks, reuse", upto(3),
        Some(ALL), Scenario::new(Flat, 2, ONE).of(Reduce).epochs(2).general(0);
    reduce_flat_deposit_2: "reduce by flat with a deposit, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, EIGHT).of(Reduce).epochs(2);
    reduce_flat_deposit_mixed_2: "reduce by flat with a deposit, the root on the fast path, the other on the general one, 2 ranks, reuse",
        upto(2), Some(upto(3)), Scenario::new(Flat, 2, EIGHT).of(Reduce).epochs(2).general(1);
    reduce_flat_by_rank_3: "reduce by flat by rank, 3 ranks, reuse", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, ONE).of(Reduce).by_rank().epochs(2);
    reduce_static_leader_3: "reduce by static-leader, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(StaticLeader, 3, ONE).of(Reduce);

    broadcast_2: "broadcast, 2 ranks, reuse", upto(3), Some(ALL), Scenario::new(Flat, 2, ONE).of(Broadcast).epochs(2);
    broadcast_pieces_2: "broadcast of 2 deposited pieces, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, TWO).of(Broadcast).epochs(2);
    broadcast_pieces_general_2: "broadcast of 2 deposited pieces on the general path, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, TWO).of(Broadcast).epochs(2).general(0).general(1);
    broadcast_pieces_mixed_2: "broadcast of 2 deposited pieces, the root on the general path, the other on the fast one, 2 ranks, reuse", upto(2),
        Some(upto(3)), Scenario::new(Flat, 2, TWO).of(Broadcast).epochs(2).general(0);
    broadcast_chain_2: "broadcast of 2 chunks, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Chain, 2, TWO).of(Broadcast).epochs(2);
    broadcast_3: "broadcast, 3 ranks, reuse", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, ONE).of(Broadcast).epochs(2);

    gather_3: "gather, 3 ranks, reuse", upto(1), Some(upto(2)), Scenario::new(Flat, 3, ONE).of(Gather).epochs(2);
    all_gather_2: "allgather, 2 ranks, reuse", upto(3), Some(upto(4)), Scenario::new(Flat, 2, ONE).of(AllGather).epochs(2);
    all_gather_pieces_2: "allgather of 2 deposited pieces, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, TWO).of(AllGather);
    all_gather_pieces_mixed_2: "allgather of 2 deposited pieces, one rank on the fast path, one on the general one, 2 ranks, once",
        upto(2), Some(upto(3)), Scenario::new(Flat, 2, TWO).of(AllGather).general(0);
    all_gather_pieces_3: "allgather of 2 deposited pieces, what is there first, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, TWO).of(AllGather);
    all_to_all_2: "alltoall, 2 ranks, reuse", upto(2), Some(upto(3)), Scenario::new(Flat, 2, ONE).of(AllToAll).epochs(2);
    broadcast_general_2: "broadcast on the general path, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Broadcast).epochs(2).general(0).general(1);
    broadcast_mixed_2: "broadcast, the root on the general path, the other on the fast one, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Broadcast).epochs(2).general(0);
    all_gather_general_2: "allgather on the general path, 2 ranks, reuse", upto(3), Some(upto(4)),
        Scenario::new(Flat, 2, ONE).of(AllGather).epochs(2).general(0).general(1);
    all_gather_mixed_2: "allgather, one rank on the fast path, one on the general one, 2 ranks, reuse", upto(3), Some(upto(4)),
        Scenario::new(Flat, 2, ONE).of(AllGather).epochs(2).general(0);
    all_to_all_mixed_2: "alltoall, one rank on the fast path, one on the general one, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, ONE).of(AllToAll).epochs(2).general(0);
    announced_2: "alltoall with announced lengths on the fast path, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, ONE).of(AllToAll).announced().epochs(2);
    announced_general_2: "alltoall with announced lengths on the general path, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, ONE).of(AllToAll).announced().epochs(2).general(0).general(1);
    announced_mixed_2: "alltoall with announced lengths, one rank on the fast path, one on the general one, 2 ranks, reuse", upto(2),
        Some(upto(3)), Scenario::new(Flat, 2, 2).of(AllToAll).announced().epochs(2).general(0);
    announced_piece_2: "alltoall with announced lengths on the fast path, one rank beside its mark, one with a deposit of one piece, 2 ranks, reuse",
        upto(2), Some(upto(3)), Scenario::new(Flat, 2, 4).of(AllToAll).announced().epochs(2);
    announced_piece_mixed_2: "alltoall with announced lengths, a deposit of one piece by the rank on the fast path, 2 ranks, reuse", upto(2),
        Some(upto(3)), Scenario::new(Flat, 2, 4).of(AllToAll).announced().epochs(2).general(0);
    announced_deposit_2: "alltoall with announced lengths, one rank beside its mark, one with a deposit of 2 pieces, 2 ranks, reuse", upto(2),
        Some(upto(3)), Scenario::new(Flat, 2, EIGHT).of(AllToAll).announced().epochs(2);
    announced_long_2: "alltoall with announced lengths, long blocks read where they lie, one rank on the fast path, 2 ranks, reuse", upto(2),
        Some(upto(3)), Scenario::new(Flat, 2, 4).of(AllToAll).announced().reads_over(3).epochs(2);
    announced_long_refused_2: "alltoall with announced lengths, long blocks, one of 2 ranks may not read, once", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, 4).of(AllToAll).announced().reads_over(3).cannot_read(0);
    announced_long_3: "alltoall with announced lengths, long blocks read where they lie, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, 2).of(AllToAll).announced().reads_over(1);
    announced_3: "alltoall with announced lengths, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, 2).of(AllToAll).announced();
    mismatch_announced_2: "different calls, alltoall with announced lengths, 2 ranks, second operation", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, ONE).of(AllToAll).announced().epochs(2).stranger(1);
    announced_gather_2: "gather with announced lengths on the fast path, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Gather).announced().epochs(2);
    announced_gather_general_2: "gather with announced lengths on the general path, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Gather).announced().epochs(2).general(0).general(1);
    announced_gather_piece_2: "gather with announced lengths on the fast path, a deposit of one piece, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, EIGHT).of(Gather).announced().epochs(2);
    announced_gather_deposit_2: "gather with announced lengths, the owner on the fast path, a deposit of 2 pieces, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, TWO).of(Gather).announced().epochs(2);
    announced_gather_deposit_general_2: "gather with announced lengths on the general path, a deposit of 2 pieces, 2 ranks, reuse",
        upto(2), Some(upto(3)), Scenario::new(Flat, 2, TWO).of(Gather).announced().epochs(2).general(0).general(1);
    announced_gather_parts_2_once: "gather with announced lengths, three parts after the first, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, FIVE).of(Gather).announced();
    announced_gather_parts_2: "gather with announced lengths, a part after the first, 2 ranks, reuse", upto(1), Some(upto(2)),
        Scenario::new(Flat, 2, THREE).of(Gather).announced().epochs(2);
    announced_gather_parts_3: "gather with announced lengths, two ranks with a part after the first, 3 ranks, once", upto(0),
        Some(upto(1)), Scenario::new(Flat, 3, THREE).of(Gather).announced();
    mismatch_announced_gather_2: "different calls, gather with announced lengths, 2 ranks, second operation", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, ONE).of(Gather).announced().epochs(2).stranger(1);
    announced_scatter_2: "scatter with announced lengths on the fast path, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Scatter).announced().epochs(2);
    announced_scatter_general_2: "scatter with announced lengths on the general path, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Scatter).announced().epochs(2).general(0).general(1);
    announced_scatter_mixed_2: "scatter with announced lengths, the root on the general path, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Scatter).announced().epochs(2).general(0);
    announced_scatter_piece_2: "scatter with announced lengths on the fast path, a bundle of one piece, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, 4).of(Scatter).announced().epochs(2);
    announced_scatter_piece_general_2: "scatter with announced lengths on the general path, a bundle of one piece, 2 ranks, reuse", upto(3),
        Some(ALL), Scenario::new(Flat, 2, 4).of(Scatter).announced().epochs(2).general(0).general(1);
    announced_scatter_3: "scatter with announced lengths, 3 ranks, reuse", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, 2).of(Scatter).announced().epochs(2);
    mismatch_announced_scatter_2: "different calls, scatter with announced lengths, 2 ranks, second operation", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, ONE).of(Scatter).announced().epochs(2).stranger(1);
    unequal_all_gather_2: "allgather of unequal blocks, 2 ranks, reuse", upto(3), Some(upto(4)),
        Scenario::new(Flat, 2, 2).of(AllGather).unequal().epochs(2);
    unequal_all_gather_mixed_2: "allgather of unequal blocks, one rank on the fast path, one on the general one, 2 ranks, reuse", upto(2),
        Some(upto(3)), Scenario::new(Flat, 2, 2).of(AllGather).unequal().epochs(2).general(0);
    unequal_all_gather_deposit_2: "allgather of unequal blocks, deposits of 1 and 2 pieces, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, TWO).of(AllGather).unequal();
    unequal_reduce_scatter_2: "reduce-scatter of unequal blocks, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, 2).of(ReduceScatter).unequal().epochs(2);
    unequal_scatter_deposit_2: "scatter of unequal blocks by a deposit, the root on the general path, the other on the fast one, 2 ranks, reuse",
        upto(2), Some(upto(3)), Scenario::new(Flat, 2, EIGHT).of(Scatter).unequal().epochs(2).general(0);
    reduce_scatter_2: "reduce-scatter, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, ONE).of(ReduceScatter).epochs(2);
    reduce_scatter_mixed_2: "reduce-scatter, one rank on the fast path, one on the general one, 2 ranks, reuse", upto(2),
        Some(upto(3)), Scenario::new(Flat, 2, ONE).of(ReduceScatter).epochs(2).general(0);
    reduce_scatter_by_rank_3: "reduce-scatter by rank, one of 3 ranks on the general path, once", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, ONE).of(ReduceScatter).by_rank().general(1);
    reduce_scatter_deposit_2: "reduce-scatter with a deposit, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, EIGHT / 2).of(ReduceScatter);

    scan_2: "scan, 2 ranks, reuse", upto(3), Some(ALL), Scenario::new(Flat, 2, ONE).of(Scan).epochs(2);
    scan_general_2: "scan on the general path, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Scan).epochs(2).general(0).general(1);
    scan_mixed_2: "scan, rank 0 on the general path, the other on the fast one, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Scan).epochs(2).general(0);
    scan_deposit_2: "scan with a deposit, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, EIGHT).of(Scan).epochs(2);
    scan_3: "scan, 3 ranks, once", upto(2), Some(upto(3)), Scenario::new(Flat, 3, ONE).of(Scan);
    scan_pieces_2: "scan of 2 deposited pieces, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, TWO).of(Scan).epochs(2);
    exscan_2: "exscan, 2 ranks, reuse", upto(3), Some(ALL), Scenario::new(Flat, 2, ONE).of(ExclusiveScan).epochs(2);
    exscan_mixed_2: "exscan, rank 0 on the fast path, the other on the general one, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(ExclusiveScan).epochs(2).general(1);
    exscan_pieces_3: "exscan of 2 deposited pieces, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, TWO).of(ExclusiveScan);

    scatter_2: "scatter, 2 ranks, reuse", upto(3), Some(ALL), Scenario::new(Flat, 2, ONE).of(Scatter).epochs(2);
    scatter_pieces_2: "scatter of 2 deposited pieces, 2 ranks, reuse", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, 8).of(Scatter).epochs(2);

    single_copy_all_gather_2: "allgather by single-copy, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(SingleCopy, 2, ONE).of(AllGather).epochs(2);
    single_copy_all_to_all_2: "alltoall by single-copy, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(SingleCopy, 2, ONE).of(AllToAll).epochs(2);
    single_copy_all_gather_3: "allgather by single-copy, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(SingleCopy, 3, ONE).of(AllGather);
    single_copy_refused_2: "allgather by single-copy, one of 2 ranks may not read, reuse", upto(3), Some(ALL),
        Scenario::new(SingleCopy, 2, ONE).of(AllGather).epochs(2).cannot_read(1);
    single_copy_scatter_2: "scatter by single-copy, 2 ranks, reuse", upto(3), Some(ALL),
        Scenario::new(SingleCopy, 2, ONE).of(Scatter).epochs(2).trusted();
    single_copy_scatter_3: "scatter by single-copy, 3 ranks, once", upto(1), Some(upto(2)),
        Scenario::new(SingleCopy, 3, ONE).of(Scatter).trusted();
    single_copy_handed_over_2: "scatter by single-copy, one of 2 ranks cannot read, two steps, reuse", upto(1), Some(upto(2)),
        Scenario::new(SingleCopy, 2, 2).of(Scatter).epochs(2).trusted().cannot_read(1);
    single_copy_handed_over_3: "scatter by single-copy, one of 3 ranks cannot read, once", upto(1), Some(upto(2)),
        Scenario::new(SingleCopy, 3, ONE).of(Scatter).trusted().cannot_read(2);
    mismatch_single_copy_2: "different calls, allgather by single-copy, 2 ranks, second operation", upto(3), Some(ALL),
        Scenario::new(SingleCopy, 2, ONE).of(AllGather).epochs(2).stranger(1);

    mismatch_reduce_flat_pieces_2: "different calls, reduce by flat with deposits, 2 ranks, second operation", upto(2),
        Some(upto(3)), Scenario::new(Flat, 2, TWO).of(Reduce).epochs(2).stranger(1);
    mismatch_reduce_chain_2: "different calls, reduce by chain, 2 ranks, once", upto(3), Some(ALL),
        Scenario::new(Chain, 2, ONE).of(Reduce).stranger(1);
    mismatch_broadcast_chain_2: "different calls, broadcast of 2 chunks, 2 ranks, once", upto(3), Some(ALL),
        Scenario::new(Chain, 2, TWO).of(Broadcast).stranger(1);
    mismatch_broadcast_2: "different calls, broadcast, 2 ranks, second operation", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Broadcast).epochs(2).stranger(1);
    mismatch_gather_2: "different calls, gather, 2 ranks, second operation", upto(3), Some(ALL),
        Scenario::new(Flat, 2, ONE).of(Gather).epochs(2).stranger(1);
    mismatch_and_death_3: "different calls and a death, flat, 3 ranks, once: the first error stands", upto(1), Some(upto(2)),
        Scenario::new(Flat, 3, ONE).stranger(1).dies(2, Step::Begin, 1);

    spinning_flat_2: "spin, yield and sleep in flat, 2 ranks, reuse", upto(1), Some(upto(2)),
        Scenario::new(Flat, 2, ONE).epochs(2).spins();
    spinning_flat_pieces_2: "spin, yield and sleep in flat with 2 deposited pieces, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Flat, 2, TWO).spins();
    spinning_chain_2: "spin, yield and sleep in chain, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Chain, 2, ONE).spins();
    spinning_leader_2: "spin, yield and sleep in leader, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Leader, 2, ONE).spins();
    spinning_slices_2: "spin, yield and sleep in slices, 2 ranks, once", upto(2), Some(upto(3)),
        Scenario::new(Slices, 2, ONE).spins();
}
