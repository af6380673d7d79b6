//! The caller's buffers: used where they lie if they can be, else copied, converted or packed on this rank alone.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::handles::Shape;
use crate::progress::{self, COPIES};
use earlybird::Error;
use std::ffi::{c_int, c_void};
use std::ptr;

/// Why a call that was taken over does not succeed.
#[derive(Debug)]
pub enum Failure {
    /// earlybird says so.
    Ours(Error),
    /// MPI said so, and has told the communicator's error handler.
    Mpis(c_int),
    /// The arguments contradict each other: the class of MPI's error, and what is wrong.
    Argument(c_int, &'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Ours(error)
    }
}

/// Bytes that MPI packs in one call, whose counts are `int`.
const PACKED_AT_ONCE: usize = 1 << 30;

/// # Safety
/// `from` points to `count` elements of `T`, or `count` is 0.
pub unsafe fn read<'a, T>(from: *const c_void, count: usize) -> &'a [T] {
    match count {
        0 => &[],
        // SAFETY: by the caller's contract.
        _ => unsafe { std::slice::from_raw_parts(from.cast(), count) },
    }
}

/// # Safety
/// As `read`, and nothing else refers to them.
pub unsafe fn write<'a, T>(to: *mut c_void, count: usize) -> &'a mut [T] {
    match count {
        0 => &mut [],
        // SAFETY: by the caller's contract.
        _ => unsafe { std::slice::from_raw_parts_mut(to.cast(), count) },
    }
}

/// Whether elements can lie at `at`: neither at null nor at MPI_IN_PLACE, which is 1 or the last address.
#[inline]
pub fn is_place(at: *const c_void) -> bool {
    (at as usize).wrapping_sub(2) < usize::MAX - 2
}

/// Whether `count` elements of `T` at `at` can be borrowed.
#[inline]
pub fn lies_well<T>(at: *const c_void, count: usize) -> bool {
    count == 0 || (is_place(at) && (at as usize).is_multiple_of(align_of::<T>()))
}

/// Elements that a block may have, 2^39 of at most 32 bytes: blocks of all ranks together fit an address space then.
const MOST: u64 = 1 << 39;

/// How many elements a count of MPI says; `None` where MPI must have the call.
#[inline]
pub fn elements(count: i64) -> Option<usize> {
    (count as u64 <= MOST).then_some(count as usize)
}

/// Bytes of so many elements of any type; `None` as in `elements`.
#[inline]
pub fn bytes_of(count: usize, bytes: usize) -> Option<usize> {
    count.checked_mul(bytes).filter(|block| *block as u64 <= 16 * MOST)
}

/// Whether the ranges, in bytes, have nothing in common.
#[inline]
pub fn apart(a: *const c_void, a_bytes: usize, b: *const c_void, b_bytes: usize) -> bool {
    let (a, b) = (a as usize, b as usize);
    a.saturating_add(a_bytes) <= b || b.saturating_add(b_bytes) <= a
}

/// Refuses an address where no elements can lie.
pub fn not_null(at: *const c_void, count: usize) -> Result<(), Failure> {
    match is_place(at) || count == 0 {
        true => Ok(()),
        false if at.is_null() => Err(Failure::Argument(constants().err_buffer, "a buffer is null")),
        false => Err(Failure::Argument(constants().err_buffer, "MPI_IN_PLACE stands where a buffer must be")),
    }
}

/// A copy of `count` elements, as earlybird lays them out.
///
/// # Safety
/// `from` points to `count` elements of `shape`, at any alignment; `T` is plain data and what `shape` is reduced as.
pub unsafe fn copied<T: Copy>(from: *const c_void, count: usize, shape: Shape) -> Result<Vec<T>, Failure> {
    not_null(from, count)?;
    let from = from.cast::<u8>();
    let mut copy = Vec::<T>::with_capacity(count);
    let to = copy.as_mut_ptr().cast::<u8>();
    // SAFETY: `from` has `count` elements by the caller's contract: of T, of 16 bytes with an `int` at 8, or of 8 with a
    // `short` at 0 and an `int` at 4. The new vector has room for as many T: of 16 bytes for the wide shape, of two
    // `int` for the short one. All of them are written before the length is set.
    unsafe {
        match shape {
            Shape::Plain => ptr::copy_nonoverlapping(from, to, count * size_of::<T>()),
            Shape::WideInt => (0..count).for_each(|i| {
                ptr::copy_nonoverlapping(from.add(16 * i), to.add(16 * i), 8);
                let index = from.add(16 * i + 8).cast::<i32>().read_unaligned();
                to.add(16 * i + 8).cast::<i64>().write_unaligned(index.into());
            }),
            Shape::ShortInt => (0..count).for_each(|i| {
                let value = from.add(8 * i).cast::<i16>().read_unaligned();
                to.add(8 * i).cast::<i32>().write_unaligned(value.into());
                ptr::copy_nonoverlapping(from.add(8 * i + 4), to.add(8 * i + 4), 4);
            }),
        }
        copy.set_len(count);
    }
    Ok(copy)
}

