//! The reductions and the barrier. Each function returns the return code of an intercepted call, or `None` for a call that is
//! forwarded, for a reason that is equal on all ranks.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::block::per_rank;
use crate::buffers::element_count;
use crate::folding::reduction;
use crate::form::Form;
use crate::functions::MpiFunction;
use crate::non_blocking::start_barrier;
use crate::outcome::{CallFailure, forward, return_code};
use crate::summary::{self, ForwardReason};
use crate::user_ops::MpiFoldedReduction;
use earlybird::Counts;
use std::ffi::{c_int, c_void};

/// Intercepts MPI_Allreduce.
///
/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline(always)]
pub unsafe fn allreduce(
    send: *const c_void,
    recv: *mut c_void,
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let call = form.of(MpiFunction::Allreduce);
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.allreduce(send, recv) };
    let reduction = match reduction(call, count.into(), dtype, op, None, (comm, form), fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let (count, args) = (reduction.count, (call, None, Counts::Uniform));
    // SAFETY: by the caller's contract.
    let result = unsafe { reduction.run((send, count), (recv, count), args) };
    match result {
        Ok(()) => Some(0),
        failed => Some(return_code(call, comm, failed)),
    }
}

/// Intercepts MPI_Reduce.
///
/// # Safety
/// The contract of `allreduce`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    root: c_int,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let call = form.of(MpiFunction::Reduce);
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.reduce(send, recv, root as usize) };
    let reduction = match reduction(call, count.into(), dtype, op, Some(root), (comm, form), fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let (root, count) = (root as usize, reduction.count);
    let is_root = root == reduction.intercepted.rank;
    if !is_root && send == constants().in_place {
        let what = "MPI_IN_PLACE on a rank that is not the root";
        let refused = Err(CallFailure::Argument(constants().err_buffer, what));
        return Some(return_code(call, comm, refused));
    }
    // The other ranks' receive buffers are of no meaning.
    let result_buffer = if is_root { (recv, count) } else { (std::ptr::null_mut(), 0) };
    // SAFETY: by the caller's contract.
    let result = unsafe { reduction.run((send, count), result_buffer, (call, Some(root), Counts::Uniform)) };
    Some(return_code(call, comm, result))
}

/// Intercepts MPI_Reduce_scatter_block.
///
/// # Safety
/// The contract of `allreduce`.
#[inline(always)]
pub unsafe fn reduce_scatter_block(
    send: *const c_void,
    recv: *mut c_void,
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let call = form.of(MpiFunction::Reduce_scatter_block);
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.reduce_scatter_block(send, recv) };
    let reduction = match reduction(call, count.into(), dtype, op, None, (comm, form), fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let (count, args) = (reduction.count, (call, None, Counts::Uniform));
    let total = count * reduction.intercepted.size;
    // SAFETY: by the caller's contract.
    let result = unsafe { reduction.run((send, total), (recv, count), args) };
    Some(return_code(call, comm, result))
}

/// Intercepts MPI_Reduce_scatter.
///
/// # Safety
/// The contract of `allreduce`; `counts` has an element for each rank.
pub unsafe fn reduce_scatter<C: Into<i64> + Copy>(
    send: *const c_void,
    recv: *mut c_void,
    counts: *const C,
    dtype: Handle,
    op: Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let call = form.of(MpiFunction::Reduce_scatter);
    let intercepted = match form.comm(comm) {
        Ok(intercepted) => intercepted,
        Err(reason) => return forward(call, reason, 0, dtype),
    };
    // SAFETY: by the caller's contract.
    let counts = (0..intercepted.size).map(|rank| element_count(unsafe { *counts.add(rank) }.into()));
    let Some(counts) = counts.collect::<Option<Vec<usize>>>() else {
        return forward(call, ForwardReason::Argument, 0, dtype);
    };
    let largest = counts.iter().copied().max().unwrap_or(0);
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.reduce_scatter(send, recv, &counts) };
    let reduction = match reduction(call, largest as i64, dtype, op, None, (comm, form), fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let (total, own) = (counts.iter().sum(), counts[intercepted.rank]);
    // SAFETY: by the caller's contract.
    let result = unsafe { reduction.run((send, total), (recv, own), (call, None, per_rank(&counts))) };
    Some(return_code(call, comm, result))
}

/// Intercepts MPI_Scan.
///
/// # Safety
/// The contract of `allreduce`.
#[inline(always)]
pub unsafe fn scan(
    send: *const c_void,
    recv: *mut c_void,
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    unsafe { scan_as(form.of(MpiFunction::Scan), (send, recv), count.into(), dtype, op, (comm, form)) }
}

/// Intercepts MPI_Exscan.
///
/// # Safety
/// The contract of `allreduce`; the receive buffer of the first rank is used in place only.
#[inline(always)]
pub unsafe fn exscan(
    send: *const c_void,
    recv: *mut c_void,
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    unsafe { scan_as(form.of(MpiFunction::Exscan), (send, recv), count.into(), dtype, op, (comm, form)) }
}

/// # Safety
/// The contract of `scan` or `exscan`.
unsafe fn scan_as(
    call: MpiFunction,
    (send, recv): (*const c_void, *mut c_void),
    count: i64,
    dtype: Handle,
    op: Handle,
    (comm, form): (Handle, Form),
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.scan(send, recv, call) };
    let reduction = match reduction(call, count, dtype, op, None, (comm, form), fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let (count, args) = (reduction.count, (call, None, Counts::Uniform));
    let has_result = call != form.of(MpiFunction::Exscan) || reduction.intercepted.rank > 0;
    // SAFETY: by the caller's contract.
    let result = unsafe {
        match has_result {
            true => reduction.run((send, count), (recv, count), args),
            false => reduction.run_without_result(if send == constants().in_place { recv } else { send }, args),
        }
    };
    Some(return_code(call, comm, result))
}

/// Intercepts MPI_Barrier.
///
/// # Safety
/// The form has a place for the request if it is not blocking.
#[inline(always)]
pub unsafe fn barrier(comm: Handle, form: Form) -> Option<c_int> {
    let call = form.of(MpiFunction::Barrier);
    let intercepted = match form.comm(comm) {
        Ok(intercepted) => intercepted,
        Err(reason) => return forward(call, reason, 0, constants().null_type),
    };
    if intercepted.selection.prefers_mpi(call, 0) {
        return forward(call, ForwardReason::Faster, 0, constants().null_type);
    }
    summary::count_intercepted(call, 0);
    let result = match form {
        Form::Blocking => intercepted.comm.barrier().map_err(CallFailure::from),
        // SAFETY: by the caller's contract.
        Form::NonBlocking(request) => unsafe { start_barrier(intercepted, comm, request) },
    };
    Some(return_code(call, comm, result))
}
