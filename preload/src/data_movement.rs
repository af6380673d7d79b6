//! The collectives that move data and reduce nothing: from the arguments of MPI to the blocks of both sides of a call.
//!
//! Each rank has the lengths of all blocks among its arguments where all have one length, and in MPI_Allgatherv. In MPI_Gatherv,
//! MPI_Scatterv, MPI_Alltoallv and MPI_Alltoallw each rank has those of its own blocks, and earlybird compares them.
#![allow(unsafe_code)]

use crate::abi::{Handle, RecvPtr, SendPtr, constants};
use crate::block::{Block, RankLengths};
use crate::buffers::IntArray;
use crate::call::{MpiCall, check_not_in_place};
use crate::intercepted::InterceptedComm;
use crate::row::{Row, Span};
use crate::summary::ForwardReason;
use crate::transfer::{BlockBytes, Refusal, Transfer, carry_out};
use std::ffi::c_int;

/// A buffer as three arguments of MPI describe it: its address, the count and the type of its elements, or of each of its blocks.
#[derive(Clone, Copy)]
pub struct Elements {
    at: RecvPtr,
    count: i64,
    dtype: Handle,
}

/// Describes a buffer by its arguments.
#[inline(always)]
pub fn elements(at: SendPtr, count: impl Into<i64>, dtype: Handle) -> Elements {
    Elements { at: at.cast_mut(), count: count.into(), dtype }
}

impl Elements {
    #[inline(always)]
    fn is_in_place(&self) -> bool {
        self.at == constants().in_place
    }

    /// The elements that count in the summary where the call is forwarded: none in place.
    fn counted(&self) -> i64 {
        if self.is_in_place() { 0 } else { self.count }
    }

    /// The elements, or those of one block.
    #[inline(always)]
    fn block(&self, intercepted: &InterceptedComm, call: MpiCall) -> Result<Block, ForwardReason> {
        Block::new(intercepted.handles, self.count, self.dtype, call.comm).ok_or(ForwardReason::Argument)
    }

    /// The block that this rank sends, as long as where it is received; in place it lies there.
    #[inline(always)]
    fn contribution(&self, intercepted: &InterceptedComm, (at, to): (RecvPtr, Block)) -> Result<Row, Refusal> {
        Ok(match self.is_in_place() {
            true => Row::joined(at, to),
            false => Row::joined(self.at, to.other_side(intercepted.handles, self.count, self.dtype)?),
        })
    }
}

/// A buffer with a block for each rank, as the functions whose names end in `v` or `w` describe it.
#[derive(Clone, Copy)]
pub struct UnequalBlocks {
    at: RecvPtr,
    counts: IntArray,
    offsets: IntArray,
    types: Types,
}

#[derive(Clone, Copy)]
enum Types {
    /// One for all blocks; displacements are in elements.
    One(Handle),
    /// One for each, of no meaning for an empty block; displacements are in bytes.
    PerRank(*const Handle),
}

/// Describes a buffer by the arguments of a function whose name ends in `v`.
pub fn blocks(at: SendPtr, counts: impl Into<IntArray>, offsets: impl Into<IntArray>, dtype: Handle) -> UnequalBlocks {
    UnequalBlocks { at: at.cast_mut(), counts: counts.into(), offsets: offsets.into(), types: Types::One(dtype) }
}

/// Describes a buffer by the arguments of MPI_Alltoallw.
pub fn blocks_of_types(
    at: SendPtr,
    counts: impl Into<IntArray>,
    offsets: impl Into<IntArray>,
    dtypes: *const Handle,
) -> UnequalBlocks {
    UnequalBlocks { types: Types::PerRank(dtypes), ..blocks(at, counts, offsets, constants().null_type) }
}

/// A block for each rank, and the bytes from the buffer's address to it.
type PlacedBlocks = Vec<(isize, Block)>;

impl UnequalBlocks {
    /// The type of the blocks, if they have one.
    fn dtype(&self) -> Handle {
        match self.types {
            Types::One(dtype) => dtype,
            Types::PerRank(_) => constants().null_type,
        }
    }

