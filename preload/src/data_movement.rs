//! Broadcast, and the other collectives whose blocks have one length on all ranks and that reduce nothing.
#![allow(unsafe_code)]

use crate::abi::{Handle, RecvPtr, SendPtr, constants};
use crate::block::Block;
use crate::buffers::{check_address, write};
use crate::form::Form;
use crate::functions::MpiFunction;
use crate::intercepted::InterceptedComm;
use crate::non_blocking::{LentBuffers, NewCall};
use crate::outcome::{CallResult, forward, return_code};
use crate::row::{CallMemory, Row};
use crate::summary::{self, ForwardReason};
use crate::transfer::{BlockBytes, Transfer, block, carry_out, check_not_in_place, rooted};
use earlybird::{Counts, DType, Op};
use std::ffi::{c_int, c_void};

/// Intercepts MPI_Bcast. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The buffer is what MPI demands of the caller.
#[inline(always)]
pub unsafe fn bcast(
    buffer: RecvPtr,
    count: impl Into<i64>,
    dtype: Handle,
    root: c_int,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let (call, count) = (form.of(MpiFunction::Bcast), count.into());
    let (intercepted, root, block) = match rooted(root, comm, form)
        .and_then(|(intercepted, root)| Ok((intercepted, root, block(intercepted, count, dtype, comm)?)))
    {
        Ok(found) => found,
        Err(ForwardReason::Argument) => return forward(call, ForwardReason::Argument, 0, dtype),
        Err(reason) => return forward(call, reason, count, dtype),
    };
    if intercepted.selection.prefers_mpi(call, block.bytes()) {
        return forward(call, ForwardReason::Faster, count, dtype);
    }
    summary::count_intercepted(call, block.bytes());
    // SAFETY: by the caller's contract.
    let result = unsafe {
        match form {
            Form::Blocking => bcast_block(intercepted, buffer, &block, root),
            Form::NonBlocking(request) => start_bcast((intercepted, comm), buffer, block, root, request),
        }
    };
    Some(return_code(call, comm, result))
}

/// # Safety
/// `buffer` has the elements.
unsafe fn bcast_block(intercepted: &InterceptedComm, buffer: *mut c_void, block: &Block, root: usize) -> CallResult {
    let root_process = intercepted.comm.process_at_rank(root);
    if block.is_dense {
        check_address(buffer, block.bytes())?;
        // SAFETY: by the caller's contract; bytes have no alignment and no invalid values.
        return Ok(root_process.broadcast_into(unsafe { write::<u8>(buffer, block.bytes()) })?);
    }
    let mut packed = vec![0u8; block.bytes()];
    // SAFETY: by the caller's contract; `packed` is as long as the signature.
    unsafe {
        if root == intercepted.rank {
            block.copy_in(buffer, &mut packed)?;
        }
        root_process.broadcast_into(&mut packed)?;
        if root != intercepted.rank {
            block.copy_out(&packed, buffer)?;
        }
    }
    Ok(())
}

/// # Safety
/// `buffer` has the elements until the call has ended; `request` is where the caller wants the request.
#[cold]
unsafe fn start_bcast(
    (intercepted, comm): (&'static InterceptedComm, Handle),
    buffer: *mut c_void,
    block: Block,
    root: usize,
    request: *mut Handle,
) -> CallResult {
    let is_root = root == intercepted.rank;
    let (mut recv, mut deliver_to) = Row::joined(buffer, block).lend()?;
    if let CallMemory::Own(packed) = &mut recv
        && is_root
    {
        // SAFETY: by the caller's contract; `packed` is as long as the signature.
        unsafe { block.copy_in(buffer, packed)? };
        deliver_to = None;
    }
    let (function, counts) = (MpiFunction::Ibcast, Counts::Uniform);
    let call = NewCall { intercepted, function, comm, root: Some(root), counts, dtype: DType::U8, op: Op::Sum };
    // SAFETY: by the caller's contract.
    unsafe { call.start(LentBuffers { send: None, recv, deliver_to }, request) }
}

/// Intercepts MPI_Allgather. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn allgather(
    send: SendPtr,
    n: impl Into<i64>,
    dtype: Handle,
    recv: RecvPtr,
    m: impl Into<i64>,
    recv_type: Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let (n, m) = (n.into(), m.into());
    let transfer = || {
        let intercepted = form.comm(comm)?;
        let received = block(intercepted, m, recv_type, comm)?;
        let is_in_place = send == constants().in_place;
        let send = match is_in_place {
            true => Row::joined(received.nth(recv, intercepted.rank)?, received),
            false => Row::joined(send.cast_mut(), received.or_equal(intercepted.handles, n, dtype)?),
        };
        let recv = Row::joined(recv, received.times(intercepted.size));
        let block_bytes = BlockBytes::Uniform(received.bytes());
        Ok(Transfer { intercepted, root: None, block_bytes, is_in_place, send, recv })
    };
    // SAFETY: by the caller's contract.
    unsafe { carry_out(MpiFunction::Allgather, comm, (m, recv_type), transfer(), form) }
}

