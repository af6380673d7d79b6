//! The caller's buffers and arrays: borrowed where they are aligned and disjoint, else copied, with conversion of pairs that have gaps.
#![allow(unsafe_code)]

use crate::abi::{RecvPtr, SendPtr, constants};
use crate::failure::CallFailure;
use crate::handles::ElementLayout;
use std::ffi::{c_int, c_void};
use std::ptr;

/// An array of counts or displacements, one for each rank: of `int`, or of `MPI_Count` in the functions whose names end in `_c`.
#[derive(Clone, Copy)]
pub enum IntArray {
    Int(*const c_int),
    Count(*const i64),
}

impl From<*const c_int> for IntArray {
    fn from(at: *const c_int) -> Self {
        IntArray::Int(at)
    }
}

impl From<*const i64> for IntArray {
    fn from(at: *const i64) -> Self {
        IntArray::Count(at)
    }
}

impl IntArray {
    /// # Safety
    /// The array has an element for this rank.
    pub unsafe fn get(self, rank: usize) -> i64 {
        // SAFETY: by the caller's contract.
        unsafe {
            match self {
                IntArray::Int(at) => (*at.add(rank)).into(),
                IntArray::Count(at) => *at.add(rank),
            }
        }
    }
}

/// The buffers of a reduction on this rank, and the elements in them.
#[derive(Clone, Copy)]
pub struct ReductionBuffers {
    pub send: SendPtr,
    pub sent: usize,
    pub recv: RecvPtr,
    pub received: usize,
}

impl ReductionBuffers {
    #[inline(always)]
    pub fn is_in_place(&self) -> bool {
        self.send == constants().in_place
    }

    /// The address of this rank's contribution.
    #[inline(always)]
    pub fn contribution(&self) -> *const c_void {
        if self.is_in_place() { self.recv } else { self.send }
    }

    /// The contribution, unless it lies in place, and the room of the result, if both can be used in the caller's memory. Elements have
    /// `size` bytes and follow one another.
    ///
    /// # Safety
    /// The buffers hold their elements, or have room for them, as MPI demands.
    #[inline(always)]
    pub unsafe fn borrow<'a>(&self, size: usize) -> Option<(Option<&'a [u8]>, &'a mut [u8])> {
        let ReductionBuffers { send, sent, recv, received } = *self;
        let (in_place, send_bytes, recv_bytes) = (self.is_in_place(), sent * size, received * size);
        let is_borrowable = can_borrow(recv, recv_bytes)
            && match in_place {
                true => sent == received,
                false => can_borrow(send, send_bytes) && are_disjoint(send, send_bytes, recv, recv_bytes),
            };
        // SAFETY: by the caller's contract; disjoint, and bytes have no alignment.
        is_borrowable.then(|| unsafe { ((!in_place).then(|| read(send, send_bytes)), write(recv, recv_bytes)) })
    }
}

/// Borrows elements to read.
///
/// # Safety
/// `from` points to `count` elements of `T`, or `count` is 0.
pub unsafe fn read<'a, T>(from: *const c_void, count: usize) -> &'a [T] {
    match count {
        0 => &[],
        // SAFETY: by the caller's contract.
        _ => unsafe { std::slice::from_raw_parts(from.cast(), count) },
    }
}

/// Borrows elements to write.
///
/// # Safety
/// The contract of `read`, and nothing else refers to them.
pub unsafe fn write<'a, T>(to: *mut c_void, count: usize) -> &'a mut [T] {
    match count {
        0 => &mut [],
        // SAFETY: by the caller's contract.
        _ => unsafe { std::slice::from_raw_parts_mut(to.cast(), count) },
    }
}

/// Returns whether `at` is an address: neither null nor MPI_IN_PLACE, which is 1 or the last address.
#[inline]
pub fn is_address(at: *const c_void) -> bool {
    (at as usize).wrapping_sub(2) < usize::MAX - 2
}

/// Returns whether `bytes` bytes at `at` can be borrowed.
#[inline]
pub fn can_borrow(at: *const c_void, bytes: usize) -> bool {
    bytes == 0 || is_address(at)
}

