//! The reductions and the barrier: from the arguments of MPI to a call on the buffers where they lie, or on copies of them.
//!
//! Each function returns the return code of an intercepted call, or `None` for a call that is forwarded, for a reason that is equal on
//! all ranks.
#![allow(unsafe_code)]

use crate::abi::{Handle, RecvPtr, SendPtr, constants};
use crate::block::{RankLengths, per_rank};
use crate::buffers::{IntArray, ReductionBuffers, are_disjoint, check_address, copy_in, copy_out, element_count};
use crate::call::{MpiCall, NewRequest, check_not_in_place};
use crate::description::StartDescription;
use crate::failure::{CallFailure, CallResult};
use crate::functions::MpiFunction;
use crate::handles::{ElementLayout, OpKind, TypeOp};
use crate::intercepted::InterceptedComm;
use crate::new_call::NewCall;
use crate::prepared::RequestBuffers;
use crate::row::{CallSide, Row};
use crate::summary::{self, ForwardReason};
use crate::user_ops::MpiFoldedReduction;
use earlybird::{CallBuffers, Collective, CollectiveArgs, Counts, DType, Error, Op, ReduceOp};
use std::ffi::c_int;
use std::ptr;

/// Intercepts a reduction of blocks of one length.
///
/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline(always)]
pub unsafe fn reduction(
    call: MpiCall,
    (send, recv): (SendPtr, RecvPtr),
    count: impl Into<i64>,
    (dtype, op): (Handle, Handle),
    root: Option<c_int>,
) -> Option<c_int> {
    let intercepted = match call.intercepted() {
        Ok(intercepted) => intercepted,
        Err(reason) => return call.forward(reason, count.into(), dtype),
    };
    // SAFETY: by the caller's contract.
    unsafe { reduce(call, intercepted, (send, recv), count.into(), None, (dtype, op), root) }
}

/// Intercepts MPI_Reduce_scatter.
///
/// # Safety
/// The contract of `reduction`; `counts` has an element for each rank.
pub unsafe fn reduce_scatter(
    call: MpiCall,
    buffers: (SendPtr, RecvPtr),
    counts: impl Into<IntArray>,
    (dtype, op): (Handle, Handle),
) -> Option<c_int> {
    let intercepted = match call.intercepted() {
        Ok(intercepted) => intercepted,
        Err(reason) => return call.forward(reason, 0, dtype),
    };
    let counts = counts.into();
    // SAFETY: by the caller's contract.
    let counts = (0..intercepted.size).map(|rank| element_count(unsafe { counts.get(rank) }));
    let Some(counts) = counts.collect::<Option<RankLengths>>() else {
        return call.forward(ForwardReason::Argument, 0, dtype);
    };
    let largest = counts.iter().copied().max().unwrap_or(0);
    // SAFETY: by the caller's contract.
    unsafe { reduce(call, intercepted, buffers, largest as i64, Some(&counts), (dtype, op), None) }
}

