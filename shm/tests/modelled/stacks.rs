//! The stacks of model threads, kept for those to come: loom maps one for every thread of every execution and unmaps it in the end,
//! which is two fifths of the time that a model takes.
//!
//! The three functions take the place of those of the C library in this program. Invariant **K (kept)**: a stack that its owner has
//! unmapped is nobody's until one of its length is mapped again; its guard page, which lies at its address, stays.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Stack {
    address: usize,
    bytes: usize,
    is_free: bool,
    is_guarded: bool,
}

static STACKS: Mutex<Vec<Stack>> = Mutex::new(Vec::new());

fn stacks() -> MutexGuard<'static, Vec<Stack>> {
    STACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: c_long,
) -> *mut c_void {
    // SAFETY: by the caller's contract, which is that of the system call.
    let map =
        || unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, file, offset) as *mut c_void };
    if flags & libc::MAP_STACK == 0 {
        return map();
    }
    let mut stacks = stacks();
    if let Some(kept) = stacks.iter_mut().find(|stack| stack.is_free && stack.bytes == bytes) {
        kept.is_free = false;
        return ptr::with_exposed_provenance_mut(kept.address);
    }
    let address = map();
    if address != libc::MAP_FAILED {
        stacks.push(Stack { address: address.expose_provenance(), bytes, is_free: false, is_guarded: false });
    }
    address
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    let mut stacks = stacks();
    let stack = stacks.iter_mut().find(|stack| stack.address == address.addr() && protection == libc::PROT_NONE);
    if stack.is_some_and(|stack| std::mem::replace(&mut stack.is_guarded, true)) {
        return 0;
    }
    // SAFETY: by the caller's contract, which is that of the system call.
    unsafe { libc::syscall(libc::SYS_mprotect, address, bytes, protection) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    if let Some(stack) = stacks().iter_mut().find(|stack| (stack.address, stack.bytes) == (address.addr(), bytes)) {
        stack.is_free = true;
        return 0;
    }
    // SAFETY: by the caller's contract, which is that of the system call.
    unsafe { libc::syscall(libc::SYS_munmap, address, bytes) as c_int }
}
