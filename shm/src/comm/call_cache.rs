//! The prepared state of the previous call, and the key by which a small call finds that it is the same.

use crate::args::{CollectiveArgs, Counts, Placement};
use crate::op::Op;
use crate::protocol::call::Prepared;
use crate::protocol::payload::{SmallBlocks, SmallExchange, SmallPayload};
use crate::protocol::signature::Signature;
use crate::reduce_op::ReduceOp;

/// The packed arguments of a small call with blocks of one length and an operator of the library. Calls with equal keys have
/// equal prepared state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallKey {
    /// From the low end: `collective 8 | dtype 8 | op 8 | order 8 | algorithm 8 | within 16`.
    kind: u64,
    /// Elements of an allreduce; of an exchange `bytes to send 16 | bytes to receive 16 | root + 1 16 | in place 16`.
    count: usize,
}

/// Most bytes that an exchange with a key sends, or receives.
const MOST_BYTES: usize = u16::MAX as usize;

/// The payload of a call that has a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum CachedPayload<'a> {
    Flat(SmallPayload<'a>),
    Exchange(SmallExchange<'a>),
}

impl CachedPayload<'_> {
    /// Bytes of the largest buffer.
    pub(super) fn bytes(&self) -> usize {
        match self {
            CachedPayload::Flat(payload) => payload.bytes(),
            CachedPayload::Exchange(exchange) => exchange.bytes().into_iter().max().unwrap_or(0),
        }
    }
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
        let (payload, count) = match traits.reaches_all() {
            true => {
                let payload = buffers.small_payload()?;
                (CachedPayload::Flat(payload), payload.count())
            }
            false => {
                let (payload, in_place) = (buffers.small_exchange()?, buffers.are_in_place());
                // Of one buffer a rank may send or receive only a part, or nothing.
                let [send, recv] = payload.bytes();
                let [send, recv] = if in_place { [send.max(recv); 2] } else { [send, recv] };
                if send.max(recv) > MOST_BYTES {
                    return None;
                }
                // A root that cannot be is refused in the general way.
                let root = match args.root {
                    None => 0,
                    Some(root) if root < u16::MAX as usize => root + 1,
                    Some(_) => return None,
                };
                (CachedPayload::Exchange(payload), send | recv << 16 | root << 32 | usize::from(in_place) << 48)
            }
        };
        let op = if traits.folds { op } else { Op::Sum };
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
    /// The blocks of an exchange that may go the fast path.
    pub(super) blocks: Option<SmallBlocks>,
    pub(super) signature: Signature,
}

impl CachedCall {
    /// A call that is prepared, and not known by a key yet.
    pub(super) fn new(signature: Signature, prepared: Prepared<'static>) -> Self {
        CachedCall { key: None, prepared, blocks: None, signature }
    }

    /// Lets calls with the key of this one, which rank `me` makes with `small` buffers, reuse the prepared state. Deposits of one
    /// operation have at most `window_bytes`.
    pub(super) fn set_key(&mut self, small: Option<(CallKey, CachedPayload<'_>)>, me: usize, window_bytes: usize) {
        self.key = small.map(|(key, _)| key);
        self.blocks = match small {
            Some((_, CachedPayload::Exchange(exchange))) => exchange.blocks(&self.prepared, me, window_bytes),
            _ => None,
        };
    }
}
