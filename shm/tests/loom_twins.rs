//! Every model has a twin that must fail: one ordering weakened, or one rule of the protocol broken.
//!
//! A twin runs in a process of its own, since loom may abort when it finds a deadlock, and since the weakened point
//! is named by the environment. The models themselves, unweakened, pass in `loom_algorithms.rs`.
#![cfg(all(earlybird_loom, not(feature = "full-ring")))]

mod modelled;

use earlybird_shm::Algorithm::Chain;
use earlybird_shm::model::joining::{UNKNOWN_OWNER, WRONG_ENTRY, WRONG_ERROR};
use earlybird_shm::sync::SyncPoint::{self, *};
use earlybird_shm::sync::{Rule, break_rule};
use modelled::joining::{JOINING, MISSED_END, UNREPLACED, UNWATCHED, WRONG_DECISION, joining, run_joining};
use modelled::models::{MODELS, model};
use modelled::parting::{self, UNNOTICED};
use modelled::rings::{RINGS, ring, run_ring};
use modelled::started::{DIFFERENT, KEPT_EARLY, PRIVATE_AWAY, STARTED, run_different, run_started, started};
use modelled::started_deaths::{deaths, run_deaths};
use modelled::twins::{RACE, SLEEPS, must_fail, must_pass};
use modelled::{Scenario, run};

/// The description of a packet is read before its mark has promised it.
const STALE: &str = "wrong description";
const TOLD: &str = "wrong details: the call of rank";
const LENGTHS: &str = "wrong lengths: rank";
const ERRORS: &str = "two errors: [Failed(";
const UNKNOWN: &str = "a member has gone and what it left is not known";

/// Two roots that need nobody, and end.
const PARTING: &str = "parting_2";

/// A model of one edge alone, which the models of whole operations hide: they inspect the newest values.
const GONE: &str = "gone_after_leaving";

const DEPOSITS: &[&str] = &[
    "flat_2_once",
    "flat_deposit_2_once",
    "flat_deposit_mixed_2_once",
    "flat_pieces_2_once",
    "leader_3",
    "static_leader_2",
    "static_leader_early_3",
    "slices_pieces_2",
    "registered_pieces_2",
    "registered_3",
    "registered_apart_2",
    "shared_pieces_2",
    "reduce_slices_pieces_2",
    "reduce_flat_2",
    "reduce_flat_mixed_2",
    "reduce_flat_deposit_2",
    "reduce_flat_deposit_mixed_2",
    "reduce_flat_pieces_2",
    "broadcast_2",
    "broadcast_pieces_2",
    "broadcast_pieces_general_2",
    "broadcast_pieces_mixed_2",
    "all_gather_pieces_2",
    "all_gather_pieces_mixed_2",
    "all_gather_pieces_3",
    "reduce_scatter_2",
    "reduce_scatter_mixed_2",
    "reduce_scatter_by_rank_3",
    "reduce_scatter_deposit_2",
    "scatter_2",
    "scatter_pieces_2",
    "unequal_all_gather_2",
    "unequal_all_gather_mixed_2",
    "unequal_all_gather_deposit_2",
    "unequal_reduce_scatter_2",
    "unequal_scatter_deposit_2",
    "scan_2",
    "scan_mixed_2",
    "scan_deposit_2",
    "scan_pieces_2",
    "exscan_2",
    "exscan_mixed_2",
    "started_gather_2",
    "started_all_to_all_2",
    "mismatch_broadcast_2",
];
/// In operations that ranks leave early, this edge alone keeps the next writer from the last reader.
const EARLY_LEAVERS: &[&str] = &[
    "reduce_chain_2",
    "reduce_chain_3_directed",
    "reduce_flat_2",
    "reduce_flat_mixed_2",
    "reduce_flat_deposit_2",
    "reduce_flat_deposit_mixed_2",
    "reduce_flat_pieces_2",
    "broadcast_2",
    "broadcast_pieces_2",
    "broadcast_chain_2",
    "scatter_2",
    "scatter_pieces_2",
    "unequal_scatter_deposit_2",
    "scan_2",
    "scan_mixed_2",
    "scan_deposit_2",
    "scan_pieces_2",
    "exscan_2",
    "exscan_mixed_2",
];
const SLEEPERS: &[&str] = &[
    "flat_2_once",
    "flat_deposit_2_once",
    "flat_pieces_2_once",
    "leader_2_once",
    "chain_2_once",
    "static_leader_2",
    "slices_pieces_2",
    "registered_pieces_2",
    "registered_apart_2",
    "shared_pieces_2",
    "reduce_flat_2",
    "reduce_flat_mixed_2",
    "reduce_flat_deposit_2",
    "reduce_scatter_mixed_2",
    "reduce_chain_2",
    "reduce_slices_2",
    "broadcast_2",
    "broadcast_chain_2",
    "scan_2",
    "scan_mixed_2",
    "exscan_mixed_2",
];

