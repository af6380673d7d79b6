//! Broadcast and allgather. Ranks may use different types of one signature, so the data moves as bytes.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::block::Block;
use crate::buffers::{are_disjoint, check_address, is_address, read, write};
use crate::comm_cache;
use crate::intercepted::InterceptedComm;
use crate::outcome::{CallFailure, CallResult, forward, return_code};
use crate::summary::{self, ForwardReason, MpiFunction};
use std::ffi::{c_int, c_void};

/// Intercepts MPI_Bcast. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The buffer is what MPI demands of the caller.
#[inline]
pub unsafe fn bcast(buffer: *mut c_void, count: i64, dtype: Handle, root: c_int, comm: Handle) -> Option<c_int> {
    let intercepted = match comm_cache::get(comm) {
        Ok(intercepted) => intercepted,
        Err(reason) => return forward(MpiFunction::Bcast, reason, count, dtype),
    };
    let block = Block::new(intercepted.handles, count, dtype, comm);
    let Some(block) = block.filter(|_| root >= 0 && (root as usize) < intercepted.size) else {
        return forward(MpiFunction::Bcast, ForwardReason::Argument, 0, dtype);
    };
    if intercepted.selection.prefers_mpi(MpiFunction::Bcast, block.bytes()) {
        return forward(MpiFunction::Bcast, ForwardReason::Faster, count, dtype);
    }
    summary::count_intercepted(MpiFunction::Bcast, block.bytes());
    // SAFETY: by the caller's contract.
    Some(return_code(MpiFunction::Bcast, comm, unsafe { bcast_block(intercepted, buffer, &block, root as usize) }))
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

/// Intercepts MPI_Allgather. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline]
#[allow(clippy::too_many_arguments)]
pub unsafe fn allgather(
    send: *const c_void,
    send_count: i64,
    send_type: Handle,
    recv: *mut c_void,
    count: i64,
    dtype: Handle,
    comm: Handle,
) -> Option<c_int> {
    let intercepted = match comm_cache::get(comm) {
        Ok(intercepted) => intercepted,
        Err(reason) => return forward(MpiFunction::Allgather, reason, count, dtype),
    };
    let Some(block) = Block::new(intercepted.handles, count, dtype, comm) else {
        return forward(MpiFunction::Allgather, ForwardReason::Argument, 0, dtype);
    };
    if intercepted.selection.prefers_mpi(MpiFunction::Allgather, block.bytes()) {
        return forward(MpiFunction::Allgather, ForwardReason::Faster, count, dtype);
    }
    summary::count_intercepted(MpiFunction::Allgather, block.bytes());
    let result = if send == constants().in_place {
        // SAFETY: by the caller's contract.
        unsafe { allgather_block(intercepted, None, recv, block) }
    } else {
        let own = match (send_count, send_type) == (count, dtype) {
            true => Some(block),
            false => {
                Block::new(intercepted.handles, send_count, send_type, comm).filter(|own| own.bytes() == block.bytes())
            }
        };
        match own {
            // SAFETY: by the caller's contract.
            Some(own) => unsafe { allgather_block(intercepted, Some((send, own)), recv, block) },
            None => Err(CallFailure::Argument(
                constants().err_truncate,
                "the sent block is not as long as the received blocks",
            )),
        }
    };
    Some(return_code(MpiFunction::Allgather, comm, result))
}

/// # Safety
/// `own` is this rank's block, `None` in place, with its layout; `recv` has room for a block per rank.
unsafe fn allgather_block(
    intercepted: &InterceptedComm,
    own: Option<(*const c_void, Block)>,
    recv: *mut c_void,
    block: Block,
) -> CallResult {
    let (bytes, total) = (block.bytes(), block.bytes() * intercepted.size);
    let direct = block.is_dense && (is_address(recv) || total == 0);
    match &own {
        // SAFETY: by the caller's contract; bytes have no alignment and no invalid values.
        None if direct => return Ok(intercepted.comm.all_gather_in_place(unsafe { write::<u8>(recv, total) })?),
        Some((send, own)) if direct && own.is_dense && is_address(*send) && are_disjoint(*send, bytes, recv, total) => {
            // SAFETY: as above, and disjoint.
            return Ok(unsafe { intercepted.comm.all_gather_into(read::<u8>(*send, bytes), write(recv, total)) }?);
        }
        _ => {}
    }
    let mut gathered = vec![0u8; total];
    let mine = &mut gathered[intercepted.rank * bytes..(intercepted.rank + 1) * bytes];
    // SAFETY: by the caller's contract; the vector has a signature for every rank.
    unsafe {
        match &own {
            Some((send, own)) => own.copy_in(*send, mine)?,
            None => {
                let offset = block.extent()?.wrapping_mul((intercepted.rank * block.count) as isize);
                block.copy_in(recv.wrapping_byte_offset(offset), mine)?;
            }
        }
        intercepted.comm.all_gather_in_place(&mut gathered)?;
        block.with_count(block.count * intercepted.size).copy_out(&gathered, recv)
    }
}