/// Puts elements back as the caller lays them out; gaps stay as they are.
///
/// # Safety
/// `to` has room for as many elements of `shape`; `T` as in `copied`.
pub unsafe fn put_back<T: Copy>(values: &[T], to: *mut c_void, shape: Shape) -> Result<(), Failure> {
    not_null(to, values.len())?;
    let (from, to) = (values.as_ptr().cast::<u8>(), to.cast::<u8>());
    // SAFETY: as in `copied`, the other way round; `values` is this library's own.
    unsafe {
        match shape {
            Shape::Plain => ptr::copy_nonoverlapping(from, to, size_of_val(values)),
            Shape::WideInt => (0..values.len()).for_each(|i| {
                ptr::copy_nonoverlapping(from.add(16 * i), to.add(16 * i), 8);
                let index = from.add(16 * i + 8).cast::<i64>().read_unaligned();
                to.add(16 * i + 8).cast::<i32>().write_unaligned(index as i32);
            }),
            Shape::ShortInt => (0..values.len()).for_each(|i| {
                let value = from.add(8 * i).cast::<i32>().read_unaligned();
                to.add(8 * i).cast::<i16>().write_unaligned(value as i16);
                ptr::copy_nonoverlapping(from.add(8 * i + 4), to.add(8 * i + 4), 4);
            }),
        }
    }
    Ok(())
}

/// Elements of any type in the caller's memory, as MPI packs them.
#[derive(Clone, Copy)]
pub struct Packable {
    pub dtype: Handle,
    pub comm: Handle,
    /// Bytes of the signature of one element.
    pub bytes: usize,
    pub count: usize,
}

impl Packable {
    /// Packs the elements at `from` into `into`, which is as long as their signature.
    ///
    /// # Safety
    /// `from` points to the elements as MPI demands.
    pub unsafe fn pack(&self, from: *const c_void, into: &mut [u8]) -> Result<(), Failure> {
        self.pieces(from as usize, |at, count, part| {
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
            Self::whole(code, position, part.len())
        })
    }

    /// Unpacks `from`, which is as long as the signature of the elements, to `to`.
    ///
    /// # Safety
    /// `to` has room for the elements as MPI demands.
    pub unsafe fn unpack(&self, from: &[u8], to: *mut c_void) -> Result<(), Failure> {
        self.pieces(to as usize, |at, count, part| {
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
            Self::whole(code, position, part.len())
        })
    }

    /// Copies elements of a type that has addresses in it, from or to MPI_BOTTOM, by a message to this process: MPICH
    /// does not pack from there.
    ///
    /// # Safety
    /// Both are buffers as MPI demands, of one signature.
    unsafe fn send_to_self(from: (*const u8, usize, Handle), to: (*mut u8, usize, Handle)) -> Result<(), Failure> {
        let ((from, n, of), (to, m, into)) = (from, to);
        let (comm, ignored) = (progress::private(), constants().ignore_status);
        // SAFETY: by the caller's contract; lengths are at most `PACKED_AT_ONCE`.
        let code = unsafe {
            let (n, m) = (n as c_int, m as c_int);
            abi::PMPI_Sendrecv(from.cast(), n, of, 0, COPIES, to.cast(), m, into, 0, COPIES, comm, ignored)
        };
        if code == 0 { Ok(()) } else { Err(Failure::Mpis(code)) }
    }

