//! Each of two ranks takes itself for the root of the last broadcast, needs nobody and ends: at least one of them finds the
//! difference, and tells both calls.

use super::board::Group;
use super::{Tally, report};
use earlybird_shm::protocol::call::Prepared;
use earlybird_shm::protocol::geometry::{Exchange, Lens};
use earlybird_shm::protocol::payload::Buffers;
use earlybird_shm::protocol::word::{Cause, PoisonWord};
use earlybird_shm::protocol::{Member, Patience};
use earlybird_shm::{Algorithm, Collective, DType, FoldOrder, Op, Signature, WaitPreset};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The complaint about an execution in which both end well.
pub const UNNOTICED: &str = "nobody noticed that the last calls differed";

fn signature(root: usize) -> Signature {
    let (collective, auto) = (Collective::Broadcast, Algorithm::Auto);
    Signature::new(collective, DType::U64, Op::Sum, FoldOrder::Arrival, auto, 1).in_lane(true).rooted(root)
}

fn part(group: &Group, rank: usize) -> Option<PoisonWord> {
    let preset = WaitPreset::Balanced;
    let patience = Patience::new(preset, false, None);
    let mut member = Member::new(group.board(rank, None), patience);
    let exchange = Exchange::new(Collective::Broadcast, rank, 2, Lens::Equal(1));
    let prepared = Prepared::new(signature(rank), DType::U64, Op::Sum, 2, false, Algorithm::Flat).unwrap();
    let window = exchange.windows(8, 128).next().unwrap();
    let mut word = [7u64];
    let buffers = Buffers::in_place(&mut word);
    member.run(&buffers.window(&window, &prepared)).expect("a root needs nobody");
    let failed = member.end(false).err()?.0;
    assert_eq!(failed.cause(), Cause::Mismatch);
    let (reporter, details) = (failed.reporter(), group.details(failed.reporter()));
    let (theirs, own) = (signature(1 - reporter), signature(reporter));
    let told = [1 - reporter as u64, theirs.kind, theirs.count, own.kind, own.count];
    assert_eq!(details, told, "wrong details: the call of rank {} as rank {reporter} told it", 1 - reporter);
    Some(failed)
}

/// Explores every interleaving, and prints how many.
pub fn check() {
    let (begun, counts) = (Instant::now(), Arc::new([const { AtomicUsize::new(0) }; 2]));
    let counted = counts.clone();
    loom::model::Builder::new().check(move || {
        let group = Group::new(2, false);
        let theirs = group.share();
        let other = loom::thread::spawn(move || part(&theirs, 1));
        let (one, other) = (part(&group, 0), other.join().unwrap());
        assert!(one.is_some() || other.is_some(), "{UNNOTICED}");
        assert!(one.zip(other).is_none_or(|(one, other)| one == other), "two errors");
        counted[1].fetch_add(usize::from(one.is_none() || other.is_none()), Relaxed);
        counted[0].fetch_add(1, Relaxed);
    });
    let [executions, alone] = [0, 1].map(|i| counts[i].load(Relaxed));
    assert!(alone > 0 && alone < executions, "{alone} of {executions}: one rank, and both, find it");
    report("two roots part, 2 ranks", None, &Tally { executions, died: 0, failed: executions }, begun);
}
