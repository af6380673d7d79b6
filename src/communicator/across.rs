//! The operations of a communicator of several nodes: arguments checked on every rank, elements seen as bytes, then
//! handed to the [`Hierarchy`].

mod posted;

use super::Communicator;
use super::lower::lower;
use crate::choice::mark_of;
use crate::hierarchy::{Call, Hierarchy, PairCounts, Part, UserReduction};
use crate::{Algorithm, Choice, Element, Error, FoldOrder, Op, SharedView};
use earlybird_shm::op::{Datatype, OpIdentity};
use earlybird_shm::{
    CallOptions, CheckedArgs, Collective, DType, ReduceOp, Signature, USER_SIZE_SHIFT, algorithms, bytes,
};
use std::borrow::Cow;
use std::sync::Arc;

/// Several nodes, and the communicator that spans them.
pub(super) struct MultiNodeCalls<'a> {
    comm: &'a Communicator,
    between: &'a Arc<Hierarchy>,
}

/// Elements of all ranks together at most: of 16 bytes, the largest that is built in, they still fit an address space.
const MOST_ELEMENTS: usize = isize::MAX as usize / 16;

impl Communicator {
    /// The other nodes, where there are some.
    #[inline]
    pub(super) fn across(&self) -> Option<MultiNodeCalls<'_>> {
        self.between.as_ref().map(|between| MultiNodeCalls { comm: self, between })
    }
}

impl<'a> MultiNodeCalls<'a> {
    /// Makes a blocking call.
    pub(super) fn run(&self, checked: CheckedArgs<'_>) -> Result<(), Error> {
        let (call, checked) = self.described(checked);
        let (collective, datatype, root) = (checked.collective(), checked.datatype(), checked.root());
        let (op, lens, pairs) = (checked.op(), checked.block_bytes(), checked.pair_counts());
        let (send, recv) = checked.into_bytes();
        let result = match collective {
            Collective::Barrier => self.between.barrier(&call),
            Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter => {
                let is_whole = collective == Collective::ReduceScatter && send.is_none();
                let send = if is_whole { Some(Cow::Owned(recv.to_vec())) } else { send };
                self.reduce(&call, (datatype, op, root), send.as_deref(), recv, &lens)
            }
            Collective::Broadcast => {
                if let Some(send) = send.filter(|_| root == self.comm.rank()) {
                    recv.copy_from_slice(&send);
                }
                self.between.broadcast(&call, root, recv)
            }
            _ => {
                let send = send.unwrap_or_else(|| Cow::Owned(recv.to_vec()));
                match (collective, pairs) {
                    (Collective::AllGather, _) => self.between.all_gather(&call, &send, recv, &lens),
                    (Collective::Gather, _) => self.between.gather(&call, root, &send, recv, &lens),
                    (Collective::Scatter, _) => self.between.scatter(&call, root, &send, recv, &lens),
                    (_, Some([send_counts, recv_counts])) => {
                        let element_bytes = datatype.size();
                        let counts = PairCounts { send: send_counts, recv: recv_counts, element_bytes };
                        self.between.all_to_all_of_pairs(&call, &counts, &send, recv)
                    }
                    (_, None) => self.between.all_to_all(&call, &send, recv),
                }
            }
        };
        if datatype == Datatype::Builtin(DType::Bool) {
            // Not every byte that another node may have sent is a truth value.
            recv.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        result
    }

    fn reduce(
        &self,
        call: &Call<'_>,
        (datatype, op, root): (Datatype, ReduceOp<'_>, usize),
        send: Option<&[u8]>,
        recv: &mut [u8],
        lens: &[usize],
    ) -> Result<(), Error> {
        let (between, collective) = (self.between, call.collective);
        let (dtype, op) = match (datatype, op) {
            (Datatype::Builtin(dtype), ReduceOp::Builtin(op)) => (dtype, op),
            (_, ReduceOp::Builtin(_)) => return Err(Error::usage("a built-in operator on elements of a user's type")),
            (_, ReduceOp::User(op)) => {
                let own = if send.is_none() && collective == Collective::Reduce { recv.to_vec() } else { Vec::new() };
                return match collective {
                    Collective::AllReduce => between.all_reduce_by_user(call, (datatype, op), send, recv),
                    Collective::Reduce => {
                        between.reduce_by_user(call, root, (datatype, op), send.unwrap_or(&own), recv)
                    }
                    _ => between.reduce_scatter_by_user(call, (datatype, op), send.unwrap_or(&[]), recv, lens),
                };
            }
        };
        let has_result = collective != Collective::Reduce || root == self.comm.rank();
        lower((dtype, op), send, recv, (self.comm.size(), has_result), &mut |fold, send, recv| match collective {
            Collective::AllReduce => between.all_reduce(call, fold, send, recv),
            Collective::Reduce => between.reduce(call, root, fold, send, recv),
            _ => {
                let lens: Vec<usize> = lens.iter().map(|len| len / dtype.size() * fold.0.size()).collect();
                between.reduce_scatter(call, fold, send.unwrap_or(&[]), recv, &lens)
            }
        })
    }

    /// The call with the settings that are chosen for it. They are a part of what ranks compare, also on ranks that exchange
    /// nothing and nodes that have chosen alike.
    fn described<'c>(&self, checked: CheckedArgs<'c>) -> (Call<'a>, CheckedArgs<'c>) {
        let (collective, bytes) = (checked.collective(), checked.selecting_bytes());
        let settings = &self.comm.settings;
        let options = settings.options(collective, bytes);
        let exchange = match settings.choice(collective, bytes) {
            Choice::Plan(name) => Some(name),
            Choice::Node(_) => None,
        };
        let within = exchange.filter(|_| collective == Collective::AllReduce).map_or(0, mark_of);
        let checked = checked.options(CallOptions { within, ..options });
        (Call { node: &self.comm.node, collective, options, signature: checked.signature(), exchange }, checked)
    }

    /// One result per node.
    pub(super) fn all_reduce_shared<T: Element>(&self, send: &[T], op: Op) -> Result<SharedView<'a, T>, Error> {
        let call = self.call::<T>(Collective::AllReduce, op, send.len(), None);
        let call = Call { signature: call.signature.shared(), ..call };
        if matches!((T::DTYPE, op), (DType::F16 | DType::BF16, Op::Average)) {
            // Its sums are wider than its elements: a copy for each rank.
            let mut result = send.to_vec();
            let builtin = (T::DTYPE.into(), ReduceOp::Builtin(op), 0);
            self.reduce(&call, builtin, None, bytes::of_mut(&mut result), &[])?;
            return Ok(SharedView::copied(result));
        }
        self.between.all_reduce_shared(&call, send, op)
    }

