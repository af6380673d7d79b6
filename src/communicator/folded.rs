//! Reductions between nodes of what the nodes cannot carry as it is: an average is a sum that is divided when all have given,
//! truth values are bytes, halves to be averaged are summed as `f32`.

use crate::hierarchy::{of_bytes, put_truth};
use crate::{DType, Element, Error, Op};
use earlybird_shm::bytes;

/// A reduction of elements of any type.
pub(super) trait Reduction {
    /// Carries it out; without `send` what is given lies in `recv`.
    fn run<T: Element>(&self, send: Option<&[T]>, recv: &mut [T], op: Op) -> Result<(), Error>;
}

/// Carries out a reduction of `ranks` contributions by `op`. `has_result` says whether this rank gets some of the result in
/// `recv`, which is left as it is otherwise.
pub(super) fn fold<T: Element>(
    send: Option<&[T]>,
    recv: &mut [T],
    op: Op,
    (ranks, has_result): (usize, bool),
    reduction: &impl Reduction,
) -> Result<(), Error> {
    T::DTYPE.must_have(op)?;
    let copy = |elements: &[T]| bytes::of(elements).to_vec();
    match (T::DTYPE, op) {
        (DType::Bool, _) => {
            let (given, mut got) = (send.map(copy), copy(recv));
            reduction.run(given.as_deref(), &mut got, of_bytes(op))?;
            put_truth(recv, &got);
            Ok(())
        }
        (DType::F16 | DType::BF16, Op::Average) => {
            let (given, mut got) = (send.map(bytes::widened), bytes::widened(recv));
            reduction.run(given.as_deref(), &mut got, Op::Sum)?;
            if has_result {
                bytes::averaged(&got, recv, ranks);
            }
            Ok(())
        }
        (_, Op::Average) => {
            reduction.run(send, recv, Op::Sum)?;
            if has_result {
                bytes::divide(recv, ranks);
            }
            Ok(())
        }
        _ => reduction.run(send, recv, op),
    }
}
