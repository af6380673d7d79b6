//! The prepared state of a call that differs from an earlier one in its length alone: what does not depend on the length is taken over, so that a
//! program whose lengths change from call to call is not prepared for anew each time.

use super::call_cache::{CachedCall, CallCache, CallKey};
use crate::config::Algorithm;
use crate::protocol::decide::Thresholds;

impl CallCache {
    /// Prepares the call with this key, of which nothing is kept, out of one that differs in its length alone; `None` where there is none, or
    /// where the arguments must be checked and prepared in the general way.
    #[cold]
    #[inline(never)]
    pub(super) fn prepare_of_other_length(&mut self, key: CallKey, thresholds: &Thresholds) -> Option<&CachedCall> {
        let call = self.find_of_any_length(key)?.of_other_length(key, thresholds)?;
        Some(self.insert(key, call))
    }
}

impl CachedCall {
    /// The prepared state of the call with `key`, which differs from this one in its length alone, if it goes the same way.
    fn of_other_length(&self, key: CallKey, thresholds: &Thresholds) -> Option<CachedCall> {
        let element_bytes = self.prepared.datatype().size();
        let [from, to] = [self.key?, key].map(CallKey::lengths);
        // Of a call of blocks the lengths are bytes.
        let (block, unit) = match &self.blocks {
            Some(blocks) => (blocks.block(), element_bytes),
            None if self.prepared.exchanges() || self.prepared.algorithm() != Algorithm::Flat => return None,
            None if self.prepared.is_by_user() => (from[0], element_bytes),
            None => (from[0], 1),
        };
        // Each buffer of a call that was checked holds a number of blocks that does not depend on their length.
        let [most, most_now] = [from, to].map(|[send, recv]| send.max(recv));
        let other = most_now.checked_div(most.checked_div(block)?)?;
        let fits = (0..2).all(|side| from[side] * other == to[side] * block);
        let (elements, bytes) = (other / unit, most_now / unit * element_bytes);
        if !fits || other == 0 || other % unit != 0 || bytes > self.window_bytes {
            return None;
        }
        let prepared = self.prepared.of_length(elements, thresholds)?;
        let blocks = match &self.blocks {
            None => None,
            Some(blocks) => Some(blocks.of_length(&prepared, other)?),
        };
        let signature = self.signature.of_length(elements);
        let (key, counts) = (Some(key), Box::default());
        Some(CachedCall { key, prepared, counts, blocks, signature, ..*self })
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;
    use crate::args::{CollectiveArgs, Counts};
    use crate::call_buffers::CallBuffers;
    use crate::kernels::Maker;
    use crate::op::{DType, Datatype, Op};
    use crate::protocol::call::Prepared;
    use crate::protocol::collective::Collective;
    use crate::protocol::geometry::{Exchange, Lens};
    use crate::reduce_op::ReduceOp;
    use crate::user_op::UserOp;

    const WINDOW_BYTES: usize = 64 << 10;

    /// A call of one rank of several, of blocks of any length.
    #[derive(Debug, Clone, Copy)]
    struct Shape {
        collective: Collective,
        /// Of elements of a user's type the operator is a user's, too.
        datatype: Datatype,
        in_place: bool,
        ranks: usize,
        me: usize,
        root: usize,
    }

    impl Shape {
        /// Calls `look` with the arguments for blocks of so many elements.
        fn with_args<R>(self, elements: usize, look: impl FnOnce(CollectiveArgs<'_>) -> R) -> R {
            let Shape { collective, datatype, in_place, ranks, me, root } = self;
            let exchange = Exchange::new(collective, root, ranks, Lens::Equal(elements));
            let [send, recv] = [exchange.send_count(me), exchange.recv_count(me)].map(|count| count * datatype.size());
            let (send, mut recv) =
                if in_place { (None, vec![0; send.max(recv)]) } else { (Some(vec![0; send]), vec![0; recv]) };
            let buffers = CallBuffers::of_bytes(send.as_deref(), &mut recv, datatype);
            let root = collective.traits().has_root().then_some(root);
            let larger = UserOp::commutative(|a: &[u64; 2], b: &[u64; 2]| *a.max(b));
            let op = match datatype {
                Datatype::Builtin(_) => ReduceOp::Builtin(Op::Max),
                Datatype::Opaque(_) => ReduceOp::User(&larger),
            };
            look(CollectiveArgs::describe(collective, root, Counts::Uniform, buffers, op))
        }

        fn thresholds(self) -> Thresholds {
            Thresholds::default_for(self.ranks, 2, Maker::Intel)
        }

        /// The key by which the call is looked up, if there is one.
        fn key(self, elements: usize) -> Option<CallKey> {
            self.with_args(elements, |args| CallKey::of(&args).map(|(key, _)| key))
        }

        /// The call as it is prepared in the general way.
        fn prepare(self, elements: usize) -> Option<CachedCall> {
            let Shape { collective, datatype, ranks, me, .. } = self;
            self.with_args(elements, |args| {
                let checked = args.check(me, ranks).ok()?;
                let (signature, bytes) = (checked.signature(), checked.selecting_bytes());
                let algorithm = self.thresholds().choose(collective, Algorithm::Auto, bytes, false);
                let lane = signature.in_lane(algorithm == Algorithm::Flat);
                let prepared = match datatype {
                    Datatype::Builtin(dtype) => {
                        Prepared::new(lane, dtype, Op::Max, ranks, false, algorithm).expect("it exists")
                    }
                    Datatype::Opaque(_) => Prepared::of_user(lane, datatype, ranks, false, algorithm),
                };
                let small = CallKey::of(checked.args()).filter(|(_, payload)| payload.bytes() <= WINDOW_BYTES);
                Some(CachedCall::new(signature, prepared, small, (me, WINDOW_BYTES)))
            })
        }

        /// True if calls of so many elements take the fast path.
        fn is_fast(call: &CachedCall) -> bool {
            call.blocks.is_some() || !call.prepared.exchanges() && call.prepared.algorithm() == Algorithm::Flat
        }
    }

    #[test]
    fn what_is_taken_over_is_what_would_be_prepared() {
        let (mut taken_over, mut refused) = (0, 0);
        for &collective in Collective::PUBLIC {
            let before = taken_over;
            for datatype in [DType::U8.into(), DType::F64.into(), Datatype::Opaque(16)] {
                for (ranks, me, root) in [(2, 0, 0), (2, 1, 0), (3, 0, 2), (3, 1, 1), (4, 3, 3), (9, 2, 1)] {
                    for in_place in [false, true] {
                        let shape = Shape { collective, datatype, in_place, ranks, me, root };
                        let of_shape = compare(shape);
                        taken_over += of_shape.0;
                        refused += of_shape.1;
                    }
                }
            }
            assert!(taken_over > before || !collective.traits().has_data, "{}", collective.name());
        }
        assert!(taken_over > 1000 && refused > 1000, "{taken_over} calls were taken over, {refused} were not");
    }

    /// Compares all pairs of lengths; the calls whose state was taken over from another one, and those that must be prepared.
    fn compare(shape: Shape) -> (usize, usize) {
        let (mut taken_over, mut refused) = (0, 0);
        let lengths = [0, 1, 2, 3, 13, 14, 100, 1024, 1025, 8192, 20_000, 70_000];
        for from in lengths {
            let Some((kept, key)) = shape.prepare(from).zip(shape.key(from)) else { continue };
            assert!(
                kept.key.is_none_or(|kept| kept == key),
                "{shape:?}, {from}: what is looked up is not what is kept"
            );
            for to in lengths {
                let Some(key) = shape.key(to) else { continue };
                let prepared = shape.prepare(to).expect("checked");
                match kept.of_other_length(key, &shape.thresholds()) {
                    Some(other) => {
                        assert_eq!(format!("{other:?}"), format!("{prepared:?}"), "{shape:?}, {from} and {to}");
                        taken_over += 1;
                    }
                    None => {
                        let both = Shape::is_fast(&kept) && Shape::is_fast(&prepared) && prepared.key == Some(key);
                        assert!(!both || from == 0 || to == 0, "{shape:?}, {from} and {to}");
                        refused += 1;
                    }
                }
            }
        }
        (taken_over, refused)
    }

    #[test]
    fn lengths_that_do_not_fit_each_other_are_refused() {
        let shape = Shape {
            collective: Collective::AllGather,
            datatype: DType::F64.into(),
            in_place: false,
            ranks: 3,
            me: 1,
            root: 0,
        };
        let kept = shape.prepare(4).expect("it fits");
        let refuses = |send: usize, recv: usize| {
            let (send, mut recv) = (vec![0.0f64; send], vec![0.0f64; recv]);
            let (key, _) = CallKey::of(&CollectiveArgs::all_gather((&send[..], &mut recv[..]))).expect("a key");
            kept.of_other_length(key, &shape.thresholds()).is_none()
        };
        assert!(!refuses(5, 15) && !refuses(1, 3));
        for (send, recv) in [(5, 14), (5, 16), (0, 15), (5, 0), (4, 15), (0, 0)] {
            assert!(refuses(send, recv), "{send} and {recv}");
        }
        // An even number of bytes, but not of elements.
        let shape = Shape { collective: Collective::AllToAll, ..shape };
        let kept = shape.prepare(3).expect("it fits");
        let key = |elements: usize| {
            let (send, mut recv) = (vec![0.0f64; elements], vec![0.0f64; elements]);
            CallKey::of(&CollectiveArgs::all_to_all((&send[..], &mut recv[..]))).expect("a key").0
        };
        assert!(kept.of_other_length(key(6), &shape.thresholds()).is_some());
        assert!(kept.of_other_length(key(8), &shape.thresholds()).is_none(), "8 elements for 3 ranks");
    }

    #[test]
    fn a_call_is_prepared_out_of_the_last_one_of_its_kind() {
        let shape = Shape {
            collective: Collective::Broadcast,
            datatype: DType::F64.into(),
            in_place: true,
            ranks: 3,
            me: 1,
            root: 0,
        };
        let mut calls = CallCache::default();
        let key = |shape: Shape, elements| shape.key(elements).expect("a key");
        assert!(calls.prepare_of_other_length(key(shape, 8), &shape.thresholds()).is_none(), "nothing is kept");
        calls.insert(key(shape, 7), shape.prepare(7).expect("it fits"));
        for elements in 8..300 {
            let key = key(shape, elements);
            assert!(calls.find(key, &[]).is_none());
            assert!(calls.prepare_of_other_length(key, &shape.thresholds()).is_some(), "{elements}");
            assert!(calls.find(key, &[]).is_some_and(|call| call.key == Some(key)), "{elements}");
        }
        let other = Shape { root: 2, ..shape };
        assert!(calls.prepare_of_other_length(key(other, 8), &shape.thresholds()).is_none(), "of another root");
        let other = Shape { datatype: DType::I64.into(), ..shape };
        assert!(calls.prepare_of_other_length(key(other, 8), &shape.thresholds()).is_none(), "of another type");
    }
}
