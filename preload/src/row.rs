//! One side of a call that moves data: blocks in the caller's memory, used where they lie or packed.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::block::Block;
use crate::buffers::{can_borrow, is_address, read};
use crate::failure::{CallFailure, CallResult};
use crate::scratch::Scratch;
use std::ffi::c_void;
use std::ops::Deref;
use std::ptr;

/// One side of a call: blocks in the caller's memory, in the order of the ranks.
pub struct Row {
    pub at: *mut c_void,
    /// Bytes of all signatures.
    pub bytes: usize,
    blocks: RowBlocks,
}

/// The memory that blocks fill, as far as they follow one another.
#[derive(Default)]
pub struct Span {
    /// Bytes from the buffer's address to the first block that has any, and to the end of the last.
    filled: Option<(isize, isize)>,
    has_gaps: bool,
    bytes: usize,
}

impl Span {
    /// Adds the next block, and the bytes from the buffer's address to it.
    #[inline]
    pub fn add(&mut self, offset: isize, block: &Block) {
        let bytes = block.bytes();
        if bytes == 0 {
            return;
        }
        let (first, end) = self.filled.unwrap_or((offset, offset));
        self.has_gaps |= !block.is_dense || offset != end;
        self.filled = Some((first, offset.wrapping_add_unsigned(bytes)));
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The row of the blocks in the buffer at `at`, if they can be borrowed as one.
    #[inline]
    pub fn row(&self, at: *mut c_void) -> Option<Row> {
        let first = self.filled.map_or(0, |(first, _)| first);
        let can_be_one = !self.has_gaps && can_borrow(at, self.bytes);
        can_be_one.then(|| Row::of_bytes(at.wrapping_byte_offset(first), self.bytes))
    }
}

enum RowBlocks {
    /// The bytes of all signatures follow one another.
    Contiguous,
    /// A block at the row's address.
    One(Block),
    /// Blocks, and the bytes from the address to each.
    Placed(Box<[(isize, Block)]>),
    /// Blocks whose contents are received and dropped.
    Unread,
}

/// The bytes of all signatures of a row.
pub enum RowBytes<'a> {
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
    pub const EMPTY: Row = Row { at: ptr::null_mut(), bytes: 0, blocks: RowBlocks::Contiguous };

    /// The elements of one block.
    #[inline(always)]
    pub fn joined(at: *mut c_void, block: Block) -> Row {
        let blocks = if block.is_dense { RowBlocks::Contiguous } else { RowBlocks::One(block) };
        Row { at, bytes: block.bytes(), blocks }
    }

    /// Blocks at distances from an address.
    pub fn placed(at: *mut c_void, blocks: Vec<(isize, Block)>) -> Row {
        let mut span = Span::default();
        blocks.iter().for_each(|(offset, block)| span.add(*offset, block));
        // Blocks that follow one another are of no more interest.
        span.row(at).unwrap_or_else(|| Row { at, bytes: span.bytes, blocks: RowBlocks::Placed(blocks.into()) })
    }

    /// Bytes that follow one another.
    pub fn of_bytes(at: *mut c_void, bytes: usize) -> Row {
        Row { at, bytes, ..Row::EMPTY }
    }

    /// Bytes that are received and that nobody reads.
    pub fn unread(bytes: usize) -> Row {
        Row { at: ptr::null_mut(), bytes, blocks: RowBlocks::Unread }
    }

    #[inline(always)]
    pub fn is_borrowable(&self) -> bool {
        self.bytes == 0 || matches!(self.blocks, RowBlocks::Contiguous) && is_address(self.at)
    }

    /// Returns whether nobody reads what is received.
    pub fn is_unread(&self) -> bool {
        matches!(self.blocks, RowBlocks::Unread)
    }

    /// The bytes of all signatures: borrowed where they follow one another, else packed.
    ///
    /// # Safety
    /// The blocks are what MPI demands of the caller, and live as long as the result.
    pub unsafe fn to_bytes<'a>(&self) -> Result<RowBytes<'a>, CallFailure> {
        if self.is_borrowable() {
            // SAFETY: by the caller's contract.
            return Ok(RowBytes::Borrowed(unsafe { read(self.at, self.bytes) }));
        }
        let mut packed = Scratch::new(self.bytes);
        // SAFETY: by the caller's contract.
        unsafe { self.pack(&mut packed)? };
        Ok(RowBytes::Packed(packed))
    }

