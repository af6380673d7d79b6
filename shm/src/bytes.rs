//! Elements as bytes, and folds of bytes, for layers that carry elements without knowing their type.
//!
//! Invariant **E (elements)**: an [`Element`] is a plain scalar without padding, for which every bit pattern is valid;
//! the trait is sealed.
#![allow(unsafe_code)]

use crate::kernels::{self, FoldFn};
use crate::op::{DType, Element, Op};

/// Up to this many bytes the narrow fold is faster.
const FEW_BYTES: usize = 64;

/// The bytes of elements.
pub fn of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: E: the bytes are initialised; the length is that of the slice.
    unsafe { core::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of elements, to write to.
pub fn of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: E: whatever is written is an element again; the length is that of the slice.
    unsafe { core::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

/// An operator on elements of a type, given as bytes.
#[derive(Debug, Clone, Copy)]
pub struct ByteFold {
    dtype: DType,
    fold: FoldFn,
    fold_few: FoldFn,
}

impl ByteFold {
    /// The operator's kernels on this processor.
    pub fn new(dtype: DType, op: Op) -> Self {
        ByteFold { dtype, fold: kernels::kernels(dtype, op).fold, fold_few: kernels::fold_few(dtype, op) }
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// `target = incoming op target` if `incoming_left`, else `target op incoming`. Any alignment.
    ///
    /// # Panics
    /// If the lengths differ or are no whole elements.
    pub fn fold(&self, target: &mut [u8], incoming: &[u8], incoming_left: bool) {
        let (bytes, size) = (target.len(), self.dtype.size());
        assert!(bytes == incoming.len() && bytes.is_multiple_of(size), "{bytes} and {} bytes", incoming.len());
        let fold = if bytes <= FEW_BYTES { self.fold_few } else { self.fold };
        let (here, there) = (target.as_mut_ptr(), incoming.as_ptr());
        let (a, b) = if incoming_left { (there, here.cast_const()) } else { (here.cast_const(), there) };
        // SAFETY: both slices hold this many elements; the borrows make them disjoint and keep others away; `dst` is one
        // of the sources.
        unsafe { fold(here, a, b, bytes / size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_fold_as_elements_do_whatever_their_alignment() {
        for count in [0, 1, 5, 100] {
            let (a, b): (Vec<i32>, Vec<i32>) = (0..count).map(|i| (i * 7 - 30, 1000 - i)).unzip();
            let mut target = vec![0; 1 + 4 * a.len()];
            target[1..].copy_from_slice(of(&a));
            let incoming = [&[9u8; 3][..], of(&b)].concat();
            ByteFold::new(DType::I32, Op::Min).fold(&mut target[1..], &incoming[3..], count % 2 == 0);
            let mut found = vec![0i32; a.len()];
            of_mut(&mut found).copy_from_slice(&target[1..]);
            assert!(found.iter().zip(a.iter().zip(&b)).all(|(f, (a, b))| f == a.min(b)), "{count}");
        }
    }

    #[test]
    #[should_panic(expected = "8 and 4 bytes")]
    fn unequal_lengths_are_refused() {
        ByteFold::new(DType::I32, Op::Sum).fold(&mut [0; 8], &[0; 4], true);
    }
}
