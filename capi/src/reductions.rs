//! The barrier and the reductions.
#![allow(unsafe_code)]

use crate::buffers::{Blocks, BufferArg};
use crate::call::{Call, CallerBuffers};
use crate::codes;
use crate::requests::export_forms;
use crate::user_ops::{self, Operator};
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

/// Exports the forms of a reduction twice: by an operator of the library's on a type of its own, and by one of the caller's on elements
/// of so many bytes. Both stand between these arguments, the last of which may follow them.
macro_rules! export_reductions {
    ($(
        fn $blocking:ident, $nonblocking:ident, $persistent:ident,
            $blocking_with:ident, $nonblocking_with:ident, $persistent_with:ident(
            $($arg:ident: $type:ty),* $(; $last:ident: $last_type:ty)?
        ) |$comm:ident, $reduction:ident| $call:block
    )*) => {
        export_forms! {
            $(
            fn $blocking, $nonblocking, $persistent($($arg: $type,)* dtype: c_int, op: c_int $(, $last: $last_type)?) |$comm| {
                let $reduction = Reduction::of_codes(dtype, op)?;
                $call
            }

            fn $blocking_with, $nonblocking_with, $persistent_with(
                $($arg: $type,)* element_bytes: usize, op: *const Operator $(, $last: $last_type)?
            ) |$comm| {
                // SAFETY: C.
                let (datatype, op) = unsafe { user_ops::operator(op, element_bytes)? };
                let $reduction = Reduction { datatype, op };
                $call
            }
            )*
        }
    };
}

export_reductions! {
    fn eb_allreduce, eb_iallreduce, eb_allreduce_init,
        eb_allreduce_with, eb_iallreduce_with, eb_allreduce_with_init(
        send: *const c_void, recv: *mut c_void, count: usize
    ) |comm, reduction| { reduction.all_reduce(send, recv, count) }

    fn eb_reduce, eb_ireduce, eb_reduce_init,
        eb_reduce_with, eb_ireduce_with, eb_reduce_with_init(
        send: *const c_void, recv: *mut c_void, count: usize; root: usize
    ) |comm, reduction| { reduction.reduce(comm, send, recv, count, root) }

    fn eb_scan, eb_iscan, eb_scan_init,
        eb_scan_with, eb_iscan_with, eb_scan_with_init(
        send: *const c_void, recv: *mut c_void, count: usize
    ) |comm, reduction| { reduction.scan(comm, Collective::Scan, send, recv, count) }

    fn eb_exscan, eb_iexscan, eb_exscan_init,
        eb_exscan_with, eb_iexscan_with, eb_exscan_with_init(
        send: *const c_void, recv: *mut c_void, count: usize
    ) |comm, reduction| { reduction.scan(comm, Collective::ExclusiveScan, send, recv, count) }

    fn eb_reduce_scatter, eb_ireduce_scatter, eb_reduce_scatter_init,
        eb_reduce_scatter_with, eb_ireduce_scatter_with, eb_reduce_scatter_with_init(
        send: *const c_void, recv: *mut c_void, count: usize
    ) |comm, reduction| { reduction.reduce_scatter(send, recv, Blocks::uniform(comm, count)?) }
}

export_forms! {
    fn eb_barrier, eb_ibarrier, eb_barrier_init() |comm| {
        let buffers = CallerBuffers::apart(DType::U64.into(), BufferArg::NO_SEND, BufferArg::NO_RECV);
        Call::moving(Collective::Barrier, None, Counts::Uniform, buffers)
    }

    fn eb_reduce_scatterv, eb_ireduce_scatterv, eb_reduce_scatterv_init(
        send: *const c_void, recv: *mut c_void, each: *const usize, dtype: c_int, op: c_int
    ) |comm| {
        // SAFETY: C.
        Reduction::of_codes(dtype, op)?.reduce_scatter(send, recv, unsafe { Blocks::per_rank(comm, each)? })
    }
}