    /// Calls `run` with the block of each rank, and the bytes from the buffer's address to it.
    ///
    /// # Safety
    /// The arrays have an element for each rank.
    #[inline(always)]
    unsafe fn for_each(
        &self,
        intercepted: &InterceptedComm,
        call: MpiCall,
        mut run: impl FnMut(isize, Block),
    ) -> Result<(), Refusal> {
        let block = |count: i64, dtype: Handle| elements(self.at, count, dtype).block(intercepted, call);
        let (one, extent) = match self.types {
            Types::One(dtype) => {
                let one = block(1, dtype)?;
                (Some(one), one.extent()?)
            }
            Types::PerRank(_) => (None, 1),
        };
        for rank in 0..intercepted.size {
            // SAFETY: by the caller's contract.
            let (count, offset) = unsafe { (self.counts.get(rank), self.offsets.get(rank)) };
            let block = match (one, self.types) {
                (Some(one), _) => one.counted(count).ok_or(ForwardReason::Argument)?,
                // SAFETY: by the caller's contract.
                (None, Types::PerRank(dtypes)) if count != 0 => block(count, unsafe { *dtypes.add(rank) })?,
                _ => Block::EMPTY,
            };
            run(extent.wrapping_mul(offset as isize), block);
        }
        Ok(())
    }

    /// Reads the arrays.
    ///
    /// # Safety
    /// They have an element for each rank.
    unsafe fn read(&self, intercepted: &InterceptedComm, call: MpiCall) -> Result<PlacedBlocks, Refusal> {
        let mut blocks = Vec::with_capacity(intercepted.size);
        // SAFETY: by the caller's contract.
        unsafe { self.for_each(intercepted, call, |offset, block| blocks.push((offset, block)))? };
        Ok(blocks)
    }

    /// Reads the arrays as a row, and appends the bytes of each block to `bytes`. The block of this rank, and its address.
    ///
    /// # Safety
    /// They have an element for each rank.
    #[inline(always)]
    unsafe fn read_row(
        &self,
        intercepted: &InterceptedComm,
        call: MpiCall,
        bytes: &mut RankLengths,
    ) -> Result<(Row, (RecvPtr, Block)), Refusal> {
        let (mut span, mut own, mut rank) = (Span::default(), (self.at, Block::EMPTY), 0);
        let add = |offset, block: Block| {
            bytes.push(block.bytes());
            span.add(offset, &block);
            if rank == intercepted.rank {
                own = (self.at.wrapping_byte_offset(offset), block);
            }
            rank += 1;
        };
        // SAFETY: by the caller's contract.
        unsafe { self.for_each(intercepted, call, add)? };
        let row = match span.row(self.at) {
            Some(row) => row,
            // SAFETY: by the caller's contract.
            None => Row::placed(self.at, unsafe { self.read(intercepted, call)? }),
        };
        Ok((row, own))
    }
}

/// Intercepts MPI_Bcast. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The buffer is what MPI demands of the caller.
#[inline(always)]
pub unsafe fn broadcast(call: MpiCall, buffer: Elements, root: c_int) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    unsafe { carry_out(call, (buffer.count, buffer.dtype), broadcast_sides(call, buffer, root)) }
}

#[inline(always)]
fn broadcast_sides(call: MpiCall, buffer: Elements, root: c_int) -> Result<Transfer<'static>, Refusal> {
    let (intercepted, root) = call.with_root(Some(root))?;
    let block = buffer.block(intercepted, call)?;
    let row = || Row::joined(buffer.at, block);
    // Bytes are sent and received where they lie, other elements packed on the root and unpacked on the other ranks.
    let (send, recv) = match root == Some(intercepted.rank) {
        _ if block.is_dense => (row(), row()),
        true => (row(), Row::unread(block.bytes())),
        false => (Row::EMPTY, row()),
    };
    let block_bytes = BlockBytes::Uniform(block.bytes());
    Ok(Transfer { intercepted, root, block_bytes, is_in_place: block.is_dense, send, recv })
}

/// Intercepts MPI_Allgather, MPI_Gather or MPI_Scatter: `own` has this rank's block, `all` those of all ranks, on the root alone if
/// there is one. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline(always)]
pub unsafe fn equal_blocks(call: MpiCall, own: Elements, all: Elements, root: Option<c_int>) -> Option<c_int> {
    let counted = if own.is_in_place() { all } else { own };
    // SAFETY: by the caller's contract.
    unsafe { carry_out(call, (counted.count, counted.dtype), equal_sides(call, own, all, root)) }
}