/// Ranks that read each other's private buffers.
const SINGLE_COPIES: &[&str] = &["single_copy_all_gather_2", "single_copy_all_to_all_2", "single_copy_scatter_2"];

const ANNOUNCED_ALLTOALLS: &[&str] =
    &["announced_2", "announced_general_2", "announced_mixed_2", "announced_piece_2", "announced_deposit_2"];

const ANNOUNCED_DEPOSITS: &[&str] =
    &["announced_gather_piece_2", "announced_gather_deposit_2", "announced_gather_deposit_general_2"];

const ANNOUNCED_GATHERS: &[&str] = &[
    "announced_gather_2",
    "announced_gather_general_2",
    "announced_gather_piece_2",
    "announced_gather_deposit_2",
    "announced_gather_deposit_general_2",
    "announced_gather_parts_2",
];

const ANNOUNCED_BUNDLES: &[&str] = &["announced_scatter_piece_2", "announced_scatter_piece_general_2"];

const ANNOUNCED_SCATTERS: &[&str] = &[
    "announced_scatter_2",
    "announced_scatter_general_2",
    "announced_scatter_mixed_2",
    "announced_scatter_piece_2",
    "announced_scatter_piece_general_2",
];

const MISMATCHES_WITH_A_ROOT: &[&str] =
    &["mismatch_reduce_flat_pieces_2", "mismatch_reduce_chain_2", "mismatch_broadcast_chain_2"];

/// Ranks that spin and yield before they sleep.
const SPINNING: &[&str] =
    &["spinning_flat_2", "spinning_flat_pieces_2", "spinning_chain_2", "spinning_leader_2", "spinning_slices_2"];

/// Joinings that fail, by an error of a rank or by a death.
const FAILED_JOININGS: &[&str] = &[
    "joining_fails_2",
    "joining_fails_3",
    "joining_dies_3",
    "joining_dies_before_3",
    "joining_dies_after_3",
    "joining_creator_dies_3",
    "joining_creator_dies_before_3",
    "joining_creator_dies_after_3",
];

