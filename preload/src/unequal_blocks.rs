//! The collectives of blocks of different lengths, whose names end in `v` or `w`, without those that reduce.
//!
//! Lengths must be known to all ranks. MPI tells them to all in MPI_Allgatherv. In MPI_Gatherv and MPI_Scatterv only the root knows
//! them and whether they are valid, and broadcasts both first. In MPI_Alltoallv each rank knows its own, which earlybird compares.
#![allow(unsafe_code)]

use crate::abi::{Handle, RecvPtr, SendPtr, constants};
use crate::block::{Block, unequal_sides};
use crate::form::Form;
use crate::functions::MpiFunction;
use crate::intercepted::InterceptedComm;
use crate::row::Row;
use crate::summary::ForwardReason;
use crate::transfer::{BlockBytes, Refusal, Transfer, block, carry_out, check_not_in_place, rooted};
use std::ffi::{c_int, c_void};

/// A block for each rank, and the bytes from the buffer's address to it.
type PlacedBlocks = Vec<(isize, Block)>;

/// Reads the arguments that describe a block for each rank: counts, displacements in elements, one type.
///
/// # Safety
/// The arrays have an element for each rank.
unsafe fn placed_blocks<C: Into<i64> + Copy>(
    intercepted: &InterceptedComm,
    counts: *const C,
    offsets: *const C,
    dtype: Handle,
    comm: Handle,
) -> Result<PlacedBlocks, Refusal> {
    let mut blocks = Vec::with_capacity(intercepted.size);
    let one = block(intercepted, 1, dtype, comm)?;
    let extent = one.extent()?;
    for rank in 0..intercepted.size {
        // SAFETY: by the caller's contract.
        let (count, offset): (i64, i64) = unsafe { ((*counts.add(rank)).into(), (*offsets.add(rank)).into()) };
        blocks.push((extent.wrapping_mul(offset as isize), block(intercepted, count, dtype, comm)?));
    }
    Ok(blocks)
}

/// Reads the arguments of MPI_Alltoallw: counts, displacements in bytes, a type for each rank, of no meaning for an empty block.
///
/// # Safety
/// The contract of `placed_blocks`.
unsafe fn placed_blocks_of_types<C: Into<i64> + Copy>(
    intercepted: &InterceptedComm,
    counts: *const C,
    offsets: *const C,
    dtypes: *const Handle,
    comm: Handle,
) -> Result<PlacedBlocks, Refusal> {
    let each = (0..intercepted.size).map(|rank| {
        // SAFETY: by the caller's contract.
        let (count, offset, dtype) =
            unsafe { ((*counts.add(rank)).into(), (*offsets.add(rank)).into(), *dtypes.add(rank)) };
        let block = if count == 0 { Block::EMPTY } else { block(intercepted, count, dtype, comm)? };
        Ok((offset as isize, block))
    });
    each.collect()
}

fn bytes_of(blocks: &PlacedBlocks) -> Vec<usize> {
    blocks.iter().map(|(_, block)| block.bytes()).collect()
}

/// The block of one rank, at its place.
fn row_of(at: *mut c_void, (offset, block): (isize, Block)) -> Row {
    Row::joined(at.wrapping_byte_offset(offset), block)
}

/// The own block of a rank that sends or receives one, of which the other side says that it has `expected` bytes.
fn own_row(
    intercepted: &InterceptedComm,
    at: *mut c_void,
    (count, dtype, comm): (i64, Handle, Handle),
    expected: usize,
) -> Result<Row, Refusal> {
    let own = block(intercepted, count, dtype, comm)?;
    match own.bytes() == expected {
        true => Ok(Row::joined(at, own)),
        false => Err(unequal_sides().into()),
    }
}

