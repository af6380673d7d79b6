//! The libraries that this one stands among: the next one that has a function, and whether MPI is the one it was built for.
#![allow(unsafe_code)]

use crate::abi;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// Where an address lies, as `dladdr` tells it.
#[repr(C)]
struct Place {
    file: *const c_char,
    base: *mut c_void,
    name: *const c_char,
    symbol: *mut c_void,
}

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dladdr(address: *const c_void, place: *mut Place) -> c_int;
}

/// `RTLD_NEXT`: behind the library that asks.
const NEXT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// The function `name` of the next library in line: a tool's, or MPI's. Null if there is none.
pub fn next(name: &CStr) -> *mut c_void {
    // SAFETY: may be called at any time; the name is a string.
    unsafe { dlsym(NEXT, name.as_ptr()) }
}

/// Where the next library that has `name` begins. (Not the first one: a program may have copies of a library's variables.)
fn home(name: &CStr) -> Option<*mut c_void> {
    let mut place = Place { file: ptr::null(), base: ptr::null_mut(), name: ptr::null(), symbol: ptr::null_mut() };
    // SAFETY: as above; the structure has the layout of C.
    let found = unsafe {
        let at = dlsym(NEXT, name.as_ptr());
        !at.is_null() && dladdr(at, &mut place) != 0
    };
    found.then_some(place.base)
}

/// What the MPI library that runs says of itself, where its handles are not those that this library was built with: of Open MPI
/// and what is made of it they are addresses of its variables, elsewhere they are numbers. One that is made of it may not say so,
/// and its variables may lie in a library of their own, so either will do.
pub fn another_mpi() -> Option<String> {
    // Longer than any library's MPI_MAX_LIBRARY_VERSION_STRING.
    let (mut text, mut length) = ([0 as c_char; 1 << 14], 0);
    // SAFETY: may be called at any time; writes a string that ends in a zero, shorter than the array, and an int.
    let text = unsafe {
        abi::PMPI_Get_library_version(text.as_mut_ptr(), &mut length);
        CStr::from_ptr(text.as_ptr()).to_string_lossy()
    };
    let function = home(c"PMPI_Initialized");
    let is_open_mpi = text.contains("Open MPI") || (function.is_some() && function == home(c"ompi_mpi_comm_world"));
    (is_open_mpi != cfg!(open_mpi)).then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}
