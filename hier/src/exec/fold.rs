//! Reduction operators on bytes, with the operand that stands on the left.

use crate::plan::Side;
use crate::verify::OpTraits;
use bytemuck::Pod;
use std::marker::PhantomData;

/// A reduction operator on elements of a fixed size.
pub trait Fold {
    /// Bytes of one element.
    fn element_bytes(&self) -> usize;

    /// The properties that decide which plans the operator may use.
    fn traits(&self) -> OpTraits;

    /// True if combining a value with itself changes nothing, as a barrier needs.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// A number that differs between operators. Ranks compare it before data moves.
    fn code(&self) -> u64;

    /// Combines equally long whole elements: `incoming ⊕ target` for [`Side::Left`], `target ⊕ incoming` for
    /// [`Side::Right`], into `target`. No alignment is promised.
    fn fold(&self, target: &mut [u8], incoming: &[u8], side: Side);
}

/// A reduction operator made of a function of two values.
#[derive(Debug, Clone, Copy)]
pub struct FnOperator<T, C> {
    combine: C,
    traits: OpTraits,
    code: u64,
    element: PhantomData<T>,
}

impl<T: Pod, C: Fn(T, T) -> T> FnOperator<T, C> {
    /// An operator that computes `combine(left, right)`; `code` differs from that of other operators of the program.
    pub fn new(combine: C, traits: OpTraits, code: u64) -> Self {
        Self { combine, traits, code, element: PhantomData }
    }
}

impl<T: Pod, C: Fn(T, T) -> T> Fold for FnOperator<T, C> {
    fn element_bytes(&self) -> usize {
        size_of::<T>()
    }

    fn traits(&self) -> OpTraits {
        self.traits
    }

    fn code(&self) -> u64 {
        self.code
    }

    fn fold(&self, target: &mut [u8], incoming: &[u8], side: Side) {
        let pairs = target.chunks_exact_mut(size_of::<T>()).zip(incoming.chunks_exact(size_of::<T>()));
        // One loop per side: the side is not tested per element.
        match side {
            Side::Left => pairs.for_each(|(t, i)| {
                let value = (self.combine)(bytemuck::pod_read_unaligned(i), bytemuck::pod_read_unaligned(t));
                t.copy_from_slice(bytemuck::bytes_of(&value));
            }),
            Side::Right => pairs.for_each(|(t, i)| {
                let value = (self.combine)(bytemuck::pod_read_unaligned(t), bytemuck::pod_read_unaligned(i));
                t.copy_from_slice(bytemuck::bytes_of(&value));
            }),
        }
    }
}

/// The operator of a barrier: one byte without meaning, whose arrival is all that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Token;

impl Fold for Token {
    fn element_bytes(&self) -> usize {
        1
    }

    fn traits(&self) -> OpTraits {
        OpTraits { commutative: true, exact: true }
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    fn code(&self) -> u64 {
        1
    }

    fn fold(&self, target: &mut [u8], incoming: &[u8], _: Side) {
        target.iter_mut().zip(incoming).for_each(|(t, i)| *t |= i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_is_kept_and_alignment_is_not_needed() {
        let minus = FnOperator::new(|a: i32, b: i32| a - b, OpTraits { commutative: false, exact: true }, 7);
        let bytes = |values: [i32; 2]| [&[0u8][..], bytemuck::cast_slice(&values)].concat();
        for (side, expected) in [(Side::Left, [90, 180]), (Side::Right, [-90, -180])] {
            let (mut target, incoming) = (bytes([10, 20]), bytes([100, 200]));
            minus.fold(&mut target[1..], &incoming[1..], side);
            assert_eq!(target, bytes(expected));
        }
    }
}
