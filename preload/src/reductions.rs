//! The reductions and the barrier. `None` hands the call to MPI, for a reason that is equal on all ranks; a code is
//! what MPI would return.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::buffers::{self, Failure, apart, copied, elements, lies_well, put_back, read, write};
use crate::entry::{handed_over, outcome};
use crate::handles::{Operator, Pair, Shape};
use crate::seats::{self, Carried};
use crate::summary::{self, Call, Why};
use crate::users::Users;
use earlybird::{DType, Element, Error, Indexed, Op};
use num_complex::Complex;
use std::ffi::{c_int, c_void};

type Done = Result<(), Failure>;

/// A reduction that is taken over.
struct Reduction {
    seat: &'static Carried,
    dtype: DType,
    op: Op,
    /// Elements of a block.
    count: usize,
    /// Bytes of a block.
    bytes: usize,
    shape: Shape,
}

/// Runs `$body` with `$t` as the type of the elements.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_type!(@ $dtype, $t, $body;
            I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64, F32: f32, F64: f64,
            ComplexF32: Complex<f32>, ComplexF64: Complex<f64>, IndexedI32: Indexed<i32, i32>,
            IndexedI64: Indexed<i64, i64>, IndexedF32: Indexed<f32, i32>, IndexedF64: Indexed<f64, i64>)
    };
    (@ $dtype:expr, $t:ident, $body:expr; $($tag:ident: $type:ty),*) => {
        match $dtype {
            $(DType::$tag => {
                type $t = $type;
                $body
            })*
            DType::F16 | DType::BF16 | DType::Bool => unreachable!("no type of MPI is reduced as {:?}", $dtype),
        }
    };
}

/// What all ranks give alike: communicator, type, operator, count and root. Otherwise what becomes of the call: of what
/// earlybird does not fold itself, what comes of `users`.
#[inline]
fn reduction(
    call: Call,
    count: i64,
    dtype: Handle,
    op: Handle,
    root: Option<c_int>,
    comm: Handle,
    users: impl FnOnce(&Users) -> Done,
) -> Result<Reduction, Option<c_int>> {
    let seat = match seats::of(comm) {
        Ok(seat) => seat,
        Err(why) => return Err(handed_over(call, why, count, dtype)),
    };
    let is_rank = |root| root >= 0 && (root as usize) < seat.size;
    let Some(elements) = elements(count).filter(|_| root.is_none_or(is_rank)) else {
        return Err(handed_over(call, Why::Argument, 0, dtype));
    };
    let Some(&Pair { known, reduced, op }) = seat.pairs.find(dtype, op) else {
        return Err(not_folded(call, seat, elements, dtype, op, comm, users));
    };
    let bytes = elements * known.bytes;
    if seat.rule.is_mpis(call, bytes) {
        return Err(handed_over(call, Why::Faster, count, dtype));
    }
    summary::taken(call, bytes);
    Ok(Reduction { seat, dtype: reduced, op, count: elements, bytes, shape: known.shape })
}

/// A reduction that earlybird does not fold.
#[cold]
fn not_folded(
    call: Call,
    seat: &'static Carried,
    count: usize,
    dtype: Handle,
    op: Handle,
    comm: Handle,
    users: impl FnOnce(&Users) -> Done,
) -> Option<c_int> {
    let why = match (seat.handles.op(op), seat.handles.dtype(dtype)) {
        (Operator::Users, _) => Why::UserOperator,
        (Operator::Predefined(predefined), Some(known)) if known.folded_by_mpi(predefined) => Why::TypeAndOperator,
        _ => return handed_over(call, Why::TypeAndOperator, count as i64, dtype),
    };
    by_mpi((call, why), seat, count, dtype, op, comm, users)
}

