//! Operations in a ring as the one that ships, of eight slots where that has 32, and two areas: the third one reuses the area of the first, the ninth
//! its slot. Small deposits have four or eight places.
//!
//! A rank that has finished an operation knows that everybody had left the one before, and does not look. With one
//! area, as in `loom_algorithms.rs`, it always looks; here it does not.
#![cfg(all(earlybird_loom, feature = "full-ring"))]

#[allow(dead_code)]
mod modelled;

use earlybird_shm::Algorithm::{self, Chain, Flat, Leader, Slices, StaticLeader, StaticLeaderEarly};
use earlybird_shm::Collective;
use earlybird_shm::protocol::board::{AREAS, SLOTS};
use modelled::{Bound, Scenario, run};

fn ring(algorithm: Algorithm, words: usize, bound: Bound) {
    operations(AREAS + 1, algorithm, words, bound);
}

fn operations(operations: usize, algorithm: Algorithm, words: usize, bound: Bound) {
    let title = format!("as shipped: {algorithm}, 2 ranks, {words} words, {operations} operations");
    run(&title, bound, Scenario::new(algorithm, 2, words).epochs(operations));
}

/// The last operation uses the slot of the first, and no area.
#[test]
fn ring_slots() {
    operations(SLOTS + 1, Flat, 1, Some(1));
}

/// Broadcasts whose root waits for nobody before the last ones, which reuse small deposits of the first.
fn broadcasts(words: usize) -> Scenario {
    Scenario::new(Flat, 2, words).of(Collective::Broadcast).epochs(SLOTS + 1)
}

