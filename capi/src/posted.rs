//! Every call that can be posted and completed later, in both forms.
#![allow(unsafe_code)]

use crate::buffers::{Place, counts, is_in_place};
use crate::codes::{self, with_type};
use crate::moves::{Blocks, Each, NOTHING};
use crate::reductions::root;
use crate::requests::{Start, both_forms, room};
use earlybird::{Element, Error, Op};
use std::ffi::{c_int, c_void};

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn reduce_scatter<T: Element>(
    start: &Start<'_>,
    send: *const c_void,
    recv: *mut c_void,
    each: Each<'_>,
    op: Op,
) -> Result<(), Error> {
    let Blocks { all, own, .. } = each.blocks(start.comm)?;
    let to = Place::recv(recv, own);
    let from = if is_in_place(send) { Place { count: all, ..to } } else { Place::send(send, all) };
    // SAFETY: C.
    unsafe {
        let (room, mine) = (room::<T>(to)?, start.give::<T>(from)?);
        start.make::<T, _>(&[from], &[to], |comm| match each {
            Each::Same(_) => comm.reduce_scatter_block_into_init(mine, room, op),
            Each::Own(counts) => comm.reduce_scatter_varcount_into_init(mine, room, counts, op),
        })
    }
}

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn all_gather<T: Element>(
    start: &Start<'_>,
    send: *const c_void,
    recv: *mut c_void,
    each: Each<'_>,
) -> Result<(), Error> {
    let Blocks { all, start: first, own } = each.blocks(start.comm)?;
    let to = Place::recv(recv, all);
    let room = room::<T>(to)?;
    let from = if is_in_place(send) { to.part::<T>(first, own) } else { Place::send(send, own) };
    // SAFETY: C.
    unsafe {
        let mine = start.give::<T>(from)?;
        start.make::<T, _>(&[from], &[to], |comm| match each {
            Each::Same(_) => comm.all_gather_into_init(mine, room),
            Each::Own(counts) => comm.all_gather_varcount_into_init(mine, room, counts),
        })
    }
}

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn gather<T: Element>(
    start: &Start<'_>,
    send: *const c_void,
    recv: *mut c_void,
    each: Each<'_>,
    root: usize,
) -> Result<(), Error> {
    let Blocks { all, start: first, own } = each.blocks(start.comm)?;
    // SAFETY: C.
    unsafe {
        if start.comm.rank() != root {
            let from = Place::send(send, own);
            let mine = start.give::<T>(from)?;
            return start.make::<T, Vec<T>>(&[from], &[], |comm| match each {
                Each::Same(_) => comm.process_at_rank(root).gather_into_init(mine),
                Each::Own(counts) => comm.process_at_rank(root).gather_varcount_into_init(mine, counts),
            });
        }
        let to = Place::recv(recv, all);
        let room = room::<T>(to)?;
        let from = if is_in_place(send) { to.part::<T>(first, own) } else { Place::send(send, own) };
        let mine = start.give::<T>(from)?;
        start.make::<T, _>(&[from], &[to], |comm| match each {
            Each::Same(_) => comm.process_at_rank(root).gather_into_root_init(mine, room),
            Each::Own(counts) => comm.process_at_rank(root).gather_varcount_into_root_init(mine, room, counts),
        })
    }
}

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn scatter<T: Element>(
    start: &Start<'_>,
    send: *const c_void,
    recv: *mut c_void,
    each: Each<'_>,
    root: usize,
) -> Result<(), Error> {
    let Blocks { all, own, .. } = each.blocks(start.comm)?;
    // SAFETY: C.
    unsafe {
        if start.comm.rank() != root {
            let to = Place::recv(recv, own);
            let room = room::<T>(to)?;
            return start.make::<T, Vec<T>>(&[], &[to], |comm| match each {
                Each::Same(_) => comm.process_at_rank(root).scatter_into_init(room),
                Each::Own(counts) => comm.process_at_rank(root).scatter_varcount_into_init(room, counts),
            });
        }
        // In place the root's own block stays where it is.
        let to = if is_in_place(recv) { NOTHING } else { Place::recv(recv, own) };
        to.check::<T>()?;
        let from = Place::send(send, all);
        let (mine, room) = (start.give::<T>(from)?, crate::buffers::zeros(own)?);
        let places = if is_in_place(recv) { &[][..] } else { &[to] };
        start.make::<T, _>(&[from], places, |comm| match each {
            Each::Same(_) => comm.process_at_rank(root).scatter_into_root_init(mine, room),
            Each::Own(counts) => comm.process_at_rank(root).scatter_varcount_into_root_init(mine, room, counts),
        })
    }
}

/// # Safety
/// C: also when the call is started and when it ends.
unsafe fn all_to_all_unequal<T: Element>(
    start: &Start<'_>,
    send: *const c_void,
    send_counts: *const usize,
    recv: *mut c_void,
    recv_counts: *const usize,
) -> Result<(), Error> {
    // SAFETY: C.
    unsafe {
        let gets = counts(recv_counts, start.comm.size())?;
        let to = Place::recv(recv, Each::Own(gets).blocks(start.comm)?.all);
        let (gives, from) = match is_in_place(send) {
            true => (gets, to),
            false => {
                let gives = counts(send_counts, start.comm.size())?;
                (gives, Place::send(send, Each::Own(gives).blocks(start.comm)?.all))
            }
        };
        let (room, mine) = (room::<T>(to)?, start.give::<T>(from)?);
        start.make::<T, _>(&[from], &[to], |comm| comm.all_to_all_varcount_into_init(mine, gives, room, gets))
    }
}

