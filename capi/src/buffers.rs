//! The caller's buffers as bytes. Invalid addresses are errors; the rest is invariant **C** of the crate.
#![allow(unsafe_code)]

use earlybird::{Communicator, Counts, DType, Datatype, Error};
use std::alloc::{Layout, alloc_zeroed};
use std::ffi::c_void;

/// Returns whether a buffer is `EB_IN_PLACE`.
pub fn is_in_place(at: *const c_void) -> bool {
    at as isize == -1
}

/// A buffer argument of C.
#[derive(Clone, Copy)]
pub struct BufferArg {
    /// The name of the argument in messages.
    pub name: &'static str,
    /// The address; any address if `count` is 0.
    pub at: *mut c_void,
    /// The number of elements.
    pub count: usize,
}

impl BufferArg {
    /// No send buffer.
    pub const NO_SEND: BufferArg = BufferArg { name: "send buffer", at: std::ptr::null_mut(), count: 0 };
    /// No receive buffer.
    pub const NO_RECV: BufferArg = BufferArg { name: "receive buffer", ..Self::NO_SEND };

    /// Describes a buffer that is read.
    pub fn send(at: *const c_void, count: usize) -> BufferArg {
        BufferArg { at: at.cast_mut(), count, ..Self::NO_SEND }
    }

    /// Describes a buffer that is written, or read and written.
    pub fn recv(at: *mut c_void, count: usize) -> BufferArg {
        BufferArg { at, count, ..Self::NO_RECV }
    }

    /// Refuses an address that cannot hold the elements.
    #[inline(always)]
    pub fn check(&self, datatype: Datatype) -> Result<(), Error> {
        let (at, bytes) = (self.at as usize, self.count.checked_mul(datatype.size()));
        let fits = bytes.is_some_and(|bytes| bytes <= isize::MAX as usize && at.checked_add(bytes).is_some());
        let is_address = at != 0 && !is_in_place(self.at) && at & (alignment(datatype) - 1) == 0;
        match self.count == 0 || (fits && is_address) {
            true => Ok(()),
            false => Err(self.refused(datatype)),
        }
    }

    #[cold]
    fn refused(&self, datatype: Datatype) -> Error {
        let BufferArg { name, at, count } = *self;
        let elements = match datatype {
            Datatype::Builtin(dtype) => format!("{count} elements of {}", dtype.name()),
            Datatype::Opaque(bytes) => format!("{count} elements of {bytes} bytes"),
        };
        let align = alignment(datatype);
        Error::usage(match () {
            () if is_in_place(at) => format!("EB_IN_PLACE is not allowed as the {name} here; give a buffer"),
            () if at.is_null() => format!("the {name} is null; it must hold {elements}"),
            () if !(at as usize).is_multiple_of(align) => {
                format!(
                    "the {name} at {at:p} is not aligned for {elements}; give an address that is a multiple of {align}"
                )
            }
            () => format!("a {name} of {elements} exceeds the address space"),
        })
    }

    /// Refuses buffers that share a byte. Both are checked.
    pub fn check_disjoint(&self, other: &BufferArg, element_bytes: usize) -> Result<(), Error> {
        let (a, b) = (self.at as usize, other.at as usize);
        let [a_end, b_end] = [(a, self.count), (b, other.count)].map(|(at, n)| at.saturating_add(n * element_bytes));
        match self.count == 0 || other.count == 0 || a_end <= b || b_end <= a {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "the {} at {:p} and the {} at {:p} overlap; give buffers apart, or EB_IN_PLACE",
                self.name, self.at, other.name, other.at
            ))),
        }
    }

    /// Borrows the elements, each of `size` bytes. The buffer is checked.
    ///
    /// # Safety
    /// C: the buffer holds its elements, for as long as they are used.
    #[inline]
    pub unsafe fn bytes<'a>(&self, size: usize) -> &'a [u8] {
        match self.count {
            0 => &[],
            // SAFETY: by the caller's contract; not null as checked, and bytes have no alignment.
            count => unsafe { std::slice::from_raw_parts(self.at.cast(), count * size) },
        }
    }

    /// Borrows the elements exclusively, each of `size` bytes. The buffer is checked.
    ///
    /// # Safety
    /// The contract of [`BufferArg::bytes`], and nothing else refers to them.
    #[inline]
    pub unsafe fn bytes_mut<'a>(&self, size: usize) -> &'a mut [u8] {
        match self.count {
            0 => &mut [],
            // SAFETY: as in `bytes`.
            count => unsafe { std::slice::from_raw_parts_mut(self.at.cast(), count * size) },
        }
    }
}

/// The alignment of elements in C, a power of two.
#[inline(always)]
fn alignment(datatype: Datatype) -> usize {
    match datatype {
        Datatype::Opaque(_) => 1,
        // Complex numbers and pairs are aligned as their halves.
        Datatype::Builtin(dtype) => {
            dtype.size() >> u32::from(dtype as u8 >= DType::ComplexF32 as u8 && dtype != DType::Bool)
        }
    }
}

/// Allocates zeros for `count` elements, which takes no time for memory that is never used.
pub fn zeroed(count: usize, datatype: Datatype) -> Result<Vec<u8>, Error> {
    let refused = |reason: &str| Error::system(format!("memory for a copy of {count} elements"), reason.to_owned());
    let layout = Layout::array::<u8>(count.saturating_mul(datatype.size())).map_err(|e| refused(&e.to_string()))?;
    if layout.size() == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout is not empty.
    let at = unsafe { alloc_zeroed(layout) };
    if at.is_null() {
        return Err(refused("out of memory"));
    }
    // SAFETY: allocated for as many bytes by the allocator of vectors; all of them are zero.
    Ok(unsafe { Vec::from_raw_parts(at, layout.size(), layout.size()) })
}

