//! The conformance suite over a transport between threads, and the faults of the faulty one.

use crate::conformance;
use crate::faulty::{Faults, Faulty};
use crate::threads::{Threads, ThreadsOptions};
use earlybird_hier::exec::{Failure, Transport};

/// Runs `program` on every rank; what each returned.
fn on_all<T: Transport + Send, R: Send>(ranks: Vec<T>, program: impl Fn(T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|t| scope.spawn(|| program(t))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn groups() -> impl Iterator<Item = Vec<Threads>> {
    let options = [(1, 2), (97, 1), (4096, 3), (65536, 8)];
    let options = options.map(|(packet_bytes, depth)| ThreadsOptions { packet_bytes, depth });
    [1, 2, 3, 5].into_iter().flat_map(move |size| options.map(|o| Threads::group(size, o)))
}

#[test]
fn threads_conform() {
    for group in groups() {
        on_all(group, |mut t| conformance::all_to_all(&mut t).unwrap());
    }
    let barrier = std::sync::Barrier::new(3);
    on_all(Threads::group(3, ThreadsOptions::default()), |mut t| {
        conformance::a_full_lane_refuses(&mut t, || _ = barrier.wait()).unwrap();
    });
}

#[test]
fn delays_and_refusals_change_nothing_but_time() {
    for (seed, group) in groups().enumerate() {
        let faults = Faults { seed: seed as u64, hold_one_in: 3, refuse_one_in: 3, ..Faults::default() };
        let group = group.into_iter().map(|t| Faulty::new(t, faults)).collect();
        on_all(group, |mut t| conformance::all_to_all(&mut t).unwrap());
    }
}

#[test]
#[should_panic(expected = "order from")]
fn the_suite_notices_a_lost_packet() {
    let mut ranks = Threads::group(2, ThreadsOptions::default()).into_iter();
    let (receiver, sender) = (ranks.next().unwrap(), ranks.next().unwrap());
    let mut sender = Faulty::new(sender, Faults { lose: Some(3), ..Faults::default() });
    std::thread::scope(|scope| {
        scope.spawn(move || conformance::all_to_all(&mut sender));
        let mut receiver = receiver;
        let _ = conformance::all_to_all(&mut receiver);
    });
}

#[test]
fn everybody_gets_the_same_failure_when_one_leaves() {
    for size in [2, 3, 5] {
        // Rank 1 leaves when no rank sends or receives any more, so that only waiting ranks see the death.
        let quiet = std::sync::Barrier::new(size);
        let failures = on_all(Threads::group(size, ThreadsOptions::default()), |mut t| {
            conformance::all_to_all(&mut t).unwrap();
            quiet.wait();
            // Rank 1 leaves; rank 0 waits for it, and all others for rank 0.
            (t.rank() != 1).then(|| {
                let from = if t.rank() == 0 { 1 } else { 0 };
                conformance::wait_for_failure(&mut t, from)
            })
        });
        let expected = |rank| (rank != 1).then_some(Failure::PeerDied { rank: 1 });
        assert_eq!(failures, (0..size).map(expected).collect::<Vec<_>>());
    }
}

#[test]
fn a_dead_rank_is_told_so_and_the_others_are() {
    let faults = |rank| Faults { die_before: (rank == 2).then_some(50), ..Faults::default() };
    let group = Threads::group(3, ThreadsOptions::default());
    let group = group.into_iter().enumerate().map(|(rank, t)| Faulty::new(t, faults(rank))).collect();
    let failures = on_all(group, |mut t: Faulty<Threads>| {
        let failure = conformance::all_to_all(&mut t).unwrap_err();
        t.raise(failure)
    });
    assert_eq!(failures, vec![Failure::PeerDied { rank: 2 }; 3]);
}
