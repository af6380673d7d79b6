//! The prepared state of earlier calls, and the key by which a small call finds that it is one of them.

use crate::args::{CollectiveArgs, Counts, Placement};
use crate::op::{Datatype, Op};
use crate::protocol::call::Prepared;
use crate::protocol::geometry::KnownLengths;
use crate::protocol::payload::{
    Buffers, SmallBlocks, SmallExchange, SmallGather, SmallPairs, SmallPayload, SmallScatter,
};
use crate::protocol::signature::Signature;
use crate::reduce_op::ReduceOp;
use crate::user_op::ReduceFn;

/// The packed arguments of a small call. Calls with equal keys have equal prepared state, and, where each
/// rank's block has a length of its own, equal counts as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallKey {
    /// From the low end: `collective 8 | dtype 8 | op 8 | order 1 | bytes of an element of a user's operator 7 | algorithm 8 | within 16
    /// | owners announce 1 | counts for each rank 1 | for each pair 1`.
    kind: u64,
    /// Elements of an allreduce by the library's operators; of any other call `bytes to send 24 | bytes to receive 24 | root + 1 15 | in place 1`.
    count: usize,
}

/// The bits of [`CallKey::count`] that do not tell lengths, and those of [`CallKey::kind`] that tell that not all blocks have one length.
const NOT_LENGTHS: usize = !0 << 48;
const NOT_UNIFORM: u64 = !0 << 56;

/// Programs take turns between several calls, whose preparation takes longer than a small call. So the prepared state of that many is
/// kept, in sets: the arguments of a call give its set.
const SETS: usize = 16;
const CALLS_OF_A_SET: usize = 4;

/// Most bytes that an exchange with a key sends, or receives.
const MOST_BYTES: usize = (1 << 24) - 1;
/// The largest root of a call with a key.
const LAST_ROOT: usize = (1 << 15) - 2;

/// The largest elements of users' operators of a call with a key.
const MOST_ELEMENT_BYTES: usize = (1 << 7) - 1;

/// A small reduction by a user's operator.
#[derive(Clone, Copy)]
pub(super) struct ByUser<'a> {
    pub(super) buffers: &'a Buffers<'a>,
    pub(super) exchange: SmallExchange<'a>,
    pub(super) operator: &'a dyn ReduceFn,
}

