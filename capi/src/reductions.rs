//! The barrier and the reductions.
#![allow(unsafe_code)]

use crate::buffers::{Blocks, BufferArg};
use crate::call::{Call, CallerBuffers};
use crate::codes;
use crate::requests::export_forms;
use earlybird::{Collective, Communicator, Counts, DType, Datatype, Error, SharedReduceOp};
use std::ffi::{c_int, c_void};

/// The elements and the operator of a reduction.
pub struct Reduction {
    pub datatype: Datatype,
    pub op: SharedReduceOp,
}

impl Reduction {
    /// Describes the reduction with a type and an operator as C numbers them.
    pub fn of_codes(dtype: c_int, op: c_int) -> Result<Self, Error> {
        Ok(Reduction { datatype: codes::dtype(dtype)?.into(), op: codes::op(op)?.into() })
    }

    pub fn all_reduce(self, send: *const c_void, recv: *mut c_void, count: usize) -> Call<'static> {
        let buffers = CallerBuffers::new(self.datatype, (send, count), BufferArg::recv(recv, count), 0);
        Call { collective: Collective::AllReduce, op: self.op, root: None, counts: Counts::Uniform, buffers }
    }

    pub fn reduce(
        self,
        comm: &Communicator,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        root: usize,
    ) -> Call<'static> {
        let mut call = self.all_reduce(send, recv, count);
        if comm.rank() != root {
            call.buffers = CallerBuffers::apart(call.buffers.datatype, call.buffers.send, BufferArg::NO_RECV);
        }
        Call { collective: Collective::Reduce, root: Some(root), ..call }
    }

    /// Describes a scan, or an exclusive one, which leaves the receive buffer of rank 0 as it is.
    pub fn scan(
        self,
        comm: &Communicator,
        collective: Collective,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
    ) -> Call<'static> {
        let mut call = Call { collective, ..self.all_reduce(send, recv, count) };
        call.buffers.has_result = collective == Collective::Scan || comm.rank() > 0;
        call
    }

    pub fn reduce_scatter<'a>(self, send: *const c_void, recv: *mut c_void, blocks: Blocks<'a>) -> Call<'a> {
        let Blocks { counts, all, own, .. } = blocks;
        let buffers = CallerBuffers::new(self.datatype, (send, all), BufferArg::recv(recv, own), 0);
        Call { collective: Collective::ReduceScatter, op: self.op, root: None, counts, buffers }
    }
}

export_forms! {
    fn eb_barrier, eb_ibarrier, eb_barrier_init() |comm| {
        let buffers = CallerBuffers::apart(DType::U64.into(), BufferArg::NO_SEND, BufferArg::NO_RECV);
        Call::moving(Collective::Barrier, None, Counts::Uniform, buffers)
    }

    fn eb_allreduce, eb_iallreduce, eb_allreduce_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
    ) |comm| {
        Reduction::of_codes(dtype, op)?.all_reduce(send, recv, count)
    }

    fn eb_reduce, eb_ireduce, eb_reduce_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
        root: usize,
    ) |comm| {
        Reduction::of_codes(dtype, op)?.reduce(comm, send, recv, count, root)
    }

    fn eb_scan, eb_iscan, eb_scan_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
    ) |comm| {
        Reduction::of_codes(dtype, op)?.scan(comm, Collective::Scan, send, recv, count)
    }

    fn eb_exscan, eb_iexscan, eb_exscan_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
    ) |comm| {
        Reduction::of_codes(dtype, op)?.scan(comm, Collective::ExclusiveScan, send, recv, count)
    }

    fn eb_reduce_scatter, eb_ireduce_scatter, eb_reduce_scatter_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
    ) |comm| {
        Reduction::of_codes(dtype, op)?.reduce_scatter(send, recv, Blocks::uniform(comm, count)?)
    }

    fn eb_reduce_scatterv, eb_ireduce_scatterv, eb_reduce_scatterv_init(
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        op: c_int,
    ) |comm| {
        // SAFETY: C.
        Reduction::of_codes(dtype, op)?.reduce_scatter(send, recv, unsafe { Blocks::per_rank(comm, each)? })
    }
}
