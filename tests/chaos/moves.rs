//! Forms of the operations that move data, and of the barrier.

use crate::common::data::{Sample, contribution};
use crate::draw::Rng;
use crate::forms::{Checked, Failure, Way, check, dirty, prepare};
use crate::said::now;
use crate::started;
use earlybird::{CollectiveArgs, Communicator, Counts, Op};

/// The block that `from` has for `to` in the call `seed`.
fn block<T: Sample>(seed: u64, from: usize, to: usize, count: usize) -> Vec<T> {
    contribution(seed ^ (64 * from + to) as u64, from, count, Op::Sum, false)
}

fn from_all<T: Sample>(seed: u64, to: usize, counts: &[usize]) -> Vec<T> {
    (0..counts.len()).flat_map(|from| block(seed, from, to, counts[from])).collect()
}

fn to_all<T: Sample>(seed: u64, from: usize, counts: &[usize]) -> Vec<T> {
    (0..counts.len()).flat_map(|to| block(seed, from, to, counts[to])).collect()
}

/// A number for each rank, the same for all where `varying` is false.
fn counts<T>(rng: &mut Rng, ranks: usize, varying: bool) -> Vec<usize> {
    match varying {
        true => (0..ranks).map(|_| rng.count(size_of::<T>(), ranks)).collect(),
        false => vec![rng.count(size_of::<T>(), ranks); ranks],
    }
}

pub fn barrier(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    prepare(comm, rng, way)?;
    let entered = now();
    match way {
        Way::Into => comm.barrier()?,
        _ => started!(way rng; comm, CollectiveArgs::barrier()),
    }
    let mut times = vec![0; 2 * comm.size()];
    comm.all_gather_into(&[entered, now()], &mut times)?;
    let last_in = times.iter().step_by(2).max();
    let first_out = times.iter().skip(1).step_by(2).min();
    match last_in <= first_out {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("barrier: left at {first_out:?} before the last came, {last_in:?}"))),
    }
}

pub fn broadcast<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (count, seed) = (rng.count(size_of::<T>(), 1), rng.next());
    let root = comm.process_at_rank(rng.below(comm.size()));
    let want = block::<T>(seed, root.rank(), 0, count);
    prepare(comm, rng, way)?;
    let mut buf = if root.rank() == comm.rank() { want.clone() } else { dirty(count) };
    match way {
        Way::Into => root.broadcast_into(&mut buf)?,
        _ => buf = started!(way rng; comm, CollectiveArgs::broadcast(root.rank(), buf)),
    }
    check(&buf, &want, "broadcast")
}

pub fn all_gather<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (counts, seed) = (counts::<T>(rng, comm.size(), false), rng.next());
    let (send, want) = (block(seed, comm.rank(), 0, counts[0]), from_all::<T>(seed, 0, &counts));
    prepare(comm, rng, way)?;
    let mut recv = dirty(want.len());
    match way {
        Way::Into => comm.all_gather_into(&send, &mut recv)?,
        Way::InPlace => {
            recv[comm.rank() * counts[0]..][..counts[0]].copy_from_slice(&send);
            comm.all_gather_in_place(&mut recv)?;
        }
        _ => recv = started!(way rng; comm, CollectiveArgs::all_gather((send, recv))).1,
    }
    check(&recv, &want, "all_gather")
}

pub fn all_gather_varcount<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (counts, seed) = (counts::<T>(rng, comm.size(), true), rng.next());
    let (send, want) = (block(seed, comm.rank(), 0, counts[comm.rank()]), from_all::<T>(seed, 0, &counts));
    prepare(comm, rng, way)?;
    let mut recv = dirty(want.len());
    match way {
        Way::Into => comm.all_gather_varcount_into(&send, &mut recv, &counts)?,
        _ => {
            recv = started!(way rng; comm, CollectiveArgs::all_gather((send, recv)).counts(Counts::PerRank(&counts))).1
        }
    }
    check(&recv, &want, "all_gather_varcount")
}

pub fn gather<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (counts, seed) = (counts::<T>(rng, comm.size(), false), rng.next());
    let (send, want) = (block(seed, comm.rank(), 0, counts[0]), from_all::<T>(seed, 0, &counts));
    let root = comm.process_at_rank(rng.below(comm.size()));
    let is_root = root.rank() == comm.rank();
    prepare(comm, rng, way)?;
    let mut recv = dirty(want.len());
    match way {
        Way::Into if is_root => root.gather_into_root(&send, &mut recv)?,
        Way::InPlace if is_root => {
            recv[comm.rank() * counts[0]..][..counts[0]].copy_from_slice(&send);
            root.gather_in_place_root(&mut recv)?;
        }
        Way::Into | Way::InPlace => root.gather_into(&send)?,
        _ if is_root => recv = started!(way rng; comm, CollectiveArgs::gather(root.rank(), (send, recv))).1,
        _ => drop(started!(way rng; comm, CollectiveArgs::gather(root.rank(), (send, Vec::new())))),
    }
    if is_root { check(&recv, &want, "gather") } else { Ok(()) }
}

