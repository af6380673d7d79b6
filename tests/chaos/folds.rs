//! Forms of the reductions by built-in operators.

use crate::common::data::{Sample, contribution, hash, reference};
use crate::draw::Rng;
use crate::forms::{Checked, Failure, Fold, Way, check, complete, delay, dirty, fold, prepare};
use crate::started;
use earlybird::{CollectiveArgs, Communicator, Counts, Op};

pub fn all_reduce<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let count = rng.count(size_of::<T>(), 1);
    let Fold { op, send, want } = fold::<T>(comm, rng, count);
    let (in_place, mut recv) = (rng.flip(), dirty(count));
    prepare(comm, rng, way)?;
    match way {
        Way::Into => comm.all_reduce_into(&send, &mut recv, op)?,
        Way::InPlace => {
            recv.copy_from_slice(&send);
            comm.all_reduce_in_place(&mut recv, op)?;
        }
        Way::Immediate if in_place => recv = complete(comm.start(CollectiveArgs::all_reduce(send, op))?, rng)?,
        Way::Persistent if in_place => {
            let mut call = comm.init(CollectiveArgs::all_reduce(send.clone(), op))?;
            call.run()?;
            check(call.buffers_mut()?, &want, "all_reduce_init")?;
            call.buffers_mut()?.copy_from_slice(&send);
            call.run()?;
            recv = call.into_buffers()?;
        }
        Way::Immediate | Way::Persistent => {
            recv = started!(way rng; comm, CollectiveArgs::all_reduce((send, recv), op)).1
        }
        Way::View => recv = comm.all_reduce_shared(&send, op)?.to_vec(),
        Way::Shared => {
            let mut shared = comm.alloc::<T>(count)?;
            shared.copy_from_slice(&send);
            if in_place {
                comm.all_reduce_shared_in_place(&mut shared, op)?;
                recv.copy_from_slice(&shared);
            } else {
                let mut result = comm.alloc::<T>(count)?;
                comm.all_reduce_shared_into(&shared, &mut result, op)?;
                check(&shared, &send, "contribution of all_reduce_shared_into")?;
                recv.copy_from_slice(&result);
            }
        }
    }
    check(&recv, &want, &format!("all_reduce {op:?}"))
}

/// Started allreduces of shared buffers.
pub fn all_reduce_shared<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let count = rng.count(size_of::<T>(), 1);
    let Fold { op, send, want } = fold::<T>(comm, rng, count);
    let in_place = rng.flip();
    prepare(comm, rng, way)?;
    let mut shared = comm.alloc::<T>(count)?;
    shared.copy_from_slice(&send);
    let result = match way {
        Way::Immediate if in_place => complete(comm.start(CollectiveArgs::all_reduce(shared, op))?, rng)?,
        _ if in_place => {
            let mut call = comm.init(CollectiveArgs::all_reduce(shared, op))?;
            call.run()?;
            check(call.buffers_mut()?, &want, "all_reduce_init of shared buffers")?;
            call.buffers_mut()?.copy_from_slice(&send);
            call.run()?;
            call.into_buffers()?
        }
        _ => {
            let buffers = (shared, comm.alloc::<T>(count)?);
            let (sent, result) = started!(way rng; comm, CollectiveArgs::all_reduce(buffers, op));
            check(&sent, &send, "contribution of a started shared all_reduce")?;
            result
        }
    };
    check(&result, &want, &format!("started all_reduce {op:?} of shared buffers"))
}

pub fn grouped<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let count = rng.count(size_of::<T>(), 1);
    let Fold { op, send, want } = fold::<T>(comm, rng, count);
    let (one, other) = (rng.below(count + 1), rng.below(count + 1));
    let (first, second) = (one.min(other), one.max(other));
    let mut parts = vec![send[..first].to_vec(), send[first..second].to_vec(), send[second..].to_vec()];
    prepare(comm, rng, way)?;
    match way {
        Way::Immediate => {
            parts = complete(comm.start(CollectiveArgs::all_reduce_grouped(parts, op))?, rng)?.into_parts()
        }
        Way::Persistent => {
            let mut call = comm.init(CollectiveArgs::all_reduce_grouped(parts.clone(), op))?;
            call.run()?;
            call.buffers_mut()?.parts_mut().zip(&parts).for_each(|(part, send)| part.copy_from_slice(send));
            call.run()?;
            parts = call.into_buffers()?.into_parts();
        }
        _ => {
            let mut slices: Vec<&mut [T]> = parts.iter_mut().map(|part| &mut part[..]).collect();
            comm.all_reduce_grouped_in_place(&mut slices, op)?;
        }
    }
    check(&parts.concat(), &want, &format!("grouped {op:?}"))
}

pub fn reduce<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let count = rng.count(size_of::<T>(), 1);
    let Fold { op, send, want } = fold::<T>(comm, rng, count);
    let root = comm.process_at_rank(rng.below(comm.size()));
    let is_root = root.rank() == comm.rank();
    prepare(comm, rng, way)?;
    let mut recv = dirty(count);
    match way {
        Way::InPlace => {
            recv.copy_from_slice(&send);
            root.reduce_in_place(&mut recv, op)?;
            if !is_root {
                return check(&recv, &send, "contribution of reduce_in_place");
            }
        }
        Way::Into if is_root => root.reduce_into_root(&send, &mut recv, op)?,
        Way::Into => root.reduce_into(&send, op)?,
        _ if is_root => recv = started!(way rng; comm, CollectiveArgs::reduce(root.rank(), (send, recv), op)).1,
        _ => drop(started!(way rng; comm, CollectiveArgs::reduce(root.rank(), (send, Vec::new()), op))),
    }
    if is_root { check(&recv, &want, &format!("reduce {op:?}")) } else { Ok(()) }
}

