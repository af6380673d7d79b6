//! The collectives that move data: broadcast, gather, scatter, allgather, alltoall.
#![allow(unsafe_code)]

use crate::buffers::{Blocks, BufferArg, array, is_in_place, sum};
use crate::call::{Call, CallerBuffers};
use crate::codes;
use crate::requests::export_forms;
use earlybird::{Collective, Communicator, Counts, Error};
use std::ffi::{c_int, c_void};

fn broadcast(comm: &Communicator, buffer: BufferArg, dtype: c_int, root: usize) -> Result<Call<'static>, Error> {
    let received = CallerBuffers::apart(codes::dtype(dtype)?.into(), BufferArg::NO_SEND, buffer);
    let buffers = match comm.rank() == root {
        true => CallerBuffers { send: buffer, in_place: true, has_result: false, ..received },
        false => received,
    };
    Ok(Call::moving(Collective::Broadcast, Some(root), Counts::Uniform, buffers))
}

fn all_gather(
    send: *const c_void,
    recv: *mut c_void,
    Blocks { counts, all, start, own }: Blocks<'_>,
    dtype: c_int,
) -> Result<Call<'_>, Error> {
    let buffers = CallerBuffers::new(codes::dtype(dtype)?.into(), (send, own), BufferArg::recv(recv, all), start);
    Ok(Call::moving(Collective::AllGather, None, counts, buffers))
}

fn gather<'a>(
    comm: &Communicator,
    (send, recv): (*const c_void, *mut c_void),
    Blocks { counts, all, start, own }: Blocks<'a>,
    dtype: c_int,
    root: usize,
) -> Result<Call<'a>, Error> {
    let datatype = codes::dtype(dtype)?.into();
    let buffers = match comm.rank() == root {
        true => CallerBuffers::new(datatype, (send, own), BufferArg::recv(recv, all), start),
        false => CallerBuffers::apart(datatype, BufferArg::send(send, own), BufferArg::NO_RECV),
    };
    Ok(Call::moving(Collective::Gather, Some(root), counts, buffers))
}

fn scatter<'a>(
    comm: &Communicator,
    (send, recv): (*const c_void, *mut c_void),
    Blocks { counts, all, own, .. }: Blocks<'a>,
    dtype: c_int,
    root: usize,
) -> Result<Call<'a>, Error> {
    let is_root = comm.rank() == root;
    let send = if is_root { BufferArg::send(send, all) } else { BufferArg::NO_SEND };
    // In place, the root's own block is not moved.
    let has_result = !(is_root && is_in_place(recv));
    let recv = BufferArg::recv(if has_result { recv } else { std::ptr::null_mut() }, own);
    let buffers = CallerBuffers { has_result, ..CallerBuffers::apart(codes::dtype(dtype)?.into(), send, recv) };
    Ok(Call::moving(Collective::Scatter, Some(root), counts, buffers))
}

fn all_to_all(
    (send, sent): (*const c_void, usize),
    recv: BufferArg,
    counts: Counts<'_>,
    dtype: c_int,
) -> Result<Call<'_>, Error> {
    let buffers = CallerBuffers::new(codes::dtype(dtype)?.into(), (send, sent), recv, 0);
    Ok(Call::moving(Collective::AllToAll, None, counts, buffers))
}

export_forms! {
    fn eb_broadcast, eb_ibroadcast, eb_broadcast_init(buffer: *mut c_void, count: usize, dtype: c_int, root: usize) |comm| {
        broadcast(comm, BufferArg { name: "buffer", ..BufferArg::recv(buffer, count) }, dtype, root)?
    }

    fn eb_allgather, eb_iallgather, eb_allgather_init(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int
    ) |comm| { all_gather(send, recv, Blocks::uniform(comm, count)?, dtype)? }

    fn eb_allgatherv, eb_iallgatherv, eb_allgatherv_init(
        send: *const c_void, recv: *mut c_void, each: *const usize, dtype: c_int
    ) |comm| {
        // SAFETY: C.
        all_gather(send, recv, unsafe { Blocks::per_rank(comm, each)? }, dtype)?
    }

    fn eb_gather, eb_igather, eb_gather_init(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: usize
    ) |comm| { gather(comm, (send, recv), Blocks::uniform(comm, count)?, dtype, root)? }

    fn eb_gatherv, eb_igatherv, eb_gatherv_init(
        send: *const c_void, recv: *mut c_void, each: *const usize, dtype: c_int, root: usize
    ) |comm| {
        // SAFETY: C.
        gather(comm, (send, recv), unsafe { Blocks::per_rank(comm, each)? }, dtype, root)?
    }

    fn eb_scatter, eb_iscatter, eb_scatter_init(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: usize
    ) |comm| { scatter(comm, (send, recv), Blocks::uniform(comm, count)?, dtype, root)? }

    fn eb_scatterv, eb_iscatterv, eb_scatterv_init(
        send: *const c_void, recv: *mut c_void, each: *const usize, dtype: c_int, root: usize
    ) |comm| {
        // SAFETY: C.
        scatter(comm, (send, recv), unsafe { Blocks::per_rank(comm, each)? }, dtype, root)?
    }

    fn eb_alltoall, eb_ialltoall, eb_alltoall_init(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int
    ) |comm| {
        let all = Blocks::uniform(comm, count)?.all;
        all_to_all((send, all), BufferArg::recv(recv, all), Counts::Uniform, dtype)?
    }

    fn eb_alltoallv, eb_ialltoallv, eb_alltoallv_init(
        send: *const c_void, send_counts: *const usize, recv: *mut c_void, recv_counts: *const usize, dtype: c_int
    ) |comm| {
        let send_counts = if is_in_place(send) { recv_counts } else { send_counts };
        // SAFETY: C.
        let counts = |at| unsafe { array(at, "counts", comm.size(), "rank") };
        let (send_counts, recv_counts) = (counts(send_counts)?, counts(recv_counts)?);
        let counts = Counts::PerPair { send: send_counts, recv: recv_counts };
        all_to_all((send, sum(send_counts)?), BufferArg::recv(recv, sum(recv_counts)?), counts, dtype)?
    }
}
