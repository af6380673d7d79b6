//! Collectives that move data and reduce nothing: the blocks of each side in the caller's memory, and how a call on them is carried out.
//! Ranks may use different types of one signature, so the data moves as bytes.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::block::{Block, per_rank};
use crate::buffers::{are_disjoint, is_address, read, write};
use crate::comm_cache;
use crate::functions::MpiFunction;
use crate::intercepted::InterceptedComm;
use crate::outcome::{CallFailure, CallResult, forward, return_code};
use crate::scratch::Scratch;
use crate::selection::Selection;
use crate::summary::{self, ForwardReason};
use earlybird::{CallBuffers, CollectiveArgs, Counts, DType, Op};
use std::ffi::{c_int, c_void};
use std::ops::Deref;
use std::ptr;

/// The reason why a call does not begin.
pub enum Refusal {
    Forward(ForwardReason),
    Failed(CallFailure),
}

impl From<ForwardReason> for Refusal {
    fn from(reason: ForwardReason) -> Self {
        Refusal::Forward(reason)
    }
}

impl From<CallFailure> for Refusal {
    fn from(failure: CallFailure) -> Self {
        Refusal::Failed(failure)
    }
}

/// One side of a call: blocks in the caller's memory, in the order of the ranks.
pub struct Row {
    at: *mut c_void,
    blocks: RowBlocks,
    /// Bytes of all signatures.
    bytes: usize,
    /// True if the bytes of all signatures follow one another in memory.
    is_contiguous: bool,
}

enum RowBlocks {
    /// Blocks that follow one another, as one.
    Joined(Option<Block>),
    /// Blocks, and the bytes from the address to each.
    Placed(Vec<(isize, Block)>),
}

/// The bytes of all signatures of a row.
enum RowBytes<'a> {
    Borrowed(&'a [u8]),
    Packed(Scratch),
}

impl Deref for RowBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            RowBytes::Borrowed(bytes) => bytes,
            RowBytes::Packed(bytes) => bytes,
        }
    }
}

impl Row {
    /// No blocks.
    pub const EMPTY: Row = Row { at: ptr::null_mut(), blocks: RowBlocks::Joined(None), bytes: 0, is_contiguous: true };

    /// Elements that follow one another.
    #[inline]
    pub fn joined(at: *mut c_void, block: Block) -> Row {
        Row { at, bytes: block.bytes(), is_contiguous: block.is_dense, blocks: RowBlocks::Joined(Some(block)) }
    }

    /// Blocks at distances from an address.
    pub fn placed(at: *mut c_void, blocks: Vec<(isize, Block)>) -> Row {
        let mut filled = blocks.iter().filter(|(_, block)| block.bytes() > 0).peekable();
        let first = filled.peek().map_or(0, |(offset, _)| *offset);
        let mut end = first;
        let is_contiguous = filled.all(|(offset, block)| {
            let follows = block.is_dense && *offset == end;
            end = offset.wrapping_add_unsigned(block.bytes());
            follows
        });
        let bytes = blocks.iter().map(|(_, block)| block.bytes()).sum();
        match is_contiguous && bytes > 0 && is_address(at) {
            // The address of the first byte; the blocks are of no more interest.
            true => Row { at: at.wrapping_byte_offset(first), blocks: RowBlocks::Joined(None), bytes, is_contiguous },
            false => Row { at, blocks: RowBlocks::Placed(blocks), bytes, is_contiguous: bytes == 0 },
        }
    }

    /// A block of `bytes` bytes in `memory` that nobody reads.
    pub fn unread(memory: &mut Vec<u8>, bytes: usize) -> Row {
        memory.resize(bytes, 0);
        Row::joined(memory.as_mut_ptr().cast(), Block { count: bytes, ..Block::EMPTY })
    }

    #[inline]
    fn is_borrowable(&self) -> bool {
        self.bytes == 0 || self.is_contiguous && is_address(self.at)
    }