pub fn gather_varcount<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (counts, seed) = (counts::<T>(rng, comm.size(), true), rng.next());
    let (send, want) = (block(seed, comm.rank(), 0, counts[comm.rank()]), from_all::<T>(seed, 0, &counts));
    let root = comm.process_at_rank(rng.below(comm.size()));
    let (is_root, owners_announce) = (root.rank() == comm.rank(), rng.below(2) == 0);
    prepare(comm, rng, way)?;
    let mut recv = dirty(want.len());
    match way {
        Way::Into if owners_announce => {
            let (recv, counts): (&mut [T], &[usize]) = if is_root { (&mut recv, &counts) } else { (&mut [], &[]) };
            comm.run(CollectiveArgs::gather(root.rank(), (&send[..], recv)).counts(Counts::PerOwner(counts)))?;
        }
        Way::Into if is_root => root.gather_varcount_into_root(&send, &mut recv, &counts)?,
        Way::Into => root.gather_varcount_into(&send, &counts)?,
        _ if is_root => recv =
            started!(way rng; comm, CollectiveArgs::gather(root.rank(), (send, recv)).counts(Counts::PerRank(&counts)))
                .1,
        _ => drop(
            started!(way rng; comm, CollectiveArgs::gather(root.rank(), (send, Vec::new())).counts(Counts::PerRank(&counts))),
        ),
    }
    if is_root { check(&recv, &want, "gather_varcount") } else { Ok(()) }
}

pub fn scatter<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (counts, seed) = (counts::<T>(rng, comm.size(), false), rng.next());
    let root = comm.process_at_rank(rng.below(comm.size()));
    let is_root = root.rank() == comm.rank();
    let (mut send, want) = (to_all::<T>(seed, root.rank(), &counts), block(seed, root.rank(), comm.rank(), counts[0]));
    prepare(comm, rng, way)?;
    let mut recv = dirty(want.len());
    match way {
        Way::Into if is_root => root.scatter_into_root(&send, &mut recv)?,
        Way::InPlace if is_root => {
            root.scatter_in_place_root(&mut send)?;
            recv.copy_from_slice(&send[comm.rank() * counts[0]..][..counts[0]]);
        }
        Way::Into | Way::InPlace => root.scatter_into(&mut recv)?,
        _ if is_root => recv = started!(way rng; comm, CollectiveArgs::scatter(root.rank(), (send, recv))).1,
        _ => recv = started!(way rng; comm, CollectiveArgs::scatter(root.rank(), (Vec::new(), recv))).1,
    }
    check(&recv, &want, "scatter")
}

pub fn scatter_varcount<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (counts, seed) = (counts::<T>(rng, comm.size(), true), rng.next());
    let root = comm.process_at_rank(rng.below(comm.size()));
    let is_root = root.rank() == comm.rank();
    let send = to_all::<T>(seed, root.rank(), &counts);
    let want = block(seed, root.rank(), comm.rank(), counts[comm.rank()]);
    prepare(comm, rng, way)?;
    let mut recv = dirty(want.len());
    match way {
        Way::Into if is_root => root.scatter_varcount_into_root(&send, &mut recv, &counts)?,
        Way::Into => root.scatter_varcount_into(&mut recv, &counts)?,
        _ if is_root => recv =
            started!(way rng; comm, CollectiveArgs::scatter(root.rank(), (send, recv)).counts(Counts::PerRank(&counts)))
                .1,
        _ => {
            recv = started!(way rng; comm, CollectiveArgs::scatter(root.rank(), (Vec::new(), recv)).counts(Counts::PerRank(&counts))).1
        }
    }
    check(&recv, &want, "scatter_varcount")
}

pub fn all_to_all<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (counts, seed) = (counts::<T>(rng, comm.size(), false), rng.next());
    let (mut send, want) = (to_all::<T>(seed, comm.rank(), &counts), from_all(seed, comm.rank(), &counts));
    prepare(comm, rng, way)?;
    let mut recv = dirty(want.len());
    match way {
        Way::Into => comm.all_to_all_into(&send, &mut recv)?,
        Way::InPlace => {
            comm.all_to_all_in_place(&mut send)?;
            recv = send;
        }
        _ => recv = started!(way rng; comm, CollectiveArgs::all_to_all((send, recv))).1,
    }
    check(&recv, &want, "all_to_all")
}

pub fn all_to_all_varcount<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (rank, ranks) = (comm.rank(), comm.size());
    let (matrix, seed) = (counts::<T>(rng, ranks * ranks, true), rng.next());
    // In place as much comes from each rank as goes to it.
    let pair = |from: usize, to: usize| match way {
        Way::InPlace => matrix[from.min(to) * ranks + from.max(to)],
        _ => matrix[from * ranks + to],
    };
    let sends: Vec<usize> = (0..ranks).map(|to| pair(rank, to)).collect();
    let recvs: Vec<usize> = (0..ranks).map(|from| pair(from, rank)).collect();
    let (mut send, want) = (to_all::<T>(seed, rank, &sends), from_all(seed, rank, &recvs));
    prepare(comm, rng, way)?;
    let mut recv = dirty(want.len());
    match way {
        Way::Into => comm.all_to_all_varcount_into(&send, &sends, &mut recv, &recvs)?,
        Way::InPlace => {
            comm.all_to_all_varcount_in_place(&mut send, &sends)?;
            recv = send;
        }
        _ => {
            recv = started!(way rng; comm, CollectiveArgs::all_to_all((send, recv)).counts(Counts::PerPair { send: &sends, recv: &recvs }))
            .1
        }
    }
    check(&recv, &want, "all_to_all_varcount")
}
