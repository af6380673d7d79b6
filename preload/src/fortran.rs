//! The Fortran functions that do not call the C functions: all of Open MPI, and some of MPICH's module `mpi_f08`.
//!
//! Each is defined under every spelling that the MPI library has. In the module `mpi_f08` handles are integers in a structure, and
//! the last argument may be missing. All arguments are addresses.
#![allow(unsafe_code)]

#[cfg(open_mpi)]
use crate::abi::{
    self, Handle, constants, eb_comm_f2c, eb_op_c2f, eb_op_f2c, eb_request_c2f, eb_request_f2c, eb_type_c2f,
    eb_type_f2c,
};
use crate::entry;
#[cfg(open_mpi)]
use crate::functions::for_each_function;
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

/// Converts the types of an argument that has one for each rank.
///
/// # Safety
/// `at` is such an argument of a call on `comm`.
#[cfg(open_mpi)]
unsafe fn types(at: *const c_int, comm: Handle) -> Vec<Handle> {
    // SAFETY: a communicator by the caller's contract, with a type for each rank; each query writes one int.
    unsafe {
        let size = match abi::query(|inter| abi::PMPI_Comm_test_inter(comm, inter)) {
            Some(0) => abi::query(|size| abi::PMPI_Comm_size(comm, size)),
            _ => abi::query(|size| abi::PMPI_Comm_remote_size(comm, size)),
        };
        (0..size.unwrap_or(0) as usize).map(|rank| eb_type_f2c(*at.add(rank))).collect()
    }
}

/// The C argument of a Fortran argument at an address. Its kind is one of `entry::argument_type`; `first` is the call's first argument.
#[cfg(open_mpi)]
macro_rules! c_argument {
    (Send $at:ident $first:ident $comm:ident) => {
        buffer($at)
    };
    (Recv $at:ident $first:ident $comm:ident) => {
        buffer($at)
    };
    (Count $at:ident $first:ident $comm:ident) => {
        *$at.cast()
    };
    (Counts $at:ident $first:ident $comm:ident) => {
        $at.cast()
    };
    (Offsets $at:ident $first:ident $comm:ident) => {
        $at.cast()
    };
    (Type $at:ident $first:ident $comm:ident) => {
        eb_type_f2c(*$at.cast())
    };
    // MPI does not read them with MPI_IN_PLACE as the send buffer, and they need not exist.
    (SendTypes $at:ident $first:ident $comm:ident) => {
        match buffer($first) == constants().in_place {
            true => Vec::new(),
            false => types($at.cast(), $comm),
        }
        .as_ptr()
    };
    (Types $at:ident $first:ident $comm:ident) => {
        types($at.cast(), $comm).as_ptr()
    };
    (Op $at:ident $first:ident $comm:ident) => {
        eb_op_f2c(*$at.cast())
    };
    (Root $at:ident $first:ident $comm:ident) => {
        *$at.cast()
    };
}

/// A call of a C function. The request of one that does not block is converted to Fortran's and written to this address.
#[cfg(open_mpi)]
macro_rules! with_request {
    ([] entry::$function:ident($($argument:expr),* $(,)?)) => {
        entry::$function($($argument),*)
    };
    ([$request:ident] entry::$function:ident($($argument:expr),* $(,)?)) => {{
        let mut handle = constants().null_request;
        let code = entry::$function($($argument,)* &mut handle);
        *$request = eb_request_c2f(handle);
        code
    }};
    ([$info:ident $request:ident] entry::$function:ident($($argument:expr),* $(,)?)) => {
        with_request!([$request] entry::$function($($argument,)* abi::eb_info_f2c(*$info)))
    };
}

/// Defines a Fortran function under these names. Its code is an expression of its arguments, which precede `error`.
macro_rules! define_fortran {
    ($($spelling:expr),*; $arguments:tt $code:expr) => {
        $(define_fortran!(@one $spelling, $arguments $code);)*
    };
    (@one $spelling:expr, ($($argument:ident: $kind:ty),*) $code:expr) => {
        const _: () = {
            /// The Fortran function of this name.
            ///
            /// # Safety
            /// The caller keeps the rules of the MPI standard; `error` may be null.
            #[unsafe(export_name = $spelling)]
            unsafe extern "C" fn function($($argument: $kind,)* error: *mut c_int) {
                // SAFETY: Fortran passes addresses of integers and buffers as MPI demands.
                unsafe {
                    let code = $code;
                    if !error.is_null() {
                        *error = code;
                    }
                }
            }
        };
    };
}