    /// The bytes of all signatures: borrowed where they follow one another, else packed.
    ///
    /// # Safety
    /// The blocks are what MPI demands of the caller, and live as long as the result.
    unsafe fn to_bytes<'a>(&self) -> Result<RowBytes<'a>, CallFailure> {
        if self.is_borrowable() {
            // SAFETY: by the caller's contract.
            return Ok(RowBytes::Borrowed(unsafe { read(self.at, self.bytes) }));
        }
        let mut packed = Scratch::new(self.bytes);
        let mut rest = &mut packed[..];
        self.for_each(|at, block| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(block.bytes());
            rest = others;
            // SAFETY: by the caller's contract.
            unsafe { block.copy_in(at, own) }
        })?;
        Ok(RowBytes::Packed(packed))
    }

    /// Copies or unpacks the bytes of all signatures to the blocks.
    ///
    /// # Safety
    /// The blocks are what MPI demands of the caller.
    unsafe fn unpack(&self, mut from: &[u8]) -> CallResult {
        self.for_each(|at, block| {
            let (own, others) = from.split_at(block.bytes());
            from = others;
            // SAFETY: by the caller's contract.
            unsafe { block.copy_out(own, at) }
        })
    }

    /// Calls `run` with each block that has bytes, and its address.
    fn for_each(&self, mut run: impl FnMut(*mut c_void, &Block) -> CallResult) -> CallResult {
        match &self.blocks {
            RowBlocks::Joined(None) => {
                let block = Block { count: self.bytes, ..Block::EMPTY };
                run(self.at, &block)
            }
            RowBlocks::Joined(Some(block)) => run(self.at, block),
            RowBlocks::Placed(blocks) => {
                let mut filled = blocks.iter().filter(|(_, block)| block.bytes() > 0);
                filled.try_for_each(|(offset, block)| run(self.at.wrapping_byte_offset(*offset), block))
            }
        }
    }
}

/// Bytes of the blocks.
pub enum BlockBytes {
    Uniform(usize),
    /// Of each rank's block, the same on all ranks.
    PerRank(Vec<usize>),
    /// To each rank, and from each.
    PerPair([Vec<usize>; 2]),
}

impl BlockBytes {
    #[inline]
    fn counts(&self) -> Counts<'_> {
        match self {
            BlockBytes::Uniform(_) => Counts::Uniform,
            BlockBytes::PerRank(bytes) => per_rank(bytes),
            BlockBytes::PerPair([send, recv]) => Counts::PerPair { send, recv },
        }
    }

    /// Returns whether the call is forwarded to MPI: by its largest block, or, where no rank knows all blocks, by the function alone.
    #[inline]
    fn prefer_mpi(&self, call: MpiFunction, selection: &Selection) -> bool {
        match self {
            BlockBytes::PerPair(_) => selection.always_prefers_mpi(call),
            _ => selection.prefers_mpi(call, self.counted()),
        }
    }

    /// Bytes of the largest block; of all blocks to send where each pair of ranks has its own.
    #[inline]
    fn counted(&self) -> usize {
        match self {
            BlockBytes::Uniform(bytes) => *bytes,
            BlockBytes::PerRank(bytes) => bytes.iter().copied().max().unwrap_or(0),
            BlockBytes::PerPair([send, _]) => send.iter().sum(),
        }
    }
}

/// An intercepted call that moves data.
pub struct Transfer {
    pub intercepted: &'static InterceptedComm,
    pub root: Option<usize>,
    pub block_bytes: BlockBytes,
    /// True if the blocks to send lie in `recv`; `send` has them too.
    pub is_in_place: bool,
    pub send: Row,
    pub recv: Row,
}

impl Transfer {
    /// Carries out the call: on the caller's memory where blocks follow one another and are apart, else on copies.
    ///
    /// # Safety
    /// Both rows are what MPI demands of the caller.
    #[inline]
    unsafe fn run(&self, call: MpiFunction) -> CallResult {
        let (send, recv) = (&self.send, &self.recv);
        let run = |send: Option<&[u8]>, recv: &mut [u8]| {
            let buffers = CallBuffers::of_bytes(send, recv, DType::U8.into());
            let counts = self.block_bytes.counts();
            let args = CollectiveArgs::describe(call.collective(), self.root, counts, buffers, Op::Sum);
            self.intercepted.comm.run(args)
        };
        if self.is_in_place && recv.is_borrowable() {
            // SAFETY: by the caller's contract; bytes have no alignment and no invalid values.
            return Ok(run(None, unsafe { write(recv.at, recv.bytes) })?);
        }
        // SAFETY: by the caller's contract.
        let sent = unsafe { send.to_bytes()? };
        let is_apart = matches!(sent, RowBytes::Packed(_)) || are_disjoint(send.at, send.bytes, recv.at, recv.bytes);
        if recv.is_borrowable() && is_apart {
            // SAFETY: as above, and disjoint.
            return Ok(run(Some(&sent), unsafe { write(recv.at, recv.bytes) })?);
        }
        let mut received = Scratch::new(recv.bytes);
        run(Some(&sent), &mut received)?;
        // SAFETY: by the caller's contract.
        unsafe { recv.unpack(&received) }
    }
}