/// The point, the models in which it carries weight, and how each fails without it.
const TWINS: &[(SyncPoint, &[&str], &str)] = &[
    (DepositRelease, DEPOSITS, RACE),
    (DepositAcquire, DEPOSITS, RACE),
    (
        ChunkRelease,
        &[
            "chain_2_once",
            "leader_2_once",
            "static_leader_2",
            "slices_pieces_2",
            "registered_pieces_2",
            "broadcast_chain_2",
        ],
        RACE,
    ),
    (ClaimAcquire, &["chain_2_once", "chain_by_rank_3", "leader_2_once", "leader_by_rank_3"], RACE),
    (ChunkRelease, &["reduce_slices_2", "reduce_slices_3"], RACE),
    (FinalAcquire, &["reduce_slices_2", "reduce_slices_3"], RACE),
    (
        FinalAcquire,
        &[
            "chain_2_once",
            "leader_2_once",
            "static_leader_2",
            "slices_pieces_2",
            "registered_pieces_2",
            "broadcast_chain_2",
        ],
        RACE,
    ),
    // Not in `flat`, where the fence of the wake-up stands between the last read and this store.
    (LeftRelease, &["leader_2", "chain_2", "static_leader_early_2"], RACE),
    (LeftAcquire, &["flat_2", "flat_general_2", "flat_mixed_2", "flat_pieces_2", "flat_mixed_3"], RACE),
    (LeftAcquire, &["leader_2", "chain_2", "static_leader_early_2", "reduce_slices_2"], RACE),
    (ChunkRelease, &["shared_pieces_2", "registered_apart_2", "registered_apart_3"], RACE),
    (FinalAcquire, &["shared_pieces_2", "registered_apart_2", "registered_apart_3"], RACE),
    (DepositRelease, SINGLE_COPIES, RACE),
    (DepositAcquire, SINGLE_COPIES, RACE),
    (ReadRelease, SINGLE_COPIES, RACE),
    (ReadAcquire, SINGLE_COPIES, RACE),
    (ReadRelease, &["single_copy_handed_over_2"], RACE),
    (ReadAcquire, &["single_copy_handed_over_2"], RACE),
    (LeftRelease, EARLY_LEAVERS, RACE),
    (LeftAcquire, EARLY_LEAVERS, RACE),
    (DepositRelease, &["started_flat_2", "started_slices_pieces_2", "started_registered_pieces_2"], RACE),
    (DepositAcquire, &["started_flat_2", "started_slices_pieces_2", "started_registered_pieces_2"], RACE),
    (DepositRelease, &["started_deposit_2"], RACE),
    (DepositAcquire, &["started_deposit_2"], RACE),
    (LeftRelease, &["started_deposit_2"], RACE),
    (LeftAcquire, &["started_deposit_2"], RACE),
    (ChunkRelease, &["started_slices_pieces_2", "started_registered_pieces_2"], RACE),
    (FinalAcquire, &["started_slices_pieces_2", "started_registered_pieces_2"], RACE),
    (ChunkRelease, &["started_chain_2", "started_chain_pieces_2", "started_chain_3"], RACE),
    (ClaimAcquire, &["started_chain_2", "started_chain_pieces_2", "started_chain_3"], RACE),
    (FinalAcquire, &["started_chain_2", "started_chain_pieces_2"], RACE),
    (LeftRelease, &["started_chain_2"], RACE),
    (LeftAcquire, &["started_chain_2"], RACE),
    (PublisherFence, &["started_chain_pieces_2", "started_chain_3"], SLEEPS),
    (SleeperFence, &["started_chain_pieces_2", "started_chain_3"], SLEEPS),
    (ChunkRelease, &[DIFFERENT.name], RACE),
    (ClaimAcquire, &[DIFFERENT.name], RACE),
    (LeftRelease, &["started_flat_2", "started_two_flat_3", "started_gather_2", "started_all_to_all_2"], RACE),
    (LeftAcquire, &["started_flat_2", "started_two_flat_3", "started_gather_2", "started_all_to_all_2"], RACE),
    (PublisherFence, &["started_flat_3", "started_slices_pieces_2", "started_registered_pieces_2"], SLEEPS),
    (SleeperFence, &["started_flat_3", "started_slices_pieces_2", "started_registered_pieces_2"], SLEEPS),
    (DepositRelease, &["started_all_to_all_windows_2"], RACE),
    (DepositAcquire, &["started_all_to_all_windows_2"], RACE),
    (LeftRelease, &["started_all_to_all_windows_2"], RACE),
    (LeftAcquire, &["started_all_to_all_windows_2"], RACE),
    (DepositRelease, &["started_kept_2", "started_kept_gather_2"], RACE),
    (DepositAcquire, &["started_kept_2", "started_kept_gather_2"], RACE),
    (LeftRelease, &["started_kept_2", "started_kept_gather_2"], RACE),
    (LeftAcquire, &["started_kept_2", "started_kept_gather_2"], RACE),
    (PoisonRelease, &["deaths_started_flat_3"], ERRORS),
    (PoisonAcquire, &["deaths_started_flat_3"], ERRORS),
    (DepositAcquire, &["spinning_flat_2", "spinning_flat_pieces_2"], RACE),
    (FinalAcquire, &["spinning_chain_2", "spinning_leader_2", "spinning_slices_2"], RACE),
    (PublisherFence, SPINNING, SLEEPS),
    (SleeperFence, SPINNING, SLEEPS),
    (GoneRelease, &[GONE], UNKNOWN),
    (GoneAcquire, &[GONE], UNKNOWN),
    (CallRelease, &["mismatch_chain_2", "mismatch_leader_2", "mismatch_flat_pieces_2", "mismatch_lanes_2"], TOLD),
    (CallAcquire, &["mismatch_chain_2", "mismatch_leader_2", "mismatch_flat_pieces_2", "mismatch_lanes_2"], TOLD),
    (CallRelease, MISMATCHES_WITH_A_ROOT, TOLD),
    (CallAcquire, MISMATCHES_WITH_A_ROOT, TOLD),
    (CallAcquire, &["mismatch_gather_2", "mismatch_single_copy_2"], TOLD),
    (DepositRelease, &["mismatch_gather_2", "mismatch_single_copy_2"], TOLD),
    (DepositAcquire, &["mismatch_gather_2"], TOLD),
    // The lengths that a rank announces beside its mark, and what lies where they say.
    (CallRelease, &["announced_deposit_2", "announced_piece_2", "announced_piece_mixed_2"], LENGTHS),
    (CallAcquire, &["announced_general_2", "announced_mixed_2", "announced_deposit_2"], LENGTHS),
    (DepositRelease, ANNOUNCED_ALLTOALLS, RACE),
    (DepositAcquire, &["announced_2", "announced_piece_2", "announced_deposit_2"], RACE),
    // Where long blocks lie, and that they have been read.
    (CallRelease, &["announced_long_2"], RACE),
    (CallAcquire, &["announced_long_2"], LENGTHS),
    (ReadRelease, &["announced_long_2"], RACE),
    (ReadAcquire, &["announced_long_2"], RACE),
    (LeftRelease, ANNOUNCED_ALLTOALLS, RACE),
    (LeftAcquire, ANNOUNCED_ALLTOALLS, RACE),
    // The length of a block, its parts, and what its root has read.
    (CallRelease, ANNOUNCED_DEPOSITS, LENGTHS),
    (CallAcquire, ANNOUNCED_GATHERS, LENGTHS),
    (DepositRelease, ANNOUNCED_GATHERS, RACE),
    (DepositAcquire, ANNOUNCED_DEPOSITS, RACE),
    (DepositAcquire, &["announced_gather_parts_2"], RACE),
    (ReadRelease, &["announced_gather_parts_2_once", "announced_gather_parts_2"], RACE),
    (ReadAcquire, &["announced_gather_parts_2_once", "announced_gather_parts_2"], RACE),
    (LeftRelease, ANNOUNCED_GATHERS, RACE),
    (LeftAcquire, ANNOUNCED_GATHERS, RACE),
    // The length of a bundle, and what lies in it.
    (CallRelease, ANNOUNCED_BUNDLES, LENGTHS),
    (DepositRelease, ANNOUNCED_SCATTERS, RACE),
    (DepositAcquire, ANNOUNCED_SCATTERS, RACE),
    (LeftRelease, ANNOUNCED_SCATTERS, RACE),
    (LeftAcquire, ANNOUNCED_SCATTERS, RACE),
    (PoisonRelease, &["mismatch_flat_2", "mismatch_chain_2", "mismatch_and_death_3"], ERRORS),
    (PoisonAcquire, &["mismatch_flat_2", "mismatch_chain_2", "mismatch_and_death_3"], ERRORS),
    (EndFence, &[PARTING], UNNOTICED),
    (CallAcquire, &[PARTING], TOLD),
    (PacketRelease, &["ring_1", "ring_2"], STALE),
    (PacketAcquire, &["ring_1", "ring_2"], STALE),
    (RoomRelease, &["ring_1", "ring_2"], RACE),
    (RoomAcquire, &["ring_1", "ring_2"], RACE),
    (EntryRelease, &["joining_2", "joining_3"], WRONG_ENTRY),
    (EntryAcquire, &["joining_2", "joining_3"], WRONG_ENTRY),
    (MetRelease, &["joining_2", "joining_3"], WRONG_ENTRY),
    (MetAcquire, &["joining_2", "joining_3"], WRONG_ENTRY),
    (BellRelease, &["joining_2", "joining_fails_2"], SLEEPS),
    (BellAcquire, &["joining_2", "joining_fails_2"], SLEEPS),
    (PoisonRelease, FAILED_JOININGS, WRONG_ERROR),
    (PoisonAcquire, FAILED_JOININGS, WRONG_ERROR),
    (AliveRelease, &["joining_creator_leaves_3"], MISSED_END),
    (AliveAcquire, &["joining_creator_leaves_3"], MISSED_END),
    (AliveRelease, &["leaving"], RACE),
    (AliveAcquire, &["leaving"], RACE),
    (AliveRelease, &["dying"], UNKNOWN_OWNER),
    (AliveAcquire, &["dying"], UNKNOWN_OWNER),
    (TableRelease, &["table"], RACE),
    (TableAcquire, &["table"], RACE),
    (TableRelease, &["survivors"], WRONG_DECISION),
    (TableAcquire, &["survivors"], WRONG_DECISION),
    (PublisherFence, &["ring_1_asleep"], SLEEPS),
    (SleeperFence, &["ring_1_asleep"], SLEEPS),
    (PublisherFence, SLEEPERS, SLEEPS),
    (SleeperFence, SLEEPERS, SLEEPS),
];