/// Broadcasts the bytes of each rank's block from the root, which alone has the arguments; an error of theirs becomes every rank's.
fn agree_on_bytes(
    intercepted: &InterceptedComm,
    root: usize,
    blocks: Option<Result<PlacedBlocks, Refusal>>,
) -> Result<(Vec<usize>, PlacedBlocks), Refusal> {
    let mut words = vec![0u64; intercepted.size + 1];
    let blocks = match blocks {
        Some(Ok(blocks)) => {
            words.iter_mut().zip(&blocks).for_each(|(word, (_, block))| *word = block.bytes() as u64);
            blocks
        }
        Some(Err(_)) => {
            words[intercepted.size] = 1;
            Vec::new()
        }
        None => Vec::new(),
    };
    let told = intercepted.comm.process_at_rank(root).broadcast_into(&mut words);
    told.map_err(|error| Refusal::Failed(error.into()))?;
    match words.pop() {
        Some(0) => Ok((words.into_iter().map(|bytes| bytes as usize).collect(), blocks)),
        _ => Err(ForwardReason::Argument.into()),
    }
}

/// Intercepts MPI_Allgatherv. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The buffers and arrays are what MPI demands of the caller.
#[allow(clippy::too_many_arguments)]
pub unsafe fn allgatherv<C: Into<i64> + Copy>(
    send: SendPtr,
    n: C,
    dtype: Handle,
    recv: RecvPtr,
    counts: *const C,
    offsets: *const C,
    recv_type: Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    let transfer = || {
        let intercepted = form.comm(comm)?;
        // SAFETY: by the caller's contract.
        let blocks = unsafe { placed_blocks(intercepted, counts, offsets, recv_type, comm)? };
        let (own, bytes) = (blocks[intercepted.rank], bytes_of(&blocks));
        let is_in_place = send == constants().in_place;
        let send = match is_in_place {
            true => row_of(recv, own),
            false => own_row(intercepted, send.cast_mut(), (n.into(), dtype, comm), own.1.bytes())?,
        };
        let (block_bytes, recv) = (BlockBytes::PerRank(bytes), Row::placed(recv, blocks));
        Ok(Transfer { intercepted, root: None, block_bytes, is_in_place, send, recv })
    };
    // SAFETY: by the caller's contract.
    unsafe { carry_out(MpiFunction::Allgatherv, comm, (n.into(), dtype), transfer(), form) }
}

/// Intercepts MPI_Gatherv. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The contract of `allgatherv`; `recv`, its arrays and its type on the root only.
#[allow(clippy::too_many_arguments)]
pub unsafe fn gatherv<C: Into<i64> + Copy>(
    send: SendPtr,
    n: C,
    dtype: Handle,
    recv: RecvPtr,
    counts: *const C,
    offsets: *const C,
    recv_type: Handle,
    root: c_int,
    comm: Handle,
) -> Option<c_int> {
    let is_in_place = send == constants().in_place;
    let transfer = || {
        let (intercepted, root) = rooted(root, comm, Form::Blocking)?;
        if intercepted.selection.always_prefers_mpi(MpiFunction::Gatherv) {
            return Err(ForwardReason::Faster.into());
        }
        let is_root = root == intercepted.rank;
        // SAFETY: by the caller's contract.
        let blocks = is_root.then(|| unsafe { placed_blocks(intercepted, counts, offsets, recv_type, comm) });
        let (bytes, blocks) = agree_on_bytes(intercepted, root, blocks)?;
        check_not_in_place(is_in_place && !is_root)?;
        let send = match is_in_place {
            true => row_of(recv, blocks[root]),
            false => own_row(intercepted, send.cast_mut(), (n.into(), dtype, comm), bytes[intercepted.rank])?,
        };
        let recv = if is_root { Row::placed(recv, blocks) } else { Row::EMPTY };
        let block_bytes = BlockBytes::PerRank(bytes);
        Ok(Transfer { intercepted, root: Some(root), block_bytes, is_in_place, send, recv })
    };
    // SAFETY: by the caller's contract.
    unsafe {
        let known = (if is_in_place { 0 } else { n.into() }, dtype);
        carry_out(MpiFunction::Gatherv, comm, known, transfer(), Form::Blocking)
    }
}

