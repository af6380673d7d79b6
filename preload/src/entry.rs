//! The MPI functions that programs call: each is intercepted, or forwarded to MPI under its profiling name.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::call::{MpiCall, NewRequest};
use crate::data_movement::{blocks, blocks_of_types, elements};
use crate::functions::{MpiFunction, for_each_function};
use crate::kept_handles::{self, HandleKind};
use crate::{
    comm_cache, data_movement, forwarded, persistent, progress, reductions, settings, stderr, summary, under_way,
};
use earlybird::Interpose;
use std::ffi::c_int;

/// The type of an argument in C. `Count` is a number of elements or a displacement, `Counts` and `Offsets` are arrays of them.
macro_rules! argument_type {
    (Send $count:ty) => { abi::SendPtr };
    (Recv $count:ty) => { abi::RecvPtr };
    (Count $count:ty) => { $count };
    (Counts $count:ty) => { *const $count };
    (Offsets $count:ty) => { *const $count };
    (Type $count:ty) => { Handle };
    (SendTypes $count:ty) => { *const Handle };
    (Types $count:ty) => { *const Handle };
    (Op $count:ty) => { Handle };
    (Root $count:ty) => { c_int };
}

/// Defines a function whose counts are of the given type, exported under this prefix, the name of MPI and this suffix. The function
/// that intercepts the call returns its return code, or `None` to forward it. In brackets stand the arguments after the communicator,
/// and what a call that does not block says of its request.
macro_rules! define_entry {
    ($prefix:expr, $name:ident $lower:ident [$($last:ident: $last_type:ty),* => $request:expr] $suffix:literal $count:ty,
        ($($argument:ident: $kind:ident),*) $module:ident $function:ident($($described:expr),*)) => {
        /// The MPI function of this name.
        ///
        /// # Safety
        /// The caller keeps the rules of the MPI standard.
        #[unsafe(export_name = concat!($prefix, stringify!($name), $suffix))]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $lower(
            $($argument: argument_type!($kind $count),)* comm: Handle $(, $last: $last_type)*
        ) -> c_int {
            unsafe extern "C" {
                #[link_name = concat!("P", $prefix, stringify!($name), $suffix)]
                fn forward($($argument: argument_type!($kind $count),)* comm: Handle $(, $last: $last_type)*) -> c_int;
            }
            let call = MpiCall { function: MpiFunction::$name, comm, request: $request };
            // SAFETY: the arguments are what MPI demands of the caller, and are forwarded unchanged.
            unsafe {
                $module::$function(call $(, $described)*)
                    .unwrap_or_else(|| forwarded::end(forward($($argument,)* comm $(, $last)*)))
            }
        }
    };
}

macro_rules! define_entries {
    ($($name:ident $capitals:ident $lower:ident $others:tt, $collective:ident, $counts:ident,
        $arguments:tt => $module:ident::$function:ident $described:tt;)*) => {
        $(define_entries!(@forms $name $lower $others "" c_int, $arguments $module $function $described);)*

        /// The forms with large counts.
        #[cfg(large_counts)]
        mod large {
            use super::*;
            $(define_entries!(@$counts $name $lower $others $arguments $module $function $described);)*
        }
    };
    (@counts $name:ident $lower:ident $others:tt $arguments:tt $module:ident $function:ident $described:tt) => {
        define_entries!(@forms $name $lower $others "_c" abi::Count, $arguments $module $function $described);
    };
    (@no_counts $($function:tt)*) => {};
    (@forms $name:ident $lower:ident
        [$non_blocking:ident $i_capitals:ident $i_lower:ident; $persistent:ident $p_capitals:ident $p_lower:ident]
        $suffix:literal $count:ty, $arguments:tt $module:ident $function:ident $described:tt) => {
        define_entry!("MPI_", $name $lower [=> None] $suffix $count, $arguments $module $function $described);
        define_entry!("MPI_", $non_blocking $i_lower [request: *mut Handle => Some(NewRequest::NonBlocking(request))]
            $suffix $count, $arguments $module $function $described);
        #[cfg(persistent)]
        define_entry!(env!("PRELOAD_PERSISTENT"), $persistent $p_lower
            [info: Handle, request: *mut Handle => Some(NewRequest::Persistent(request))]
            $suffix $count, $arguments $module $function $described);
    };
}

for_each_function!(define_entries);

/// The MPI function of this name.
///
/// # Safety
/// The caller keeps the rules of the MPI standard.
#[unsafe(export_name = "MPI_Start")]
pub unsafe extern "C" fn start(request: *mut Handle) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe { persistent::start(request).unwrap_or_else(|| abi::PMPI_Start(request)) }
}

/// The MPI function of this name.
///
/// # Safety
/// The caller keeps the rules of the MPI standard.
#[unsafe(export_name = "MPI_Startall")]
pub unsafe extern "C" fn startall(count: c_int, requests: *mut Handle) -> c_int {
    if persistent::is_empty() {
        // SAFETY: by the caller's contract.
        return unsafe { abi::PMPI_Startall(count, requests) };
    }
    // SAFETY: by the caller's contract; MPI starts them in any order.
    let codes = (0..count.max(0) as usize).map(|at| unsafe { start(requests.add(at)) });
    codes.fold(0, |first, code| if first == 0 { code } else { first })
}

/// The MPI function of this name.
///
/// # Safety
/// The caller keeps the rules of the MPI standard.
#[unsafe(export_name = "MPI_Request_free")]
pub unsafe extern "C" fn request_free(request: *mut Handle) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe {
        persistent::free(request);
        abi::PMPI_Request_free(request)
    }
}

/// The MPI function of this name.
///
/// # Safety
/// The caller keeps the rules of the MPI standard.
#[unsafe(export_name = "MPI_Op_free")]
pub unsafe extern "C" fn op_free(op: *mut Handle) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe { kept_handles::free(HandleKind::Op, op) }
}

/// The MPI function of this name.
///
/// # Safety
/// The caller keeps the rules of the MPI standard.
#[unsafe(export_name = "MPI_Type_free")]
pub unsafe extern "C" fn type_free(dtype: *mut Handle) -> c_int {
    // SAFETY: by the caller's contract.
    unsafe { kept_handles::free(HandleKind::Type, dtype) }
}

/// The MPI function of this name. Prints the summary, if the settings ask for it, and frees all communicators.
///
/// # Safety
/// The caller keeps the rules of the MPI standard.
#[unsafe(export_name = "MPI_Finalize")]
pub unsafe extern "C" fn finalize() -> c_int {
    let is_on = abi::is_running() && settings::get().interpose != Interpose::Off;
    if is_on && summary::is_counting() {
        let rank = abi::rank_and_size(constants().world).map(|(rank, _)| rank);
        if rank == Some(0) {
            stderr::print(summary::text().trim_end());
        }
    }
    persistent::free_all();
    comm_cache::free_all();
    if is_on {
        progress::stop();
        under_way::stop();
    }
    // SAFETY: the caller keeps the rules of the MPI standard.
    unsafe { abi::PMPI_Finalize() }
}