/// Largest number of elements of a block. With 2^39 elements of at most 32 bytes, the blocks of all ranks fit an address space.
const MAX_ELEMENTS: u64 = 1 << 39;

/// Converts a count of MPI, `None` if the call must be forwarded to MPI.
#[inline]
pub fn element_count(count: i64) -> Option<usize> {
    (count as u64 <= MAX_ELEMENTS).then_some(count as usize)
}

/// Returns the size of `count` elements of `bytes` bytes, `None` as in `element_count`.
#[inline]
pub fn byte_len(count: usize, bytes: usize) -> Option<usize> {
    count.checked_mul(bytes).filter(|block| *block as u64 <= 16 * MAX_ELEMENTS)
}

/// Returns whether two ranges of memory share no byte.
#[inline]
pub fn are_disjoint(a: *const c_void, a_bytes: usize, b: *const c_void, b_bytes: usize) -> bool {
    let (a, b) = (a as usize, b as usize);
    a.saturating_add(a_bytes) <= b || b.saturating_add(b_bytes) <= a
}

/// Refuses null and MPI_IN_PLACE as the address of one or more elements.
pub fn check_address(at: *const c_void, count: usize) -> Result<(), CallFailure> {
    match is_address(at) || count == 0 {
        true => Ok(()),
        false if at.is_null() => Err(CallFailure::Argument(constants().err_buffer, "a buffer is null")),
        false => Err(CallFailure::Argument(constants().err_buffer, "MPI_IN_PLACE is given instead of a buffer")),
    }
}

/// Copies `count` elements into earlybird's layout.
///
/// # Safety
/// `from` points to `count` elements of `layout`, at any alignment; `size` are the bytes of the type that `layout` is reduced as.
pub unsafe fn copy_in(
    from: *const c_void,
    count: usize,
    size: usize,
    layout: ElementLayout,
) -> Result<Vec<u8>, CallFailure> {
    check_address(from, count)?;
    let from = from.cast::<u8>();
    let mut copy = vec![0u8; count * size];
    let to = copy.as_mut_ptr();
    // SAFETY: `from` has `count` elements by the caller's contract: of `size` bytes, of 16 bytes with an `int` at 8, or of 8
    // with a `short` at 0 and an `int` at 4. The new vector has room for as many: of 16 bytes for the wide layout, of two
    // `int` for the short one.
    unsafe {
        match layout {
            ElementLayout::Same => ptr::copy_nonoverlapping(from, to, count * size),
            ElementLayout::WideInt => (0..count).for_each(|i| {
                ptr::copy_nonoverlapping(from.add(16 * i), to.add(16 * i), 8);
                let index = from.add(16 * i + 8).cast::<i32>().read_unaligned();
                to.add(16 * i + 8).cast::<i64>().write_unaligned(index.into());
            }),
            ElementLayout::ShortInt => (0..count).for_each(|i| {
                let value = from.add(8 * i).cast::<i16>().read_unaligned();
                to.add(8 * i).cast::<i32>().write_unaligned(value.into());
                ptr::copy_nonoverlapping(from.add(8 * i + 4), to.add(8 * i + 4), 4);
            }),
        }
    }
    Ok(copy)
}

