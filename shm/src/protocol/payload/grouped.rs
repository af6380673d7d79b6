//! Many buffers as one message, packed into memory of the group: the invariants are those of the payload (B).
#![allow(unsafe_code)]

use super::Buffers;
use crate::kernels;
use crate::op::Element;

impl<'a> Buffers<'a> {
    /// Copies `parts` one after the other into `memory`, which grows where needed: one message whose result replaces it.
    pub fn packed<T: Element, P: AsRef<[T]>>(parts: &[P], memory: &'a mut Vec<u64>) -> Self {
        let parts = || parts.iter().map(AsRef::as_ref);
        let count = parts().map(<[T]>::len).sum::<usize>();
        let words = (count * size_of::<T>()).div_ceil(8);
        if memory.len() < words {
            memory.resize(words, 0);
        }
        let mut to = memory.as_mut_ptr().cast::<u8>();
        for part in parts() {
            // SAFETY: B: the sum of all parts fits the memory, which is borrowed exclusively; so does the offset.
            unsafe {
                kernels::copy(to, part.as_ptr().cast(), size_of_val(part));
                to = to.add(size_of_val(part));
            }
        }
        Self::of_packed::<T>(memory, count)
    }

    /// The message of `count` elements that was packed into `memory`.
    pub fn of_packed<T: Element>(memory: &'a mut Vec<u64>, count: usize) -> Self {
        const { assert!(align_of::<T>() <= align_of::<u64>()) }
        assert!(count * size_of::<T>() <= size_of_val(&memory[..]), "{count} elements were not packed");
        let recv = memory.as_mut_ptr().cast::<u8>();
        Buffers::new(recv, recv, [(count, true); 2], T::DTYPE.into(), true)
    }

    /// Copies the result back into the `parts` that were packed.
    pub fn unpack<T: Element, P: AsMut<[T]> + AsRef<[T]>>(&self, parts: &mut [P]) {
        let count = parts.iter().map(|part| part.as_ref().len()).sum::<usize>();
        assert!(self.datatype == T::DTYPE.into() && count == self.recv_count, "these parts were not packed");
        let mut from = self.recv.cast_const();
        for part in parts.iter_mut().map(AsMut::as_mut) {
            // SAFETY: B: the sum of all parts is what was packed, and results are values of the type.
            unsafe {
                kernels::copy(part.as_mut_ptr().cast(), from, size_of_val(part));
                from = from.add(size_of_val(part));
            }
        }
    }
}
