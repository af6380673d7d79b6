//! The prepared state of the previous call, and the key by which a small call finds that it is the same.

use crate::args::{CollectiveArgs, Counts, Placement};
use crate::op::Op;
use crate::protocol::call::Prepared;
use crate::protocol::collective::Collective;
use crate::protocol::payload::{SmallExchange, SmallPayload};
use crate::protocol::signature::Signature;
use crate::reduce_op::ReduceOp;

/// The packed arguments of a small allreduce or barrier with an operator of the library, or of a small exchange of blocks of one
/// length. Calls with equal keys have equal prepared state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallKey {
    /// From the low end: `collective 8 | dtype 8 | op 8 | order 8 | algorithm 8 | within 16`.
    kind: u64,
    /// Elements of an allreduce. For an exchange, bytes to send and to receive and the root: `send 16 | receive 16 | root + 1`.
    count: usize,
}

/// Most bytes that an exchange with a key sends, or receives.
const MOST_MOVED: usize = u16::MAX as usize;

/// The payload of a call that has a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum CachedPayload<'a> {
    Reduced(SmallPayload<'a>),
    Moved(SmallExchange<'a>),
}

impl CallKey {
    /// The key of a call and its payload, if it is small and of a kind that has one.
    #[inline(always)]
    pub(super) fn of<'a>(args: &CollectiveArgs<'a>) -> Option<(CallKey, CachedPayload<'a>)> {
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
        let traits = collective.traits();
        let (payload, op, count) = match collective {
            Collective::AllReduce | Collective::Barrier | Collective::Plan => {
                let payload = buffers.small_payload()?;
                (CachedPayload::Reduced(payload), op, payload.count())
            }
            _ if !traits.folds => {
                // A broadcast has one buffer: the root sends from it, the others receive into it.
                let one_buffer = traits.has_root() && !traits.in_parts && !traits.joins();
                let payload = buffers.small_exchange(one_buffer)?;
                let [send, recv] = payload.bytes();
                let [send, recv] = if one_buffer { [send.max(recv); 2] } else { [send, recv] };
                if send.max(recv) > MOST_MOVED {
                    return None;
                }
                (CachedPayload::Moved(payload), Op::Sum, send | recv << 16 | args.root.map_or(0, |root| root + 1) << 32)
            }
            _ => return None,
        };
        let dtype = buffers.builtin_dtype()?;
        let kind = collective as u64
            | (dtype as u64) << 8
            | (op as u64) << 16
            | (options.order as u64) << 24
            | (options.algorithm as u64) << 32
            | u64::from(options.within) << 40;
        Some((CallKey { kind, count }, payload))
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