/// Copies elements back into the caller's layout, and leaves gaps unchanged.
///
/// # Safety
/// `to` has room for as many elements of `layout`; `size` as in `copy_in`.
pub unsafe fn copy_out(values: &[u8], to: *mut c_void, size: usize, layout: ElementLayout) -> Result<(), CallFailure> {
    let count = values.len() / size;
    check_address(to, count)?;
    let (from, to) = (values.as_ptr(), to.cast::<u8>());
    // SAFETY: as in `copy_in`, the other way round; `values` is this library's own.
    unsafe {
        match layout {
            ElementLayout::Same => ptr::copy_nonoverlapping(from, to, values.len()),
            ElementLayout::WideInt => (0..count).for_each(|i| {
                ptr::copy_nonoverlapping(from.add(16 * i), to.add(16 * i), 8);
                let index = from.add(16 * i + 8).cast::<i64>().read_unaligned();
                to.add(16 * i + 8).cast::<i32>().write_unaligned(index as i32);
            }),
            ElementLayout::ShortInt => (0..count).for_each(|i| {
                let value = from.add(8 * i).cast::<i32>().read_unaligned();
                to.add(8 * i).cast::<i16>().write_unaligned(value as i16);
                ptr::copy_nonoverlapping(from.add(8 * i + 4), to.add(8 * i + 4), 4);
            }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct DoubleInt(f64, i32, u32);

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct ShortInt(i16, u16, i32);

    #[test]
    fn pairs_are_converted_both_ways_and_gaps_stay() {
        let mut wide = [DoubleInt(1.5, -7, 0xaaaa), DoubleInt(-2.5, 9, 0xbbbb)];
        // SAFETY: two elements of the layout each way.
        let mut values = unsafe { copy_in(wide.as_ptr().cast(), 2, 16, ElementLayout::WideInt) }.unwrap();
        let bytes = |pairs: [(f64, i64); 2]| pairs.map(|(x, i)| [x.to_ne_bytes(), i.to_ne_bytes()].concat()).concat();
        assert_eq!(values, bytes([(1.5, -7), (-2.5, 9)]));
        values[8..16].copy_from_slice(&3i64.to_ne_bytes());
        // SAFETY: the same two elements.
        unsafe { copy_out(&values, wide.as_mut_ptr().cast(), 16, ElementLayout::WideInt) }.unwrap();
        assert_eq!(wide, [DoubleInt(1.5, 3, 0xaaaa), DoubleInt(-2.5, 9, 0xbbbb)]);
        let mut short = [ShortInt(-4, 0xcccc, 1 << 20)];
        // SAFETY: one element of the layout each way.
        let mut values = unsafe { copy_in(short.as_ptr().cast(), 1, 8, ElementLayout::ShortInt) }.unwrap();
        assert_eq!(values, [(-4i32).to_ne_bytes(), (1i32 << 20).to_ne_bytes()].concat());
        values[..4].copy_from_slice(&(-5i32).to_ne_bytes());
        // SAFETY: the same two elements.
        unsafe { copy_out(&values, short.as_mut_ptr().cast(), 8, ElementLayout::ShortInt) }.unwrap();
        assert_eq!(short, [ShortInt(-5, 0xcccc, 1 << 20)]);
    }

    #[test]
    fn ranges_that_touch_are_apart_and_those_that_share_a_byte_are_not() {
        let at = |address: usize| address as *const c_void;
        assert!(are_disjoint(at(100), 8, at(108), 8) && are_disjoint(at(108), 8, at(100), 8));
        assert!(!are_disjoint(at(100), 9, at(108), 8) && !are_disjoint(at(100), 8, at(100), 8));
        assert!(can_borrow(at(100), 8) && !can_borrow(at(0), 8) && can_borrow(at(0), 0));
        for (address, is) in [(0, false), (1, false), (usize::MAX, false), (2, true), (usize::MAX - 1, true)] {
            assert!(is_address(at(address)) == is && check_address(at(address), 1).is_ok() == is, "{address:x}");
        }
        assert!([constants().in_place.cast_const(), ptr::null()].iter().all(|at| !can_borrow(*at, 1)));
    }

    #[test]
    fn counts_that_no_memory_holds_are_noticed() {
        assert_eq!([-1, i64::MIN, i64::MAX, 0, 7].map(element_count), [None, None, None, Some(0), Some(7)]);
        assert_eq!((element_count(1 << 39), element_count((1 << 39) + 1)), (Some(1 << 39), None));
        assert_eq!([(3, 8), (1 << 20, 1 << 23)].map(|(n, of)| byte_len(n, of)), [Some(24), Some(1 << 43)]);
        assert_eq!([(3, 1 << 42), (1 << 39, 1 << 30)].map(|(n, of)| byte_len(n, of)), [None, None]);
    }
}
