//! A block of elements of any MPI type: copied as bytes where they are contiguous, else packed and unpacked by MPI.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::buffers::{byte_len, check_address, element_count, read, write};
use crate::failure::{CallFailure, CallResult};
use crate::handles::PredefinedHandles;
use crate::progress::{self, COPY_TAG};
use earlybird::Counts;
use smallvec::SmallVec;
use std::ffi::{c_int, c_void};
use std::ptr;

/// Bytes that MPI packs in one call, whose counts are `int`.
const MAX_PACKED: usize = 1 << 30;

/// The layout of a block of elements in the caller's memory.
#[derive(Clone, Copy)]
pub struct Block {
    pub dtype: Handle,
    pub comm: Handle,
    /// Bytes of the signature of one element.
    pub element_bytes: usize,
    pub count: usize,
    /// True if the elements are contiguous in memory, in the order of the signature.
    pub is_dense: bool,
}

impl Block {
    /// `None` for a count or type that is forwarded to MPI.
    #[inline(always)]
    pub fn new(handles: &PredefinedHandles, count: i64, dtype: Handle, comm: Handle) -> Option<Block> {
        let (element_bytes, is_dense) = match handles.dtype(dtype) {
            Some(predefined) => (predefined.bytes, predefined.is_dense),
            None => of_derived(handles, dtype)?,
        };
        Block { dtype, comm, element_bytes, count: 0, is_dense }.counted(count)
    }

    /// No bytes.
    pub const EMPTY: Block = Block { dtype: 0, comm: 0, element_bytes: 1, count: 0, is_dense: true };

    /// The block of `count` elements of `dtype` on the other side of a call, which must be as long as this one.
    #[inline]
    pub fn other_side(&self, handles: &PredefinedHandles, count: i64, dtype: Handle) -> Result<Block, CallFailure> {
        if dtype == self.dtype && count == self.count as i64 {
            return Ok(*self);
        }
        let other = Block::new(handles, count, dtype, self.comm);
        other.filter(|other| other.bytes() == self.bytes()).ok_or_else(unequal_sides)
    }

    /// So many of these blocks as one.
    pub fn times(&self, blocks: usize) -> Block {
        self.with_count(self.count * blocks)
    }

    /// The address of block `number` of those that begin at `start`.
    pub fn nth(&self, start: *mut c_void, number: usize) -> Result<*mut c_void, CallFailure> {
        Ok(start.wrapping_byte_offset(self.extent()?.wrapping_mul((number * self.count) as isize)))
    }