/// The elements of each rank's block, of all blocks, and of this rank's in them.
pub struct Blocks<'a> {
    pub counts: Counts<'a>,
    pub all: usize,
    pub start: usize,
    pub own: usize,
}

impl Blocks<'static> {
    /// Describes blocks of `count` elements.
    pub fn uniform(comm: &Communicator, count: usize) -> Result<Self, Error> {
        let all = count.checked_mul(comm.size());
        let all = all
            .ok_or_else(|| Error::usage(format!("{count} elements for each of {} ranks are too many", comm.size())))?;
        Ok(Blocks { counts: Counts::Uniform, all, start: comm.rank() * count, own: count })
    }
}

impl<'a> Blocks<'a> {
    /// Describes blocks of as many elements as each rank's count.
    ///
    /// # Safety
    /// C: `each` is null or holds a count for each rank.
    pub unsafe fn per_rank(comm: &Communicator, each: *const usize) -> Result<Self, Error> {
        // SAFETY: by the caller's contract.
        let counts = unsafe { array(each, "counts", comm.size(), "rank")? };
        let all = sum(counts)?;
        let start = counts[..comm.rank()].iter().sum();
        Ok(Blocks { counts: Counts::PerRank(counts), all, start, own: counts[comm.rank()] })
    }
}

/// Reads an array of the caller with `len` entries, one for each `owner`.
///
/// # Safety
/// C: `at` is null or holds `len` entries.
pub unsafe fn array<'a, T>(at: *const T, name: &str, len: usize, owner: &str) -> Result<&'a [T], Error> {
    match len {
        0 => Ok(&[]),
        _ if at.is_null() || !at.is_aligned() => {
            Err(Error::usage(format!("{name} at {at:p} are no array; give {len}, one for each {owner}")))
        }
        // SAFETY: by the caller's contract, and checked.
        _ => Ok(unsafe { std::slice::from_raw_parts(at, len) }),
    }
}

/// Returns the sum of counts.
pub fn sum(counts: &[usize]) -> Result<usize, Error> {
    let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    sum.ok_or_else(|| Error::usage(format!("the sum of the counts {counts:?} is too large")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use earlybird::{Element, Indexed};
    use num_complex::Complex;

    fn refused(result: Result<(), Error>) -> String {
        match result {
            Err(Error::Usage { message }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused() {
        let mut values = [1.5f64, 2.5, 3.5];
        let at = values.as_mut_ptr().cast::<c_void>();
        let check = |at, count| BufferArg::recv(at, count).check(DType::F64.into());
        assert_eq!(check(at, 3), Ok(()));
        assert_eq!(check(std::ptr::null_mut(), 0), Ok(()));
        assert!(refused(check(std::ptr::null_mut(), 1)).contains("is null; it must hold 1 elements of f64"));
        assert!(refused(check(at.wrapping_byte_add(4), 1)).contains("a multiple of 8"));
        assert!(refused(check(usize::MAX as *mut c_void, 1)).contains("EB_IN_PLACE is not allowed"));
        assert!(refused(check(at, usize::MAX / 4)).contains("exceeds the address space"));
        assert!(refused(check((usize::MAX - 7) as *mut c_void, 2)).contains("exceeds the address space"));
        for (skip, count, overlaps) in [(0, 1, true), (8, 1, false), (8, 0, false)] {
            let other = BufferArg::send(at.wrapping_byte_add(skip), count);
            let result = other.check_disjoint(&BufferArg::recv(at, 1), size_of::<f64>());
            assert_eq!(result.is_err(), overlaps, "{skip} {count}");
        }
    }

    #[test]
    fn elements_are_aligned_as_rust_aligns_them() {
        fn of<T: Element>() -> (DType, usize) {
            (T::DTYPE, align_of::<T>())
        }
        let integers =
            [of::<i8>(), of::<i16>(), of::<i32>(), of::<i64>(), of::<u8>(), of::<u16>(), of::<u32>(), of::<u64>()];
        let numbers = [
            of::<half::f16>(),
            of::<half::bf16>(),
            of::<f32>(),
            of::<f64>(),
            of::<Complex<f32>>(),
            of::<Complex<f64>>(),
        ];
        let pairs = [
            of::<Indexed<i32, i32>>(),
            of::<Indexed<i64, i64>>(),
            of::<Indexed<f32, i32>>(),
            of::<Indexed<f64, i64>>(),
        ];
        let all = [&integers[..], &numbers, &pairs, &[of::<bool>()]].concat();
        assert_eq!(all.len(), DType::ALL.len());
        for (dtype, align) in all {
            assert_eq!(alignment(dtype.into()), align, "{dtype:?}");
        }
    }

    #[test]
    fn sums_of_counts_do_not_wrap() {
        assert_eq!((sum(&[2, 0, 3]), sum(&[])), (Ok(5), Ok(0)));
        assert!(sum(&[usize::MAX, 1]).is_err());
        // SAFETY: null is refused.
        assert!(unsafe { array::<usize>(std::ptr::null(), "counts", 2, "rank") }.is_err());
    }

    #[test]
    fn memory_that_does_not_exist_is_refused() {
        assert_eq!(zeroed(3, DType::I16.into()), Ok(vec![0; 6]));
        assert_eq!(zeroed(0, DType::I16.into()), Ok(Vec::new()));
        for count in [usize::MAX, usize::MAX / 4] {
            assert!(matches!(zeroed(count, DType::I16.into()), Err(Error::System { .. })));
        }
    }
}
