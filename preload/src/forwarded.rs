//! Collectives that are always forwarded to MPI, or to the tool that is loaded next. With `EARLYBIRD_INTERPOSE=profile` they are
//! counted for the summary.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, RecvPtr, SendPtr, constants};
use crate::summary::{self, CallCounter};
use crate::{dynamic_linker, settings};
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// An MPI function that is always forwarded.
struct ForwardedFunction {
    name: &'static CStr,
    reason: &'static str,
    /// Null before the first call.
    next: AtomicPtr<c_void>,
    count: CallCounter,
}

const PERSISTENT: &str = "a persistent call, counted when it is initialized";

impl ForwardedFunction {
    const fn new(name: &'static CStr, reason: &'static str) -> ForwardedFunction {
        ForwardedFunction { name, reason, next: AtomicPtr::new(ptr::null_mut()), count: CallCounter::none() }
    }

    /// Counts a call of `count` elements, if calls are counted.
    #[inline]
    fn count_call(&self, count: c_int, dtype: Handle) {
        if !summary::is_counting_known() && abi::is_running() {
            settings::get();
        }
        if summary::is_counting() {
            self.count.add(usize::try_from(count).unwrap_or(0) * abi::type_size(dtype).unwrap_or(0));
        }
    }

    /// Returns the function of the next loaded library.
    #[inline]
    fn next(&self) -> *mut c_void {
        match self.next.load(Relaxed) {
            next if next.is_null() => self.find(),
            next => next,
        }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let next = dynamic_linker::next_function(self.name);
        if next.is_null() {
            settings::die(&format!("the MPI library has no {}", self.name.to_string_lossy()));
        }
        self.next.store(next, Relaxed);
        next
    }

    fn line(&self) -> Option<String> {
        let (calls, bytes) = self.count.read();
        let (name, reason) = (self.name.to_string_lossy(), self.reason);
        (calls > 0).then(|| {
            format!("earlybird: {name:<29} intercepted: 0 (0 B); forwarded to MPI: {calls} ({bytes} B) {reason}\n")
        })
    }
}

/// The lines of the summary: one per function that was called.
pub fn summary_text() -> String {
    FUNCTIONS.iter().filter_map(ForwardedFunction::line).collect()
}

/// Defines MPI functions that are counted and forwarded. After the colon stand the reason, and the count and type that are summed up.
macro_rules! functions {
    ($all:ident, $index:ident; $($name:ident($($argument:ident: $kind:ty),*): $why:ident, $count:expr, $dtype:expr;)*) => {
        #[allow(non_camel_case_types)]
        enum $index { $($name),* }

        static $all: [ForwardedFunction; [$(stringify!($name)),*].len()] = [$(
            ForwardedFunction::new(
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
                $why,
            )
        ),*];

        $(
            /// The MPI function of this name.
            ///
            /// # Safety
            /// The caller keeps the rules of the MPI standard.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                let function = &$all[$index::$name as usize];
                function.count_call($count, $dtype);
                // SAFETY: the function of this name in another library has these arguments; they are what MPI demands of the
                // caller, and are forwarded unchanged.
                unsafe {
                    let next: unsafe extern "C" fn($($kind),*) -> c_int = std::mem::transmute(function.next());
                    next($($argument),*)
                }
            }
        )*
    };
}

type RequestPtr = *mut Handle;

functions! { FUNCTIONS, FunctionIndex;
    MPI_Barrier_init(comm: Handle, info: Handle, request: RequestPtr): PERSISTENT, 0, constants().null_type;
    MPI_Bcast_init(buffer: RecvPtr, n: c_int, dtype: Handle, root: c_int, comm: Handle, info: Handle, request: RequestPtr):
        PERSISTENT, n, dtype;
    MPI_Allreduce_init(
        send: SendPtr, recv: RecvPtr, n: c_int, dtype: Handle, op: Handle, comm: Handle, info: Handle, request: RequestPtr):
        PERSISTENT, n, dtype;
    MPI_Reduce_init(
        send: SendPtr, recv: RecvPtr, n: c_int, dtype: Handle, op: Handle, root: c_int, comm: Handle, info: Handle,
        request: RequestPtr):
        PERSISTENT, n, dtype;
    MPI_Allgather_init(
        send: SendPtr, n: c_int, dtype: Handle, recv: RecvPtr, m: c_int, recv_type: Handle, comm: Handle, info: Handle,
        request: RequestPtr):
        PERSISTENT, m, recv_type;
    MPI_Reduce_scatter_block_init(
        send: SendPtr, recv: RecvPtr, n: c_int, dtype: Handle, op: Handle, comm: Handle, info: Handle, request: RequestPtr):
        PERSISTENT, n, dtype;
}