    /// Copies or packs the bytes of all signatures into `into`, which is as long.
    ///
    /// # Safety
    /// The blocks are what MPI demands of the caller.
    pub unsafe fn pack(&self, into: &mut [u8]) -> CallResult {
        let mut rest = into;
        self.for_each(|at, block| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(block.bytes());
            rest = others;
            // SAFETY: by the caller's contract.
            unsafe { block.copy_in(at, own) }
        })
    }

    /// Copies or unpacks the bytes of all signatures to the blocks.
    ///
    /// # Safety
    /// The blocks are what MPI demands of the caller.
    pub unsafe fn unpack(&self, mut from: &[u8]) -> CallResult {
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
            RowBlocks::Contiguous => run(self.at, &Block::EMPTY.with_count(self.bytes)),
            RowBlocks::One(block) => run(self.at, block),
            RowBlocks::Placed(blocks) => {
                let mut filled = blocks.iter().filter(|(_, block)| block.bytes() > 0);
                filled.try_for_each(|(offset, block)| run(self.at.wrapping_byte_offset(*offset), block))
            }
            RowBlocks::Unread => Ok(()),
        }
    }

    /// The blocks of the row.
    fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        let (one, placed) = match &mut self.blocks {
            RowBlocks::One(block) => (Some(block), &mut [][..]),
            RowBlocks::Placed(blocks) => (None, &mut **blocks),
            RowBlocks::Contiguous | RowBlocks::Unread => (None, &mut [][..]),
        };
        one.into_iter().chain(placed.iter_mut().map(|(_, block)| block))
    }

    /// The row in a call under way: the caller's memory, or a copy of it.
    pub fn into_side(self) -> Result<CallSide, CallFailure> {
        if self.is_borrowable() { Ok(CallSide::of_bytes(self.at, self.bytes)) } else { self.into_copy() }
    }

    /// A copy of the row in a call under way.
    pub fn into_copy(self) -> Result<CallSide, CallFailure> {
        let copy = RowCopy::new(self)?;
        Ok(CallSide { bytes: copy.bytes, copy: Some(Box::new(copy)) })
    }
}

/// One side of a call under way.
pub struct CallSide {
    pub bytes: *mut [u8],
    /// The copy in which the bytes lie, if they do not lie in the caller's memory.
    pub copy: Option<Box<RowCopy>>,
}

impl CallSide {
    /// Bytes of the caller's; the address of none may be null.
    pub fn of_bytes(at: *mut c_void, bytes: usize) -> CallSide {
        let at = if bytes == 0 { ptr::dangling_mut() } else { at.cast() };
        CallSide { bytes: ptr::slice_from_raw_parts_mut(at, bytes), copy: None }
    }
}

/// A copy of a row for a call under way: the program may free the row's types and the communicator before the call has ended.
pub struct RowCopy {
    /// What lies in `_memory`.
    bytes: *mut [u8],
    _memory: Scratch,
    row: Row,
    types: Vec<Handle>,
}

impl RowCopy {
    fn new(mut row: Row) -> Result<RowCopy, CallFailure> {
        let mut copies: Vec<(Handle, Handle)> = Vec::new();
        for block in row.blocks_mut().filter(|block| !block.is_dense) {
            let copy = match copies.iter().find(|(of, _)| *of == block.dtype) {
                Some((_, copy)) => *copy,
                None => {
                    let copy = abi::copy_type(block.dtype).map_err(CallFailure::Mpi)?;
                    copies.push((block.dtype, copy));
                    copy
                }
            };
            (block.dtype, block.comm) = (copy, constants().comm_self);
        }
        let types = copies.into_iter().map(|(_, copy)| copy).collect();
        let mut memory = Scratch::new(row.bytes);
        Ok(RowCopy { bytes: ptr::from_mut(&mut *memory), _memory: memory, row, types })
    }

    /// Copies the caller's blocks.
    ///
    /// # Safety
    /// The blocks are what MPI demands of the caller, and nobody else uses the copy.
    pub unsafe fn fill(&self) -> CallResult {
        // SAFETY: by the caller's contract; a vector stays where it is when it is moved.
        unsafe { self.row.pack(&mut *self.bytes) }
    }

    /// Copies the result to the caller's blocks.
    ///
    /// # Safety
    /// The contract of `fill`.
    pub unsafe fn deliver(&self) -> CallResult {
        // SAFETY: as in `fill`.
        unsafe { self.row.unpack(&*self.bytes) }
    }
}

impl Drop for RowCopy {
    fn drop(&mut self) {
        for dtype in &mut self.types {
            // SAFETY: a copy that nothing else uses.
            unsafe { abi::PMPI_Type_free(dtype) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