    /// `each` gets an address, as many elements as MPI packs at once, and the range of their bytes.
    fn pieces(
        &self,
        start: usize,
        mut each: impl FnMut(usize, c_int, std::ops::Range<usize>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.count == 0 || self.bytes == 0 {
            return Ok(());
        }
        if self.bytes > PACKED_AT_ONCE {
            return Err(Failure::Argument(constants().err_count, "an element of a derived type is larger than 1 GiB"));
        }
        let (_, extent) = abi::extent(self.dtype)
            .ok_or(Failure::Argument(constants().err_other, "MPI does not tell the extent of a type"))?;
        let at_once = PACKED_AT_ONCE / self.bytes;
        let mut done = 0;
        while done < self.count {
            let count = at_once.min(self.count - done);
            let at = start.wrapping_add_signed(extent.wrapping_mul(done as isize));
            each(at, count as c_int, done * self.bytes..(done + count) * self.bytes)?;
            done += count;
        }
        Ok(())
    }

    fn whole(code: c_int, position: c_int, expected: usize) -> Result<(), Failure> {
        match code {
            0 if position as usize == expected => Ok(()),
            0 => {
                Err(Failure::Argument(constants().err_other, "MPI packs a type into more bytes than its signature has"))
            }
            _ => Err(Failure::Mpis(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use earlybird::Indexed;

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct DoubleInt(f64, i32, u32);

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct ShortInt(i16, u16, i32);

    #[test]
    fn pairs_are_converted_both_ways_and_gaps_stay() {
        let mut wide = [DoubleInt(1.5, -7, 0xaaaa), DoubleInt(-2.5, 9, 0xbbbb)];
        // SAFETY: two elements of the shape each way.
        let mut values: Vec<Indexed<f64, i64>> =
            unsafe { copied(wide.as_ptr().cast(), 2, crate::handles::Shape::WideInt) }.unwrap();
        assert_eq!(values, [Indexed { value: 1.5, index: -7 }, Indexed { value: -2.5, index: 9 }]);
        values[0].index = 3;
        // SAFETY: as above.
        unsafe { put_back(&values, wide.as_mut_ptr().cast(), crate::handles::Shape::WideInt) }.unwrap();
        assert_eq!(wide, [DoubleInt(1.5, 3, 0xaaaa), DoubleInt(-2.5, 9, 0xbbbb)]);
        let mut short = [ShortInt(-4, 0xcccc, 1 << 20)];
        // SAFETY: one element of the shape each way.
        let mut values: Vec<Indexed<i32, i32>> =
            unsafe { copied(short.as_ptr().cast(), 1, crate::handles::Shape::ShortInt) }.unwrap();
        assert_eq!(values, [Indexed { value: -4, index: 1 << 20 }]);
        values[0].value = -5;
        // SAFETY: as above.
        unsafe { put_back(&values, short.as_mut_ptr().cast(), crate::handles::Shape::ShortInt) }.unwrap();
        assert_eq!(short, [ShortInt(-5, 0xcccc, 1 << 20)]);
    }

    #[test]
    fn ranges_that_touch_are_apart_and_those_that_share_a_byte_are_not() {
        let at = |address: usize| address as *const c_void;
        assert!(apart(at(100), 8, at(108), 8) && apart(at(108), 8, at(100), 8));
        assert!(!apart(at(100), 9, at(108), 8) && !apart(at(100), 8, at(100), 8));
        assert!(lies_well::<u64>(at(104), 1) && !lies_well::<u64>(at(100), 1) && lies_well::<u64>(at(0), 0));
        for (address, is) in [(0, false), (1, false), (usize::MAX, false), (2, true), (usize::MAX - 1, true)] {
            assert!(is_place(at(address)) == is && not_null(at(address), 1).is_ok() == is, "{address:x}");
        }
        assert!([constants().in_place.cast_const(), ptr::null()].iter().all(|at| !lies_well::<u8>(*at, 1)));
    }

    #[test]
    fn counts_that_no_memory_holds_are_noticed() {
        assert_eq!([-1, i64::MIN, i64::MAX, 0, 7].map(elements), [None, None, None, Some(0), Some(7)]);
        assert_eq!((elements(1 << 39), elements((1 << 39) + 1)), (Some(1 << 39), None));
        assert_eq!([(3, 8), (1 << 20, 1 << 23)].map(|(n, of)| bytes_of(n, of)), [Some(24), Some(1 << 43)]);
        assert_eq!([(3, 1 << 42), (1 << 39, 1 << 30)].map(|(n, of)| bytes_of(n, of)), [None, None]);
    }
}
