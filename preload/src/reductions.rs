//! The reductions and the barrier. Each function returns the return code of an intercepted call, or `None` for a call that is
//! forwarded, for a reason that is equal on all ranks.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::buffers::{are_disjoint, can_borrow, copy_in, copy_out, element_count, read, write};
use crate::comm_cache;
use crate::handles::{ElementLayout, OpKind, TypeOp};
use crate::intercepted::InterceptedComm;
use crate::outcome::{CallFailure, CallResult, forward, return_code};
use crate::summary::{self, ForwardReason, MpiFunction};
use crate::user_ops::MpiFoldedReduction;
use earlybird::{DType, Element, Error, Indexed, Op};
use num_complex::Complex;
use std::ffi::{c_int, c_void};

/// An intercepted reduction.
struct Reduction {
    intercepted: &'static InterceptedComm,
    dtype: DType,
    op: Op,
    /// Elements of a block.
    count: usize,
    /// Bytes of a block.
    bytes: usize,
    layout: ElementLayout,
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

/// Checks the arguments that are equal on all ranks: communicator, type, operator, count and root. An error is the outcome of a call
/// that earlybird does not fold itself: its return code, from `fold_by_mpi`, or `None` if it is forwarded.
#[inline]
fn reduction(
    call: MpiFunction,
    count: i64,
    dtype: Handle,
    op: Handle,
    root: Option<c_int>,
    comm: Handle,
    fold_by_mpi: impl FnOnce(&MpiFoldedReduction) -> CallResult,
) -> Result<Reduction, Option<c_int>> {
    let intercepted = match comm_cache::get(comm) {
        Ok(intercepted) => intercepted,
        Err(reason) => return Err(forward(call, reason, count, dtype)),
    };
    let is_rank = |root| root >= 0 && (root as usize) < intercepted.size;
    let Some(elements) = element_count(count).filter(|_| root.is_none_or(is_rank)) else {
        return Err(forward(call, ForwardReason::Argument, 0, dtype));
    };
    let Some(&TypeOp { dtype: known, reduced, op }) = intercepted.type_ops.find(dtype, op) else {
        return Err(unsupported(call, intercepted, elements, dtype, op, comm, fold_by_mpi));
    };
    let bytes = elements * known.bytes;
    if intercepted.selection.prefers_mpi(call, bytes) {
        return Err(forward(call, ForwardReason::Faster, count, dtype));
    }
    summary::count_intercepted(call, bytes);
    Ok(Reduction { intercepted, dtype: reduced, op, count: elements, bytes, layout: known.layout })
}

/// Runs or forwards a reduction with a type or operator that earlybird does not support.
#[cold]
fn unsupported(
    call: MpiFunction,
    intercepted: &'static InterceptedComm,
    count: usize,
    dtype: Handle,
    op: Handle,
    comm: Handle,
    fold_by_mpi: impl FnOnce(&MpiFoldedReduction) -> CallResult,
) -> Option<c_int> {
    let reason = match (intercepted.handles.op(op), intercepted.handles.dtype(dtype)) {
        (OpKind::User, _) => ForwardReason::UserOp,
        (OpKind::Predefined(predefined), Some(known)) if known.is_folded_by_mpi(predefined) => ForwardReason::TypeAndOp,
        _ => return forward(call, ForwardReason::TypeAndOp, count as i64, dtype),
    };
    run_mpi_folded((call, reason), intercepted, count, dtype, op, comm, fold_by_mpi)
}

/// Runs a reduction that MPI folds. Elements that are too large for earlybird are found by all ranks before anything is shared; the
/// call is then forwarded, for the given reason.
#[cold]
fn run_mpi_folded(
    (call, reason): (MpiFunction, ForwardReason),
    intercepted: &'static InterceptedComm,
    count: usize,
    dtype: Handle,
    op: Handle,
    comm: Handle,
    run: impl FnOnce(&MpiFoldedReduction) -> CallResult,
) -> Option<c_int> {
    let Some(reduction) = MpiFoldedReduction::new(intercepted, count, dtype, op, comm) else {
        return forward(call, ForwardReason::Argument, 0, dtype);
    };
    if intercepted.selection.prefers_mpi(call, reduction.bytes()) {
        return forward(call, ForwardReason::Faster, count as i64, dtype);
    }
    match run(&reduction) {
        Err(CallFailure::Earlybird(Error::Unsupported { .. })) => forward(call, reason, count as i64, dtype),
        result => {
            summary::count_intercepted(call, reduction.bytes());
            Some(return_code(call, comm, result))
        }
    }
}

impl Reduction {
    /// Returns whether `reads` elements at `from` and `writes` at `to` can be borrowed together.
    #[inline]
    fn can_borrow_both<T>(&self, from: *const c_void, reads: usize, to: *mut c_void, writes: usize) -> bool {
        self.layout == ElementLayout::Same
            && can_borrow::<T>(from, reads)
            && can_borrow::<T>(to, writes)
            && are_disjoint(from, reads * size_of::<T>(), to, writes * size_of::<T>())
    }