    /// A call with blocks of `count` elements, or of each of `counts`.
    fn call<T: Element>(&self, collective: Collective, op: Op, count: usize, root: Option<usize>) -> Call<'a> {
        self.call_of(collective, T::DTYPE.into(), op.into(), count, root)
    }

    fn call_of(
        &self,
        collective: Collective,
        element: Datatype,
        op: OpIdentity,
        count: usize,
        root: Option<usize>,
    ) -> Call<'a> {
        let bytes = count.saturating_mul(element.size());
        let options = self.comm.settings.options(collective, bytes);
        // The choice is a part of the call, also on ranks that exchange nothing and nodes that have chosen alike.
        let (algorithm, exchange) = match self.comm.settings.choice(collective, bytes) {
            Choice::Plan(name) => (Algorithm::Auto, Some(name)),
            Choice::Node(algorithm) => (algorithm, None),
        };
        let algorithm = if algorithms(collective).contains(&algorithm) { algorithm } else { Algorithm::Auto };
        let order = if collective.folds() { options.order } else { FoldOrder::Arrival };
        let signature = Signature::new(collective, element, op, order, algorithm, count);
        let signature = match exchange.filter(|_| collective == Collective::AllReduce) {
            Some(word) => signature.within(mark_of(word)),
            None => signature,
        };
        let signature = root.map_or(signature, |root| signature.rooted(root));
        Call { node: &self.comm.node, collective, options, signature, exchange }
    }

    /// A call with blocks of `block` elements, or of `counts` where they are given.
    fn call_in_blocks<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        (block, counts): (usize, Option<&[usize]>),
        root: Option<usize>,
    ) -> Call<'a> {
        let Some(counts) = counts else { return self.call::<T>(collective, op, block, root) };
        let most = counts.iter().copied().max().unwrap_or(0);
        let call = self.call::<T>(collective, op, most, root);
        Call { signature: call.signature.unequal(counts), ..call }
    }

    /// A reduction of `items` by a user's operator, as ranks compare it.
    fn call_with(
        &self,
        collective: Collective,
        op: &impl UserReduction,
        items: usize,
        root: Option<usize>,
    ) -> Result<Call<'_>, Error> {
        let (element, each) = (op.element()?, op.items());
        if !items.is_multiple_of(each) {
            let message = format!("a buffer of {items} bytes is no whole number of elements of {each} bytes");
            return Err(Error::usage(message));
        }
        let count = items / each;
        match count as u64 >> USER_SIZE_SHIFT {
            0 => Ok(self.call_of(collective, element, op.operator(), count, root)),
            _ => Err(Error::usage(format!("{count} elements of a user's operator are too many; reduce them in parts"))),
        }
    }

    fn counts(&self, counts: &[usize]) -> Result<usize, Error> {
        let ranks = self.comm.size();
        if counts.len() != ranks {
            return Err(Error::usage(format!("{} counts for {ranks} ranks; give one per rank", counts.len())));
        }
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        sum.filter(|sum| *sum <= MOST_ELEMENTS).ok_or_else(|| {
            Error::usage(format!(
                "the sum of the counts {counts:?} is too large, fewer elements are all that an address space holds; give smaller counts"
            ))
        })
    }

    fn lengths(&self, given: [usize; 2], expected: [usize; 2]) -> Result<(), Error> {
        match given == expected {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "rank {} of {}: the send buffer has {} elements and the receive buffer {}, expected are {} and {}",
                self.comm.rank(),
                self.comm.size(),
                given[0],
                given[1],
                expected[0],
                expected[1]
            ))),
        }
    }

    /// `count` elements for each rank: how many that are.
    fn of_all(&self, count: usize) -> Result<usize, Error> {
        let all = count.checked_mul(self.comm.size()).filter(|all| *all <= MOST_ELEMENTS);
        all.ok_or_else(|| Error::usage(format!("{count} elements for each of {} ranks are too many", self.comm.size())))
    }

    pub(super) fn split(&self, what: Collective, color: Option<u32>, key: i64) -> Result<Option<Part>, Error> {
        self.between.split(&self.call::<u64>(what, Op::Sum, 0, None), color, key)
    }

    /// Numbers of the last call and what ran in it.
    pub(super) fn last(&self) -> Option<super::CallReport> {
        let (operation, name) = self.between.last()?;
        Some(super::CallReport { operation, algorithm: Choice::Plan(name), place: None })
    }
}
