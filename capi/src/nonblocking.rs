//! The non-blocking and persistent forms of the collectives.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, NO_RECV, counts, is_in_place};
use crate::codes::{self, with_type};
use crate::data_movement::{BlockCounts, BlockRange};
use crate::reductions::root;
use crate::requests::{RequestBuilder, both_forms, recv_buffer};
use earlybird::{Element, Error, Op};
use std::ffi::{c_int, c_void};

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn reduce_scatter<T: Element>(
    builder: &RequestBuilder<'_>,
    send: *const c_void,
    recv: *mut c_void,
    each: BlockCounts<'_>,
    op: Op,
) -> Result<(), Error> {
    let BlockRange { all, own, .. } = each.blocks(builder.comm)?;
    let to = BufferArg::recv(recv, own);
    let from = if is_in_place(send) { BufferArg { count: all, ..to } } else { BufferArg::send(send, all) };
    // SAFETY: C.
    unsafe {
        let (recv_values, send_values) = (recv_buffer::<T>(to)?, builder.send_buffer::<T>(from)?);
        builder.build::<T, _>(&[from], &[to], |comm| match each {
            BlockCounts::Uniform(_) => comm.reduce_scatter_block_into_init(send_values, recv_values, op),
            BlockCounts::PerRank(counts) => {
                comm.reduce_scatter_varcount_into_init(send_values, recv_values, counts, op)
            }
        })
    }
}

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn all_gather<T: Element>(
    builder: &RequestBuilder<'_>,
    send: *const c_void,
    recv: *mut c_void,
    each: BlockCounts<'_>,
) -> Result<(), Error> {
    let BlockRange { all, start: first, own } = each.blocks(builder.comm)?;
    let to = BufferArg::recv(recv, all);
    let recv_values = recv_buffer::<T>(to)?;
    let from = if is_in_place(send) { to.block::<T>(first, own) } else { BufferArg::send(send, own) };
    // SAFETY: C.
    unsafe {
        let send_values = builder.send_buffer::<T>(from)?;
        builder.build::<T, _>(&[from], &[to], |comm| match each {
            BlockCounts::Uniform(_) => comm.all_gather_into_init(send_values, recv_values),
            BlockCounts::PerRank(counts) => comm.all_gather_varcount_into_init(send_values, recv_values, counts),
        })
    }
}

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn gather<T: Element>(
    builder: &RequestBuilder<'_>,
    send: *const c_void,
    recv: *mut c_void,
    each: BlockCounts<'_>,
    root: usize,
) -> Result<(), Error> {
    let BlockRange { all, start: first, own } = each.blocks(builder.comm)?;
    // SAFETY: C.
    unsafe {
        if builder.comm.rank() != root {
            let from = BufferArg::send(send, own);
            let send_values = builder.send_buffer::<T>(from)?;
            return builder.build::<T, Vec<T>>(&[from], &[], |comm| match each {
                BlockCounts::Uniform(_) => comm.process_at_rank(root).gather_into_init(send_values),
                BlockCounts::PerRank(counts) => {
                    comm.process_at_rank(root).gather_varcount_into_init(send_values, counts)
                }
            });
        }
        let to = BufferArg::recv(recv, all);
        let recv_values = recv_buffer::<T>(to)?;
        let from = if is_in_place(send) { to.block::<T>(first, own) } else { BufferArg::send(send, own) };
        let send_values = builder.send_buffer::<T>(from)?;
        builder.build::<T, _>(&[from], &[to], |comm| match each {
            BlockCounts::Uniform(_) => comm.process_at_rank(root).gather_into_root_init(send_values, recv_values),
            BlockCounts::PerRank(counts) => {
                comm.process_at_rank(root).gather_varcount_into_root_init(send_values, recv_values, counts)
            }
        })
    }
}

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn scatter<T: Element>(
    builder: &RequestBuilder<'_>,
    send: *const c_void,
    recv: *mut c_void,
    each: BlockCounts<'_>,
    root: usize,
) -> Result<(), Error> {
    let BlockRange { all, own, .. } = each.blocks(builder.comm)?;
    // SAFETY: C.
    unsafe {
        if builder.comm.rank() != root {
            let to = BufferArg::recv(recv, own);
            let recv_values = recv_buffer::<T>(to)?;
            return builder.build::<T, Vec<T>>(&[], &[to], |comm| match each {
                BlockCounts::Uniform(_) => comm.process_at_rank(root).scatter_into_init(recv_values),
                BlockCounts::PerRank(counts) => {
                    comm.process_at_rank(root).scatter_varcount_into_init(recv_values, counts)
                }
            });
        }
        // In place, the root's own block is not moved.
        let to = if is_in_place(recv) { NO_RECV } else { BufferArg::recv(recv, own) };
        to.check(T::DTYPE.into())?;
        let from = BufferArg::send(send, all);
        let (send_values, recv_values) = (builder.send_buffer::<T>(from)?, crate::buffers::zeroed(own)?);
        let places = if is_in_place(recv) { &[][..] } else { &[to] };
        builder.build::<T, _>(&[from], places, |comm| match each {
            BlockCounts::Uniform(_) => comm.process_at_rank(root).scatter_into_root_init(send_values, recv_values),
            BlockCounts::PerRank(counts) => {
                comm.process_at_rank(root).scatter_varcount_into_root_init(send_values, recv_values, counts)
            }
        })
    }
}

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn all_to_all_varcount<T: Element>(
    builder: &RequestBuilder<'_>,
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
) -> Result<(), Error> {
    // SAFETY: C.
    unsafe {
        let recv_counts = counts(recv_counts, builder.comm.size())?;
        let to = BufferArg::recv(recv, BlockCounts::PerRank(recv_counts).blocks(builder.comm)?.all);
        let (send_counts, from) = match is_in_place(send) {
            true => (recv_counts, to),
            false => {
                let send_counts = counts(send_counts, builder.comm.size())?;
                (send_counts, BufferArg::send(send, BlockCounts::PerRank(send_counts).blocks(builder.comm)?.all))
            }
        };
        let (recv_values, send_values) = (recv_buffer::<T>(to)?, builder.send_buffer::<T>(from)?);
        builder.build::<T, _>(&[from], &[to], |comm| {
            comm.all_to_all_varcount_into_init(send_values, send_counts, recv_values, recv_counts)
        })
    }
}

