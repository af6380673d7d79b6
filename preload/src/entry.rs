//! The MPI functions that programs call: each is intercepted, or forwarded to MPI under its profiling name.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::call::MpiCall;
use crate::data_movement::{blocks, blocks_of_types, elements};
use crate::functions::{MpiFunction, for_each_function};
use crate::{comm_cache, data_movement, non_blocking, progress, reductions, settings, stderr, summary};
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

/// Defines a function whose counts are of the given type, exported under the name of MPI and this suffix. The function that intercepts
/// the call returns its return code, or `None` to forward it. A non-blocking one has a name for the address of its request.
macro_rules! define_entry {
    ($name:ident $lower:ident [$($request:ident)?] $suffix:literal $count:ty,
        ($($argument:ident: $kind:ident),*) $module:ident $function:ident($($described:expr),*)) => {
        /// The MPI function of this name.
        ///
        /// # Safety
        /// The caller keeps the rules of the MPI standard.
        #[unsafe(export_name = concat!("MPI_", stringify!($name), $suffix))]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $lower(
            $($argument: argument_type!($kind $count),)* comm: Handle $(, $request: *mut Handle)?
        ) -> c_int {
            unsafe extern "C" {
                #[link_name = concat!("PMPI_", stringify!($name), $suffix)]
                fn forward($($argument: argument_type!($kind $count),)* comm: Handle $(, $request: *mut Handle)?) -> c_int;
            }
            let request = None$(.or(Some($request)))?;
            let call = MpiCall { function: MpiFunction::$name, comm, request };
            // SAFETY: the arguments are what MPI demands of the caller, and are forwarded unchanged.
            unsafe {
                $module::$function(call $(, $described)*)
                    .unwrap_or_else(|| forward($($argument,)* comm $(, $request)?))
            }
        }
    };
}

macro_rules! define_entries {
    ($($name:ident $capitals:ident $lower:ident $non_blocking:tt, $collective:ident, $counts:ident,
        $arguments:tt => $module:ident::$function:ident $described:tt;)*) => {
        $(define_entries!(@forms $name $lower $non_blocking "" c_int, $arguments $module $function $described);)*

        /// The forms with large counts.
        #[cfg(large_counts)]
        mod large {
            use super::*;
            $(define_entries!(@$counts $name $lower $non_blocking $arguments $module $function $described);)*
        }
    };
    (@counts $name:ident $lower:ident $non_blocking:tt $arguments:tt $module:ident $function:ident $described:tt) => {
        define_entries!(@forms $name $lower $non_blocking "_c" abi::Count, $arguments $module $function $described);
    };
    (@no_counts $($function:tt)*) => {};
    (@forms $name:ident $lower:ident [$($non_blocking:ident $capitals:ident $i_lower:ident)?] $suffix:literal $count:ty,
        $arguments:tt $module:ident $function:ident $described:tt) => {
        define_entry!($name $lower [] $suffix $count, $arguments $module $function $described);
        $(define_entry!($non_blocking $i_lower [request] $suffix $count, $arguments $module $function $described);)?
    };
}

for_each_function!(define_entries);

/// The MPI function of this name. Prints the summary, if the settings ask for it, and frees all communicators.
///
/// # Safety
/// The caller keeps the rules of the MPI standard.
#[unsafe(export_name = "MPI_Finalize")]
pub unsafe extern "C" fn finalize() -> c_int {
    let is_on = abi::is_running() && settings::get().interpose != Interpose::Off;
    if is_on && summary::is_counting() {
        // SAFETY: MPI runs; writes one int.
        let rank = abi::query(|rank| unsafe { abi::PMPI_Comm_rank(constants().world, rank) });
        if rank == Some(0) {
            let text = summary::text();
            #[cfg(large_counts)]
            let text = text + &crate::forwarded::summary_text();
            stderr::print(text.trim_end());
        }
    }
    comm_cache::free_all();
    if is_on {
        progress::stop();
        non_blocking::stop();
    }
    // SAFETY: the caller keeps the rules of the MPI standard.
    unsafe { abi::PMPI_Finalize() }
}
