//! Queries of the dynamic linker: a function of the next loaded library, and whether the loaded MPI is the one of the build.
#![allow(unsafe_code)]

use crate::abi;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// The result of `dladdr`, as in `dlfcn.h`.
#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    name: *const c_char,
    symbol: *mut c_void,
}

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// `RTLD_NEXT`: the libraries after the calling one.
const NEXT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// Returns the function `name` of the next loaded library, a tool or MPI; null if there is none.
pub fn next_function(name: &CStr) -> *mut c_void {
    // SAFETY: may be called at any time; the name is a string.
    unsafe { dlsym(NEXT, name.as_ptr()) }
}

/// Returns the base address of the next library that defines `name`. (Not of the first one: a program may have copies of a library's
/// variables.)
fn library_base(name: &CStr) -> Option<*mut c_void> {
    let mut info = DlInfo { file: ptr::null(), base: ptr::null_mut(), name: ptr::null(), symbol: ptr::null_mut() };
    // SAFETY: the name is a string, and the structure has the layout of C.
    let found = unsafe {
        let at = dlsym(NEXT, name.as_ptr());
        !at.is_null() && dladdr(at, &mut info) != 0
    };
    found.then_some(info.base)
}

/// Returns the version text of the loaded MPI library if its handles differ from those of the build. In Open MPI and libraries derived
/// from it handles are addresses of variables, in others numbers. A derived library may have another name, and its variables may
/// be in a separate library, so either sign counts.
pub fn other_mpi_version() -> Option<String> {
    // Longer than any library's MPI_MAX_LIBRARY_VERSION_STRING.
    let (mut text, mut length) = ([0 as c_char; 1 << 14], 0);
    // SAFETY: may be called at any time; writes a string that ends in a zero, shorter than the array, and an int.
    let text = unsafe {
        abi::PMPI_Get_library_version(text.as_mut_ptr(), &mut length);
        CStr::from_ptr(text.as_ptr()).to_string_lossy()
    };
    let function = library_base(c"PMPI_Initialized");
    let is_open_mpi =
        text.contains("Open MPI") || (function.is_some() && function == library_base(c"ompi_mpi_comm_world"));
    (is_open_mpi != cfg!(open_mpi)).then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}