/// The payload of a call that has a key.
#[derive(Clone, Copy)]
pub(super) enum CachedPayload<'a> {
    Flat(SmallPayload<'a>),
    Exchange(SmallExchange<'a>),
    /// Of blocks of which each rank's has so many elements.
    Unequal(SmallExchange<'a>, &'a [usize]),
    /// Of which the owners announce the lengths of their blocks.
    Gather(SmallGather<'a>),
    /// A scatter of which the root alone knows all lengths.
    Scatter(SmallScatter<'a>),
    /// An alltoall of which each rank knows its own blocks, and announces them.
    Pairs(SmallPairs<'a>),
    /// A reduction by a user's operator.
    User(ByUser<'a>),
}

impl CachedPayload<'_> {
    /// Bytes of the largest buffer.
    pub(super) fn bytes(&self) -> usize {
        match self {
            CachedPayload::Flat(payload) => payload.bytes(),
            CachedPayload::Exchange(exchange)
            | CachedPayload::Unequal(exchange, _)
            | CachedPayload::User(ByUser { exchange, .. }) => exchange.bytes().into_iter().max().unwrap_or(0),
            // One operation at any length, and two that find out what is left.
            CachedPayload::Gather(_) | CachedPayload::Scatter(_) | CachedPayload::Pairs(_) => 0,
        }
    }

    /// The counts by which the call differs from others with its key; none where its key says all.
    #[inline(always)]
    pub(super) fn counts(&self) -> &[usize] {
        match self {
            CachedPayload::Unequal(_, counts) => counts,
            CachedPayload::Flat(_)
            | CachedPayload::Exchange(_)
            | CachedPayload::Gather(_)
            | CachedPayload::Scatter(_)
            | CachedPayload::Pairs(_)
            | CachedPayload::User(_) => &[],
        }
    }
}

impl CallKey {
    /// The key of a call and its payload, if it is small and of a kind that has one.
    #[inline(always)]
    pub(super) fn of<'a>(args: &'a CollectiveArgs<'_>) -> Option<(CallKey, CachedPayload<'a>)> {
        let op = match args.op {
            ReduceOp::Builtin(op) => op,
            ReduceOp::User(operator) => return CallKey::by_user(args, operator),
        };
        let CollectiveArgs {
            collective,
            counts: counts @ (Counts::Uniform | Counts::PerRank([_, ..]) | Counts::PerOwner(_) | Counts::PerPair { .. }),
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
            true if !matches!(counts, Counts::Uniform) => return None,
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
                // Lengths that no rank or one alone knows tell no calls apart that begin alike: what is prepared does not depend on them.
                let by_length = match counts {
                    Counts::PerPair { .. } => false,
                    Counts::PerOwner(_) => !traits.in_parts,
                    _ => true,
                };
                let [send, recv] = if by_length { [send, recv] } else { [0; 2] };
                let count = lengths_of([send, recv], args.root, in_place)?;
                let payload = match counts {
                    Counts::PerOwner(counts) if traits.in_parts => {
                        CachedPayload::Scatter(buffers.small_scatter(counts)?)
                    }
                    Counts::PerOwner(counts) => CachedPayload::Gather(buffers.small_gather(counts)?),
                    Counts::PerRank(counts) => CachedPayload::Unequal(payload, counts),
                    Counts::PerPair { send, recv } => CachedPayload::Pairs(buffers.small_pairs([send, recv])?),
                    _ => CachedPayload::Exchange(payload),
                };
                (payload, count)
            }
        };
        let op = if traits.folds { op } else { Op::Sum };
        let dtype = buffers.builtin_dtype()?;
        let kind = collective as u64
            | (dtype as u64) << 8
            | (op as u64) << 16
            | (traits.fold_order(options.order) as u64) << 24
            | (options.algorithm as u64) << 32
            | u64::from(options.within) << 40
            | u64::from(matches!(counts, Counts::PerOwner(_))) << 56
            | u64::from(matches!(counts, Counts::PerRank(_))) << 57
            | u64::from(matches!(counts, Counts::PerPair { .. })) << 58;
        Some((CallKey { kind, count }, payload))
    }

    /// The same of a reduction by a user's operator, of blocks of one length.
    #[inline(never)]
    fn by_user<'a>(args: &'a CollectiveArgs<'_>, operator: &'a dyn ReduceFn) -> Option<(CallKey, CachedPayload<'a>)> {
        let CollectiveArgs {
            collective,
            counts: Counts::Uniform,
            ref buffers,
            placement: Placement::Private,
            options,
            root,
            ..
        } = *args
        else {
            return None;
        };
        let (traits, in_place, element_bytes) = (collective.traits(), buffers.are_in_place(), operator.element_bytes());
        let exchange = buffers.small_exchange_by_user()?;
        let [send, recv] = exchange.bytes();
        let lengths = if in_place { [send.max(recv); 2] } else { [send, recv] };
        let is_small = element_bytes <= MOST_ELEMENT_BYTES && lengths.into_iter().all(|bytes| bytes <= MOST_BYTES);
        // Arguments that do not fit are refused in the general way.
        if !is_small
            || !traits.folds
            || element_bytes != buffers.datatype().size()
            || traits.reaches_all() && send != recv
        {
            return None;
        }
        let kind = collective as u64
            | u64::from(buffers.datatype().code()) << 8
            | u64::from(operator.identity().code()) << 16
            | (traits.fold_order(options.order) as u64) << 24
            | (element_bytes as u64) << 25
            | (options.algorithm as u64) << 32
            | u64::from(options.within) << 40;
        let count = lengths_of(lengths, root, in_place)?;
        Some((CallKey { kind, count }, CachedPayload::User(ByUser { buffers, exchange, operator })))
    }

    /// The key of any call that differs from this one in its length at most, if all blocks have one length.
    pub(super) fn of_any_length(self) -> Option<CallKey> {
        (self.kind & NOT_UNIFORM == 0).then_some(CallKey { count: self.count & NOT_LENGTHS, ..self })
    }

    /// The lengths in [`CallKey::count`]; of an allreduce by the library's operators its elements.
    pub(super) fn lengths(self) -> [usize; 2] {
        [self.count & MOST_BYTES, self.count >> 24 & MOST_BYTES]
    }

    fn words(self) -> [u64; 2] {
        [self.kind, self.count as u64]
    }
}

/// See [`CallKey::count`]; `None` for a root that cannot be, which is refused in the general way.
#[inline(always)]
fn lengths_of([send, recv]: [usize; 2], root: Option<usize>, in_place: bool) -> Option<usize> {
    let root = match root {
        None => 0,
        Some(root) if root <= LAST_ROOT => root + 1,
        Some(_) => return None,
    };
    Some(send | recv << 24 | root << 48 | usize::from(in_place) << 63)
}

/// The prepared state of an earlier call.
#[derive(Debug)]
#[repr(C)]
pub(super) struct CachedCall {
    /// `None` where the call was not small.
    pub(super) key: Option<CallKey>,
    pub(super) prepared: Prepared<'static>,
    /// See [`CachedPayload::counts`].
    pub(super) counts: Box<[usize]>,
    /// The blocks of an exchange that may go the fast path.
    pub(super) blocks: Option<SmallBlocks>,
    /// Bytes of the largest deposit, and elements of each block in one where ranks announce their lengths.
    pub(super) window_bytes: usize,
    pub(super) announced_stride: usize,
    pub(super) signature: Signature,
}

impl CachedCall {
    /// The prepared state of a call. Later ones with the key of its `small` buffers reuse it; on rank `me` deposits of one operation have
    /// at most `window_bytes`.
    pub(super) fn new(
        signature: Signature,
        prepared: Prepared<'static>,
        small: Option<(CallKey, CachedPayload<'_>)>,
        (me, window_bytes): (usize, usize),
    ) -> Self {
        let blocks_of = |exchange: SmallExchange<'_>, lengths| {
            SmallBlocks::new(&prepared, exchange.bytes(), me, window_bytes, lengths)
        };
        let blocks = small.and_then(|(_, payload)| match payload {
            CachedPayload::Exchange(exchange) => blocks_of(exchange, KnownLengths::Equal),
            CachedPayload::Unequal(exchange, counts) => blocks_of(exchange, KnownLengths::Each(counts)),
            CachedPayload::Gather(gather) => blocks_of(gather.exchange, KnownLengths::Own),
            CachedPayload::User(call) => blocks_of(call.exchange, KnownLengths::Equal),
            CachedPayload::Flat(_) | CachedPayload::Scatter(_) | CachedPayload::Pairs(_) => None,
        });
        let counts = small.map_or_else(Box::default, |(_, payload)| payload.counts().into());
        let announced_stride = SmallPairs::stride(&prepared, window_bytes);
        let key = small.map(|(key, _)| key);
        CachedCall { key, prepared, counts, blocks, window_bytes, announced_stride, signature }
    }
}

/// The prepared state of earlier calls.
#[derive(Debug, Default)]
pub(super) struct CallCache {
    sets: [Set; SETS],
    /// The set and the place of the last call that was prepared of those that differ in their length at most, by the set of
    /// [`CallKey::of_any_length`].
    of_any_length: [(u8, u8); SETS],
}

/// The calls of a set, and the place of the next one that is not there: the oldest has to go.
#[derive(Debug, Default)]
struct Set {
    calls: [Option<CachedCall>; CALLS_OF_A_SET],
    next: usize,
}

impl CallCache {
    /// The prepared state of the call with this key and these [`CachedPayload::counts`].
    #[inline(always)]
    pub(super) fn find(&self, key: CallKey, counts: &[usize]) -> Option<&CachedCall> {
        let set = &self.sets[set_of(key.words())];
        let is_it = |cached: &&CachedCall| cached.key == Some(key) && (counts.is_empty() || *cached.counts == *counts);
        set.calls.iter().find_map(|place| place.as_ref().filter(is_it))
    }

    /// The place of a call: the one that has its prepared state, or an empty one, from which the oldest call of the set had to go.
    pub(super) fn place(
        &mut self,
        small: Option<(CallKey, &[usize])>,
        (signature, datatype): (Signature, Datatype),
    ) -> &mut Option<CachedCall> {
        let (key, counts) = small.unzip();
        let number = set_of(key.map_or([signature.kind, signature.count], CallKey::words));
        let set = &mut self.sets[number];
        let counts = counts.unwrap_or_default();
        // The signature of blocks with lengths of their own does not tell the size of a user's type.
        let is_of_call = |cached: &CachedCall| {
            let of = (cached.key, cached.signature, cached.prepared.datatype(), &*cached.counts);
            of == (key, signature, datatype, counts)
        };
        let at = match set.calls.iter().position(|place| place.as_ref().is_some_and(is_of_call)) {
            Some(at) => at,
            None => self.make_room(number, key),
        };
        &mut self.sets[number].calls[at]
    }

    /// Empties the place of the oldest call of a set for one with this key.
    fn make_room(&mut self, number: usize, key: Option<CallKey>) -> usize {
        let set = &mut self.sets[number];
        let at = set.next;
        set.next = (at + 1) % CALLS_OF_A_SET;
        set.calls[at] = None;
        if let Some(key) = key.and_then(CallKey::of_any_length) {
            self.of_any_length[set_of(key.words())] = (number as u8, at as u8);
        }
        at
    }

    /// The last call that was prepared and differs from that of `key` in its length alone.
    pub(super) fn find_of_any_length(&self, key: CallKey) -> Option<&CachedCall> {
        let of_any_length = key.of_any_length()?;
        let (set, at) = self.of_any_length[set_of(of_any_length.words())];
        let call = self.sets[usize::from(set)].calls[usize::from(at)].as_ref();
        call.filter(|call| call.key.and_then(CallKey::of_any_length) == Some(of_any_length))
    }

    /// Keeps the prepared state of a call whose key is not there.
    pub(super) fn insert(&mut self, key: CallKey, call: CachedCall) -> &CachedCall {
        let number = set_of(key.words());
        let at = self.make_room(number, Some(key));
        self.sets[number].calls[at].insert(call)
    }

    /// Forgets all calls.
    pub(super) fn clear(&mut self) {
        *self = CallCache::default();
    }
}

/// The set of a call that these words tell from others.
#[inline(always)]
fn set_of([kind, count]: [u64; 2]) -> usize {
    // Lengths stand at several places of a word, so that one multiplication leaves neighbours together.
    let once = kind.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ count.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    let twice = (once ^ once >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (twice >> (u64::BITS - SETS.ilog2())) as usize
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;
    use crate::config::Algorithm;
    use crate::op::{DType, FoldOrder};
    use crate::protocol::collective::Collective;

    fn signature(count: usize) -> Signature {
        Signature::new(Collective::AllReduce, DType::F64, Op::Sum, FoldOrder::Arrival, Algorithm::Auto, count)
    }

    fn key(count: usize) -> CallKey {
        CallKey { kind: 7, count }
    }

    /// Prepares an allreduce of so many elements, as a call of it does.
    fn prepare(calls: &mut CallCache, count: usize) {
        let signature = signature(count);
        let place = calls.place(Some((key(count), &[])), (signature, DType::F64.into()));
        let prepared = Prepared::new(signature, DType::F64, Op::Sum, 2, false, Algorithm::Flat).expect("f64 has a sum");
        *place = Some(CachedCall { key: Some(key(count)), ..CachedCall::new(signature, prepared, None, (0, 0)) });
    }

    #[test]
    fn calls_that_take_turns_are_kept_behind_any_number_of_earlier_ones() {
        let mut calls = CallCache::default();
        for first in 0..200 {
            let counts = first..first + CALLS_OF_A_SET;
            for count in counts.clone().chain(counts.clone()) {
                if calls.find(key(count), &[]).is_none() {
                    prepare(&mut calls, count);
                }
            }
            for count in counts {
                let found = calls.find(key(count), &[]).expect("kept");
                assert_eq!(found.signature, signature(count));
                assert!(
                    calls.place(Some((key(count), &[])), (signature(count), DType::F64.into())).is_some(),
                    "it has its place again"
                );
            }
        }
        calls.clear();
        assert!((0..300).all(|count| calls.find(key(count), &[]).is_none()));
    }

    #[test]
    fn calls_of_neighbouring_lengths_are_spread_over_the_sets() {
        // In place both lengths are the same, so the words differ in two places.
        for (step, root) in [(4, 1), (8, 1), (8, 2), (1024, 1)] {
            let words = (1..=16).map(|n| step * n).map(|bytes| [7, bytes | (bytes << 24) | (root << 48) | (1 << 63)]);
            let mut calls = [0; SETS];
            words.for_each(|words| calls[set_of(words)] += 1);
            assert!(
                calls.iter().all(|n| *n <= CALLS_OF_A_SET),
                "{calls:?} of {step} bytes and more, root {}",
                root - 1
            );
        }
    }

    #[test]
    fn the_newest_call_is_kept_and_all_places_are_used() {
        let mut calls = CallCache::default();
        for count in 0..1000 {
            prepare(&mut calls, count);
            assert!(calls.find(key(count), &[]).is_some_and(|found| found.signature == signature(count)), "{count}");
            assert!(calls.find(CallKey { kind: 8, count }, &[]).is_none());
        }
        assert_eq!(calls.sets.iter().flat_map(|set| &set.calls).flatten().count(), SETS * CALLS_OF_A_SET);
    }
}