/// What the process of a twin runs.
#[test]
#[ignore = "run by the tests below, each in a process of its own"]
fn one_model() {
    let name = std::env::var("EARLYBIRD_MODEL").expect("EARLYBIRD_MODEL names the model to run");
    match name.as_str() {
        "forgetful" => run("reuse without waiting", Some(3), Scenario::new(Chain, 2, 1).epochs(2).forgetful()),
        GONE => gone::check(),
        PARTING => parting::check(),
        "plan_with_place" => refuted::plan(true),
        "plan_after_place" => refuted::plan(false),
        "finder_stores" => refuted::store(true),
        "first_arriver_stores" => refuted::store(false),
        name if name == PRIVATE_AWAY.name => run_started(&PRIVATE_AWAY, None),
        name if name == KEPT_EARLY.name => run_started(&KEPT_EARLY, None),
        name if name == DIFFERENT.name => run_different(),
        name if name == UNREPLACED.name => run_joining(&UNREPLACED),
        name if name == UNWATCHED.name => run_joining(&UNWATCHED),
        _ if deaths(&name).is_some() => deaths(&name).into_iter().for_each(run_deaths),
        _ if started(&name).is_some() => started(&name).into_iter().for_each(|model| run_started(model, None)),
        _ if joining(&name).is_some() => joining(&name).into_iter().for_each(run_joining),
        _ if ring(&name).is_some() => ring(&name).into_iter().for_each(run_ring),
        _ => run(model(&name).title, model(&name).bound, (model(&name).scenario)()),
    }
}

