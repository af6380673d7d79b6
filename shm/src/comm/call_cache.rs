//! The prepared state of the previous call, and the key by which a small call finds that it is the same.

use crate::args::{CollectiveArgs, Counts, Placement};
use crate::protocol::call::Prepared;
use crate::protocol::collective::Collective;
use crate::protocol::payload::SmallPayload;
use crate::protocol::signature::Signature;
use crate::reduce_op::ReduceOp;

/// The arguments of a small allreduce or barrier with an operator of the library, packed: calls with equal keys are prepared
/// alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallKey {
    /// From the low end: `collective 8 | dtype 8 | op 8 | order 8 | algorithm 8 | within 16`.
    kind: u64,
    count: usize,
}

impl CallKey {
    /// The key of a call and its payload, if it is a small allreduce or barrier.
    #[inline(always)]
    pub(super) fn of<'a>(args: &CollectiveArgs<'a>) -> Option<(CallKey, SmallPayload<'a>)> {
        let CollectiveArgs {
            collective,
            op: ReduceOp::Builtin(op),
            counts: Counts::Uniform,
            ref buffers,
            placement: Placement::Private,
            options,
            ..
        } = *args
        else {
            return None;
        };
        if !matches!(collective, Collective::AllReduce | Collective::Barrier | Collective::Plan) {
            return None;
        }
        let payload = buffers.small_payload()?;
        let kind = collective as u64
            | (payload.dtype() as u64) << 8
            | (op as u64) << 16
            | (options.order as u64) << 24
            | (options.algorithm as u64) << 32
            | u64::from(options.within) << 40;
        Some((CallKey { kind, count: payload.count() }, payload))
    }
}

/// The prepared state of the previous call.
#[derive(Debug)]
#[repr(C)]
pub(super) struct CachedCall {
    /// `None` where the previous call was not small.
    pub(super) key: Option<CallKey>,
    pub(super) prepared: Prepared<'static>,
    pub(super) signature: Signature,
}