#[inline(always)]
fn equal_sides(call: MpiCall, own: Elements, all: Elements, root: Option<c_int>) -> Result<Transfer<'static>, Refusal> {
    let is_in_place = own.is_in_place();
    let (intercepted, root) = call.with_root(root)?;
    if root.is_some_and(|root| root != intercepted.rank) {
        check_not_in_place(is_in_place)?;
        let block = own.block(intercepted, call)?;
        let (block_bytes, send) = (BlockBytes::Uniform(block.bytes()), Row::joined(own.at, block));
        let gather = Transfer { intercepted, root, block_bytes, is_in_place, send, recv: Row::EMPTY };
        return Ok(turned_if_scatter(call, gather));
    }
    let block = all.block(intercepted, call)?;
    let send = match is_in_place {
        true if is_scatter(call) => Row::unread(block.bytes()),
        true => Row::joined(block.nth(all.at, intercepted.rank)?, block),
        false => Row::joined(own.at, block.other_side(intercepted.handles, own.count, own.dtype)?),
    };
    let recv = Row::joined(all.at, block.times(intercepted.size));
    let block_bytes = BlockBytes::Uniform(block.bytes());
    Ok(turned_if_scatter(call, Transfer { intercepted, root, block_bytes, is_in_place, send, recv }))
}

/// Intercepts MPI_Gatherv or MPI_Scatterv: the root has the lengths of all blocks, every other rank that of its own. A rank whose arguments
/// are invalid takes part with no bytes, since the others cannot know, and then forwards its call to learn MPI's error. Returns `None`
/// for a call that is forwarded.
///
/// # Safety
/// The buffers and arrays are what MPI demands of the caller.
pub unsafe fn unequal_blocks_at_root(call: MpiCall, own: Elements, all: UnequalBlocks, root: c_int) -> Option<c_int> {
    let mut bytes = RankLengths::new();
    // SAFETY: by the caller's contract.
    unsafe { carry_out(call, (own.counted(), own.dtype), sides_at_root(call, own, all, root, &mut bytes)) }
}

/// # Safety
/// The contract of `unequal_blocks_at_root`.
#[inline(always)]
unsafe fn sides_at_root<'a>(
    call: MpiCall,
    own: Elements,
    all: UnequalBlocks,
    root: c_int,
    bytes: &'a mut RankLengths,
) -> Result<Transfer<'a>, Refusal> {
    let (intercepted, root) = call.with_root(Some(root))?;
    if intercepted.selection.always_prefers_mpi(call.function) {
        return Err(ForwardReason::Faster.into());
    }
    let is_in_place = own.is_in_place();
    // SAFETY: by the caller's contract.
    match unsafe { sides_of_owner(call, intercepted, (own, all), root, bytes) } {
        Ok((block_bytes, send, recv)) => {
            Ok(turned_if_scatter(call, Transfer { intercepted, root, block_bytes, is_in_place, send, recv }))
        }
        Err(refusal) => {
            if call.request.is_none() {
                take_part_with_no_bytes(call, intercepted, root);
            }
            Err(refusal)
        }
    }
}

/// The sides of a gather: the block of this rank, and on the root those of all.
///
/// # Safety
/// The contract of `unequal_blocks_at_root`.
#[inline(always)]
unsafe fn sides_of_owner<'a>(
    call: MpiCall,
    intercepted: &InterceptedComm,
    (own, all): (Elements, UnequalBlocks),
    root: Option<usize>,
    bytes: &'a mut RankLengths,
) -> Result<(BlockBytes<'a>, Row, Row), Refusal> {
    let is_in_place = own.is_in_place();
    if root != Some(intercepted.rank) {
        check_not_in_place(is_in_place)?;
        let block = own.block(intercepted, call)?;
        return Ok((BlockBytes::Own(block.bytes()), Row::joined(own.at, block), Row::EMPTY));
    }
    // SAFETY: by the caller's contract.
    let (all, mine) = unsafe { all.read_row(intercepted, call, bytes)? };
    let own = match is_in_place && is_scatter(call) {
        true => Row::unread(mine.1.bytes()),
        false => own.contribution(intercepted, mine)?,
    };
    Ok((BlockBytes::PerOwner(bytes), own, all))
}

/// Makes the call of a rank whose arguments are invalid. That others send or expect some is no error to tell of.
#[cold]
fn take_part_with_no_bytes(call: MpiCall, intercepted: &'static InterceptedComm, root: Option<usize>) {
    let (no_bytes, [send, recv]) = (vec![0; intercepted.size], [Row::EMPTY; 2]);
    let block_bytes = BlockBytes::PerOwner(&no_bytes);
    let nothing = Transfer { intercepted, root, block_bytes, is_in_place: false, send, recv };
    // SAFETY: no bytes are sent or received.
    let _ = unsafe { nothing.run(call.collective()) };
}