/// Intercepts MPI_Scatterv. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The contract of `allgatherv`; `send`, its arrays and its type on the root only.
#[allow(clippy::too_many_arguments)]
pub unsafe fn scatterv<C: Into<i64> + Copy>(
    send: SendPtr,
    counts: *const C,
    offsets: *const C,
    dtype: Handle,
    recv: RecvPtr,
    m: C,
    recv_type: Handle,
    root: c_int,
    comm: Handle,
) -> Option<c_int> {
    let is_in_place = recv == constants().in_place;
    let transfer = || {
        let (intercepted, root) = rooted(root, comm, Form::Blocking)?;
        if intercepted.selection.always_prefers_mpi(MpiFunction::Scatterv) {
            return Err(ForwardReason::Faster.into());
        }
        let is_root = root == intercepted.rank;
        // SAFETY: by the caller's contract.
        let blocks = is_root.then(|| unsafe { placed_blocks(intercepted, counts, offsets, dtype, comm) });
        let (bytes, blocks) = agree_on_bytes(intercepted, root, blocks)?;
        check_not_in_place(is_in_place && !is_root)?;
        let own = bytes[intercepted.rank];
        let recv = match is_in_place {
            true => Row::unread(own),
            false => own_row(intercepted, recv, (m.into(), recv_type, comm), own)?,
        };
        let send = if is_root { Row::placed(send.cast_mut(), blocks) } else { Row::EMPTY };
        let block_bytes = BlockBytes::PerRank(bytes);
        Ok(Transfer { intercepted, root: Some(root), block_bytes, is_in_place: false, send, recv })
    };
    // SAFETY: by the caller's contract.
    unsafe {
        let known = (if is_in_place { 0 } else { m.into() }, recv_type);
        carry_out(MpiFunction::Scatterv, comm, known, transfer(), Form::Blocking)
    }
}

/// Intercepts MPI_Alltoallv. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The contract of `allgatherv`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn alltoallv<C: Into<i64> + Copy>(
    send: SendPtr,
    send_counts: *const C,
    send_offsets: *const C,
    dtype: Handle,
    recv: RecvPtr,
    counts: *const C,
    offsets: *const C,
    recv_type: Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let transfer = unsafe {
        exchange_of_pairs(
            (send, recv),
            (comm, form),
            |intercepted| placed_blocks(intercepted, send_counts, send_offsets, dtype, comm),
            |intercepted| placed_blocks(intercepted, counts, offsets, recv_type, comm),
        )
    };
    // SAFETY: by the caller's contract.
    unsafe { carry_out(MpiFunction::Alltoallv, comm, (0, dtype), transfer, form) }
}

/// Intercepts MPI_Alltoallw. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The contract of `allgatherv`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn alltoallw<C: Into<i64> + Copy>(
    send: SendPtr,
    send_counts: *const C,
    send_offsets: *const C,
    dtypes: *const Handle,
    recv: RecvPtr,
    counts: *const C,
    offsets: *const C,
    recv_types: *const Handle,
    comm: Handle,
    form: Form,
) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    let transfer = unsafe {
        exchange_of_pairs(
            (send, recv),
            (comm, form),
            |intercepted| placed_blocks_of_types(intercepted, send_counts, send_offsets, dtypes, comm),
            |intercepted| placed_blocks_of_types(intercepted, counts, offsets, recv_types, comm),
        )
    };
    // SAFETY: by the caller's contract.
    unsafe { carry_out(MpiFunction::Alltoallw, comm, (0, constants().null_type), transfer, form) }
}

/// The exchange of a block between every two ranks. With MPI_IN_PLACE the blocks to send are those that are replaced.
fn exchange_of_pairs(
    (send, recv): (SendPtr, RecvPtr),
    (comm, form): (Handle, Form),
    sent: impl FnOnce(&InterceptedComm) -> Result<PlacedBlocks, Refusal>,
    received: impl FnOnce(&InterceptedComm) -> Result<PlacedBlocks, Refusal>,
) -> Result<Transfer, Refusal> {
    let intercepted = form.comm(comm)?;
    let received = received(intercepted)?;
    let (from, sent) = match send == constants().in_place {
        true => (recv, received.clone()),
        false => (send.cast_mut(), sent(intercepted)?),
    };
    let block_bytes = BlockBytes::PerPair([bytes_of(&sent), bytes_of(&received)]);
    let (send, recv) = (Row::placed(from, sent), Row::placed(recv, received));
    Ok(Transfer { intercepted, root: None, block_bytes, is_in_place: false, send, recv })
}
