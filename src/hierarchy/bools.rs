//! Truth values as bytes, which is how they go from node to node.

use crate::{Element, Op};
use std::any::Any;

/// The operator on bytes that are 0 or 1 which gives what `op` gives on truth values.
pub(crate) fn of_bytes(op: Op) -> Op {
    match op {
        Op::BitAnd => Op::LogicalAnd,
        Op::BitOr => Op::LogicalOr,
        Op::BitXor => Op::LogicalXor,
        other => other,
    }
}

/// Bytes as truth values, of which not every byte is one.
pub(crate) fn put_truth<T: Element>(to: &mut [T], from: &[u8]) {
    for (value, byte) in to.iter_mut().zip(from) {
        if let Some(value) = (value as &mut dyn Any).downcast_mut::<bool>() {
            *value = *byte != 0;
        }
    }
}