#[test]
fn ring_broadcast() {
    for words in [6, 8] {
        let title = format!("as shipped: broadcasts, 2 ranks, {words} words, {} operations", SLOTS + 1);
        run(&title, Some(1), broadcasts(words));
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_root_does_not_write_over_what_is_to_be_read() {
    run("broadcasts that do not wait for the readers", Some(1), broadcasts(8).forgetful());
}

#[test]
fn ring_flat() {
    ring(Flat, 1, Some(3));
}
#[test]
fn ring_flat_pieces() {
    ring(Flat, 16, Some(1));
}
#[test]
fn ring_leader() {
    ring(Leader, 1, Some(1));
}
#[test]
fn ring_chain() {
    ring(Chain, 1, Some(2));
}
#[test]
fn ring_static_leader() {
    ring(StaticLeader, 1, Some(2));
}
#[test]
fn ring_static_leader_early() {
    ring(StaticLeaderEarly, 1, Some(2));
}
#[test]
fn ring_of_two_plans() {
    let scenario = Scenario::new(Leader, 2, 1).proposes(1, Chain).epochs(3);
    run("as shipped: one proposes leader, one chain, 2 ranks, 3 operations", Some(1), scenario);
}

/// What the process of a twin runs.
#[test]
#[ignore = "run by the tests of twins, in a process of its own for each"]
fn one_model() {
    let name = std::env::var("EARLYBIRD_MODEL").expect("EARLYBIRD_MODEL names the model to run");
    let models = [&started::REGISTERED, &started::SLICES_3, &started::SLICES_AWAY_3];
    let model = models.into_iter().find(|model| model.name == name).expect("a model of this name");
    modelled::started::run_started(model, None);
}

/// Started operations of which the third uses the memory of the first.
mod started {
    use super::modelled::started::Act::{Ask, Finish, Run, Start};
    use super::modelled::started::Memory::{OpenedOnce, Private, Registered};
    use super::modelled::started::{CROSSED, CROSSED_3, StartedModel, run_started};
    use super::modelled::twins::{RACE, SLEEPS, must_fail};
    use super::{Chain, Flat, Slices};
    use earlybird_shm::Collective::AllReduce;
    use earlybird_shm::sync::Rule;

    /// Rank 1 may complete the second operation before the first; it stops after that.
    static OUT_OF_ORDER: StartedModel = StartedModel {
        name: "as shipped: started, complete out of order",
        collective: AllReduce,
        algorithm: Flat,
        words: 16,
        window: 128,
        memory: Private,
        bound: Some(2),
        scripts: &[
            &[Start(1), Start(2), Finish(1), Finish(2), Start(3), Ask(3)],
            &[Start(1), Start(2), Finish(2), Finish(1)],
        ],
    };

    /// Rank 1 contributes to the blocking operation while it may still have to take the result of the one before.
    static BEFORE_BLOCKING: StartedModel = StartedModel {
        name: "as shipped: started, then blocking",
        collective: AllReduce,
        algorithm: Flat,
        words: 16,
        window: 128,
        memory: Private,
        bound: Some(2),
        scripts: &[&[Start(1), Run(2), Finish(1), Start(3), Ask(3)], &[Start(1), Run(2), Finish(1)]],
    };

    /// Both operations are under way before either is completed.
    const SLICES: StartedModel = StartedModel {
        name: "as shipped: slices, under way together",
        collective: AllReduce,
        algorithm: Slices,
        words: 1,
        window: 128,
        memory: Private,
        bound: Some(1),
        scripts: CROSSED,
    };

    /// The same by chain.
    static CHAIN: StartedModel =
        StartedModel { name: "as shipped: chain, under way together", algorithm: Chain, bound: Some(2), ..SLICES };

    /// By slices, of three ranks.
    pub static SLICES_3: StartedModel = StartedModel {
        name: "as shipped: slices of 3 ranks, under way together",
        bound: Some(0),
        scripts: CROSSED_3,
        ..SLICES
    };

    /// One of them folds both; the others contribute and are in no call any more.
    pub static SLICES_AWAY_3: StartedModel = StartedModel {
        name: "as shipped: slices of 3 ranks, two of them away",
        scripts: &[&[Start(1), Start(2), Finish(1)], &[Start(1), Start(2)], &[Start(1), Start(2)]],
        ..SLICES
    };

    /// Two operations whose buffers others reduce at the same time.
    pub static REGISTERED: StartedModel = StartedModel {
        name: "as shipped: registered buffers, under way together",
        memory: Registered,
        bound: Some(2),
        ..SLICES
    };

    /// The same in two chunks, which the ranks take in different orders.
    static REGISTERED_PIECES: StartedModel = StartedModel {
        name: "as shipped: registered buffers of 2 chunks, under way together",
        words: 16,
        memory: Registered,
        ..SLICES
    };

    /// The same of three ranks.
    static REGISTERED_3: StartedModel = StartedModel {
        name: "as shipped: registered buffers of 3 ranks, under way together",
        memory: Registered,
        bound: Some(0),
        scripts: CROSSED_3,
        ..SLICES
    };

    /// The wrong protocol: ranks keep the buffers that they opened first.
    static OPENED_ONCE: StartedModel =
        StartedModel { name: "registered buffers, opened once", memory: OpenedOnce, ..SLICES };

    static THREE: StartedModel = StartedModel {
        name: "as shipped: three started operations",
        collective: AllReduce,
        algorithm: Flat,
        words: 16,
        window: 128,
        memory: Private,
        bound: Some(1),
        scripts: &[
            &[Start(1), Start(2), Finish(1), Finish(2), Start(3), Finish(3)],
            &[Start(1), Start(2), Finish(2), Finish(1), Start(3), Finish(3)],
        ],
    };

    #[test]
    fn started_operations_complete_in_any_order() {
        run_started(&OUT_OF_ORDER, None);
    }

    #[test]
    fn three_started_operations() {
        run_started(&THREE, None);
    }

    #[test]
    fn slices_and_chains_under_way_together() {
        [&SLICES, &CHAIN].into_iter().for_each(|model| run_started(model, None));
    }

    #[test]
    fn registered_buffers_under_way_together() {
        [&REGISTERED, &REGISTERED_PIECES, &REGISTERED_3].into_iter().for_each(|model| run_started(model, None));
    }

    #[test]
    fn slices_of_three_ranks() {
        [&SLICES_3, &SLICES_AWAY_3].into_iter().for_each(|model| run_started(model, None));
    }

    /// Names that are outdated are those of no buffer of the operation.
    #[test]
    fn what_is_under_way_together_is_handed_over() {
        for (model, points, reason) in [
            (&REGISTERED, ["DepositRelease", "DepositAcquire"], "wrong result"),
            (&REGISTERED, ["ChunkRelease", "FinalAcquire"], RACE),
            (&REGISTERED, ["PublisherFence", "SleeperFence"], SLEEPS),
            (&SLICES_AWAY_3, ["DepositRelease", "DepositAcquire"], RACE),
            (&SLICES_3, ["ChunkRelease", "FinalAcquire"], RACE),
            (&SLICES_3, ["PublisherFence", "SleeperFence"], SLEEPS),
        ] {
            points.into_iter().for_each(|point| must_fail(model.name, Some(point), reason));
        }
    }

    #[test]
    #[should_panic(expected = "wrong result")]
    fn buffers_are_opened_for_each_operation() {
        run_started(&OPENED_ONCE, None);
    }

    #[test]
    fn a_blocking_operation_follows_a_started_one() {
        run_started(&BEFORE_BLOCKING, None);
    }

    #[test]
    #[should_panic(expected = "Causality violation: Concurrent")]
    fn left_must_be_a_prefix() {
        run_started(&OUT_OF_ORDER, Some(Rule::LeftIsAPrefix));
    }

    #[test]
    #[should_panic(expected = "Causality violation: Concurrent")]
    fn a_contribution_does_not_show_that_what_was_started_before_is_left() {
        run_started(&BEFORE_BLOCKING, Some(Rule::StartedIsNotLeft));
    }
}