both_forms! {
    fn eb_ibarrier, eb_barrier_init() |builder| {
        // SAFETY: a barrier has no buffers.
        unsafe { builder.build::<u8, ()>(&[], &[], |comm| comm.barrier_init()) }
    }

    fn eb_iallreduce, eb_allreduce_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
    ) |builder| {
        let (op, to) = (codes::op(op)?, BufferArg::recv(recv, count));
        let from = if is_in_place(send) { to } else { BufferArg::send(send, count) };
        with_type!(codes::dtype(dtype)?, T => {
            to.check(T::DTYPE.into())?;
            // SAFETY: C.
            unsafe {
                let send_values = builder.send_buffer::<T>(from)?;
                builder.build::<T, Vec<T>>(&[from], &[to], |comm| comm.all_reduce_init(send_values, op))
            }
        })
    }

    fn eb_ireduce, eb_reduce_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
        to: usize,
    ) |builder| {
        let (op, root, to) = (codes::op(op)?, root(builder.comm, to)?, BufferArg::recv(recv, count));
        let from = if is_in_place(send) { to } else { BufferArg::send(send, count) };
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            match builder.comm.rank() == root {
                true => {
                    let (recv_values, send_values) = (recv_buffer::<T>(to)?, builder.send_buffer::<T>(from)?);
                    builder.build::<T, _>(&[from], &[to], |comm| {
                        comm.process_at_rank(root).reduce_into_root_init(send_values, recv_values, op)
                    })
                }
                false => {
                    let send_values = builder.send_buffer::<T>(from)?;
                    builder.build::<T, Vec<T>>(&[from], &[], |comm| comm.process_at_rank(root).reduce_into_init(send_values, op))
                }
            }
        })
    }

    fn eb_ireduce_scatter, eb_reduce_scatter_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
    ) |builder| {
        let op = codes::op(op)?;
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { reduce_scatter::<T>(&builder, send, recv, BlockCounts::Uniform(count), op) })
    }

    fn eb_ireduce_scatterv, eb_reduce_scatterv_init(
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        op: c_int,
    ) |builder| {
        // SAFETY: C.
        let (op, each) = (codes::op(op)?, BlockCounts::PerRank(unsafe { counts(each, builder.comm.size())? }));
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { reduce_scatter::<T>(&builder, send, recv, each, op) })
    }

    fn eb_ibroadcast, eb_broadcast_init(buffer: *mut c_void, count: usize, dtype: c_int, from: usize) |builder| {
        let (root, buffer) = (root(builder.comm, from)?, BufferArg { name: "buffer", ..BufferArg::recv(buffer, count) });
        let (place, none) = (&[buffer][..], &[][..]);
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            let (from, to, values) = match builder.comm.rank() == root {
                true => (place, none, builder.send_buffer::<T>(buffer)?),
                false => (none, place, recv_buffer::<T>(buffer)?),
            };
            builder.build::<T, Vec<T>>(from, to, |comm| comm.process_at_rank(root).broadcast_init(values))
        })
    }

    fn eb_iallgather, eb_allgather_init(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) |builder| {
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { all_gather::<T>(&builder, send, recv, BlockCounts::Uniform(count)) })
    }

    fn eb_iallgatherv, eb_allgatherv_init(
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
    ) |builder| {
        // SAFETY: C.
        let each = BlockCounts::PerRank(unsafe { counts(each, builder.comm.size())? });
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { all_gather::<T>(&builder, send, recv, each) })
    }

    fn eb_igather, eb_gather_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        to: usize,
    ) |builder| {
        let root = root(builder.comm, to)?;
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { gather::<T>(&builder, send, recv, BlockCounts::Uniform(count), root) })
    }

    fn eb_igatherv, eb_gatherv_init(
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        to: usize,
    ) |builder| {
        // SAFETY: C.
        let (root, each) = (root(builder.comm, to)?, BlockCounts::PerRank(unsafe { counts(each, builder.comm.size())? }));
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { gather::<T>(&builder, send, recv, each, root) })
    }

    fn eb_iscatter, eb_scatter_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        from: usize,
    ) |builder| {
        let root = root(builder.comm, from)?;
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { scatter::<T>(&builder, send, recv, BlockCounts::Uniform(count), root) })
    }

    fn eb_iscatterv, eb_scatterv_init(
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        from: usize,
    ) |builder| {
        // SAFETY: C.
        let (root, each) = (root(builder.comm, from)?, BlockCounts::PerRank(unsafe { counts(each, builder.comm.size())? }));
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { scatter::<T>(&builder, send, recv, each, root) })
    }

    fn eb_ialltoall, eb_alltoall_init(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) |builder| {
        let to = BufferArg::recv(recv, BlockCounts::Uniform(count).blocks(builder.comm)?.all);
        let from = if is_in_place(send) { to } else { BufferArg::send(send, to.count) };
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            let (recv_values, send_values) = (recv_buffer::<T>(to)?, builder.send_buffer::<T>(from)?);
            builder.build::<T, _>(&[from], &[to], |comm| comm.all_to_all_into_init(send_values, recv_values))
        })
    }

    fn eb_ialltoallv, eb_alltoallv_init(
        send: *const c_void,
        send_counts: *const usize,
        recv: *mut c_void,
        recv_counts: *const usize,
        dtype: c_int,
    ) |builder| {
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            all_to_all_varcount::<T>(&builder, send, send_counts, recv, recv_counts)
        })
    }
}