/// The arguments that follow the communicator are addresses of integers.
#[cfg(open_mpi)]
macro_rules! define_fortran_functions {
    ($($name:ident $capitals:ident $lower:ident
        [$non_blocking:ident $i_capitals:ident $i_lower:ident; $persistent:ident $p_capitals:ident $p_lower:ident],
        $collective:ident, $counts:ident, $arguments:tt => $module:ident::$function:ident $described:tt;)*) => {
        $(
            define_fortran_functions!(@each ("mpi_", "MPI_") $capitals $lower [] $arguments);
            define_fortran_functions!(@each ("mpi_", "MPI_") $i_capitals $i_lower [request] $arguments);
            #[cfg(persistent)]
            define_fortran_functions!(@each (env!("PRELOAD_PERSISTENT_LOWER"), env!("PRELOAD_PERSISTENT"))
                $p_capitals $p_lower [info request] $arguments);
        )*
    };
    (@each $prefixes:tt $capitals:ident $lower:ident [$($last:ident)*] ()) => {
        define_fortran_functions!(@spellings $prefixes $capitals $lower (comm: *const c_int $(, $last: *mut c_int)*)
            with_request!([$($last)*] entry::$lower(eb_comm_f2c(*comm))));
    };
    (@each $prefixes:tt $capitals:ident $lower:ident [$($last:ident)*]
        ($first:ident: $first_kind:ident $(, $argument:ident: $kind:ident)*)) => {
        define_fortran_functions!(@spellings $prefixes $capitals $lower
            ($first: *mut c_void, $($argument: *mut c_void,)* comm: *const c_int $(, $last: *mut c_int)*) {
                let comm = eb_comm_f2c(*comm);
                with_request!([$($last)*] entry::$lower(
                    c_argument!($first_kind $first $first comm), $(c_argument!($kind $argument $first comm),)* comm))
            });
    };
    (@spellings ($prefix:expr, $capital_prefix:expr) $capitals:ident $lower:ident $arguments:tt $code:expr) => {
        define_fortran!(
            concat!($prefix, stringify!($lower)), concat!($prefix, stringify!($lower), "_"),
            concat!($prefix, stringify!($lower), "__"), concat!($capital_prefix, stringify!($capitals)),
            concat!($prefix, stringify!($lower), "_f08_"); $arguments $code);
    };
    ($capitals:ident $lower:ident $arguments:tt $code:expr) => {
        define_fortran_functions!(@spellings ("mpi_", "MPI_") $capitals $lower $arguments $code);
    };
}

#[cfg(open_mpi)]
for_each_function!(define_fortran_functions);

#[cfg(open_mpi)]
define_fortran_functions!(FINALIZE finalize () entry::finalize());
#[cfg(open_mpi)]
define_fortran_functions!(START start (request: *const c_int) entry::start(&mut eb_request_f2c(*request)));
#[cfg(open_mpi)]
define_fortran_functions!(STARTALL startall (count: *const c_int, requests: *const c_int) {
    let requests = (0..(*count).max(0) as usize).map(|at| eb_request_f2c(*requests.add(at)));
    entry::startall(*count, requests.collect::<Vec<Handle>>().as_mut_ptr())
});
#[cfg(open_mpi)]
define_fortran_functions!(REQUEST_FREE request_free (request: *mut c_int) {
    let mut handle = eb_request_f2c(*request);
    let code = entry::request_free(&mut handle);
    *request = eb_request_c2f(handle);
    code
});

#[cfg(open_mpi)]
define_fortran_functions!(OP_FREE op_free (op: *mut c_int) {
    let mut handle = eb_op_f2c(*op);
    let code = entry::op_free(&mut handle);
    *op = eb_op_c2f(handle);
    code
});
#[cfg(open_mpi)]
define_fortran_functions!(TYPE_FREE type_free (dtype: *mut c_int) {
    let mut handle = eb_type_f2c(*dtype);
    let code = entry::type_free(&mut handle);
    *dtype = eb_type_c2f(handle);
    code
});

/// The functions of MPICH's module `mpi_f08` that do not call the C functions: those without buffers. Handles are integers in C too.
#[cfg(not(open_mpi))]
mod without_buffers {
    use super::*;
    use crate::abi::Handle;

    define_fortran!("mpi_finalize_f08_"; () entry::finalize());
    define_fortran!("mpi_barrier_f08_"; (comm: *const Handle) entry::barrier(*comm));
    define_fortran!("mpi_ibarrier_f08_"; (comm: *const Handle, request: *mut Handle) entry::ibarrier(*comm, request));
    #[cfg(persistent)]
    define_fortran!("mpi_barrier_init_f08_"; (comm: *const Handle, info: *const Handle, request: *mut Handle)
        entry::barrier_init(*comm, *info, request));
    define_fortran!("mpi_start_f08_"; (request: *mut Handle) entry::start(request));
    define_fortran!("mpi_startall_f08_"; (count: *const c_int, requests: *mut Handle) entry::startall(*count, requests));
    define_fortran!("mpi_request_free_f08_"; (request: *mut Handle) entry::request_free(request));
    define_fortran!("mpi_op_free_f08_"; (op: *mut Handle) entry::op_free(op));
    define_fortran!("mpi_type_free_f08_"; (dtype: *mut Handle) entry::type_free(dtype));
}