/// Intercepts MPI_Allgatherv. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The buffers and arrays are what MPI demands of the caller.
pub unsafe fn all_gather_unequal(call: MpiCall, own: Elements, all: UnequalBlocks) -> Option<c_int> {
    let mut bytes = RankLengths::new();
    // SAFETY: by the caller's contract.
    unsafe { carry_out(call, (own.counted(), own.dtype), unequal_sides(call, own, all, &mut bytes)) }
}

/// # Safety
/// The contract of `all_gather_unequal`.
#[inline(always)]
unsafe fn unequal_sides<'a>(
    call: MpiCall,
    own: Elements,
    all: UnequalBlocks,
    bytes: &'a mut RankLengths,
) -> Result<Transfer<'a>, Refusal> {
    let intercepted = call.intercepted()?;
    // SAFETY: by the caller's contract.
    let (recv, mine) = unsafe { all.read_row(intercepted, call, bytes)? };
    let (send, block_bytes) = (own.contribution(intercepted, mine)?, BlockBytes::PerRank(bytes));
    Ok(Transfer { intercepted, root: None, block_bytes, is_in_place: own.is_in_place(), send, recv })
}

#[inline(always)]
fn is_scatter(call: MpiCall) -> bool {
    call.collective().traits().in_parts
}

/// Turns a gather round, if the call is a scatter. In place the root's own block is not moved.
#[inline(always)]
fn turned_if_scatter(call: MpiCall, gather: Transfer<'_>) -> Transfer<'_> {
    match is_scatter(call) {
        true => Transfer { is_in_place: false, send: gather.recv, recv: gather.send, ..gather },
        false => gather,
    }
}

/// Intercepts MPI_Alltoall. Returns `None` for a call that is forwarded.
///
/// # Safety
/// The buffers are what MPI demands of the caller.
#[inline(always)]
pub unsafe fn alltoall(call: MpiCall, send: Elements, recv: Elements) -> Option<c_int> {
    // SAFETY: by the caller's contract.
    unsafe { carry_out(call, (recv.count, recv.dtype), alltoall_sides(call, send, recv)) }
}

#[inline(always)]
fn alltoall_sides(call: MpiCall, send: Elements, recv: Elements) -> Result<Transfer<'static>, Refusal> {
    let intercepted = call.intercepted()?;
    let received = recv.block(intercepted, call)?;
    let is_in_place = send.is_in_place();
    let (from, sent) = match is_in_place {
        true => (recv.at, received),
        false => (send.at, received.other_side(intercepted.handles, send.count, send.dtype)?),
    };
    let send = Row::joined(from, sent.times(intercepted.size));
    let recv = Row::joined(recv.at, received.times(intercepted.size));
    let block_bytes = BlockBytes::Uniform(received.bytes());
    Ok(Transfer { intercepted, root: None, block_bytes, is_in_place, send, recv })
}

/// Intercepts MPI_Alltoallv or MPI_Alltoallw. With MPI_IN_PLACE the blocks to send are those that are replaced. Returns `None` for a
/// call that is forwarded.
///
/// # Safety
/// The buffers and arrays are what MPI demands of the caller.
pub unsafe fn alltoall_unequal(call: MpiCall, send: UnequalBlocks, recv: UnequalBlocks) -> Option<c_int> {
    let mut bytes = RankLengths::new();
    // SAFETY: by the caller's contract.
    unsafe { carry_out(call, (0, send.dtype()), sides_of_pairs(call, send, recv, &mut bytes)) }
}

/// # Safety
/// The contract of `alltoall_unequal`.
#[inline(always)]
unsafe fn sides_of_pairs<'a>(
    call: MpiCall,
    send: UnequalBlocks,
    recv: UnequalBlocks,
    bytes: &'a mut RankLengths,
) -> Result<Transfer<'a>, Refusal> {
    let intercepted = call.intercepted()?;
    let sent = if send.at == constants().in_place { recv } else { send };
    // SAFETY: by the caller's contract.
    let (send, recv) = unsafe {
        let (send, _) = sent.read_row(intercepted, call, bytes)?;
        (send, recv.read_row(intercepted, call, bytes)?.0)
    };
    let block_bytes = BlockBytes::PerPair(bytes);
    Ok(Transfer { intercepted, root: None, block_bytes, is_in_place: false, send, recv })
}
