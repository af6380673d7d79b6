//! The MPI functions that programs call: each is intercepted, or forwarded to MPI under its profiling name.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::functions::for_each_function;
use crate::{comm_cache, data_movement, forwarded, progress, reductions, settings, stderr, summary, unequal_blocks};
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
/// the call returns its return code, or `None` to forward it.
macro_rules! define_entry {
    ($name:ident, $suffix:literal, $count:ty, $module:ident::$function:ident($($argument:ident: $kind:ident),*)) => {
        /// The MPI function of this name.
        ///
        /// # Safety
        /// The caller keeps the rules of the MPI standard.
        #[unsafe(export_name = concat!("MPI_", stringify!($name), $suffix))]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $function($($argument: argument_type!($kind $count),)* comm: Handle) -> c_int {
            unsafe extern "C" {
                #[link_name = concat!("PMPI_", stringify!($name), $suffix)]
                fn forward($($argument: argument_type!($kind $count),)* comm: Handle) -> c_int;
            }
            // SAFETY: the arguments are what MPI demands of the caller, and are forwarded unchanged.
            unsafe { $module::$function($($argument,)* comm).unwrap_or_else(|| forward($($argument,)* comm)) }
        }
    };
}

macro_rules! define_entries {
    ($($name:ident $capitals:ident, $collective:ident, $counts:ident, $module:ident::$function:ident $arguments:tt;)*) => {
        $(define_entry!($name, "", c_int, $module::$function $arguments);)*

        /// The forms with large counts.
        #[cfg(large_counts)]
        mod large {
            use super::*;
            $(define_entries!(@$counts $name $module $function $arguments);)*
        }
    };
    (@counts $name:ident $module:ident $function:ident $arguments:tt) => {
        define_entry!($name, "_c", abi::Count, $module::$function $arguments);
    };
    (@no_counts $name:ident $module:ident $function:ident $arguments:tt) => {};
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
            stderr::print((summary::text() + &forwarded::summary_text()).trim_end());
        }
    }
    comm_cache::free_all();
    if is_on {
        progress::stop();
    }
    // SAFETY: the caller keeps the rules of the MPI standard.
    unsafe { abi::PMPI_Finalize() }
}