/// Intercepts MPI_Alltoall. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The contract of `allgather`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn alltoall(
    send: SendPtr,
    n: impl Into<i64>,
    dtype: Handle,
    recv: RecvPtr,
    m: impl Into<i64>,
    recv_type: Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let (n, m) = (n.into(), m.into());
    let transfer = || {
        let intercepted = form.comm(comm)?;
        let received = block(intercepted, m, recv_type, comm)?;
        let is_in_place = send == constants().in_place;
        let (sent, from) = match is_in_place {
            true => (received, recv),
            false => (received.or_equal(intercepted.handles, n, dtype)?, send.cast_mut()),
        };
        let send = Row::joined(from, sent.times(intercepted.size));
        let recv = Row::joined(recv, received.times(intercepted.size));
        let block_bytes = BlockBytes::Uniform(received.bytes());
        Ok(Transfer { intercepted, root: None, block_bytes, is_in_place, send, recv })
    };
    // SAFETY: by the caller's contract.
    unsafe { carry_out(MpiFunction::Alltoall, comm, (m, recv_type), transfer(), form) }
}

/// Intercepts MPI_Gather. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The contract of `allgather`; `recv` and its type on the root only.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn gather(
    send: SendPtr,
    n: impl Into<i64>,
    dtype: Handle,
    recv: RecvPtr,
    m: impl Into<i64>,
    recv_type: Handle,
    root: c_int,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let (n, m) = (n.into(), m.into());
    let is_in_place = send == constants().in_place;
    // Each rank knows the length of the blocks from what MPI lets it know.
    let known = if is_in_place { (m, recv_type) } else { (n, dtype) };
    let transfer = || {
        let (intercepted, root) = rooted(root, comm, form)?;
        if root != intercepted.rank {
            check_not_in_place(is_in_place)?;
            let sent = block(intercepted, n, dtype, comm)?;
            let (block_bytes, send) = (BlockBytes::Uniform(sent.bytes()), Row::joined(send.cast_mut(), sent));
            return Ok(Transfer { intercepted, root: Some(root), block_bytes, is_in_place, send, recv: Row::EMPTY });
        }
        let received = block(intercepted, m, recv_type, comm)?;
        let send = match is_in_place {
            true => Row::joined(received.nth(recv, root)?, received),
            false => Row::joined(send.cast_mut(), received.or_equal(intercepted.handles, n, dtype)?),
        };
        let recv = Row::joined(recv, received.times(intercepted.size));
        let block_bytes = BlockBytes::Uniform(received.bytes());
        Ok(Transfer { intercepted, root: Some(root), block_bytes, is_in_place, send, recv })
    };
    // SAFETY: by the caller's contract.
    unsafe { carry_out(MpiFunction::Gather, comm, known, transfer(), form) }
}

/// Intercepts MPI_Scatter. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The contract of `allgather`; `send` and its type on the root only.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn scatter(
    send: SendPtr,
    n: impl Into<i64>,
    dtype: Handle,
    recv: RecvPtr,
    m: impl Into<i64>,
    recv_type: Handle,
    root: c_int,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let (n, m) = (n.into(), m.into());
    let is_in_place = recv == constants().in_place;
    let known = if is_in_place { (n, dtype) } else { (m, recv_type) };
    let transfer = || {
        let (intercepted, root) = rooted(root, comm, form)?;
        if root != intercepted.rank {
            check_not_in_place(is_in_place)?;
            let received = block(intercepted, m, recv_type, comm)?;
            let (block_bytes, recv) = (BlockBytes::Uniform(received.bytes()), Row::joined(recv, received));
            return Ok(Transfer { intercepted, root: Some(root), block_bytes, is_in_place, send: Row::EMPTY, recv });
        }
        let sent = block(intercepted, n, dtype, comm)?;
        let recv = match is_in_place {
            // The root's own block stays where it is.
            true => Row::unread(sent.bytes()),
            false => Row::joined(recv, sent.or_equal(intercepted.handles, m, recv_type)?),
        };
        let block_bytes = BlockBytes::Uniform(sent.bytes());
        let send = Row::joined(send.cast_mut(), sent.times(intercepted.size));
        Ok(Transfer { intercepted, root: Some(root), block_bytes, is_in_place: false, send, recv })
    };
    // SAFETY: by the caller's contract.
    unsafe { carry_out(MpiFunction::Scatter, comm, known, transfer(), form) }
}
