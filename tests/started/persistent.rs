//! Persistent calls allocate nothing once they have run: counted by an allocator of this test binary's own.
//!
//! The only unsafe code here: an allocator that counts and hands on.
#![allow(unsafe_code)]

use crate::common::{Job, Player};
use earlybird::{CollectiveArgs, Communicator, Op};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every request is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("counts", counts), ("across", across)]);
}

/// The fewest allocations that `batch` makes in many runs. A wait of more than a millisecond lists who is late, so a batch is short:
/// on a busy machine every long one has such a wait.
fn fewest(mut batch: impl FnMut()) -> u64 {
    (0..600)
        .map(|_| {
            let before = ALLOCATIONS.load(Relaxed);
            batch();
            ALLOCATIONS.load(Relaxed) - before
        })
        .min()
        .unwrap()
}

/// Says how often calls that are started again allocated, and that it would have been counted.
fn say(player: &Player, comm: &Communicator, steady: u64) {
    let counts =
        fewest(|| drop(comm.start(CollectiveArgs::all_reduce(vec![1u64; 2], Op::Sum)).unwrap().wait().unwrap()));
    player.say(format!("steady {steady}"));
    player.say(format!("counts {}", counts > 0));
}

fn counts(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut large = comm.init(CollectiveArgs::all_reduce(vec![1.0f32; 20_000], Op::Sum)).unwrap();
    let mut few = comm.init(CollectiveArgs::all_reduce(vec![1u64; 2], Op::Sum)).unwrap();
    let mut average =
        comm.init(CollectiveArgs::reduce_scatter((vec![1.0f32; 300 * comm.size()], vec![0.0; 300]), Op::Average));
    let average = average.as_mut().unwrap();
    let mut met = comm.init(CollectiveArgs::barrier()).unwrap();
    let steady = fewest(|| {
        for _ in 0..2 {
            large.start().unwrap();
            few.start().unwrap();
            average.start().unwrap();
            met.run().unwrap();
            few.wait().unwrap();
            average.wait().unwrap();
            large.wait().unwrap();
        }
    });
    say(player, &comm, steady);
}

#[test]
fn a_persistent_call_allocates_nothing_once_it_has_run() {
    for ranks in [1, 2, 3] {
        for said in Job::new("counts", ranks).run() {
            assert_eq!(said, ["steady 0", "counts true"], "{ranks} ranks");
        }
    }
}

/// Over several nodes: reductions to all.
fn across(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut large = comm.init(CollectiveArgs::all_reduce(vec![1.0f32; 20_000], Op::Sum)).unwrap();
    let mut few = comm.init(CollectiveArgs::all_reduce((vec![1u64; 2], vec![0; 2]), Op::Max)).unwrap();
    let mut average = comm.init(CollectiveArgs::all_reduce(vec![1.0f64; 300], Op::Average)).unwrap();
    let steady = fewest(|| {
        for _ in 0..2 {
            few.run().unwrap();
            large.start().unwrap();
            few.start().unwrap();
            few.wait().unwrap();
            average.run().unwrap();
            large.wait().unwrap();
        }
    });
    say(player, &comm, steady);
}

#[test]
fn nor_does_an_allreduce_over_several_nodes() {
    for nodes in ["1", "2,1", "1,2"] {
        for said in Job::new("across", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes).run() {
            assert_eq!(said, ["steady 0", "counts true"], "{nodes}");
        }
    }
}