/// Runs, starts or forwards a reduction; `count` is the number of elements of the largest block. Checks the arguments that are equal
/// on all ranks first: type, operator, count and root.
///
/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline(always)]
unsafe fn reduce(
    call: MpiCall,
    intercepted: &'static InterceptedComm,
    (send, recv): (SendPtr, RecvPtr),
    count: i64,
    counts: Option<&[usize]>,
    (dtype, op): (Handle, Handle),
    root: Option<c_int>,
) -> Option<c_int> {
    let root = root.map(|root| root as usize);
    let Some(elements) = element_count(count).filter(|_| root.is_none_or(|root| root < intercepted.size)) else {
        return call.forward(ForwardReason::Argument, 0, dtype);
    };
    let type_op = intercepted.type_ops.find((dtype, op));
    let is_startable = type_op.is_some_and(|known| known.dtype.layout == ElementLayout::Same);
    if call.request.is_some() && type_op.is_some() && !is_startable {
        return call.forward(ForwardReason::NonBlocking, count, dtype);
    }
    let (rank, is_root) = (intercepted.rank, root.is_none_or(|root| root == intercepted.rank));
    // The receive buffers of other ranks are of no meaning.
    let has_result = is_root && (call.collective() != Collective::ExclusiveScan || rank > 0);
    let (sent, received) = match (call.collective(), counts) {
        (Collective::ReduceScatter, Some(counts)) => (counts.iter().sum(), counts[rank]),
        (Collective::ReduceScatter, None) => (elements * intercepted.size, elements),
        _ => (elements, if has_result { elements } else { 0 }),
    };
    // Of the first rank of an exclusive scan in place, the receive buffer is its contribution and nothing else.
    let send = if is_root && !has_result && send == constants().in_place { recv.cast_const() } else { send };
    let recv = if has_result { recv } else { ptr::null_mut() };
    let buffers = ReductionBuffers { send, sent, recv, received };
    let counts = counts.map_or(Counts::Uniform, per_rank);
    let Some(&TypeOp { dtype: known, reduced, op }) = type_op else {
        // SAFETY: by the caller's contract.
        return unsafe {
            let (function, comm, request) = (call.function, call.comm, call.request);
            reduce_by_mpi((function, comm, request), intercepted, buffers, elements, root, counts, (dtype, op))
        };
    };
    let bytes = elements * known.bytes;
    if intercepted.selection.prefers_mpi(call.function, bytes) {
        return call.forward(ForwardReason::Faster, count, dtype);
    }
    summary::count_intercepted(call.function, bytes);
    if let Err(failure) = check_not_in_place(!is_root && buffers.is_in_place()) {
        return call.finish(Err(failure));
    }
    let collective = call.collective();
    let reduction = Reduction { intercepted, collective, root, counts, dtype: reduced, op, layout: known.layout };
    // SAFETY: by the caller's contract.
    call.finish(unsafe {
        match call.request {
            None => reduction.run(buffers),
            Some(request) => reduction.begin(buffers, call.function, call.comm, request),
        }
    })
}

/// Runs or starts a reduction with a type or an operator that earlybird does not have, whose elements MPI folds, or forwards it. Elements that
/// are too large for earlybird are found by all ranks before anything is shared; the call is then forwarded.
///
/// # Safety
/// The contract of `reduce`.
#[cold]
unsafe fn reduce_by_mpi(
    (function, comm, request): (MpiFunction, Handle, Option<NewRequest>),
    intercepted: &'static InterceptedComm,
    buffers: ReductionBuffers,
    count: usize,
    root: Option<usize>,
    counts: Counts<'_>,
    (dtype, op): (Handle, Handle),
) -> Option<c_int> {
    let call = MpiCall { function, comm, request };
    let reason = match (intercepted.handles.op(op), intercepted.handles.dtype(dtype)) {
        (OpKind::User, _) => ForwardReason::UserOp,
        (OpKind::Predefined(predefined), Some(known)) if known.is_folded_by_mpi(predefined) => ForwardReason::TypeAndOp,
        _ => return call.forward(ForwardReason::TypeAndOp, count as i64, dtype),
    };
    let Some(reduction) = MpiFoldedReduction::new(intercepted, count, dtype, op, call.comm) else {
        return call.forward(ForwardReason::Argument, 0, dtype);
    };
    if intercepted.selection.prefers_mpi(call.function, reduction.bytes()) {
        return call.forward(ForwardReason::Faster, count as i64, dtype);
    }
    let is_root = root.is_none_or(|root| root == intercepted.rank);
    let result = check_not_in_place(!is_root && buffers.is_in_place());
    // SAFETY: by the caller's contract.
    let result = result.and_then(|()| unsafe {
        match request {
            None => reduction.run(buffers, call.collective(), root, counts),
            Some(request) => reduction.begin(buffers, function, root, counts, request),
        }
    });
    match result {
        Err(CallFailure::Earlybird(Error::Unsupported { .. })) => call.forward(reason, count as i64, dtype),
        result => {
            summary::count_intercepted(call.function, reduction.bytes());
            call.finish(result)
        }
    }
}

/// An intercepted reduction. Passed by value, so that a small one stays in registers.
#[derive(Clone, Copy)]
struct Reduction<'a> {
    intercepted: &'static InterceptedComm,
    collective: Collective,
    root: Option<usize>,
    counts: Counts<'a>,
    dtype: DType,
    op: Op,
    layout: ElementLayout,
}

