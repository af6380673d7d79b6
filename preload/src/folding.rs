//! An intercepted reduction: its arguments checked, its buffers used where they lie or copied, run or started.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::buffers::{are_disjoint, can_borrow, check_address, copy_in, copy_out, element_count, read, write};
use crate::form::Form;
use crate::functions::MpiFunction;
use crate::handles::{ElementLayout, OpKind, TypeOp};
use crate::intercepted::InterceptedComm;
use crate::non_blocking::{LentBuffers, NewCall};
use crate::outcome::{CallFailure, CallResult, forward, return_code};
use crate::row::CallMemory;
use crate::summary::{self, ForwardReason};
use crate::user_ops::MpiFoldedReduction;
use earlybird::{CallBuffers, CollectiveArgs, Counts, DType, Error, Op, ReduceOp};
use std::ffi::{c_int, c_void};

/// An intercepted reduction.
pub struct Reduction {
    pub intercepted: &'static InterceptedComm,
    comm: Handle,
    dtype: DType,
    op: Op,
    /// Elements of a block.
    pub count: usize,
    layout: ElementLayout,
    form: Form,
}

/// Checks the arguments that are equal on all ranks: communicator, type, operator, count and root. An error is the outcome of a call
/// that earlybird does not fold itself: its return code, from `fold_by_mpi`, or `None` if it is forwarded.
#[inline(always)]
pub fn reduction(
    call: MpiFunction,
    count: i64,
    dtype: Handle,
    op: Handle,
    root: Option<c_int>,
    (comm, form): (Handle, Form),
    fold_by_mpi: impl FnOnce(&MpiFoldedReduction) -> CallResult,
) -> Result<Reduction, Option<c_int>> {
    let intercepted = match form.comm(comm) {
        Ok(intercepted) => intercepted,
        Err(reason) => return Err(forward(call, reason, count, dtype)),
    };
    let is_rank = |root| root >= 0 && (root as usize) < intercepted.size;
    let Some(elements) = element_count(count).filter(|_| root.is_none_or(is_rank)) else {
        return Err(forward(call, ForwardReason::Argument, 0, dtype));
    };
    let Some(&TypeOp { dtype: known, reduced, op }) = intercepted.type_ops.find(dtype, op) else {
        return Err(match form {
            Form::Blocking => unsupported(call, intercepted, elements, dtype, op, comm, fold_by_mpi),
            Form::NonBlocking(_) => forward(call, ForwardReason::NonBlocking, count, dtype),
        });
    };
    if matches!(form, Form::NonBlocking(_)) && known.layout != ElementLayout::Same {
        return Err(forward(call, ForwardReason::NonBlocking, count, dtype));
    }
    let bytes = elements * known.bytes;
    if intercepted.selection.prefers_mpi(call, bytes) {
        return Err(forward(call, ForwardReason::Faster, count, dtype));
    }
    summary::count_intercepted(call, bytes);
    Ok(Reduction { intercepted, comm, dtype: reduced, op, count: elements, layout: known.layout, form })
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
    /// Runs the call on the caller's buffers where they have earlybird's layout and are apart, else on copies, or starts it. In place
    /// the contribution lies in `recv`.
    ///
    /// # Safety
    /// `send`, or `recv` if in place, holds `reads` elements, `recv` has room for `writes`, as MPI demands.
    #[inline(always)]
    pub unsafe fn run(
        &self,
        (send, reads): (*const c_void, usize),
        (recv, writes): (*mut c_void, usize),
        (call, root, counts): (MpiFunction, Option<usize>, Counts<'_>),
    ) -> CallResult {
        if let Form::NonBlocking(request) = self.form {
            // SAFETY: by the caller's contract.
            return unsafe { self.start((send, reads), (recv, writes), (call, root, counts), request) };
        }
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

    /// Starts the call on the caller's buffers, which have earlybird's layout.
    ///
    /// # Safety
    /// The contract of `run`; `request` is where the caller wants the request.
    #[cold]
    unsafe fn start(
        &self,
        (send, reads): (*const c_void, usize),
        (recv, writes): (*mut c_void, usize),
        args: (MpiFunction, Option<usize>, Counts<'_>),
        request: *mut Handle,
    ) -> CallResult {
        let size = self.dtype.size();
        let (in_place, read_bytes, write_bytes) = (send == constants().in_place, reads * size, writes * size);
        let is_apart = are_disjoint(send, read_bytes, recv, write_bytes);
        check_address(recv, write_bytes)?;
        let send = match in_place {
            true if reads == writes => None,
            // SAFETY: by the caller's contract.
            true => Some(CallMemory::Own(unsafe { read(recv, read_bytes) }.to_vec())),
            false => {
                check_address(send, read_bytes)?;
                Some(match is_apart {
                    true => CallMemory::Lent(send.cast_mut(), read_bytes),
                    // SAFETY: by the caller's contract.
                    false => CallMemory::Own(unsafe { read(send, read_bytes) }.to_vec()),
                })
            }
        };
        let buffers = LentBuffers { send, recv: CallMemory::Lent(recv, write_bytes), deliver_to: None };
        // SAFETY: by the caller's contract.
        unsafe { self.new_call(args).start(buffers, request) }
    }

    /// The description of the call to start.
    fn new_call<'a>(&self, (function, root, counts): (MpiFunction, Option<usize>, Counts<'a>)) -> NewCall<'a> {
        let Reduction { intercepted, comm, dtype, op, .. } = *self;
        NewCall { intercepted, function, comm, root, counts, dtype, op }
    }

    /// Runs the call on a rank whose receive buffer is of no meaning, though others have a result.
    ///
    /// # Safety
    /// `from` holds this rank's elements, as MPI demands.
    #[cold]
    pub unsafe fn run_without_result(
        &self,
        from: *const c_void,
        args: (MpiFunction, Option<usize>, Counts<'_>),
    ) -> CallResult {
        // SAFETY: by the caller's contract.
        let send = unsafe { copy_in(from, self.count, self.dtype.size(), self.layout)? };
        let mut no_result = vec![0; send.len()];
        if let Form::NonBlocking(request) = self.form {
            let (send, recv) = (Some(CallMemory::Own(send)), CallMemory::Own(no_result));
            // SAFETY: by the caller's contract.
            return unsafe { self.new_call(args).start(LentBuffers { send, recv, deliver_to: None }, request) };
        }
        self.run_on((Some(&send), &mut no_result), args)
    }
}
