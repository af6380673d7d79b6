//! Reduction operators on bytes, with the operand that stands on the left.

use crate::plan::Side;
use crate::verify::OpTraits;

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
