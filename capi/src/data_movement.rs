//! The collectives that move data: broadcast, gather, scatter, allgather, alltoall.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, block_starts, count_of_all, counts, is_in_place, with_slices};
use crate::codes::{self, with_type};
use crate::comm::{Comm, of};
use crate::export::export;
use crate::reductions::root;
use earlybird::{Communicator, Element, Error};
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

/// # Safety
/// C.
unsafe fn all_to_all_varcount<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
) -> Result<(), Error> {
    // SAFETY: C.
    unsafe {
        let recv_counts = counts(recv_counts, comm.size())?;
        let to = BufferArg::recv(recv, block_starts(recv_counts)?[comm.size()]);
        if is_in_place(send) {
            return with_slices::<T>(None, to, |_, recv| comm.all_to_all_varcount_in_place(recv, recv_counts));
        }
        let send_counts = counts(send_counts, comm.size())?;
        let from = BufferArg::send(send, block_starts(send_counts)?[comm.size()]);
        with_slices::<T>(Some(from), to, |send, recv| {
            comm.all_to_all_varcount_into(send.unwrap_or(&[]), send_counts, recv, recv_counts)
        })
    }
}

/// No receive buffer.
pub const NO_RECV: BufferArg = BufferArg { name: "receive buffer", at: std::ptr::null_mut(), count: 0 };

/// # Safety
/// C.
unsafe fn all_gather<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: *mut c_void,
    each: BlockCounts<'_>,
) -> Result<(), Error> {
    let BlockRange { all, start, own } = each.blocks(comm)?;
    let recv = BufferArg::recv(recv, all);
    let run = |send: &[T], recv: &mut [T]| match each {
        BlockCounts::Uniform(_) => comm.all_gather_into(send, recv),
        BlockCounts::PerRank(counts) => comm.all_gather_varcount_into(send, recv, counts),
    };
    // SAFETY: C.
    unsafe {
        if !is_in_place(send) {
            return with_slices::<T>(Some(BufferArg::send(send, own)), recv, |send, recv| {
                run(send.unwrap_or(&[]), recv)
            });
        }
        with_slices::<T>(None, recv, |_, recv| match each {
            BlockCounts::Uniform(_) => comm.all_gather_in_place(recv),
            BlockCounts::PerRank(_) => {
                let block = recv[start..][..own].to_vec();
                run(&block, recv)
            }
        })
    }
}

/// # Safety
/// C.
unsafe fn gather<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: *mut c_void,
    each: BlockCounts<'_>,
    root: usize,
) -> Result<(), Error> {
    let (to, BlockRange { all, start, own }) = (comm.process_at_rank(root), each.blocks(comm)?);
    let run = |send: &[T], recv: &mut [T]| match each {
        BlockCounts::Uniform(_) => to.gather_into_root(send, recv),
        BlockCounts::PerRank(counts) => to.gather_varcount_into_root(send, recv, counts),
    };
    // SAFETY: C.
    unsafe {
        match (comm.rank() == root, is_in_place(send)) {
            (false, _) => with_slices::<T>(Some(BufferArg::send(send, own)), NO_RECV, |send, _| {
                match (send.unwrap_or(&[]), each) {
                    (send, BlockCounts::Uniform(_)) => to.gather_into(send),
                    (send, BlockCounts::PerRank(counts)) => to.gather_varcount_into(send, counts),
                }
            }),
            (true, false) => {
                let (send, recv) = (BufferArg::send(send, own), BufferArg::recv(recv, all));
                with_slices::<T>(Some(send), recv, |send, recv| run(send.unwrap_or(&[]), recv))
            }
            (true, true) => with_slices::<T>(None, BufferArg::recv(recv, all), |_, recv| match each {
                BlockCounts::Uniform(_) if comm.nodes() == 1 => to.gather_in_place_root(recv),
                _ => {
                    let block = recv[start..][..own].to_vec();
                    run(&block, recv)
                }
            }),
        }
    }
}

/// # Safety
/// C.
unsafe fn scatter<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: *mut c_void,
    each: BlockCounts<'_>,
    root: usize,
) -> Result<(), Error> {
    let (from, BlockRange { all, own, .. }) = (comm.process_at_rank(root), each.blocks(comm)?);
    // SAFETY: C.
    unsafe {
        if comm.rank() != root {
            return with_slices::<T>(None, BufferArg::recv(recv, own), |_, recv| match each {
                BlockCounts::Uniform(_) => from.scatter_into(recv),
                BlockCounts::PerRank(counts) => from.scatter_varcount_into(recv, counts),
            });
        }
        let send = BufferArg::send(send, all);
        let run = |send: &[T], recv: &mut [T]| match each {
            BlockCounts::Uniform(_) => from.scatter_into_root(send, recv),
            BlockCounts::PerRank(counts) => from.scatter_varcount_into_root(send, recv, counts),
        };
        if !is_in_place(recv) {
            return with_slices::<T>(Some(send), BufferArg::recv(recv, own), |send, recv| {
                run(send.unwrap_or(&[]), recv)
            });
        }
        // The root's own block stays where it is.
        with_slices::<T>(Some(send), NO_RECV, |send, _| {
            let send = send.unwrap_or(&[]);
            run(send, &mut send[..own].to_vec())
        })
    }
}

export! {
    fn eb_broadcast(comm: *const Comm, buffer: *mut c_void, count: usize, dtype: c_int, from: usize) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let (from, mut buffer) = (comm.process_at_rank(root(comm, from)?), BufferArg::recv(buffer, count));
            buffer.name = "buffer";
            with_type!(codes::dtype(dtype)?, T => with_slices::<T>(None, buffer, |_, buffer| from.broadcast_into(buffer)))
        }
    }

    fn eb_allgather(comm: *const Comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            with_type!(codes::dtype(dtype)?, T => all_gather::<T>(comm, send, recv, BlockCounts::Uniform(count)))
        }
    }

    fn eb_allgatherv(comm: *const Comm, send: *const c_void, recv: *mut c_void, each: *const usize, dtype: c_int) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let each = BlockCounts::PerRank(counts(each, comm.size())?);
            with_type!(codes::dtype(dtype)?, T => all_gather::<T>(comm, send, recv, each))
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
            let to = root(comm, to)?;
            with_type!(codes::dtype(dtype)?, T => gather::<T>(comm, send, recv, BlockCounts::Uniform(count), to))
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
            let (each, to) = (BlockCounts::PerRank(counts(each, comm.size())?), root(comm, to)?);
            with_type!(codes::dtype(dtype)?, T => gather::<T>(comm, send, recv, each, to))
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
            let from = root(comm, from)?;
            with_type!(codes::dtype(dtype)?, T => scatter::<T>(comm, send, recv, BlockCounts::Uniform(count), from))
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
            let (each, from) = (BlockCounts::PerRank(counts(each, comm.size())?), root(comm, from)?);
            with_type!(codes::dtype(dtype)?, T => scatter::<T>(comm, send, recv, each, from))
        }
    }

    fn eb_alltoall(comm: *const Comm, send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let all = count_of_all(count, comm.size())?;
            let send = (!is_in_place(send)).then(|| BufferArg::send(send, all));
            with_type!(codes::dtype(dtype)?, T => with_slices::<T>(send, BufferArg::recv(recv, all), |send, recv| match send {
                Some(send) => comm.all_to_all_into(send, recv),
                None => comm.all_to_all_in_place(recv),
            }))
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
            with_type!(codes::dtype(dtype)?, T => {
                all_to_all_varcount::<T>(comm, send, send_counts, recv, recv_counts)
            })
        }
    }
}
