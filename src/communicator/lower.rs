//! Reductions over several nodes in terms of those that nodes and plans carry out: an average is a sum that is divided when
//! all have contributed, truth values are bytes, halves to be averaged are summed as `f32`.

use crate::hierarchy::of_bytes;
use crate::{DType, Error, Op};
use earlybird_shm::bytes;

/// A reduction of elements of a type by an operator: send buffer, where that is not the receive buffer, and receive buffer.
type Reduce<'r> = &'r mut dyn FnMut((DType, Op), Option<&[u8]>, &mut [u8]) -> Result<(), Error>;

/// Carries out a reduction of `ranks` contributions by means of `reduce`. Of a rank without a result `recv` is left as it is.
pub(super) fn lower(
    (dtype, op): (DType, Op),
    send: Option<&[u8]>,
    recv: &mut [u8],
    (ranks, has_result): (usize, bool),
    reduce: Reduce<'_>,
) -> Result<(), Error> {
    match (dtype, op) {
        (DType::Bool, _) => reduce((DType::U8, of_bytes(op)), send, recv),
        (DType::F16 | DType::BF16, Op::Average) => {
            let (send, mut sums) =
                (send.map(|send| bytes::widened_bytes(dtype, send)), bytes::widened_bytes(dtype, recv));
            reduce((DType::F32, Op::Sum), send.as_deref(), &mut sums)?;
            if has_result {
                bytes::averaged_bytes(dtype, &sums, recv, ranks);
            }
            Ok(())
        }
        (_, Op::Average) => {
            reduce((dtype, Op::Sum), send, recv)?;
            if has_result {
                bytes::divide_bytes(dtype, recv, ranks);
            }
            Ok(())
        }
        builtin => reduce(builtin, send, recv),
    }
}
