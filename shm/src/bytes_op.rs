//! Operators of users on elements of which only the size is known: how other languages have them.
//!
//! A user's function works on many elements at once, and in place: it gets aligned bytes whatever the protocol has, through
//! a copy where an operand is not aligned or is the place of the result. Invariant **U** as in `user_op.rs`: elements are plain data.
#![allow(unsafe_code)]

use crate::Error;
use crate::op::{Datatype, OpIdentity};
use crate::user_op::{ReduceFn, check_element_bytes, check_tag};
use std::fmt;

/// An operator of the user's own on elements of a number of bytes: `fold(left, right)` makes every element of `right` that
/// of `left` op that of `right`. Both hold the same number of elements, one or more, at an address that is a multiple of the
/// largest power of two, up to 16, that divides their size.
///
/// It is what [`UserOp`](crate::UserOp) is for types of Rust, with the same rules.
///
/// ```
/// use earlybird_shm::BytesOp;
/// let longest = BytesOp::new(4, true, |left, right| {
///     for (left, right) in left.chunks_exact(4).zip(right.chunks_exact_mut(4)) {
///         if left > &*right {
///             right.copy_from_slice(left);
///         }
///     }
/// })?;
/// # let _ = longest;
/// # Ok::<(), earlybird_shm::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct BytesOp<F> {
    fold: F,
    bytes: usize,
    commutes: bool,
    tag: u8,
}

impl<F> fmt::Debug for BytesOp<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BytesOp { bytes, commutes, tag, .. } = self;
        f.debug_struct("BytesOp")
            .field("bytes", bytes)
            .field("commutes", commutes)
            .field("tag", tag)
            .finish_non_exhaustive()
    }
}

impl<F: Fn(&[u8], &mut [u8]) + Sync> BytesOp<F> {
    /// An operator on elements of `bytes` bytes. If it `commutes`, operands are folded as they come, or by rank under
    /// [`FoldOrder::Rank`](crate::FoldOrder::Rank); if not, by rank always, the lower ranks on the left.
    ///
    /// # Errors
    /// [`Error::Usage`] for elements without size, [`Error::Unsupported`] for elements of 16 MiB or more.
    pub fn new(bytes: usize, commutes: bool, fold: F) -> Result<Self, Error> {
        check_element_bytes(bytes)?;
        Ok(BytesOp { fold, bytes, commutes, tag: 0 })
    }

    /// Marks the operator with a number, as [`UserOp::tagged`](crate::UserOp::tagged).
    ///
    /// # Errors
    /// [`Error::Usage`] for a number above 63.
    pub fn tagged(self, tag: u8) -> Result<Self, Error> {
        check_tag(tag)?;
        Ok(BytesOp { tag, ..self })
    }

    /// The identity of the operator, as ranks compare it.
    pub fn identity(&self) -> OpIdentity {
        OpIdentity::User { ordered: !self.commutes, tag: self.tag }
    }

    /// The type of its elements.
    pub fn datatype(&self) -> Datatype {
        Datatype::Opaque(self.bytes)
    }
}

impl<F> BytesOp<F> {
    fn is_aligned(&self, at: *const u8) -> bool {
        let align = 1 << self.bytes.trailing_zeros().min(4);
        (at as usize).is_multiple_of(align)
    }
}

/// Bytes that are copied at once where an operand cannot be used where it lies.
const COPIED_AT_ONCE: usize = 4 << 10;

/// Words of an operand that is copied without an allocation.
const FEW_WORDS: usize = 8;

impl<F: Fn(&[u8], &mut [u8]) + Sync> ReduceFn for BytesOp<F> {
    fn identity(&self) -> OpIdentity {
        BytesOp::identity(self)
    }

    fn element_bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn fold(&self, dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        if count == 0 {
            return;
        }
        // Operands of a commutative operator are swapped if the result replaces the left one.
        let (left, right) = if self.commutes && std::ptr::eq(dst, a) { (b, a) } else { (a, b) };
        let (apart, bytes) = (!std::ptr::eq(dst, left), count * self.bytes);
        if apart && self.is_aligned(left) && self.is_aligned(dst) {
            // SAFETY: the contract of the trait: `dst` is `right` or disjoint from both, and disjoint from `left`, so that one
            // is borrowed and the other exclusively; any bytes are bytes.
            unsafe {
                if !std::ptr::eq(dst, right) {
                    std::ptr::copy_nonoverlapping(right, dst, bytes);
                }
                (self.fold)(std::slice::from_raw_parts(left, bytes), std::slice::from_raw_parts_mut(dst, bytes));
            }
            return;
        }
        let at_once = (COPIED_AT_ONCE / self.bytes).max(1).min(count) * self.bytes;
        let words = at_once.div_ceil(size_of::<u128>());
        let (mut few, mut many) = ([0; 2 * FEW_WORDS], Vec::new());
        let memory = if words <= FEW_WORDS {
            &mut few[..2 * words]
        } else {
            many.resize(2 * words, 0);
            &mut many[..]
        };
        let (given, result) = bytemuck::cast_slice_mut::<u128, u8>(memory).split_at_mut(words * size_of::<u128>());
        for start in (0..bytes).step_by(at_once.max(1)) {
            let len = at_once.min(bytes - start);
            // SAFETY: the contract of the trait: all ranges lie inside the operands. Both operands are copied out before the
            // result is copied in.
            unsafe {
                std::ptr::copy_nonoverlapping(left.add(start), given.as_mut_ptr(), len);
                std::ptr::copy_nonoverlapping(right.add(start), result.as_mut_ptr(), len);
                (self.fold)(&given[..len], &mut result[..len]);
                std::ptr::copy_nonoverlapping(result.as_ptr(), dst.add(start), len);
            }
        }
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;

    /// Not commutative: two 32-bit halves as a linear function, composed.
    fn compose(left: &[u8], right: &mut [u8]) {
        assert!(left.len() == right.len() && !left.is_empty());
        assert!((left.as_ptr() as usize).is_multiple_of(8) && (right.as_ptr() as usize).is_multiple_of(8));
        for (left, right) in left.chunks_exact(8).zip(right.chunks_exact_mut(8)) {
            let word = |bytes: &[u8], i: usize| u32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap());
            let (a, b, c, d) = (word(left, 0), word(left, 1), word(right, 0), word(right, 1));
            right[..4].copy_from_slice(&a.wrapping_mul(c).to_le_bytes());
            right[4..].copy_from_slice(&a.wrapping_mul(d).wrapping_add(b).to_le_bytes());
        }
    }