/// Runs a call that moves data, or forwards it: its return code, or `None`. `counted` is what a forwarded call adds to the summary.
///
/// # Safety
/// The rows are what MPI demands of the caller.
#[inline]
pub unsafe fn carry_out(
    call: MpiFunction,
    comm: Handle,
    (count, dtype): (i64, Handle),
    transfer: Result<Transfer, Refusal>,
) -> Option<c_int> {
    let transfer = match transfer {
        Ok(transfer) => transfer,
        Err(Refusal::Forward(ForwardReason::Argument)) => return forward(call, ForwardReason::Argument, 0, dtype),
        Err(Refusal::Forward(reason)) => return forward(call, reason, count, dtype),
        Err(Refusal::Failed(failure)) => return Some(return_code(call, comm, Err(failure))),
    };
    if transfer.block_bytes.prefer_mpi(call, &transfer.intercepted.selection) {
        return forward(call, ForwardReason::Faster, count, dtype);
    }
    if summary::is_counting() {
        summary::count_intercepted(call, transfer.block_bytes.counted());
    }
    // SAFETY: by the caller's contract.
    Some(return_code(call, comm, unsafe { transfer.run(call) }))
}

/// The communicator and the root of a call.
#[inline]
pub fn rooted(root: c_int, comm: Handle) -> Result<(&'static InterceptedComm, usize), ForwardReason> {
    let intercepted = comm_cache::get(comm)?;
    let root = usize::try_from(root).ok().filter(|root| *root < intercepted.size);
    Ok((intercepted, root.ok_or(ForwardReason::Argument)?))
}

/// The block of `count` elements.
#[inline]
pub fn block(intercepted: &InterceptedComm, count: i64, dtype: Handle, comm: Handle) -> Result<Block, ForwardReason> {
    Block::new(intercepted.handles, count, dtype, comm).ok_or(ForwardReason::Argument)
}

/// Refuses MPI_IN_PLACE on a rank that is not the root of a gather or a scatter.
#[inline]
pub fn check_not_in_place(is_in_place: bool) -> CallResult {
    let what = "MPI_IN_PLACE on a rank that is not the root";
    match is_in_place {
        false => Ok(()),
        true => Err(CallFailure::Argument(constants().err_buffer, what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use earlybird::Interpose;

    fn bytes(count: usize) -> Block {
        Block { count, ..Block::EMPTY }
    }

    #[test]
    fn blocks_that_follow_one_another_are_borrowed_and_others_are_copied() {
        let mut memory: Vec<u8> = (0..20).collect();
        let at: *mut c_void = memory.as_mut_ptr().cast();
        // An empty block may lie anywhere.
        let joined = Row::placed(at, vec![(99, bytes(0)), (2, bytes(3)), (5, bytes(4))]);
        let (gap, swapped) = (vec![(0, bytes(2)), (3, bytes(2))], vec![(4, bytes(2)), (0, bytes(3))]);
        // SAFETY: the blocks lie in `memory`.
        unsafe {
            assert!(matches!(joined.to_bytes(), Ok(RowBytes::Borrowed([2, 3, 4, 5, 6, 7, 8]))));
            for (blocks, expected) in [(gap, vec![0, 1, 3, 4]), (swapped, vec![4, 5, 0, 1, 2])] {
                let row = Row::placed(at, blocks);
                assert!(!row.is_borrowable());
                assert_eq!(row.to_bytes().unwrap().to_vec(), expected);
                row.unpack(&[50; 5][..row.bytes]).unwrap();
                assert!(row.to_bytes().unwrap().iter().all(|byte| *byte == 50));
                let mut fresh = (0..20).collect::<Vec<u8>>();
                memory.swap_with_slice(&mut fresh);
            }
        }
        let nowhere = Row::placed(ptr::null_mut(), vec![(0, bytes(0)), (8, bytes(1))]);
        assert!(!nowhere.is_borrowable() && Row::EMPTY.is_borrowable());
    }

    #[test]
    fn blocks_of_one_length_are_uniform_and_the_largest_selects() {
        assert!(matches!(BlockBytes::PerRank(vec![5, 5]).counts(), Counts::Uniform));
        let unequal = BlockBytes::PerRank(vec![5, 9, 0]);
        assert!(matches!(unequal.counts(), Counts::PerRank([5, 9, 0])));
        assert_eq!(unequal.counted(), 9);
        let pairs = BlockBytes::PerPair([vec![1, 2], vec![3, 4]]);
        assert_eq!(pairs.counted(), 3);
        let selection = |given| Selection::new(&Interpose::read(given).unwrap().1, false);
        let (some, all) = (selection("alltoall=mpi:2-"), selection("alltoall=mpi"));
        for (bytes, by_size) in [(unequal, true), (pairs, false)] {
            assert_eq!(bytes.prefer_mpi(MpiFunction::Alltoallv, &some), by_size);
            assert!(bytes.prefer_mpi(MpiFunction::Alltoallv, &all));
        }
    }
}
