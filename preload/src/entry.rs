//! The MPI functions that programs call: each is intercepted, or forwarded to MPI under its profiling name.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, RecvPtr, SendPtr, constants};
use crate::{comm_cache, data_movement, forwarded, progress, reductions, settings, stderr, summary};
use earlybird::Interpose;
use std::ffi::c_int;

/// Prints the summary, if the settings ask for it, and frees all communicators.
fn finalize() {
    let is_on = abi::is_running() && settings::get().interpose != Interpose::Off;
    if is_on && summary::is_counting() {
        // SAFETY: MPI runs; writes one int.
        let rank = abi::query(|rank| unsafe { abi::PMPI_Comm_rank(constants().world, rank) });
        if rank == Some(0) {
            stderr::print((summary::text() + &forwarded::summary_text()).trim_end());
        }
    }
    comm_cache::free_all();
    if is_on {
        progress::stop();
    }
}

/// Defines MPI functions. The first expression intercepts the call and gives its return code, or `None` to forward it to the second.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*): $intercept:expr, $forward:ident;)*) => {$(
        /// The MPI function of this name.
        ///
        /// # Safety
        /// The caller keeps the rules of the MPI standard.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: the arguments are what MPI demands of the caller, and are forwarded unchanged.
            unsafe {
                match $intercept {
                    Some(code) => code,
                    None => abi::$forward($($argument),*),
                }
            }
        }
    )*};
}

functions! {
    MPI_Allreduce(send: SendPtr, recv: RecvPtr, n: c_int, dtype: Handle, op: Handle, comm: Handle):
        reductions::allreduce(send, recv, n.into(), dtype, op, comm), PMPI_Allreduce;
    MPI_Reduce(send: SendPtr, recv: RecvPtr, n: c_int, dtype: Handle, op: Handle, root: c_int, comm: Handle):
        reductions::reduce(send, recv, n.into(), dtype, op, root, comm), PMPI_Reduce;
    MPI_Reduce_scatter_block(send: SendPtr, recv: RecvPtr, n: c_int, dtype: Handle, op: Handle, comm: Handle):
        reductions::reduce_scatter_block(send, recv, n.into(), dtype, op, comm), PMPI_Reduce_scatter_block;
    MPI_Bcast(buffer: RecvPtr, n: c_int, dtype: Handle, root: c_int, comm: Handle):
        data_movement::bcast(buffer, n.into(), dtype, root, comm), PMPI_Bcast;
    MPI_Allgather(send: SendPtr, n: c_int, dtype: Handle, recv: RecvPtr, m: c_int, recv_type: Handle, comm: Handle):
        data_movement::allgather(send, n.into(), dtype, recv, m.into(), recv_type, comm), PMPI_Allgather;
    MPI_Barrier(comm: Handle): reductions::barrier(comm), PMPI_Barrier;
    MPI_Finalize(): { finalize(); None }, PMPI_Finalize;
}

#[cfg(large_counts)]
functions! {
    MPI_Allreduce_c(send: SendPtr, recv: RecvPtr, n: abi::Count, dtype: Handle, op: Handle, comm: Handle):
        reductions::allreduce(send, recv, n, dtype, op, comm), PMPI_Allreduce_c;
    MPI_Reduce_c(send: SendPtr, recv: RecvPtr, n: abi::Count, dtype: Handle, op: Handle, root: c_int, comm: Handle):
        reductions::reduce(send, recv, n, dtype, op, root, comm), PMPI_Reduce_c;
    MPI_Reduce_scatter_block_c(send: SendPtr, recv: RecvPtr, n: abi::Count, dtype: Handle, op: Handle, comm: Handle):
        reductions::reduce_scatter_block(send, recv, n, dtype, op, comm), PMPI_Reduce_scatter_block_c;
    MPI_Bcast_c(buffer: RecvPtr, n: abi::Count, dtype: Handle, root: c_int, comm: Handle):
        data_movement::bcast(buffer, n, dtype, root, comm), PMPI_Bcast_c;
    MPI_Allgather_c(
        send: SendPtr, n: abi::Count, dtype: Handle, recv: RecvPtr, m: abi::Count, recv_type: Handle, comm: Handle):
        data_movement::allgather(send, n, dtype, recv, m, recv_type, comm), PMPI_Allgather_c;
}
