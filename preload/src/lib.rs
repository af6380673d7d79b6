//! `MPI_Allreduce` on `MPI_COMM_WORLD` through earlybird, by LD_PRELOAD: for tests and measurements.
//!
//! It carries the predefined operators on the integers of 8 to 64 bits, floats, C's complex numbers and `_Bool`, and pairs
//! of `int`; every other call goes to the MPI library. The communicator is made at the first call and left in `MPI_Finalize`. Results are reproducible
//! (rank order) unless `EARLYBIRD_ORDER` says otherwise. An error ends the process with a message, because MPI
//! programs rarely look at return codes. Open MPI's Fortran bindings bypass the C symbols and so this library.
#![allow(unsafe_code)]

mod mpi;

use earlybird::{Communicator, Config, DType, Element, Error, FoldOrder, Identity, Indexed, Op};
use mpi::{Handle, Mpi};
use num_complex::Complex;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The communicator of the world: null before the first call, then a leaked box until `MPI_Finalize`.
static WORLD: AtomicPtr<Communicator> = AtomicPtr::new(ptr::null_mut());
static CONNECTING: Mutex<()> = Mutex::new(());

/// Says why, and ends the process with the status of a failure; the launcher then ends the other ranks.
fn die(message: &str) -> ! {
    eprintln!("earlybird: {message}");
    std::process::exit(1)
}

fn or_die<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| die(&format!("{} {error}", error.code())))
}

fn world() -> &'static Communicator {
    let mut world = WORLD.load(Ordering::Acquire);
    if world.is_null() {
        world = connect();
    }
    // SAFETY: a box leaked by `connect`; only MPI_Finalize frees it, and MPI allows no call beside or after that.
    unsafe { &*world }
}

#[cold]
fn connect() -> *mut Communicator {
    let _one = CONNECTING.lock().unwrap_or_else(|_| die("connecting failed before"));
    let known = WORLD.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let mut config = or_die(Config::from_env());
    if std::env::var_os("EARLYBIRD_ORDER").is_none() {
        config.order = FoldOrder::Rank;
    }
    let world = or_die(Identity::detect().and_then(|identity| Communicator::connect(config, identity)));
    let world = Box::into_raw(Box::new(world));
    WORLD.store(world, Ordering::Release);
    world
}

/// # Safety
/// `receive`, and `send` if not null (in place), point to `count` elements of `T` as MPI demands of the caller.
unsafe fn allreduce<T: Element>(send: *const c_void, receive: *mut c_void, count: usize, op: Op) {
    let bytes = count * size_of::<T>();
    let (from, to) = (send as usize, receive as usize);
    if count == 0 {
        return;
    }
    if !send.is_null() && from < to + bytes && to < from + bytes {
        die("MPI_Allreduce: the buffers overlap; use MPI_IN_PLACE");
    }
    if receive.is_null() || !(from | to).is_multiple_of(align_of::<T>()) {
        die("MPI_Allreduce: a buffer is null or not aligned to its element type");
    }
    // SAFETY: not null, aligned, `count` elements by the caller's contract, and disjoint from `send`.
    let receive = unsafe { std::slice::from_raw_parts_mut(receive.cast::<T>(), count) };
    or_die(if send.is_null() {
        world().all_reduce_in_place(receive, op)
    } else {
        // SAFETY: as above.
        world().all_reduce_into(unsafe { std::slice::from_raw_parts(send.cast::<T>(), count) }, receive, op)
    })
}

/// The MPI function.
///
/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allreduce(
    send: *const c_void,
    receive: *mut c_void,
    count: c_int,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> c_int {
    let mpi = Mpi::get();
    let carried = mpi.carried(dtype, op, comm).zip(usize::try_from(count).ok());
    let ready = !WORLD.load(Ordering::Relaxed).is_null() || mpi.is_initialized();
    let Some(((dtype, op), count)) = carried.filter(|_| ready) else {
        // SAFETY: the arguments of the caller, unchanged.
        return unsafe { (mpi.allreduce)(send, receive, count, dtype, op, comm) };
    };
    if send.is_null() && count > 0 {
        die("MPI_Allreduce: the send buffer is null");
    }
    let send = if mpi.is_in_place(send) { ptr::null() } else { send };
    // SAFETY: the buffers are what MPI demands of the caller.
    unsafe {
        match dtype {
            DType::I8 => allreduce::<i8>(send, receive, count, op),
            DType::I16 => allreduce::<i16>(send, receive, count, op),
            DType::I32 => allreduce::<i32>(send, receive, count, op),
            DType::I64 => allreduce::<i64>(send, receive, count, op),
            // MPI has logical operators for its truths, and they are the same on bytes, whatever C put there.
            DType::U8 | DType::Bool => allreduce::<u8>(send, receive, count, op),
            DType::U16 => allreduce::<u16>(send, receive, count, op),
            DType::U32 => allreduce::<u32>(send, receive, count, op),
            DType::U64 => allreduce::<u64>(send, receive, count, op),
            DType::F32 => allreduce::<f32>(send, receive, count, op),
            DType::F64 => allreduce::<f64>(send, receive, count, op),
            DType::ComplexF32 => allreduce::<Complex<f32>>(send, receive, count, op),
            DType::ComplexF64 => allreduce::<Complex<f64>>(send, receive, count, op),
            DType::IndexedI32 => allreduce::<Indexed<i32, i32>>(send, receive, count, op),
            DType::F16 | DType::BF16 | DType::IndexedI64 | DType::IndexedF32 | DType::IndexedF64 => {
                unreachable!("no MPI type is mapped to {dtype:?}")
            }
        }
    }
    0 // MPI_SUCCESS
}

/// The MPI function.
///
/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Finalize() -> c_int {
    let world = WORLD.swap(ptr::null_mut(), Ordering::AcqRel);
    if !world.is_null() {
        // SAFETY: a box leaked by `connect`, taken out exactly once; MPI allows no call beside this one.
        drop(unsafe { Box::from_raw(world) });
    }
    // SAFETY: called once, as the caller must.
    unsafe { (Mpi::get().finalize)() }
}