#[test]
fn every_sync_point_is_needed() {
    for point in SyncPoint::ALL {
        let twins: Vec<_> = TWINS.iter().filter(|t| t.0 == *point).collect();
        assert!(twins.iter().any(|t| !t.1.is_empty()), "{point:?} has no twin: nothing shows that it is needed");
        for (_, models, reason) in twins {
            for name in *models {
                must_fail(name, Some(&format!("{point:?}")), reason);
            }
        }
    }
}

#[test]
fn a_twin_passes_when_nothing_is_weakened() {
    // The others pass in `loom_algorithms.rs`; this one shows that a process of its own changes nothing.
    must_pass("flat_2_once");
    must_pass(GONE);
    must_pass(PARTING);
    must_pass(DIFFERENT.name);
    RINGS.iter().for_each(|model| must_pass(model.name));
    JOINING.iter().for_each(|model| must_pass(model.name));
    STARTED.iter().filter(|model| model.words == 1).for_each(|model| must_pass(model.name));
    for (_, models, _) in TWINS {
        let apart = [GONE, PARTING, DIFFERENT.name];
        let others = |name: &str| apart.contains(&name) || started(name).is_some() || deaths(name).is_some();
        let words = |name: &str| ring(name).is_some() || joining(name).is_some();
        let known = |name: &&str| others(name) || MODELS.iter().any(|m| m.name == *name) || words(name);
        assert!(models.iter().all(known), "unknown model in {models:?}");
    }
}

