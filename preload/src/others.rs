//! Collectives that are MPI's whatever is asked: the next library in line carries them out, `EARLYBIRD_INTERPOSE=profile`
//! counts them, so that the summary has what a program does and is not taken over.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::summary::{self, Count};
use crate::{loaded, settings};
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A function that is counted.
struct Other {
    name: &'static CStr,
    why: &'static str,
    /// Null until it is called.
    next: AtomicPtr<c_void>,
    count: Count,
}

const NON_BLOCKING: &str = "a non-blocking call";
#[cfg(large_counts)]
const PERSISTENT: &str = "a persistent call, counted when it is prepared";
const NOT_CARRIED: &str = "an operation that is not carried";

impl Other {
    const fn new(name: &'static CStr, why: &'static str) -> Other {
        Other { name, why, next: AtomicPtr::new(ptr::null_mut()), count: Count::none() }
    }

    /// Counts a call of `count` elements, if that is asked.
    #[inline]
    fn counted(&self, count: c_int, dtype: Handle) {
        if !summary::is_decided() && abi::is_running() {
            settings::get();
        }
        if summary::is_counting() {
            self.count.add(usize::try_from(count).unwrap_or(0) * abi::type_size(dtype).unwrap_or(0));
        }
    }

    /// The function of the next library in line.
    #[inline]
    fn next(&self) -> *mut c_void {
        match self.next.load(Relaxed) {
            next if next.is_null() => self.find(),
            next => next,
        }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let next = loaded::next(self.name);
        if next.is_null() {
            settings::die(&format!("the MPI library has no {}", self.name.to_string_lossy()));
        }
        self.next.store(next, Relaxed);
        next
    }

    fn line(&self) -> Option<String> {
        let (calls, bytes) = self.count.read();
        let (name, why) = (self.name.to_string_lossy(), self.why);
        (calls > 0).then(|| format!("earlybird: {name:<29} taken over: 0 (0 B); to MPI: {calls} ({bytes} B) {why}\n"))
    }
}

/// One line per function that was called.
pub fn text() -> String {
    let mut text = String::new();
    groups().into_iter().flatten().filter_map(Other::line).for_each(|line| text += &line);
    text
}

/// Defines functions of MPI that are counted and handed on; the elements of a call are those after the colon.
macro_rules! functions {
    ($all:ident, $index:ident; $($name:ident($($argument:ident: $kind:ty),*): $why:ident, $count:expr, $dtype:expr;)*) => {
        #[allow(non_camel_case_types)]
        enum $index { $($name),* }

        static $all: [Other; [$(stringify!($name)),*].len()] = [$(
            Other::new(
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                },
                $why,
            )
        ),*];

        $(
            /// The function of MPI.
            ///
            /// # Safety
            /// As MPI says.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                let other = &$all[$index::$name as usize];
                other.counted($count, $dtype);
                // SAFETY: the function of this name in another library has these arguments; they are what MPI demands of the
                // caller, and are handed on unchanged.
                unsafe {
                    let next: unsafe extern "C" fn($($kind),*) -> c_int = std::mem::transmute(other.next());
                    next($($argument),*)
                }
            }
        )*
    };
}

type Send = *const c_void;
type Receive = *mut c_void;
type Request = *mut Handle;
type Counts = *const c_int;
type Types = *const Handle;

/// What a call gives that may be in place: the count means nothing then.
fn given(send: Send, count: c_int) -> c_int {
    if send == constants().in_place { 0 } else { count }
}

