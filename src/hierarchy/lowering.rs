//! A reduction in terms of one that nodes and plans carry out: an average is a sum that is divided when all have contributed,
//! `bool` elements are bytes, half-precision elements to be averaged are summed as `f32`.

use crate::{DType, Op};
use earlybird_shm::bytes;
use earlybird_shm::op::Datatype;
use earlybird_shm::{CheckedArgs, ReduceOp};
use std::borrow::Cow;

/// The elements of a call and its operator: as they were given, and as they are carried out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lowering {
    datatype: Datatype,
    /// The operator; of no meaning where the call does not reduce, none where it is a user's.
    op: Option<Op>,
}

impl Lowering {
    pub(super) fn of(datatype: Datatype, op: ReduceOp<'_>) -> Self {
        let op = match op {
            ReduceOp::Builtin(op) => Some(op),
            ReduceOp::User(_) => None,
        };
        Lowering { datatype, op }
    }

    /// Returns whether elements are summed as wider ones.
    pub(super) fn widens(self) -> bool {
        matches!((self.datatype, self.op), (Datatype::Builtin(DType::F16 | DType::BF16), Some(Op::Average)))
    }

    /// Returns whether the elements are carried out as they were given.
    pub(super) fn keeps_elements(self) -> bool {
        !self.widens() && self.datatype != Datatype::Builtin(DType::Bool)
    }

    /// The elements and the operator that are carried out, where they are the library's.
    pub(super) fn builtin(self) -> Option<(DType, Op)> {
        match (self.datatype, self.op) {
            (Datatype::Builtin(DType::Bool), Some(op)) => Some((DType::U8, of_bytes(op))),
            (Datatype::Builtin(_), Some(Op::Average)) if self.widens() => Some((DType::F32, Op::Sum)),
            (Datatype::Builtin(dtype), Some(Op::Average)) => Some((dtype, Op::Sum)),
            (Datatype::Builtin(dtype), Some(op)) => Some((dtype, op)),
            (_, None) | (Datatype::Opaque(_), _) => None,
        }
    }

    /// The elements that are carried out.
    pub(super) fn datatype(self) -> Datatype {
        self.builtin().map_or(self.datatype, |(dtype, _)| dtype.into())
    }

    /// The operator that is carried out in place of `given`.
    pub(super) fn op(self, given: ReduceOp<'_>) -> ReduceOp<'_> {
        self.builtin().map_or(given, |(_, op)| ReduceOp::Builtin(op))
    }

    /// The bytes of the elements that are carried out, for so many bytes of the call's elements.
    pub(super) fn bytes(self, given: usize) -> usize {
        if self.widens() { given / self.datatype.size() * DType::F32.size() } else { given }
    }

    /// The elements that are carried out, a copy where they are widened.
    pub(super) fn widened(self, given: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
        match self.datatype {
            Datatype::Builtin(dtype) if self.widens() => Cow::Owned(bytes::widened(dtype, &given)),
            _ => given,
        }
    }

    /// Writes the result of the call to `recv`, given the sum of `ranks` contributions, which lies in `sums` if it was widened,
    /// and in `recv` otherwise.
    pub(super) fn finish(self, sums: Option<&[u8]>, recv: &mut [u8], ranks: usize) {
        match (self.datatype, self.op, sums) {
            (Datatype::Builtin(dtype), Some(Op::Average), Some(sums)) => {
                bytes::averaged(dtype, sums, recv, ranks);
            }
            (Datatype::Builtin(dtype), Some(Op::Average), None) => bytes::divide(dtype, recv, ranks),
            _ => {}
        }
    }

    /// Makes bytes that another node may have sent valid elements: only 0 and 1 are valid as `bool`.
    pub(super) fn clean(self, bytes: &mut [u8]) {
        if self.datatype == Datatype::Builtin(DType::Bool) {
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
    }
}

impl From<&CheckedArgs<'_>> for Lowering {
    fn from(checked: &CheckedArgs<'_>) -> Self {
        Lowering::of(checked.datatype(), checked.op())
    }
}

/// The operator on bytes 0 and 1 that corresponds to `op` on `bool`.
fn of_bytes(op: Op) -> Op {
    match op {
        Op::BitAnd => Op::LogicalAnd,
        Op::BitOr => Op::LogicalOr,
        Op::BitXor => Op::LogicalXor,
        other => other,
    }
}