#[test]
#[should_panic(expected = "it proves nothing about it")]
fn a_twin_that_passes_is_refused() {
    must_fail("flat_2_once", None, RACE);
}

#[test]
#[should_panic(expected = "fails, but not with")]
fn a_twin_that_fails_for_another_reason_is_refused() {
    must_fail("flat_2_once", Some("DepositRelease"), SLEEPS);
}

#[test]
fn an_unknown_point_is_refused() {
    for name in ["ChunkRelese", "", "chunkrelease"] {
        must_fail("flat_2_once", Some(name), "is not a sync point; expected one of");
    }
}

#[test]
fn memory_is_reused_only_when_it_was_left() {
    must_fail("forgetful", None, RACE);
}

#[test]
fn the_error_that_a_dead_rank_began_is_replaced() {
    must_fail(UNREPLACED.name, None, SLEEPS);
}

#[test]
fn the_creator_is_watched() {
    must_fail(UNWATCHED.name, None, SLEEPS);
}

/// Of registered buffers no rank has to come back: `started_registered_away_2` passes.
#[test]
fn private_buffers_need_their_owner_for_each_window() {
    must_fail(PRIVATE_AWAY.name, None, SLEEPS);
}

#[test]
fn kept_memory_is_sent_from_again_when_the_others_have_read_it() {
    must_fail(KEPT_EARLY.name, None, RACE);
}

#[test]
#[should_panic(expected = "a view changed")]
fn a_result_that_is_read_is_not_written() {
    run_without(Rule::HeldIsNotWritten, "shared_kept_2");
}

