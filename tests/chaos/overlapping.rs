//! Started calls of several collectives under way at once, which each rank completes in an order of its own.

use crate::common::mix;
use crate::draw::Rng;
use crate::forms::{Checked, Failure, Way, check, complete, delay, dirty, prepare};
use earlybird::{BufferOwner, CollectiveArgs, Communicator, Op, OwnedArgs, SharedReduceOp};

/// The rest of a started call: it is completed, with these random numbers of the rank, and its result checked.
type Rest<'c> = Box<dyn FnOnce(&mut Rng) -> Checked + 'c>;

pub fn overlapping(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    prepare(comm, rng, way)?;
    let mut started = Vec::new();
    for _ in 0..2 + rng.below(12) {
        started.push(start(comm, rng, way)?);
        delay(comm, rng);
    }
    if rng.flip() {
        comm.barrier()?;
    }
    let mut own = rng.of_rank(comm.rank());
    rng.next();
    while !started.is_empty() {
        started.swap_remove(own.below(started.len()))(&mut own)?;
    }
    Ok(())
}

/// Starts a call of any collective on small integers.
fn start<'c>(comm: &'c Communicator, rng: &mut Rng, way: Way) -> Result<Rest<'c>, Failure> {
    let (rank, ranks, seed) = (comm.rank(), comm.size(), rng.next());
    let (root, count) = (rng.below(ranks), rng.count(8, ranks));
    let value = move |from: usize, i: usize| (mix(seed ^ (from << 32 | i) as u64) >> 40) as i64;
    let vector = move |from: usize, count: usize| (0..count).map(|i| value(from, i)).collect::<Vec<i64>>();
    let sums = move |from: std::ops::Range<usize>| {
        (0..count).map(|i| from.clone().map(|r| value(r, i)).sum()).collect::<Vec<i64>>()
    };
    // What each rank sends to all, and where only the root receives.
    let (whole, at_root) = (count * ranks, |count: usize| if rank == root { dirty(count) } else { Vec::new() });
    let mine = vector(rank, count);
    match rng.below(8) {
        0 => {
            begin(comm, way, CollectiveArgs::all_reduce(mine, Op::Sum), move |sum| check(&sum, &sums(0..ranks), "sum"))
        }
        1 => begin(comm, way, CollectiveArgs::reduce(root, (mine, at_root(count)), Op::Sum), move |(_, sum)| {
            if rank == root { check(&sum, &sums(0..ranks), "sum at the root") } else { Ok(()) }
        }),
        2 => begin(comm, way, CollectiveArgs::scan((mine, dirty(count)), Op::Sum), move |(_, prefix)| {
            check(&prefix, &sums(0..rank + 1), "prefix")
        }),
        3 => begin(
            comm,
            way,
            CollectiveArgs::broadcast(root, if rank == root { mine } else { dirty(count) }),
            move |got| check(&got, &vector(root, count), "broadcast"),
        ),
        4 => begin(comm, way, CollectiveArgs::all_gather((mine, dirty(whole))), move |(_, all)| {
            check(&all, &(0..ranks).flat_map(|r| vector(r, count)).collect::<Vec<i64>>(), "gathered")
        }),
        5 => begin(comm, way, CollectiveArgs::gather(root, (mine, at_root(whole))), move |(_, all)| {
            let want: Vec<i64> = (0..ranks).flat_map(|r| vector(r, count)).collect();
            if rank == root { check(&all, &want, "gathered at the root") } else { Ok(()) }
        }),
        6 => begin(comm, way, CollectiveArgs::all_to_all((vector(rank, whole), dirty(whole))), move |(_, got)| {
            let block = |from: usize| (0..count).map(move |i| value(from, rank * count + i));
            check(&got, &(0..ranks).flat_map(block).collect::<Vec<i64>>(), "exchanged")
        }),
        _ => begin(comm, way, CollectiveArgs::barrier(), |()| Ok(())),
    }
}

/// Starts a call in this form; `right` checks its buffers.
fn begin<'c, B: BufferOwner + 'c>(
    comm: &'c Communicator,
    way: Way,
    args: OwnedArgs<'_, B, impl Into<SharedReduceOp>>,
    right: impl FnOnce(B) -> Checked + 'c,
) -> Result<Rest<'c>, Failure> {
    if way == Way::Immediate {
        let request = comm.start(args)?;
        return Ok(Box::new(move |own| right(complete(request, own)?)));
    }
    let mut call = comm.init(args)?;
    call.start()?;
    Ok(Box::new(move |own| {
        if own.flip() {
            call.wait()?;
        }
        while !call.try_wait()? {
            std::thread::yield_now();
        }
        right(call.into_buffers()?)
    }))
}
