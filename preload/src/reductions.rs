//! The reductions and the barrier. Each function returns the return code of an intercepted call, or `None` for a call that is
//! forwarded, for a reason that is equal on all ranks.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::block::per_rank;
use crate::buffers::{are_disjoint, can_borrow, copy_in, copy_out, element_count, read, write};
use crate::comm_cache;
use crate::functions::MpiFunction;
use crate::handles::{ElementLayout, OpKind, TypeOp};
use crate::intercepted::InterceptedComm;
use crate::outcome::{CallFailure, CallResult, forward, return_code};
use crate::summary::{self, ForwardReason};
use crate::user_ops::MpiFoldedReduction;
use earlybird::{CallBuffers, CollectiveArgs, Counts, DType, Error, Op, ReduceOp};
use std::ffi::{c_int, c_void};

/// An intercepted reduction.
struct Reduction {
    intercepted: &'static InterceptedComm,
    dtype: DType,
    op: Op,
    /// Elements of a block.
    count: usize,
    layout: ElementLayout,
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
    Ok(Reduction { intercepted, dtype: reduced, op, count: elements, layout: known.layout })
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
    /// Runs the call on the caller's buffers where they have earlybird's layout and are apart, else on copies. In place the
    /// contribution lies in `recv`.
    ///
    /// # Safety
    /// `send`, or `recv` if in place, holds `reads` elements, `recv` has room for `writes`, as MPI demands.
    #[inline(always)]
    unsafe fn run(
        &self,
        (send, reads): (*const c_void, usize),
        (recv, writes): (*mut c_void, usize),
        (call, root, counts): (MpiFunction, Option<usize>, Counts<'_>),
    ) -> CallResult {
        let size = self.dtype.size();
        let (in_place, read_bytes, write_bytes) = (send == constants().in_place, reads * size, writes * size);
        let is_borrowable = self.layout == ElementLayout::Same
            && can_borrow(recv, write_bytes)
            && match in_place {
                true => reads == writes,
                false => can_borrow(send, read_bytes) && are_disjoint(send, read_bytes, recv, write_bytes),
            };
        if !is_borrowable {
            let from = if in_place { recv.cast_const() } else { send };
            // SAFETY: by the caller's contract.
            return unsafe { self.run_on_copies((from, reads), (recv, writes), (call, root, counts)) };
        }
        // SAFETY: by the caller's contract; disjoint, and bytes have no alignment.
        let (send, recv) =
            unsafe { ((!in_place).then(|| read::<u8>(send, read_bytes)), write::<u8>(recv, write_bytes)) };
        self.run_on((send, recv), (call, root, counts))
    }

    /// Runs the call on bytes of earlybird's layout; `counts` as in `run`.
    #[inline(always)]
    fn run_on(
        &self,
        (send, recv): (Option<&[u8]>, &mut [u8]),
        (call, root, counts): (MpiFunction, Option<usize>, Counts<'_>),
    ) -> CallResult {
        let buffers = CallBuffers::of_bytes(send, recv, self.dtype.into());
        let args = CollectiveArgs::describe(call.collective(), root, counts, buffers, ReduceOp::Builtin(self.op));
        Ok(self.intercepted.comm.run(args)?)
    }

    /// # Safety
    /// The contract of `run`.
    #[cold]
    unsafe fn run_on_copies(
        &self,
        (from, reads): (*const c_void, usize),
        (recv, writes): (*mut c_void, usize),
        (call, root, counts): (MpiFunction, Option<usize>, Counts<'_>),
    ) -> CallResult {
        // SAFETY: by the caller's contract.
        let send = unsafe { copy_in(from, reads, self.dtype.size(), self.layout)? };
        let mut result = vec![0; writes * self.dtype.size()];
        self.run_on((Some(&send), &mut result), (call, root, counts))?;
        // SAFETY: by the caller's contract.
        unsafe { copy_out(&result, recv, self.dtype.size(), self.layout) }
    }

    /// Runs the call on a rank whose receive buffer is of no meaning, though others have a result.
    ///
    /// # Safety
    /// `from` holds this rank's elements, as MPI demands.
    #[cold]
    unsafe fn run_without_result(
        &self,
        from: *const c_void,
        args: (MpiFunction, Option<usize>, Counts<'_>),
    ) -> CallResult {
        // SAFETY: by the caller's contract.
        let send = unsafe { copy_in(from, self.count, self.dtype.size(), self.layout)? };
        let mut no_result = vec![0; send.len()];
        self.run_on((Some(&send), &mut no_result), args)
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
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.allreduce(send, recv) };
    let reduction = match reduction(MpiFunction::Allreduce, count.into(), dtype, op, None, comm, fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let (count, args) = (reduction.count, (MpiFunction::Allreduce, None, Counts::Uniform));
    // SAFETY: by the caller's contract.
    let result = unsafe { reduction.run((send, count), (recv, count), args) };
    match result {
        Ok(()) => Some(0),
        failed => Some(return_code(MpiFunction::Allreduce, comm, failed)),
    }
}

/// Intercepts MPI_Reduce.
///
/// # Safety
/// The contract of `allreduce`.
#[inline]
pub unsafe fn reduce(
    send: *const c_void,
    recv: *mut c_void,
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    root: c_int,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.reduce(send, recv, root as usize) };
    let reduction = match reduction(MpiFunction::Reduce, count.into(), dtype, op, Some(root), comm, fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let (root, count) = (root as usize, reduction.count);
    let is_root = root == reduction.intercepted.rank;
    if !is_root && send == constants().in_place {
        let what = "MPI_IN_PLACE on a rank that is not the root";
        let refused = Err(CallFailure::Argument(constants().err_buffer, what));
        return Some(return_code(MpiFunction::Reduce, comm, refused));
    }
    // The other ranks' receive buffers are of no meaning.
    let result_buffer = if is_root { (recv, count) } else { (std::ptr::null_mut(), 0) };
    // SAFETY: by the caller's contract.
    let result =
        unsafe { reduction.run((send, count), result_buffer, (MpiFunction::Reduce, Some(root), Counts::Uniform)) };
    Some(return_code(MpiFunction::Reduce, comm, result))
}

/// Intercepts MPI_Reduce_scatter_block.
///
/// # Safety
/// The contract of `allreduce`.
#[inline]
pub unsafe fn reduce_scatter_block(
    send: *const c_void,
    recv: *mut c_void,
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.reduce_scatter_block(send, recv) };
    let reduction = match reduction(MpiFunction::Reduce_scatter_block, count.into(), dtype, op, None, comm, fold_by_mpi)
    {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let (count, args) = (reduction.count, (MpiFunction::Reduce_scatter_block, None, Counts::Uniform));
    let total = count * reduction.intercepted.size;
    // SAFETY: by the caller's contract.
    let result = unsafe { reduction.run((send, total), (recv, count), args) };
    Some(return_code(MpiFunction::Reduce_scatter_block, comm, result))
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
) -> Option<c_int> {
    let call = MpiFunction::Reduce_scatter;
    let intercepted = match comm_cache::get(comm) {
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
    let reduction = match reduction(call, largest as i64, dtype, op, None, comm, fold_by_mpi) {
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
#[inline]
pub unsafe fn scan(
    send: *const c_void,
    recv: *mut c_void,
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    unsafe { scan_as(MpiFunction::Scan, (send, recv), count.into(), dtype, op, comm) }
}

/// Intercepts MPI_Exscan.
///
/// # Safety
/// The contract of `allreduce`; the receive buffer of the first rank is used in place only.
#[inline]
pub unsafe fn exscan(
    send: *const c_void,
    recv: *mut c_void,
    count: impl Into<i64>,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    unsafe { scan_as(MpiFunction::Exscan, (send, recv), count.into(), dtype, op, comm) }
}

/// # Safety
/// The contract of `scan` or `exscan`.
unsafe fn scan_as(
    call: MpiFunction,
    (send, recv): (*const c_void, *mut c_void),
    count: i64,
    dtype: Handle,
    op: Handle,
    comm: Handle,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let fold_by_mpi = |reduction: &MpiFoldedReduction| unsafe { reduction.scan(send, recv, call) };
    let reduction = match reduction(call, count, dtype, op, None, comm, fold_by_mpi) {
        Ok(reduction) => reduction,
        Err(code) => return code,
    };
    let (count, args) = (reduction.count, (call, None, Counts::Uniform));
    let has_result = call == MpiFunction::Scan || reduction.intercepted.rank > 0;
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
