//! The Fortran functions that do not call the C functions: all of Open MPI, and two of MPICH's module `mpi_f08`.
//!
//! Each is defined under every spelling that the MPI library has. In the module `mpi_f08` handles are integers in a structure, and
//! the last argument may be missing.
#![allow(unsafe_code)]

#[cfg(open_mpi)]
use crate::abi::{self, constants, eb_comm_f2c, eb_op_f2c, eb_type_f2c};
use crate::entry;
use std::ffi::c_int;
#[cfg(open_mpi)]
use std::ffi::c_void;

/// Converts the address of a Fortran buffer: two addresses stand for constants of C.
#[cfg(open_mpi)]
fn buffer(address: *mut c_void) -> *mut c_void {
    if address.cast_const() == abi::eb_fortran_in_place() {
        constants().in_place
    } else if address.cast_const() == abi::eb_fortran_bottom() {
        std::ptr::null_mut() // MPI_BOTTOM
    } else {
        address
    }
}

macro_rules! functions {
    (@each ($($spelling:literal),*) $arguments:tt $call:expr) => {
        $(functions!(@one $spelling $arguments $call);)*
    };
    (@one $spelling:literal ($($argument:ident: $kind:ty),*) $call:expr) => {
        const _: () = {
            /// The Fortran function of this name.
            ///
            /// # Safety
            /// The caller keeps the rules of the MPI standard; `error` may be null.
            #[unsafe(export_name = $spelling)]
            unsafe extern "C" fn function($($argument: $kind,)* error: *mut c_int) {
                // SAFETY: Fortran passes addresses of integers and buffers as MPI demands.
                unsafe {
                    let code = $call;
                    if !error.is_null() {
                        *error = code;
                    }
                }
            }
        };
    };
    ($($spellings:tt $arguments:tt $call:expr;)*) => {$(
        functions!(@each $spellings $arguments $call);
    )*};
}

type Int = *const c_int;
#[cfg(open_mpi)]
type Buffer = *mut c_void;

#[cfg(not(open_mpi))]
functions! {
    ("mpi_barrier_f08_")
        (comm: Int)
        entry::MPI_Barrier(*comm as crate::abi::Handle);
    ("mpi_finalize_f08_")
        ()
        entry::MPI_Finalize();
}

#[cfg(open_mpi)]
functions! {
    ("mpi_allreduce", "mpi_allreduce_", "mpi_allreduce__", "MPI_ALLREDUCE", "mpi_allreduce_f08_")
        (send: Buffer, recv: Buffer, n: Int, dtype: Int, op: Int, comm: Int)
        entry::MPI_Allreduce(
            buffer(send), buffer(recv), *n, eb_type_f2c(*dtype), eb_op_f2c(*op), eb_comm_f2c(*comm));
    ("mpi_reduce", "mpi_reduce_", "mpi_reduce__", "MPI_REDUCE", "mpi_reduce_f08_")
        (send: Buffer, recv: Buffer, n: Int, dtype: Int, op: Int, root: Int, comm: Int)
        entry::MPI_Reduce(
            buffer(send), buffer(recv), *n, eb_type_f2c(*dtype), eb_op_f2c(*op), *root, eb_comm_f2c(*comm));
    ("mpi_reduce_scatter_block", "mpi_reduce_scatter_block_", "mpi_reduce_scatter_block__", "MPI_REDUCE_SCATTER_BLOCK",
     "mpi_reduce_scatter_block_f08_")
        (send: Buffer, recv: Buffer, n: Int, dtype: Int, op: Int, comm: Int)
        entry::MPI_Reduce_scatter_block(
            buffer(send), buffer(recv), *n, eb_type_f2c(*dtype), eb_op_f2c(*op), eb_comm_f2c(*comm));
    ("mpi_bcast", "mpi_bcast_", "mpi_bcast__", "MPI_BCAST", "mpi_bcast_f08_")
        (data: Buffer, n: Int, dtype: Int, root: Int, comm: Int)
        entry::MPI_Bcast(buffer(data), *n, eb_type_f2c(*dtype), *root, eb_comm_f2c(*comm));
    ("mpi_allgather", "mpi_allgather_", "mpi_allgather__", "MPI_ALLGATHER", "mpi_allgather_f08_")
        (send: Buffer, n: Int, dtype: Int, recv: Buffer, m: Int, recv_type: Int, comm: Int)
        entry::MPI_Allgather(
            buffer(send), *n, eb_type_f2c(*dtype), buffer(recv), *m, eb_type_f2c(*recv_type), eb_comm_f2c(*comm));
    ("mpi_barrier", "mpi_barrier_", "mpi_barrier__", "MPI_BARRIER", "mpi_barrier_f08_")
        (comm: Int)
        entry::MPI_Barrier(eb_comm_f2c(*comm));
    ("mpi_finalize", "mpi_finalize_", "mpi_finalize__", "MPI_FINALIZE", "mpi_finalize_f08_")
        ()
        entry::MPI_Finalize();
}