/// Runs a model in which `rule` is broken.
fn run_without(rule: Rule, name: &str) {
    break_rule(Some(rule));
    let model = model(name);
    run(model.title, model.bound, (model.scenario)());
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_part_of_a_chunk_that_another_rank_awaits_wakes_it() {
    run_without(Rule::PartOfAChunkWakes, "reduce_slices_3");
}

#[test]
fn the_plan_travels_with_the_place() {
    must_pass("plan_with_place");
    must_fail("plan_after_place", None, "a place without a plan");
}

#[test]
fn whoever_finds_a_chunk_empty_stores() {
    must_pass("finder_stores");
    must_fail("first_arriver_stores", None, "wrong sum");
}

/// A member leaves its last operation and goes; whoever sees it gone must see what it left, or takes an operation that
/// was complete for failed.
mod gone {
    use super::modelled::board::Group;
    use super::modelled::{Tally, report};
    use super::{SyncPoint, UNKNOWN};
    use earlybird_shm::protocol::board::Board;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Instant;

    pub fn check() {
        let (begun, counts) = (Instant::now(), Arc::new([const { AtomicUsize::new(0) }; 2]));
        let counted = counts.clone();
        loom::model::Builder::new().check(move || {
            let group = Group::new(2, false);
            let theirs = group.share();
            let goes = loom::thread::spawn(move || {
                theirs.board(1, None).left(1).store(1, SyncPoint::LeftRelease.order());
                theirs.bury(1);
            });
            let board = group.board(0, None);
            if board.is_gone(1) {
                counted[1].fetch_add(1, Relaxed);
                assert_eq!(board.left(1).load(SyncPoint::LeftAcquire.order()), 1, "{UNKNOWN}");
            }
            goes.join().unwrap();
            counted[0].fetch_add(1, Relaxed);
        });
        let [executions, died] = [0, 1].map(|i| counts[i].load(Relaxed));
        assert!(
            died > 0 && died < executions,
            "{died} of {executions} executions see it gone: the model shows nothing"
        );
        report("a member leaves and goes", None, &Tally { executions, died, failed: 0 }, begun);
    }
}

/// Two designs that suggest themselves and are wrong, each beside the one that ships, in as few words as show it.
mod refuted {
    use super::modelled::{Tally, report};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering::*};
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    fn check(title: &str, body: fn()) {
        let (begun, count) = (Instant::now(), std::sync::Arc::new(AtomicUsize::new(0)));
        let counted = count.clone();
        loom::model::Builder::new().check(move || {
            counted.fetch_add(1, Relaxed);
            body();
        });
        let executions = count.load(Relaxed);
        report(title, None, &Tally { executions, died: 0, failed: 0 }, begun);
    }

    /// The word is `plan 8 | count 8`; plan 0 is none.
    fn arrive(word: &AtomicU64, plan: u64, with_place: bool) -> (u64, u64) {
        let before = if with_place {
            match word.compare_exchange(0, plan << 8 | 1, Relaxed, Relaxed) {
                Ok(_) => return (0, plan),
                Err(_) => word.fetch_add(1, Relaxed),
            }
        } else {
            let before = word.fetch_add(1, Relaxed);
            if before & 0xff == 0 {
                word.fetch_or(plan << 8, Relaxed);
                return (0, plan);
            }
            before
        };
        (before & 0xff, before >> 8)
    }

    fn two_arrive(with_place: bool) {
        let word = Arc::new(AtomicU64::new(0));
        let theirs = word.clone();
        let other = loom::thread::spawn(move || arrive(&theirs, 2, with_place));
        let (a, b) = (arrive(&word, 1, with_place), other.join().unwrap());
        assert_ne!(a.0, b.0, "one place for two");
        assert!(a.1 != 0 && b.1 != 0, "a place without a plan: {a:?} {b:?}");
        assert_eq!(a.1, b.1, "two plans");
    }

    /// The first arriver's plan in the same access as its place, or in one after it.
    pub fn plan(with_place: bool) {
        check("arrival", if with_place { || two_arrive(true) } else { || two_arrive(false) });
    }

    /// A chunk word is the number of contributions, or `BUSY`.
    const BUSY: u64 = 0xff;

    fn fold(chunk: &AtomicU64, sum: &UnsafeCell<u64>, place: u64, finder_stores: bool) {
        loop {
            let count = chunk.load(Relaxed);
            if count != BUSY && chunk.compare_exchange(count, BUSY, Acquire, Relaxed).is_ok() {
                let stores = if finder_stores { count == 0 } else { place == 0 };
                // SAFETY: this thread holds the chunk; loom refuses the access if that is not so.
                #[allow(unsafe_code)]
                sum.with_mut(|sum| unsafe { *sum = if stores { 0 } else { *sum } + (1 << place) });
                chunk.store(count + 1, Release);
                return;
            }
            loom::thread::yield_now();
        }
    }

    fn two_fold(finder_stores: bool) {
        // 100 is what the operation before left in the accumulator.
        let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0), UnsafeCell::new(100)));
        let run = move |s: &(AtomicU64, AtomicU64, UnsafeCell<u64>)| {
            let place = s.0.fetch_add(1, Relaxed);
            fold(&s.1, &s.2, place, finder_stores);
        };
        let theirs = shared.clone();
        let other = loom::thread::spawn(move || run(&theirs));
        run(&shared);
        other.join().unwrap();
        // SAFETY: both threads are done.
        #[allow(unsafe_code)]
        let sum = shared.2.with(|sum| unsafe { *sum });
        assert_eq!(sum, 0b11, "wrong sum");
    }

    /// A chunk is stored to by whoever finds it empty, or by the first arriver.
    pub fn store(finder_stores: bool) {
        check("who stores", if finder_stores { || two_fold(true) } else { || two_fold(false) });
    }
}