    /// Bytes of the block's signature.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.element_bytes * self.count
    }

    /// The same layout with `count` elements; `None` for a count that is forwarded to MPI.
    #[inline(always)]
    pub fn counted(&self, count: i64) -> Option<Block> {
        let count = element_count(count)?;
        byte_len(count, self.element_bytes)?;
        Some(self.with_count(count))
    }

    /// The same layout with `count` elements.
    #[inline(always)]
    pub fn with_count(&self, count: usize) -> Block {
        Block { count, ..*self }
    }

    /// Copies or packs the elements at `from` into `into`, which is as long as their signature.
    ///
    /// # Safety
    /// `from` points to the elements as MPI demands.
    pub unsafe fn copy_in(&self, from: *const c_void, into: &mut [u8]) -> CallResult {
        if !self.is_dense {
            // SAFETY: by the caller's contract.
            return unsafe { self.pack(from, into) };
        }
        check_address(from, into.len())?;
        // SAFETY: by the caller's contract; `into` is this library's own.
        into.copy_from_slice(unsafe { read(from, into.len()) });
        Ok(())
    }

    /// Copies or unpacks `from`, which is as long as the signature of the elements, to `to`.
    ///
    /// # Safety
    /// `to` has room for the elements as MPI demands.
    pub unsafe fn copy_out(&self, from: &[u8], to: *mut c_void) -> CallResult {
        if !self.is_dense {
            // SAFETY: by the caller's contract.
            return unsafe { self.unpack(from, to) };
        }
        check_address(to, from.len())?;
        // SAFETY: by the caller's contract; `from` is this library's own.
        unsafe { write(to, from.len()) }.copy_from_slice(from);
        Ok(())
    }

    /// Packs the elements at `from` into `into`, which is as long as their signature.
    ///
    /// # Safety
    /// The contract of `copy_in`.
    pub unsafe fn pack(&self, from: *const c_void, into: &mut [u8]) -> CallResult {
        self.for_each_piece(from as usize, |at, count, part| {
            let part = &mut into[part];
            if at == 0 {
                let to = (part.as_mut_ptr(), part.len(), constants().packed);
                // SAFETY: the elements are the caller's; the part is as long as their signature.
                return unsafe { Self::send_to_self((ptr::null(), count as usize, self.dtype), to) };
            }
            let mut position = 0;
            // SAFETY: the elements are the caller's; the part is as long as their signature.
            let code = unsafe {
                let (at, room) = (at as *const c_void, part.len() as c_int);
                abi::PMPI_Pack(at, count, self.dtype, part.as_mut_ptr().cast(), room, &mut position, self.comm)
            };
            Self::check_packed(code, position, part.len())
        })
    }

    /// Unpacks `from`, which is as long as the signature of the elements, to `to`.
    ///
    /// # Safety
    /// The contract of `copy_out`.
    pub unsafe fn unpack(&self, from: &[u8], to: *mut c_void) -> CallResult {
        self.for_each_piece(to as usize, |at, count, part| {
            let part = &from[part];
            if at == 0 {
                let from = (part.as_ptr(), part.len(), constants().packed);
                // SAFETY: as in `pack`.
                return unsafe { Self::send_to_self(from, (ptr::null_mut(), count as usize, self.dtype)) };
            }
            let mut position = 0;
            // SAFETY: as in `pack`.
            let code = unsafe {
                let (at, bytes) = (at as *mut c_void, part.len() as c_int);
                abi::PMPI_Unpack(part.as_ptr().cast(), bytes, &mut position, at, count, self.dtype, self.comm)
            };
            Self::check_packed(code, position, part.len())
        })
    }

    /// Copies elements of a type with absolute addresses, from or to MPI_BOTTOM, by a message of this process to itself: MPICH does
    /// not pack from MPI_BOTTOM.
    ///
    /// # Safety
    /// Both are buffers as MPI demands, of one signature.
    unsafe fn send_to_self(from: (*const u8, usize, Handle), to: (*mut u8, usize, Handle)) -> CallResult {
        let ((from, n, send_type), (to, m, recv_type)) = (from, to);
        let (comm, ignored) = (progress::own_comm(), constants().ignore_status);
        // SAFETY: by the caller's contract; lengths are at most `MAX_PACKED`.
        let code = unsafe {
            let (n, m) = (n as c_int, m as c_int);
            abi::PMPI_Sendrecv(
                from.cast(),
                n,
                send_type,
                0,
                COPY_TAG,
                to.cast(),
                m,
                recv_type,
                0,
                COPY_TAG,
                comm,
                ignored,
            )
        };
        if code == 0 { Ok(()) } else { Err(CallFailure::Mpi(code)) }
    }

    /// Calls `run` with an address, a number of elements that MPI packs in one call, and the range of their bytes.
    fn for_each_piece(
        &self,
        start: usize,
        mut run: impl FnMut(usize, c_int, std::ops::Range<usize>) -> CallResult,
    ) -> CallResult {
        if self.count == 0 || self.element_bytes == 0 {
            return Ok(());
        }
        if self.element_bytes > MAX_PACKED {
            let what = "an element of a derived type is larger than 1 GiB";
            return Err(CallFailure::Argument(constants().err_count, what));
        }
        let max_count = MAX_PACKED / self.element_bytes;
        // Of no meaning where all elements are one piece.
        let extent = if self.count > max_count { self.extent()? } else { 0 };
        let mut done = 0;
        while done < self.count {
            let count = max_count.min(self.count - done);
            let at = start.wrapping_add_signed(extent.wrapping_mul(done as isize));
            run(at, count as c_int, done * self.element_bytes..(done + count) * self.element_bytes)?;
            done += count;
        }
        Ok(())
    }

    /// Returns the extent of an element.
    pub fn extent(&self) -> Result<isize, CallFailure> {
        if self.is_dense {
            return Ok(self.element_bytes as isize);
        }
        let unknown = CallFailure::Argument(constants().err_other, "MPI does not return the extent of a type");
        abi::extent(self.dtype).map(|(_, extent)| extent).ok_or(unknown)
    }

    fn check_packed(code: c_int, position: c_int, expected: usize) -> CallResult {
        let what = "MPI packs a type into more bytes than its signature has";
        match code {
            0 if position as usize == expected => Ok(()),
            0 => Err(CallFailure::Argument(constants().err_other, what)),
            _ => Err(CallFailure::Mpi(code)),
        }
    }
}

/// Bytes of the signature of an element of a derived type, and whether it is dense: only MPI knows the order in memory of most.
#[cold]
fn of_derived(handles: &PredefinedHandles, dtype: Handle) -> Option<(usize, bool)> {
    let is_dense = |of| handles.dtype(of).is_some_and(|predefined| predefined.is_dense);
    Some((abi::type_size(dtype)?, abi::row_of(dtype).is_some_and(is_dense)))
}

/// The error of a rank's block that is not as long on the side that sends it as on the side that receives it.
#[cold]
pub fn unequal_sides() -> CallFailure {
    CallFailure::Argument(constants().err_truncate, "a block is not as long where it is sent as where it is received")
}

/// A length for each rank: in the frame of the call where they are few, since an allocation is found cold.
pub type RankLengths = SmallVec<[usize; 16]>;

/// The counts of a call with a block for each rank: blocks of one length are uniform, which is faster.
pub fn per_rank(counts: &[usize]) -> Counts<'_> {
    match counts.iter().all(|count| *count == counts[0]) {
        true => Counts::Uniform,
        false => Counts::PerRank(counts),
    }
}