/// Scans of both kinds, of integers, since halves are rounded node by node.
pub fn scan(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (count, op) = (rng.count(size_of::<u64>(), 1), rng.pick(&[Op::Sum, Op::Product, Op::BitXor]));
    let (is_exclusive, seed) = (rng.flip(), rng.next());
    let send = contribution::<u64>(seed, comm.rank(), count, op, true);
    let mut recv = dirty(count);
    let want = match comm.rank() + usize::from(!is_exclusive) {
        0 => {
            if way == Way::InPlace {
                send.clone()
            } else {
                recv.clone()
            }
        }
        ranks => reference(seed, ranks, count, op, true),
    };
    prepare(comm, rng, way)?;
    match (way, is_exclusive) {
        (Way::InPlace, _) => {
            recv.copy_from_slice(&send);
            match is_exclusive {
                true => comm.exclusive_scan_in_place(&mut recv, op)?,
                false => comm.scan_in_place(&mut recv, op)?,
            }
        }
        (Way::Into, true) => comm.exclusive_scan_into(&send, &mut recv, op)?,
        (Way::Into, false) => comm.scan_into(&send, &mut recv, op)?,
        (_, true) => recv = started!(way rng; comm, CollectiveArgs::exclusive_scan((send, recv), op)).1,
        (_, false) => recv = started!(way rng; comm, CollectiveArgs::scan((send, recv), op)).1,
    }
    check(&recv, &want, &format!("scan {op:?}, exclusive {is_exclusive}"))
}

pub fn reduce_scatter<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (rank, ranks) = (comm.rank(), comm.size());
    let count = rng.count(size_of::<T>(), ranks);
    let Fold { op, mut send, want } = fold::<T>(comm, rng, count * ranks);
    let own = rank * count..(rank + 1) * count;
    prepare(comm, rng, way)?;
    let mut recv = dirty(count);
    match way {
        Way::Into => comm.reduce_scatter_block_into(&send, &mut recv, op)?,
        Way::InPlace => {
            comm.reduce_scatter_block_in_place(&mut send, op)?;
            recv.copy_from_slice(&send[own.clone()]);
        }
        _ => recv = started!(way rng; comm, CollectiveArgs::reduce_scatter((send, recv), op)).1,
    }
    check(&recv, &want[own], &format!("reduce_scatter {op:?}"))
}

pub fn reduce_scatter_varcount<T: Sample>(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let rank = comm.rank();
    let counts: Vec<usize> = (0..comm.size()).map(|_| rng.count(size_of::<T>(), comm.size())).collect();
    let Fold { op, mut send, want } = fold::<T>(comm, rng, counts.iter().sum());
    let start: usize = counts[..rank].iter().sum();
    let own = start..start + counts[rank];
    prepare(comm, rng, way)?;
    let mut recv = dirty(counts[rank]);
    match way {
        Way::Into => comm.reduce_scatter_varcount_into(&send, &mut recv, &counts, op)?,
        Way::InPlace => {
            comm.reduce_scatter_varcount_in_place(&mut send, &counts, op)?;
            recv.copy_from_slice(&send[own.clone()]);
        }
        _ => recv =
            started!(way rng; comm, CollectiveArgs::reduce_scatter((send, recv), op).counts(Counts::PerRank(&counts)))
                .1,
    }
    check(&recv, &want[own], &format!("reduce_scatter_varcount {op:?}"))
}

/// Sums that round: near the serial result, and the same bits on all ranks.
pub fn rounded(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let (count, seed) = (rng.count(8, 1), rng.next());
    let send: Vec<f64> = contribution(seed, comm.rank(), count, Op::Sum, false);
    let want: Vec<f64> = reference(seed, comm.size(), count, Op::Sum, false);
    prepare(comm, rng, way)?;
    let mut recv = dirty(count);
    match way {
        Way::Into => comm.all_reduce_into(&send, &mut recv, Op::Sum)?,
        Way::InPlace => {
            recv.copy_from_slice(&send);
            comm.all_reduce_in_place(&mut recv, Op::Sum)?;
        }
        Way::View => recv = comm.all_reduce_shared(&send, Op::Sum)?.to_vec(),
        _ => recv = complete(comm.start(CollectiveArgs::all_reduce(send, Op::Sum))?, rng)?,
    }
    if let Some(i) = (0..count).find(|i| (recv[*i] - want[*i]).abs() > 1e-12) {
        return Err(Failure::Wrong(format!("rounded sum: element {i} is {} and not {}", recv[i], want[i])));
    }
    let mut hashes = vec![0; comm.size()];
    comm.all_gather_into(&[hash(&recv)], &mut hashes)?;
    check(&hashes, &vec![hash(&recv); comm.size()], "hashes of a rounded sum on all ranks")
}

/// Small calls with the arguments of the call before, which take a shorter way.
pub fn repeated(comm: &Communicator, rng: &mut Rng, way: Way) -> Checked {
    let count = 1 + rng.below(13);
    prepare(comm, rng, way)?;
    for _ in 0..30 {
        let seed = rng.next();
        let mut recv: Vec<i64> = contribution(seed, comm.rank(), count, Op::Sum, true);
        let want: Vec<i64> = reference(seed, comm.size(), count, Op::Sum, true);
        comm.all_reduce_in_place(&mut recv, Op::Sum)?;
        check(&recv, &want, "repeated sum")?;
        delay(comm, rng);
    }
    Ok(())
}