impl Reduction<'_> {
    /// Runs the call on the caller's buffers where they have earlybird's layout and are apart, else on copies.
    ///
    /// # Safety
    /// The buffers hold their elements, or have room for them, as MPI demands.
    #[inline(always)]
    unsafe fn run(self, buffers: ReductionBuffers) -> CallResult {
        // SAFETY: by the caller's contract.
        unsafe {
            match buffers.borrow(self.dtype.size()).filter(|_| self.layout == ElementLayout::Same) {
                Some((send, recv)) => self.run_on(send, recv),
                None => self.run_on_copies(buffers),
            }
        }
    }

    /// Runs the call on bytes of earlybird's layout.
    #[inline(always)]
    fn run_on(self, send: Option<&[u8]>, recv: &mut [u8]) -> CallResult {
        let (buffers, op) = (CallBuffers::of_bytes(send, recv, self.dtype.into()), ReduceOp::Builtin(self.op));
        let args = CollectiveArgs::describe(self.collective, self.root, self.counts, buffers, op);
        Ok(self.intercepted.comm.run(args)?)
    }

    /// # Safety
    /// The contract of `run`.
    #[cold]
    unsafe fn run_on_copies(self, buffers: ReductionBuffers) -> CallResult {
        let size = self.dtype.size();
        // SAFETY: by the caller's contract.
        let send = unsafe { copy_in(buffers.contribution(), buffers.sent, size, self.layout)? };
        let mut result = vec![0; buffers.received * size];
        self.run_on(Some(&send), &mut result)?;
        // SAFETY: by the caller's contract.
        unsafe { copy_out(&result, buffers.recv, size, self.layout) }
    }

    /// Makes a request of the call on the caller's buffers, which have earlybird's layout, with copies of those that are not apart.
    ///
    /// # Safety
    /// The contract of `run`; `request` is where the caller wants the request.
    #[inline(never)]
    unsafe fn begin(
        self,
        buffers: ReductionBuffers,
        function: MpiFunction,
        comm: Handle,
        request: NewRequest,
    ) -> CallResult {
        let ReductionBuffers { send, sent, recv, received } = buffers;
        let (send_bytes, recv_bytes) = (sent * self.dtype.size(), received * self.dtype.size());
        check_address(recv, recv_bytes)?;
        let from = buffers.contribution();
        check_address(from, send_bytes)?;
        let is_apart = are_disjoint(from, send_bytes, recv, recv_bytes);
        let send = match buffers.is_in_place() && sent == received {
            true => None,
            false if is_apart && !buffers.is_in_place() => Some(CallSide::of_bytes(send.cast_mut(), send_bytes)),
            false => Some(Row::of_bytes(from.cast_mut(), send_bytes).into_copy()?),
        };
        let Reduction { intercepted, root, counts, dtype, op, .. } = self;
        let call = StartDescription { function, root, counts, dtype: dtype.into(), op: op.into() };
        let new = NewCall { intercepted, comm, call };
        // SAFETY: by the caller's contract.
        unsafe { new.begin(RequestBuffers { send, recv: CallSide::of_bytes(recv, recv_bytes) }, request) }
    }
}

/// Intercepts MPI_Barrier.
///
/// # Safety
/// A call that does not block has a place for its request.
#[inline(always)]
pub unsafe fn barrier(call: MpiCall) -> Option<c_int> {
    let no_type = constants().null_type;
    let intercepted = match call.intercepted() {
        Ok(intercepted) => intercepted,
        Err(reason) => return call.forward(reason, 0, no_type),
    };
    if intercepted.selection.prefers_mpi(call.function, 0) {
        return call.forward(ForwardReason::Faster, 0, no_type);
    }
    summary::count_intercepted(call.function, 0);
    call.finish(match call.request {
        None => intercepted.comm.barrier().map_err(CallFailure::from),
        Some(request) => {
            let (function, counts, dtype) = (call.function, Counts::Uniform, DType::U8.into());
            let described = StartDescription { function, root: None, counts, dtype, op: Op::Sum.into() };
            let new = NewCall { intercepted, comm: call.comm, call: described };
            // SAFETY: by the caller's contract.
            unsafe { new.begin(RequestBuffers::none(), request) }
        }
    })
}