both_forms! {
    fn eb_ibarrier, eb_barrier_init() |start| {
        // SAFETY: nothing is given and got.
        unsafe { start.make::<u8, ()>(&[], &[], |comm| comm.barrier_init()) }
    }

    fn eb_iallreduce, eb_allreduce_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
    ) |start| {
        let (op, to) = (codes::op(op)?, Place::recv(recv, count));
        let from = if is_in_place(send) { to } else { Place::send(send, count) };
        with_type!(codes::dtype(dtype)?, T => {
            to.check::<T>()?;
            // SAFETY: C.
            unsafe {
                let mine = start.give::<T>(from)?;
                start.make::<T, Vec<T>>(&[from], &[to], |comm| comm.all_reduce_init(mine, op))
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
    ) |start| {
        let (op, root, to) = (codes::op(op)?, root(start.comm, to)?, Place::recv(recv, count));
        let from = if is_in_place(send) { to } else { Place::send(send, count) };
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            match start.comm.rank() == root {
                true => {
                    let (room, mine) = (room::<T>(to)?, start.give::<T>(from)?);
                    start.make::<T, _>(&[from], &[to], |comm| {
                        comm.process_at_rank(root).reduce_into_root_init(mine, room, op)
                    })
                }
                false => {
                    let mine = start.give::<T>(from)?;
                    start.make::<T, Vec<T>>(&[from], &[], |comm| comm.process_at_rank(root).reduce_into_init(mine, op))
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
    ) |start| {
        let op = codes::op(op)?;
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { reduce_scatter::<T>(&start, send, recv, Each::Same(count), op) })
    }

    fn eb_ireduce_scatterv, eb_reduce_scatterv_init(
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        op: c_int,
    ) |start| {
        // SAFETY: C.
        let (op, each) = (codes::op(op)?, Each::Own(unsafe { counts(each, start.comm.size())? }));
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { reduce_scatter::<T>(&start, send, recv, each, op) })
    }

    fn eb_ibroadcast, eb_broadcast_init(buffer: *mut c_void, count: usize, dtype: c_int, from: usize) |start| {
        let (root, buffer) = (root(start.comm, from)?, Place { name: "buffer", ..Place::recv(buffer, count) });
        let (place, none) = (&[buffer][..], &[][..]);
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            let (from, to, values) = match start.comm.rank() == root {
                true => (place, none, start.give::<T>(buffer)?),
                false => (none, place, room::<T>(buffer)?),
            };
            start.make::<T, Vec<T>>(from, to, |comm| comm.process_at_rank(root).broadcast_init(values))
        })
    }

    fn eb_iallgather, eb_allgather_init(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) |start| {
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { all_gather::<T>(&start, send, recv, Each::Same(count)) })
    }

    fn eb_iallgatherv, eb_allgatherv_init(
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
    ) |start| {
        // SAFETY: C.
        let each = Each::Own(unsafe { counts(each, start.comm.size())? });
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { all_gather::<T>(&start, send, recv, each) })
    }

    fn eb_igather, eb_gather_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        to: usize,
    ) |start| {
        let root = root(start.comm, to)?;
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { gather::<T>(&start, send, recv, Each::Same(count), root) })
    }

    fn eb_igatherv, eb_gatherv_init(
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        to: usize,
    ) |start| {
        // SAFETY: C.
        let (root, each) = (root(start.comm, to)?, Each::Own(unsafe { counts(each, start.comm.size())? }));
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { gather::<T>(&start, send, recv, each, root) })
    }

    fn eb_iscatter, eb_scatter_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        from: usize,
    ) |start| {
        let root = root(start.comm, from)?;
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { scatter::<T>(&start, send, recv, Each::Same(count), root) })
    }

    fn eb_iscatterv, eb_scatterv_init(
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        from: usize,
    ) |start| {
        // SAFETY: C.
        let (root, each) = (root(start.comm, from)?, Each::Own(unsafe { counts(each, start.comm.size())? }));
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe { scatter::<T>(&start, send, recv, each, root) })
    }

    fn eb_ialltoall, eb_alltoall_init(send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int) |start| {
        let to = Place::recv(recv, Each::Same(count).blocks(start.comm)?.all);
        let from = if is_in_place(send) { to } else { Place::send(send, to.count) };
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            let (room, mine) = (room::<T>(to)?, start.give::<T>(from)?);
            start.make::<T, _>(&[from], &[to], |comm| comm.all_to_all_into_init(mine, room))
        })
    }

    fn eb_ialltoallv, eb_alltoallv_init(
        send: *const c_void,
        send_counts: *const usize,
        recv: *mut c_void,
        recv_counts: *const usize,
        dtype: c_int,
    ) |start| {
        // SAFETY: C.
        with_type!(codes::dtype(dtype)?, T => unsafe {
            all_to_all_unequal::<T>(&start, send, send_counts, recv, recv_counts)
        })
    }
}
