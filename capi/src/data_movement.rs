//! The collectives that move data: broadcast, gather, scatter, allgather, alltoall.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, NO_RECV, block_starts, count_of_all, counts, is_in_place, run, zeroed_bytes};
use crate::codes;
use crate::comm::{Comm, of};
use crate::export::export;
use crate::reductions::root;
use earlybird::{CollectiveArgs, Communicator, Counts, Datatype, Error};
use std::ffi::{c_int, c_void};

/// The number of elements of each rank's block.
#[derive(Clone, Copy)]
pub enum BlockCounts<'a> {
    Uniform(usize),
    PerRank(&'a [usize]),
}

/// Elements of the whole buffer, and this rank's block in it.
pub struct BlockRange {
    pub all: usize,
    pub start: usize,
    pub own: usize,
}

impl BlockCounts<'_> {
    /// Computes the range of this rank's block; refuses sums that are too large.
    pub fn blocks(&self, comm: &Communicator) -> Result<BlockRange, Error> {
        let (rank, size) = (comm.rank(), comm.size());
        Ok(match *self {
            BlockCounts::Uniform(count) => {
                BlockRange { all: count_of_all(count, size)?, start: rank * count, own: count }
            }
            BlockCounts::PerRank(counts) => {
                let starts = block_starts(counts)?;
                BlockRange { all: starts[size], start: starts[rank], own: counts[rank] }
            }
        })
    }
}

impl<'a> BlockCounts<'a> {
    fn counts(self) -> Counts<'a> {
        match self {
            BlockCounts::Uniform(_) => Counts::Uniform,
            BlockCounts::PerRank(counts) => Counts::PerRank(counts),
        }
    }
}

/// # Safety
/// C.
unsafe fn all_gather(
    comm: &Communicator,
    datatype: Datatype,
    send: *const c_void,
    recv: *mut c_void,
    each: BlockCounts<'_>,
) -> Result<(), Error> {
    let (BlockRange { all, own, .. }, counts) = (each.blocks(comm)?, each.counts());
    let send = (!is_in_place(send)).then(|| BufferArg::send(send, own));
    // SAFETY: C.
    unsafe {
        run(comm, datatype, send, BufferArg::recv(recv, all), |buffers| {
            CollectiveArgs::all_gather(buffers).counts(counts)
        })
    }
}

/// # Safety
/// C.
unsafe fn gather(
    comm: &Communicator,
    datatype: Datatype,
    send: *const c_void,
    recv: *mut c_void,
    (each, to): (BlockCounts<'_>, usize),
) -> Result<(), Error> {
    let (BlockRange { all, own, .. }, counts) = (each.blocks(comm)?, each.counts());
    let is_root = comm.rank() == root(comm, to)?;
    let send = (!is_root || !is_in_place(send)).then(|| BufferArg::send(send, own));
    let recv = if is_root { BufferArg::recv(recv, all) } else { NO_RECV };
    // SAFETY: C.
    unsafe { run(comm, datatype, send, recv, |buffers| CollectiveArgs::gather(to, buffers).counts(counts)) }
}

/// # Safety
/// C.
unsafe fn scatter(
    comm: &Communicator,
    datatype: Datatype,
    send: *const c_void,
    recv: *mut c_void,
    (each, from): (BlockCounts<'_>, usize),
) -> Result<(), Error> {
    let (BlockRange { all, own, .. }, counts) = (each.blocks(comm)?, each.counts());
    let is_root = comm.rank() == root(comm, from)?;
    let send = if is_root { BufferArg::send(send, all) } else { BufferArg::send(std::ptr::null(), 0) };
    // The root's own block stays where it is.
    let mut own_block = zeroed_bytes(if is_root && is_in_place(recv) { own } else { 0 }, datatype)?;
    let recv = if is_root && is_in_place(recv) { own_block.as_mut_ptr().cast() } else { recv };
    // SAFETY: C.
    unsafe {
        run(comm, datatype, Some(send), BufferArg::recv(recv, own), |buffers| {
            CollectiveArgs::scatter(from, buffers).counts(counts)
        })
    }
}

/// # Safety
/// C.
unsafe fn all_to_all(
    comm: &Communicator,
    datatype: Datatype,
    (send, sent): (*const c_void, usize),
    recv: BufferArg,
    counts: Counts<'_>,
) -> Result<(), Error> {
    let send = (!is_in_place(send)).then(|| BufferArg::send(send, sent));
    // SAFETY: C.
    unsafe { run(comm, datatype, send, recv, |buffers| CollectiveArgs::all_to_all(buffers).counts(counts)) }
}

fn datatype(code: c_int) -> Result<Datatype, Error> {
    Ok(codes::dtype(code)?.into())
}

export! {
    fn eb_broadcast(comm: *const Comm, buffer: *mut c_void, count: usize, dtype: c_int, from: usize) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let buffer = BufferArg { name: "buffer", ..BufferArg::recv(buffer, count) };
            run(comm, datatype(dtype)?, None, buffer, |buffers| {
                CollectiveArgs::broadcast(from, buffers)
            })
        }
    }

    fn eb_allgather(comm: *const Comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            all_gather(comm, datatype(dtype)?, send, recv, BlockCounts::Uniform(count))
        }
    }

    fn eb_allgatherv(comm: *const Comm, send: *const c_void, recv: *mut c_void, each: *const usize, dtype: c_int) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let each = BlockCounts::PerRank(counts(each, comm.size())?);
            all_gather(comm, datatype(dtype)?, send, recv, each)
        }
    }

    fn eb_gather(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        to: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            gather(comm, datatype(dtype)?, send, recv, (BlockCounts::Uniform(count), to))
        }
    }

    fn eb_gatherv(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        to: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let each = BlockCounts::PerRank(counts(each, comm.size())?);
            gather(comm, datatype(dtype)?, send, recv, (each, to))
        }
    }

    fn eb_scatter(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        from: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            scatter(comm, datatype(dtype)?, send, recv, (BlockCounts::Uniform(count), from))
        }
    }

    fn eb_scatterv(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        from: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let each = BlockCounts::PerRank(counts(each, comm.size())?);
            scatter(comm, datatype(dtype)?, send, recv, (each, from))
        }
    }

    fn eb_alltoall(comm: *const Comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let all = count_of_all(count, comm.size())?;
            all_to_all(comm, datatype(dtype)?, (send, all), BufferArg::recv(recv, all), Counts::Uniform)
        }
    }

    fn eb_alltoallv(
        comm: *const Comm,
        send: *const c_void,
        send_counts: *const usize,
        recv: *mut c_void,
        recv_counts: *const usize,
        dtype: c_int,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let recv_counts = counts(recv_counts, comm.size())?;
            let send_counts = if is_in_place(send) { recv_counts } else { counts(send_counts, comm.size())? };
            let [sent, received] = [block_starts(send_counts)?[comm.size()], block_starts(recv_counts)?[comm.size()]];
            let counts = Counts::PerPair { send: send_counts, recv: recv_counts };
            all_to_all(comm, datatype(dtype)?, (send, sent), BufferArg::recv(recv, received), counts)
        }
    }
}