/// A reduction that MPI folds; elements that are too large to be carried so, for the reason given, all ranks find alike before
/// they share anything.
#[cold]
fn by_mpi(
    (call, why): (Call, Why),
    seat: &'static Carried,
    count: usize,
    dtype: Handle,
    op: Handle,
    comm: Handle,
    run: impl FnOnce(&Users) -> Done,
) -> Option<c_int> {
    let Some(users) = Users::new(seat, count, dtype, op, comm) else {
        return handed_over(call, Why::Argument, 0, dtype);
    };
    if seat.rule.is_mpis(call, users.bytes()) {
        return handed_over(call, Why::Faster, count as i64, dtype);
    }
    match run(&users) {
        Err(Failure::Ours(Error::Unsupported { .. })) => handed_over(call, why, count as i64, dtype),
        done => {
            summary::taken(call, users.bytes());
            Some(outcome(call, comm, done))
        }
    }
}

impl Reduction {
    /// Whether `reads` elements at `from` and `writes` at `to` can be used where they lie.
    #[inline]
    fn direct<T>(&self, from: *const c_void, reads: usize, to: *mut c_void, writes: usize) -> bool {
        self.shape == Shape::Plain
            && lies_well::<T>(from, reads)
            && lies_well::<T>(to, writes)
            && apart(from, reads * size_of::<T>(), to, writes * size_of::<T>())
    }

    /// An allreduce that is asked for as the call before was, of few bytes: whatever the type, one way; `None` for all others.
    ///
    /// # Safety
    /// As `allreduce`.
    #[inline(always)]
    unsafe fn allreduce_again(&self, send: *const c_void, receive: *mut c_void) -> Option<Done> {
        let (n, in_place) = (self.bytes, send == constants().in_place);
        let lies_well = self.shape == Shape::Plain
            && lies_well::<u8>(receive, n)
            && (in_place || (lies_well::<u8>(send, n) && apart(send, n, receive, n)));
        if !lies_well {
            return None;
        }
        // SAFETY: by the caller's contract; disjoint, and bytes have no alignment.
        let (send, receive) = unsafe { ((!in_place).then(|| read::<u8>(send, n)), write::<u8>(receive, n)) };
        let done = self.seat.comm.all_reduce_again(self.dtype, self.op, self.count, send, receive)?;
        Some(done.map_err(Failure::from))
    }