    /// Fast path: a small allreduce with the arguments of the previous call reuses its prepared state, whatever the type. `None` for all
    /// other calls.
    ///
    /// # Safety
    /// As `allreduce`.
    #[inline(always)]
    unsafe fn allreduce_cached(&self, send: *const c_void, recv: *mut c_void) -> Option<CallResult> {
        let (n, in_place) = (self.bytes, send == constants().in_place);
        let borrowable = self.layout == ElementLayout::Same
            && can_borrow::<u8>(recv, n)
            && (in_place || (can_borrow::<u8>(send, n) && are_disjoint(send, n, recv, n)));
        if !borrowable {
            return None;
        }
        // SAFETY: by the caller's contract; disjoint, and bytes have no alignment.
        let (send, recv) = unsafe { ((!in_place).then(|| read::<u8>(send, n)), write::<u8>(recv, n)) };
        let result = self.intercepted.comm.all_reduce_again(self.dtype, self.op, self.count, send, recv)?;
        Some(result.map_err(CallFailure::from))
    }

    /// # Safety
    /// `send` (unless in place) and `recv` have `count` elements, as MPI demands.
    unsafe fn allreduce<T: Element>(&self, send: *const c_void, recv: *mut c_void) -> CallResult {
        let (comm, n) = (&self.intercepted.comm, self.count);
        let in_place = send == constants().in_place;
        // SAFETY: by the caller's contract; disjoint and aligned where borrowed.
        unsafe {
            if in_place && self.can_borrow_both::<T>(std::ptr::null(), 0, recv, n) {
                comm.all_reduce_in_place(write::<T>(recv, n), self.op)?;
            } else if !in_place && self.can_borrow_both::<T>(send, n, recv, n) {
                comm.all_reduce_into(read::<T>(send, n), write(recv, n), self.op)?;
            } else {
                let mut values = copy_in::<T>(if in_place { recv } else { send }, n, self.layout)?;
                comm.all_reduce_in_place(&mut values, self.op)?;
                copy_out(&values, recv, self.layout)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// As `allreduce`; `recv` on the root only.
    unsafe fn reduce<T: Element>(&self, send: *const c_void, recv: *mut c_void, root: usize) -> CallResult {
        let (to, n) = (self.intercepted.comm.process_at_rank(root), self.count);
        let in_place = send == constants().in_place;
        if root != self.intercepted.rank {
            if in_place {
                let what = "MPI_IN_PLACE on a rank that is not the root";
                return Err(CallFailure::Argument(constants().err_buffer, what));
            }
            // SAFETY: by the caller's contract; aligned where borrowed.
            unsafe {
                match self.can_borrow_both::<T>(send, n, std::ptr::null_mut(), 0) {
                    true => to.reduce_into(read::<T>(send, n), self.op)?,
                    false => to.reduce_into(&copy_in::<T>(send, n, self.layout)?, self.op)?,
                }
            }
            return Ok(());
        }
        // SAFETY: by the caller's contract; disjoint and aligned where borrowed.
        unsafe {
            if in_place && self.can_borrow_both::<T>(std::ptr::null(), 0, recv, n) {
                to.reduce_in_place(write::<T>(recv, n), self.op)?;
            } else if !in_place && self.can_borrow_both::<T>(send, n, recv, n) {
                to.reduce_into_root(read::<T>(send, n), write(recv, n), self.op)?;
            } else {
                let mut values = copy_in::<T>(if in_place { recv } else { send }, n, self.layout)?;
                to.reduce_in_place(&mut values, self.op)?;
                copy_out(&values, recv, self.layout)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// `send`, or `recv` if in place, has `count` elements for each rank; `recv` has `count`.
    unsafe fn reduce_scatter_block<T: Element>(&self, send: *const c_void, recv: *mut c_void) -> CallResult {
        let (comm, n, total) = (&self.intercepted.comm, self.count, self.count * self.intercepted.size);
        let in_place = send == constants().in_place;
        // SAFETY: by the caller's contract; disjoint and aligned where borrowed.
        unsafe {
            if !in_place && self.can_borrow_both::<T>(send, total, recv, n) {
                comm.reduce_scatter_block_into(read::<T>(send, total), write(recv, n), self.op)?;
            } else {
                let from = if in_place { recv.cast_const() } else { send };
                let mut block = copy_in::<T>(from, n, self.layout)?;
                if self.layout == ElementLayout::Same && can_borrow::<T>(from, total) {
                    comm.reduce_scatter_block_into(read::<T>(from, total), &mut block, self.op)?;
                } else {
                    comm.reduce_scatter_block_into(&copy_in::<T>(from, total, self.layout)?, &mut block, self.op)?;
                }
                copy_out(&block, recv, self.layout)?;
            }
        }
        Ok(())
    }
}

/// Intercepts MPI_Allreduce.
///
/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline]
pub unsafe fn allreduce(
    send: *const c_void,
    recv: *mut c_void,
    count: i64,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.allreduce(send, recv) };
    let reduction = match reduction(MpiFunction::Allreduce, count, dtype, op, None, comm, fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    // SAFETY: by the caller's contract.
    let result = match unsafe { reduction.allreduce_cached(send, recv) } {
        Some(Ok(())) => return Some(0),
        Some(failed) => failed,
        // SAFETY: by the caller's contract.
        None => unsafe { allreduce_by_type(&reduction, send, recv) },
    };
    Some(return_code(MpiFunction::Allreduce, comm, result))
}

/// # Safety
/// As `allreduce`.
#[inline(never)]
unsafe fn allreduce_by_type(reduction: &Reduction, send: *const c_void, recv: *mut c_void) -> CallResult {
    // SAFETY: by the caller's contract.
    with_type!(reduction.dtype, T => unsafe { reduction.allreduce::<T>(send, recv) })
}

/// Intercepts MPI_Reduce.
///
/// # Safety
/// As `allreduce`.
#[inline]
pub unsafe fn reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: i64,
    dtype: Handle,
    op: Handle,
    root: c_int,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.reduce(send, recv, root as usize) };
    let reduction = match reduction(MpiFunction::Reduce, count, dtype, op, Some(root), comm, fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let root = root as usize;
    // SAFETY: by the caller's contract.
    let result = with_type!(reduction.dtype, T => unsafe { reduction.reduce::<T>(send, recv, root) });
    Some(return_code(MpiFunction::Reduce, comm, result))
}

/// Intercepts MPI_Reduce_scatter_block.
///
/// # Safety
/// As `allreduce`.
#[inline]
pub unsafe fn reduce_scatter_block(
    send: *const c_void,
    recv: *mut c_void,
    count: i64,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.reduce_scatter_block(send, recv) };
    let reduction = match reduction(MpiFunction::ReduceScatterBlock, count, dtype, op, None, comm, fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    // SAFETY: by the caller's contract.
    let result = with_type!(reduction.dtype, T => unsafe { reduction.reduce_scatter_block::<T>(send, recv) });
    Some(return_code(MpiFunction::ReduceScatterBlock, comm, result))
}

/// Intercepts MPI_Barrier.
#[inline]
pub fn barrier(comm: Handle) -> Option<c_int> {
    match comm_cache::get(comm) {
        Ok(intercepted) if intercepted.selection.prefers_mpi(MpiFunction::Barrier, 0) => {
            forward(MpiFunction::Barrier, ForwardReason::Faster, 0, constants().null_type)
        }
        Ok(intercepted) => {
            summary::count_intercepted(MpiFunction::Barrier, 0);
            Some(return_code(MpiFunction::Barrier, comm, intercepted.comm.barrier().map_err(CallFailure::from)))
        }
        Err(reason) => forward(MpiFunction::Barrier, reason, 0, constants().null_type),
    }
}