functions! { ALL, Index;
    MPI_Ibarrier(comm: Handle, request: Request): NON_BLOCKING, 0, constants().no_type;
    MPI_Ibcast(buffer: Receive, n: c_int, dtype: Handle, root: c_int, comm: Handle, request: Request):
        NON_BLOCKING, n, dtype;
    MPI_Iallreduce(send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, comm: Handle, request: Request):
        NON_BLOCKING, n, dtype;
    MPI_Ireduce(send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, root: c_int, comm: Handle, request: Request):
        NON_BLOCKING, n, dtype;
    MPI_Iallgather(send: Send, n: c_int, dtype: Handle, receive: Receive, m: c_int, into: Handle, comm: Handle, request: Request):
        NON_BLOCKING, m, into;
    MPI_Ireduce_scatter_block(
        send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, comm: Handle, request: Request):
        NON_BLOCKING, n, dtype;
    MPI_Ialltoall(send: Send, n: c_int, dtype: Handle, receive: Receive, m: c_int, into: Handle, comm: Handle, request: Request):
        NON_BLOCKING, m, into;
    MPI_Gather(send: Send, n: c_int, dtype: Handle, receive: Receive, m: c_int, into: Handle, root: c_int, comm: Handle):
        NOT_CARRIED, given(send, n), dtype;
    MPI_Gatherv(
        send: Send, n: c_int, dtype: Handle, receive: Receive, m: Counts, at: Counts, into: Handle, root: c_int, comm: Handle):
        NOT_CARRIED, given(send, n), dtype;
    MPI_Scatter(send: Send, n: c_int, dtype: Handle, receive: Receive, m: c_int, into: Handle, root: c_int, comm: Handle):
        NOT_CARRIED, given(receive, m), into;
    MPI_Scatterv(
        send: Send, n: Counts, at: Counts, dtype: Handle, receive: Receive, m: c_int, into: Handle, root: c_int, comm: Handle):
        NOT_CARRIED, given(receive, m), into;
    MPI_Allgatherv(send: Send, n: c_int, dtype: Handle, receive: Receive, m: Counts, at: Counts, into: Handle, comm: Handle):
        NOT_CARRIED, given(send, n), dtype;
    MPI_Alltoall(send: Send, n: c_int, dtype: Handle, receive: Receive, m: c_int, into: Handle, comm: Handle):
        NOT_CARRIED, m, into;
    MPI_Alltoallv(
        send: Send, n: Counts, from: Counts, dtype: Handle, receive: Receive, m: Counts, to: Counts, into: Handle, comm: Handle):
        NOT_CARRIED, 0, constants().no_type;
    MPI_Alltoallw(
        send: Send, n: Counts, from: Counts, dtype: Types, receive: Receive, m: Counts, to: Counts, into: Types, comm: Handle):
        NOT_CARRIED, 0, constants().no_type;
    MPI_Reduce_scatter(send: Send, receive: Receive, n: Counts, dtype: Handle, op: Handle, comm: Handle):
        NOT_CARRIED, 0, constants().no_type;
    MPI_Scan(send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, comm: Handle): NOT_CARRIED, n, dtype;
    MPI_Exscan(send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, comm: Handle): NOT_CARRIED, n, dtype;
}

#[cfg(not(large_counts))]
fn groups() -> [&'static [Other]; 1] {
    [&ALL]
}

#[cfg(large_counts)]
fn groups() -> [&'static [Other]; 2] {
    [&ALL, &PREPARED]
}

#[cfg(large_counts)]
functions! { PREPARED, Prepared;
    MPI_Barrier_init(comm: Handle, info: Handle, request: Request): PERSISTENT, 0, constants().no_type;
    MPI_Bcast_init(buffer: Receive, n: c_int, dtype: Handle, root: c_int, comm: Handle, info: Handle, request: Request):
        PERSISTENT, n, dtype;
    MPI_Allreduce_init(
        send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, comm: Handle, info: Handle, request: Request):
        PERSISTENT, n, dtype;
    MPI_Reduce_init(
        send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, root: c_int, comm: Handle, info: Handle,
        request: Request):
        PERSISTENT, n, dtype;
    MPI_Allgather_init(
        send: Send, n: c_int, dtype: Handle, receive: Receive, m: c_int, into: Handle, comm: Handle, info: Handle,
        request: Request):
        PERSISTENT, m, into;
    MPI_Reduce_scatter_block_init(
        send: Send, receive: Receive, n: c_int, dtype: Handle, op: Handle, comm: Handle, info: Handle, request: Request):
        PERSISTENT, n, dtype;
}
