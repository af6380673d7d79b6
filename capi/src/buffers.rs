//! The caller's buffers as slices. Invalid addresses are errors; the rest is invariant **C** of the crate.
#![allow(unsafe_code)]

use earlybird::{CallBuffers, CollectiveArgs, Communicator, DType, Datatype, Element, Error};
use std::borrow::Cow;
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

/// No receive buffer.
pub const NO_RECV: BufferArg = BufferArg { name: "receive buffer", at: std::ptr::null_mut(), count: 0 };

impl BufferArg {
    /// Describes a buffer that is read.
    pub fn send(at: *const c_void, count: usize) -> BufferArg {
        BufferArg { name: "send buffer", at: at.cast_mut(), count }
    }

    /// Describes a buffer that is written, or read and written.
    pub fn recv(at: *mut c_void, count: usize) -> BufferArg {
        BufferArg { name: "receive buffer", at, count }
    }

    /// `count` elements of this buffer, which is checked, from element `first` on.
    pub fn block<T>(self, first: usize, count: usize) -> BufferArg {
        let at = self.at.cast::<T>().wrapping_add(first).cast();
        BufferArg { at, count, ..self }
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

    /// Copies the elements to a vector. The buffer is checked.
    ///
    /// # Safety
    /// C: the buffer holds its elements.
    pub unsafe fn copy_in<T: Element>(&self) -> Result<Vec<T>, Error> {
        let mut copy = memory::<T>(self.count)?;
        // SAFETY: by the caller's contract; the vector has room for as many elements, all of which are written.
        unsafe {
            self.copy_elements(copy.as_mut_ptr());
            copy.set_len(self.count);
        }
        Ok(copy)
    }

    /// Copies the elements to `values`, which has the same length. The buffer is checked.
    ///
    /// # Safety
    /// C: the buffer holds its elements.
    pub unsafe fn copy_into<T: Element>(&self, values: &mut [T]) {
        assert_eq!(values.len(), self.count, "elements of the {}", self.name);
        // SAFETY: by the caller's contract; the lengths are equal.
        unsafe { self.copy_elements(values.as_mut_ptr()) }
    }

    /// # Safety
    /// C: the buffer holds its elements; `to` has room for as many, elsewhere.
    unsafe fn copy_elements<T: Element>(&self, to: *mut T) {
        if self.count == 0 {
            return;
        }
        let (from, to, bytes): (*const u8, *mut u8, _) = (self.at.cast(), to.cast(), self.count * size_of::<T>());
        // SAFETY: by the caller's contract; what is written are values: every pattern is one of a type but `bool`, where an
        // element is a byte and becomes a 0 or a 1.
        unsafe {
            match T::DTYPE {
                DType::Bool => (0..bytes).for_each(|i| to.add(i).write(u8::from(from.add(i).read() != 0))),
                _ => std::ptr::copy_nonoverlapping(from, to, bytes),
            }
        }
    }

    /// Copies `values`, which has the same length, to the buffer. The buffer is checked.
    ///
    /// # Safety
    /// C: the buffer has room for its elements.
    pub unsafe fn copy_out<T: Element>(&self, values: &[T]) {
        assert_eq!(values.len(), self.count, "elements of the {}", self.name);
        if self.count > 0 {
            // SAFETY: C for the destination; the lengths are equal, and a borrowed slice is elsewhere.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.at.cast(), self.count) }
        }
    }

    /// Borrows the elements; copies those of `bool`, because not every byte is a `bool`. The buffer is checked.
    ///
    /// # Safety
    /// C: the buffer holds its elements, for as long as they are used.
    pub unsafe fn read<'a, T: Element>(&self) -> Result<Cow<'a, [T]>, Error> {
        Ok(match (self.count, T::DTYPE) {
            (0, _) => Cow::Borrowed(&[]),
            // SAFETY: by the caller's contract.
            (_, DType::Bool) => Cow::Owned(unsafe { self.copy_in()? }),
            // SAFETY: by the caller's contract, aligned and not null as checked; every pattern of bytes is a value.
            _ => Cow::Borrowed(unsafe { std::slice::from_raw_parts(self.at.cast(), self.count) }),
        })
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

/// Runs the call that `args` makes of the caller's buffers; without `send` the contribution lies in `recv`.
///
/// # Safety
/// C: both hold their elements for as long as this runs. `args` keeps nothing of the buffers but what it returns.
#[inline(always)]
pub unsafe fn run<'a>(
    comm: &Communicator,
    datatype: Datatype,
    send: Option<BufferArg>,
    recv: BufferArg,
    args: impl FnOnce(CallBuffers<'a, u8>) -> CollectiveArgs<'a>,
) -> Result<(), Error> {
    let size = datatype.size();
    recv.check(datatype)?;
    if let Some(send) = &send {
        send.check(datatype)?;
        send.check_disjoint(&recv, size)?;
    }
    // SAFETY: by the caller's contract, not null and apart as checked; bytes have no alignment.
    let (send, recv) = unsafe { (send.map(|send| bytes(send, size)), bytes_mut(recv, size)) };
    // Not every byte is a truth value: these are reduced in copies.
    let mut copies = (datatype == Datatype::Builtin(DType::Bool)).then(|| truth_values(send, recv));
    // SAFETY: by the caller's contract: what `args` returns is gone before the copies are, and before `recv` is used again.
    let (send, result) = unsafe {
        match &mut copies {
            None => (send, &mut *std::ptr::from_mut(recv)),
            Some((send, result)) => (
                send.as_ref().map(|send| &*std::ptr::from_ref(send.as_slice())),
                &mut *std::ptr::from_mut(result.as_mut_slice()),
            ),
        }
    };
    comm.run(args(CallBuffers::of_bytes(send, result, datatype)))?;
    if let Some((_, result)) = copies {
        recv.copy_from_slice(&result);
    }
    Ok(())
}

/// Copies of the buffers in which every byte is 0 or 1.
#[cold]
fn truth_values(send: Option<&[u8]>, recv: &[u8]) -> (Option<Vec<u8>>, Vec<u8>) {
    let values = |bytes: &[u8]| bytes.iter().map(|byte| u8::from(*byte != 0)).collect();
    (send.map(values), values(recv))
}

/// # Safety
/// C: the buffer, which is checked, holds its elements of `size` bytes.
#[inline]
unsafe fn bytes<'a>(buffer: BufferArg, size: usize) -> &'a [u8] {
    match buffer.count {
        0 => &[],
        // SAFETY: by the caller's contract.
        count => unsafe { std::slice::from_raw_parts(buffer.at.cast::<u8>().cast_const(), count * size) },
    }
}

/// # Safety
/// The contract of [`bytes`], and nothing else refers to them.
#[inline]
unsafe fn bytes_mut<'a>(buffer: BufferArg, size: usize) -> &'a mut [u8] {
    match buffer.count {
        0 => &mut [],
        // SAFETY: by the caller's contract.
        count => unsafe { std::slice::from_raw_parts_mut(buffer.at.cast::<u8>(), count * size) },
    }
}

/// Allocates a vector for `count` elements.
fn memory<T>(count: usize) -> Result<Vec<T>, Error> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(count).map_err(|refused| {
        Error::system(format!("memory for a copy of {count} elements of {} bytes", size_of::<T>()), refused)
    })?;
    Ok(memory)
}

/// Allocates zeroed memory for `count` elements.
pub fn zeroed_bytes(count: usize, datatype: Datatype) -> Result<Vec<u8>, Error> {
    let bytes = count.checked_mul(datatype.size());
    zeroed(bytes.ok_or_else(|| Error::usage(format!("{count} elements exceed the address space")))?)
}

/// Allocates zeroed memory for `count` elements of any type.
pub fn zeroed<T: Element>(count: usize) -> Result<Vec<T>, Error> {
    let mut zeros = memory::<T>(count)?;
    // SAFETY: the vector has room for them, and zeros are a value of every element.
    unsafe {
        zeros.as_mut_ptr().write_bytes(0, count);
        zeros.set_len(count);
    }
    Ok(zeros)
}

/// Reads an array of counts, one for each rank.
///
/// # Safety
/// C: `at` is null or holds `ranks` counts.
pub unsafe fn counts<'a>(at: *const usize, ranks: usize) -> Result<&'a [usize], Error> {
    if at.is_null() || !at.is_aligned() {
        return Err(Error::usage(format!("counts at {at:p} are no array; give {ranks} counts, one for each rank")));
    }
    // SAFETY: by the caller's contract, and checked.
    Ok(unsafe { std::slice::from_raw_parts(at, ranks) })
}

/// Returns the number of elements of `ranks` blocks of `count`.
pub fn count_of_all(count: usize, ranks: usize) -> Result<usize, Error> {
    let all = count.checked_mul(ranks);
    all.ok_or_else(|| Error::usage(format!("{count} elements for each of {ranks} ranks are too many")))
}

/// Returns the offset of each rank's block, and the sum of all counts.
pub fn block_starts(counts: &[usize]) -> Result<Vec<usize>, Error> {
    let mut starts = vec![0usize];
    for count in counts {
        let next = starts[starts.len() - 1].checked_add(*count);
        starts.push(next.ok_or_else(|| Error::usage(format!("the sum of the counts {counts:?} is too large")))?);
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::with_type;
    use earlybird::ReduceOp;

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
    fn any_byte_is_read_as_bool() {
        let comm = Communicator::connect(
            earlybird::Config::default(),
            earlybird::Identity::named(&format!("bool-{}", std::process::id()), 0, 1).unwrap(),
        )
        .unwrap();
        let (send, mut recv) = ([2u8, 0, 255], [7u8, 7, 0]);
        let [from, to] = [BufferArg::send(send.as_ptr().cast(), 3), BufferArg::recv(recv.as_mut_ptr().cast(), 3)];
        // SAFETY: three bytes each.
        let done = unsafe {
            run(&comm, DType::Bool.into(), Some(from), to, |buffers| CollectiveArgs::all_reduce(buffers, OR))
        };
        assert_eq!((done, recv), (Ok(()), [1, 0, 1]));
    }

    const OR: ReduceOp<'static> = ReduceOp::Builtin(earlybird::Op::LogicalOr);

    #[test]
    fn elements_are_aligned_as_rust_aligns_them() {
        for dtype in DType::ALL {
            let align = with_type!(dtype, T => align_of::<T>());
            assert_eq!(alignment(dtype.into()), align, "{dtype:?}");
        }
    }

    #[test]
    fn sums_of_counts_do_not_wrap() {
        assert_eq!(block_starts(&[2, 0, 3]), Ok(vec![0, 2, 2, 5]));
        assert!(block_starts(&[usize::MAX, 1]).is_err() && count_of_all(usize::MAX / 2, 3).is_err());
        // SAFETY: null is refused.
        assert!(unsafe { counts(std::ptr::null(), 2) }.is_err());
    }
}