    /// # Safety
    /// `send` (unless in place) and `receive` have `count` elements, as MPI demands.
    unsafe fn allreduce<T: Element>(&self, send: *const c_void, receive: *mut c_void) -> Done {
        let (comm, n) = (&self.seat.comm, self.count);
        let in_place = send == constants().in_place;
        // SAFETY: by the caller's contract; disjoint and aligned where borrowed.
        unsafe {
            if in_place && self.direct::<T>(std::ptr::null(), 0, receive, n) {
                comm.all_reduce_in_place(write::<T>(receive, n), self.op)?;
            } else if !in_place && self.direct::<T>(send, n, receive, n) {
                comm.all_reduce_into(read::<T>(send, n), write(receive, n), self.op)?;
            } else {
                let mut values = copied::<T>(if in_place { receive } else { send }, n, self.shape)?;
                comm.all_reduce_in_place(&mut values, self.op)?;
                put_back(&values, receive, self.shape)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// As `allreduce`; `receive` on the root only.
    unsafe fn reduce<T: Element>(&self, send: *const c_void, receive: *mut c_void, root: usize) -> Done {
        let (to, n) = (self.seat.comm.process_at_rank(root), self.count);
        let in_place = send == constants().in_place;
        if root != self.seat.rank {
            if in_place {
                let what = "MPI_IN_PLACE on a rank that is not the root";
                return Err(Failure::Argument(constants().err_buffer, what));
            }
            // SAFETY: by the caller's contract; aligned where borrowed.
            unsafe {
                match self.direct::<T>(send, n, std::ptr::null_mut(), 0) {
                    true => to.reduce_into(read::<T>(send, n), self.op)?,
                    false => to.reduce_into(&copied::<T>(send, n, self.shape)?, self.op)?,
                }
            }
            return Ok(());
        }
        // SAFETY: by the caller's contract; disjoint and aligned where borrowed.
        unsafe {
            if in_place && self.direct::<T>(std::ptr::null(), 0, receive, n) {
                to.reduce_in_place(write::<T>(receive, n), self.op)?;
            } else if !in_place && self.direct::<T>(send, n, receive, n) {
                to.reduce_into_root(read::<T>(send, n), write(receive, n), self.op)?;
            } else {
                let mut values = copied::<T>(if in_place { receive } else { send }, n, self.shape)?;
                to.reduce_in_place(&mut values, self.op)?;
                put_back(&values, receive, self.shape)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// `send`, or `receive` if in place, has `count` elements for each rank; `receive` has `count`.
    unsafe fn reduce_scatter_block<T: Element>(&self, send: *const c_void, receive: *mut c_void) -> Done {
        let (comm, n, total) = (&self.seat.comm, self.count, self.count * self.seat.size);
        let in_place = send == constants().in_place;
        // SAFETY: by the caller's contract; disjoint and aligned where borrowed.
        unsafe {
            if !in_place && self.direct::<T>(send, total, receive, n) {
                comm.reduce_scatter_block_into(read::<T>(send, total), write(receive, n), self.op)?;
            } else {
                let from = if in_place { receive.cast_const() } else { send };
                let mut block = copied::<T>(from, n, self.shape)?;
                if self.shape == Shape::Plain && lies_well::<T>(from, total) {
                    comm.reduce_scatter_block_into(read::<T>(from, total), &mut block, self.op)?;
                } else {
                    comm.reduce_scatter_block_into(&copied::<T>(from, total, self.shape)?, &mut block, self.op)?;
                }
                put_back(&block, receive, self.shape)?;
            }
        }
        Ok(())
    }
}

/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline]
pub unsafe fn allreduce(
    send: *const c_void,
    receive: *mut c_void,
    count: i64,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let users = |users: &Users| unsafe { users.allreduce(send, receive) };
    let asked = match reduction(Call::Allreduce, count, dtype, op, None, comm, users) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    // SAFETY: by the caller's contract.
    let done = match unsafe { asked.allreduce_again(send, receive) } {
        Some(Ok(())) => return Some(0),
        Some(failed) => failed,
        // SAFETY: by the caller's contract.
        None => unsafe { allreduce_by_type(&asked, send, receive) },
    };
    Some(outcome(Call::Allreduce, comm, done))
}

/// # Safety
/// As `allreduce`.
#[inline(never)]
unsafe fn allreduce_by_type(asked: &Reduction, send: *const c_void, receive: *mut c_void) -> Done {
    // SAFETY: by the caller's contract.
    with_type!(asked.dtype, T => unsafe { asked.allreduce::<T>(send, receive) })
}

/// # Safety
/// As `allreduce`.
#[inline]
pub unsafe fn reduce(
    send: *const c_void,
    receive: *mut c_void,
    count: i64,
    dtype: Handle,
    op: Handle,
    root: c_int,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let users = |users: &Users| unsafe { users.reduce(send, receive, root as usize) };
    let asked = match reduction(Call::Reduce, count, dtype, op, Some(root), comm, users) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    let root = root as usize;
    // SAFETY: by the caller's contract.
    let done = with_type!(asked.dtype, T => unsafe { asked.reduce::<T>(send, receive, root) });
    Some(outcome(Call::Reduce, comm, done))
}

/// # Safety
/// As `allreduce`.
#[inline]
pub unsafe fn reduce_scatter_block(
    send: *const c_void,
    receive: *mut c_void,
    count: i64,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let users = |users: &Users| unsafe { users.reduce_scatter_block(send, receive) };
    let asked = match reduction(Call::ReduceScatterBlock, count, dtype, op, None, comm, users) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    // SAFETY: by the caller's contract.
    let done = with_type!(asked.dtype, T => unsafe { asked.reduce_scatter_block::<T>(send, receive) });
    Some(outcome(Call::ReduceScatterBlock, comm, done))
}

#[inline]
pub fn barrier(comm: Handle) -> Option<c_int> {
    match seats::of(comm) {
        Ok(seat) if seat.rule.is_mpis(Call::Barrier, 0) => {
            handed_over(Call::Barrier, Why::Faster, 0, constants().no_type)
        }
        Ok(seat) => {
            summary::taken(Call::Barrier, 0);
            Some(outcome(Call::Barrier, comm, seat.comm.barrier().map_err(buffers::Failure::from)))
        }
        Err(why) => handed_over(Call::Barrier, why, 0, constants().no_type),
    }
}
