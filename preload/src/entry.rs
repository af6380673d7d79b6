//! The functions of MPI that programs call: taken over, or handed to MPI under their profiling names.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::buffers::Failure;
use crate::summary::{self, Call, Why};
use crate::{moves, progress, reductions, seats, settings};
use earlybird::Interpose;
use std::ffi::{c_int, c_void};

/// Counts a call that goes to MPI.
#[inline]
pub fn handed_over<T>(call: Call, why: Why, count: i64, dtype: Handle) -> Option<T> {
    summary::passed(call, why, || match count {
        1.. => count as usize * abi::type_size(dtype).unwrap_or(0),
        _ => 0,
    });
    None
}

/// What a call returns that was taken over.
#[inline]
pub fn outcome(call: Call, comm: Handle, done: Result<(), Failure>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(failure) => failed(call, comm, failure),
    }
}

/// Says what failed and leaves the rest to the communicator's error handler, which by default ends the job.
#[cold]
fn failed(call: Call, comm: Handle, failure: Failure) -> c_int {
    let code = match failure {
        Failure::Mpis(code) => return code,
        Failure::Argument(code, what) => {
            summary::say_and_be_heard(&format!("earlybird: {}: {what}", call.name()));
            code
        }
        Failure::Ours(error) => {
            summary::say_and_be_heard(&format!("earlybird: {}: {} {error}", call.name(), error.code()));
            constants().err_other
        }
    };
    // SAFETY: MPI runs and the communicator is the caller's.
    unsafe { abi::PMPI_Comm_call_errhandler(comm, code) };
    code
}

/// Says, if asked, what was taken over, and leaves all communicators.
fn finish() {
    let is_on = abi::is_running() && settings::get().interpose != Interpose::Off;
    if is_on && summary::is_counting() {
        // SAFETY: MPI runs; writes one int.
        let rank = abi::asked(|rank| unsafe { abi::PMPI_Comm_rank(constants().world, rank) });
        if rank == Some(0) {
            summary::print();
        }
    }
    seats::leave_all();
    if is_on {
        progress::stop();
    }
}

/// Defines MPI functions: taken over by the first expression if it gives a code, done by the second otherwise.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*): $ours:expr, $mpis:ident;)*) => {$(
        /// The function of MPI.
        ///
        /// # Safety
        /// As MPI says.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            // SAFETY: the arguments are what MPI demands of the caller, and are handed on unchanged.
            unsafe {
                match $ours {
                    Some(code) => code,
                    None => abi::$mpis($($argument),*),
                }
            }
        }
    )*};
}

type Send = *const c_void;
type Receive = *mut c_void;

functions! {
    MPI_Allreduce(send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, comm: Handle):
        reductions::allreduce(send, receive, n.into(), dtype, op, comm), PMPI_Allreduce;
    MPI_Reduce(send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, root: c_int, comm: Handle):
        reductions::reduce(send, receive, n.into(), dtype, op, root, comm), PMPI_Reduce;
    MPI_Reduce_scatter_block(send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, comm: Handle):
        reductions::reduce_scatter_block(send, receive, n.into(), dtype, op, comm), PMPI_Reduce_scatter_block;
    MPI_Bcast(buffer: Receive, n: c_int, dtype: Handle, root: c_int, comm: Handle):
        moves::bcast(buffer, n.into(), dtype, root, comm), PMPI_Bcast;
    MPI_Allgather(send: Send, n: c_int, dtype: Handle, receive: Receive, m: c_int, into: Handle, comm: Handle):
        moves::allgather(send, n.into(), dtype, receive, m.into(), into, comm), PMPI_Allgather;
    MPI_Barrier(comm: Handle): reductions::barrier(comm), PMPI_Barrier;
    MPI_Finalize(): { finish(); None }, PMPI_Finalize;
}

#[cfg(large_counts)]
functions! {
    MPI_Allreduce_c(send: Send, receive: Receive, n: abi::Count, dtype: Handle, op: Handle, comm: Handle):
        reductions::allreduce(send, receive, n, dtype, op, comm), PMPI_Allreduce_c;
    MPI_Reduce_c(send: Send, receive: Receive, n: abi::Count, dtype: Handle, op: Handle, root: c_int, comm: Handle):
        reductions::reduce(send, receive, n, dtype, op, root, comm), PMPI_Reduce_c;
    MPI_Reduce_scatter_block_c(send: Send, receive: Receive, n: abi::Count, dtype: Handle, op: Handle, comm: Handle):
        reductions::reduce_scatter_block(send, receive, n, dtype, op, comm), PMPI_Reduce_scatter_block_c;
    MPI_Bcast_c(buffer: Receive, n: abi::Count, dtype: Handle, root: c_int, comm: Handle):
        moves::bcast(buffer, n, dtype, root, comm), PMPI_Bcast_c;
    MPI_Allgather_c(send: Send, n: abi::Count, dtype: Handle, receive: Receive, m: abi::Count, into: Handle, comm: Handle):
        moves::allgather(send, n, dtype, receive, m, into, comm), PMPI_Allgather_c;
}
