//! Elements as bytes, and folds of bytes, for layers that carry elements without knowing their type.
//!
//! Invariant **E (elements)**: an [`Element`] is a plain scalar without padding, for which every bit pattern is valid;
//! the trait is sealed. `bool` alone has bytes that are no values, and is refused where bytes are written.
#![allow(unsafe_code)]

use crate::Error;
use crate::kernels::{self, Kernels};
use crate::op::{DType, Element, Op};

/// Up to this many bytes the narrow fold is faster.
const FEW_BYTES: usize = 64;

/// Bytes of accumulators that are folded at a time where they are wider than the elements.
const WIDE_BYTES: usize = 2048;

/// The bytes of elements.
pub fn of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: E: the bytes are initialised; the length is that of the slice.
    unsafe { core::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of elements, to write to.
///
/// # Panics
/// For `bool`, of which not every byte is a value: [`ByteFold::new`] refuses it.
pub fn of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    assert!(T::DTYPE != DType::Bool, "bytes from elsewhere are no bool");
    // SAFETY: E: whatever is written is an element again; the length is that of the slice.
    unsafe { core::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

/// Divides elements of `dtype` by a number of ranks, as an average of that many contributions is: one division each.
///
/// # Panics
/// For types without averages, and half types, whose average is taken of wider numbers: [`averaged`].
pub fn divide(dtype: DType, elements: &mut [u8], ranks: usize) {
    let mut sum = [0u8; WIDE_BYTES];
    for part in elements.chunks_mut(WIDE_BYTES / dtype.size() * dtype.size()) {
        let sum = &mut sum[..part.len()];
        sum.copy_from_slice(part);
        finish_into(dtype, part, sum, dtype.size(), ranks);
    }
}

/// Half numbers as the `f32` that they are, to be summed up without rounding to halves.
///
/// # Panics
/// For types without wider accumulators.
pub fn widened(dtype: DType, elements: &[u8]) -> Vec<u8> {
    let kernels = kernels::kernels(dtype, Op::Average).filter(|k| k.accumulator_bytes == size_of::<f32>());
    let widen = kernels.and_then(|kernels| kernels.widen).expect("a half type");
    let count = elements.len() / dtype.size();
    let mut wide = vec![0u8; count * size_of::<f32>()];
    // SAFETY: both buffers hold `count` elements, accumulators being `f32`; they are disjoint and borrowed.
    unsafe { widen(wide.as_mut_ptr(), elements.as_ptr(), count) };
    wide
}

/// The averages of `ranks` half numbers whose sums are `sums`: divided, then rounded once.
///
/// # Panics
/// For types without wider accumulators, and for unequal lengths.
pub fn averaged(dtype: DType, sums: &[u8], averages: &mut [u8], ranks: usize) {
    finish_into(dtype, averages, sums, size_of::<f32>(), ranks);
}

fn finish_into(dtype: DType, averages: &mut [u8], sums: &[u8], accumulator_bytes: usize, ranks: usize) {
    let kernels = kernels::kernels(dtype, Op::Average).filter(|k| k.accumulator_bytes == accumulator_bytes);
    let finish = kernels.and_then(|kernels| kernels.finish).expect("a type with averages and such accumulators");
    let count = averages.len() / dtype.size();
    assert_eq!(sums.len(), count * accumulator_bytes, "a sum for every average");
    // SAFETY: both buffers hold `count` elements, `sums` as accumulators; they are disjoint and borrowed.
    unsafe { finish(averages.as_mut_ptr(), sums.as_ptr(), count, ranks) };
}

/// An operator on elements of a type, given as bytes.
#[derive(Debug, Clone, Copy)]
pub struct ByteFold {
    dtype: DType,
    kernels: Kernels,
}

impl ByteFold {
    /// The operator's kernels on this processor. Half types are rounded after every fold here.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the operator does not exist for the type, for averages, which need to know when the
    /// last contribution has come, and for `bool`.
    pub fn new(dtype: DType, op: Op) -> Result<Self, Error> {
        dtype.must_have(op)?;
        let found = kernels::kernels(dtype, op).filter(|k| dtype != DType::Bool && op != Op::Average && is_closed(k));
        match found {
            Some(kernels) => Ok(ByteFold { dtype, kernels }),
            None => Err(Error::Unsupported {
                what: format!("{} of {} elements by a plan", op.name(), dtype.name()),
                hint: "use a node algorithm, or a sum that is divided after it, or u8 in place of bool".into(),
            }),
        }
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
        let fold = if bytes <= FEW_BYTES { self.kernels.fold_few } else { self.kernels.fold };
        let (Some(widen), Some(finish)) = (self.kernels.widen, self.kernels.finish) else {
            let (here, there) = (target.as_mut_ptr(), incoming.as_ptr());
            let (a, b) = if incoming_left { (there, here.cast_const()) } else { (here.cast_const(), there) };
            // SAFETY: both slices hold this many elements; the borrows make them disjoint and keep others away; `dst` is
            // one of the sources.
            return unsafe { fold(here, a, b, bytes / size) };
        };
        let mut wide = [0u8; WIDE_BYTES];
        let block = WIDE_BYTES / self.kernels.accumulator_bytes;
        for (target, incoming) in target.chunks_mut(block * size).zip(incoming.chunks(block * size)) {
            let (left, right): (&[u8], &[u8]) = if incoming_left { (incoming, target) } else { (target, incoming) };
            let count = target.len() / size;
            // SAFETY: the block holds `count` accumulators; both slices hold `count` elements; all are disjoint.
            unsafe {
                widen(wide.as_mut_ptr(), left.as_ptr(), count);
                fold(wide.as_mut_ptr(), wide.as_ptr(), right.as_ptr(), count);
                finish(target.as_mut_ptr(), wide.as_ptr(), count, 1);
            }
        }
    }
}

/// Returns whether a result can be an operand again, on either side.
fn is_closed(kernels: &Kernels) -> bool {
    kernels.widen.is_some() == kernels.finish.is_some()
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
            ByteFold::new(DType::I32, Op::Min).unwrap().fold(&mut target[1..], &incoming[3..], count % 2 == 0);
            let mut found = vec![0i32; a.len()];
            of_mut(&mut found).copy_from_slice(&target[1..]);
            assert!(found.iter().zip(a.iter().zip(&b)).all(|(f, (a, b))| f == a.min(b)), "{count}");
        }
    }

    #[test]
    #[should_panic(expected = "8 and 4 bytes")]
    fn unequal_lengths_are_refused() {
        ByteFold::new(DType::I32, Op::Sum).unwrap().fold(&mut [0; 8], &[0; 4], true);
    }

    #[test]
    fn half_types_are_folded_through_wider_ones() {
        let values: Vec<half::f16> = (0..3000).map(|i| half::f16::from_f32(i as f32 / 16.0)).collect();
        let ones = vec![half::f16::ONE; values.len()];
        for incoming_left in [false, true] {
            let mut target = values.clone();
            ByteFold::new(DType::F16, Op::Sum).unwrap().fold(of_mut(&mut target), of(&ones), incoming_left);
            let expected = values.iter().map(|v| half::f16::from_f32(v.to_f32() + 1.0));
            assert!(target.iter().copied().eq(expected));
        }
    }

    #[test]
    fn averages_are_divisions() {
        let mut sums: Vec<f64> = (0..1001).map(|i| i as f64 * 1.7).collect();
        let expected: Vec<f64> = sums.iter().map(|sum| sum / 3.0).collect();
        divide(DType::F64, of_mut(&mut sums), 3);
        assert_eq!(sums, expected);
        let mut pair = [num_complex::Complex::new(3f32, -6.0)];
        divide(DType::ComplexF32, of_mut(&mut pair), 3);
        assert_eq!(pair, [num_complex::Complex::new(1f32, -2.0)]);
        // A sum that no half can hold.
        let large = vec![half::f16::from_f32(60_000.0); 1001];
        let wide = widened(DType::F16, of(&large));
        let wide = wide.chunks(4).map(|sum| f32::from_ne_bytes(sum.try_into().unwrap()));
        let sums: Vec<f32> = wide.map(|v| v * 4.0).collect();
        let mut averages = vec![half::f16::ZERO; large.len()];
        averaged(DType::F16, of(&sums), of_mut(&mut averages), 4);
        assert_eq!(averages, large);
    }

    #[test]
    #[should_panic(expected = "a half type")]
    fn only_halves_are_widened() {
        widened(DType::F64, of(&[1f64]));
    }

    #[test]
    #[should_panic(expected = "a sum for every average")]
    fn sums_of_another_number_are_refused() {
        averaged(DType::BF16, of(&[1f32]), &mut [0; 4], 1);
    }

    #[test]
    fn what_bytes_cannot_carry_is_refused() {
        for (dtype, op) in [(DType::Bool, Op::LogicalOr), (DType::F32, Op::Average), (DType::I32, Op::MinIndex)] {
            let refused = ByteFold::new(dtype, op);
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{dtype:?} {op:?}: {refused:?}");
        }
    }
}