    fn operand(seed: u32, count: usize) -> Vec<u8> {
        (0..2 * count as u32)
            .flat_map(|i| (seed.wrapping_mul(2_654_435_761) ^ i.wrapping_mul(40_503)).to_le_bytes())
            .collect()
    }

    fn scratch(bytes: usize) -> Vec<u128> {
        vec![0; bytes.div_ceil(size_of::<u128>())]
    }

    /// Memory whose first byte is `skew` bytes off a multiple of 16, with a guard byte behind.
    fn at(skew: usize, bytes: &[u8]) -> (Vec<u128>, *mut u8) {
        let mut memory = scratch(bytes.len() + skew + 1);
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        all.fill(0xee);
        all[skew..][..bytes.len()].copy_from_slice(bytes);
        let at = all[skew..].as_mut_ptr();
        (memory, at)
    }

    #[test]
    fn operands_stand_where_they_must_however_they_lie() {
        for commutes in [false, true] {
            let op = BytesOp::new(8, commutes, compose).unwrap();
            for count in [0, 1, 3, 511, 512, 513, 2000] {
                let (left, right) = (operand(1, count), operand(2, count));
                let mut expected = right.clone();
                if count > 0 {
                    let (mut l, mut r) = (scratch(left.len()), scratch(right.len()));
                    let (l, r): (&mut [u8], &mut [u8]) =
                        (bytemuck::cast_slice_mut(&mut l), bytemuck::cast_slice_mut(&mut r));
                    l[..left.len()].copy_from_slice(&left);
                    r[..right.len()].copy_from_slice(&right);
                    compose(&l[..left.len()], &mut r[..right.len()]);
                    expected.copy_from_slice(&r[..right.len()]);
                }
                for skews in [[0, 0, 0], [0, 0, 3], [0, 5, 0], [1, 0, 0], [7, 3, 9]] {
                    for place in ["apart", "left", "right"] {
                        if commutes && place == "left" {
                            continue; // Swapped, which `compose` does not take.
                        }
                        let ((_a, a), (_b, b)) = (at(skews[0], &left), at(skews[1], &right));
                        let (_d, apart) = at(skews[2], &vec![0; left.len()]);
                        let dst = if place == "left" {
                            a
                        } else if place == "right" {
                            b
                        } else {
                            apart
                        };
                        // SAFETY: all three hold `count` elements; `dst` is one of the operands or apart.
                        let (result, guard) = unsafe {
                            op.fold(dst, a, b, count);
                            (std::slice::from_raw_parts(dst, left.len()), *dst.add(left.len()))
                        };
                        assert_eq!((result, guard), (&expected[..], 0xee), "{commutes} {count} {skews:?} {place}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_left_operand_takes_the_result() {
        let op = BytesOp::new(8, false, compose).unwrap();
        let (left, right) = (operand(3, 600), operand(4, 600));
        let mut expected = scratch(right.len());
        let (mut l, r): (_, &mut [u8]) = (scratch(left.len()), bytemuck::cast_slice_mut(&mut expected));
        let l: &mut [u8] = bytemuck::cast_slice_mut(&mut l);
        l.copy_from_slice(&left);
        r.copy_from_slice(&right);
        compose(l, r);
        let mut result = left;
        (&op as &dyn ReduceFn).fold_left(&mut result, &right).unwrap();
        assert_eq!(result, r);
        for (left, right) in [(16, 8), (8, 16), (12, 12)] {
            let refused = (&op as &dyn ReduceFn).fold_left(&mut vec![0; left], &vec![0; right]);
            assert!(
                matches!(&refused, Err(Error::Usage { message }) if message.contains("elements of 8")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn an_element_that_cannot_be_is_refused() {
        let new = |bytes| BytesOp::new(bytes, true, |_: &[u8], _: &mut [u8]| {});
        assert!(matches!(new(0), Err(Error::Usage { .. })));
        assert!(matches!(new(16 << 20), Err(Error::Unsupported { .. })));
        assert!(new(8).unwrap().tagged(63).is_ok() && new(8).unwrap().tagged(64).is_err());
    }
}
