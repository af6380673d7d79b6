//! One constructor per collective: of the arguments of a call on slices, which is run, and of one on vectors, which is started.

use crate::args::{CollectiveArgs, Counts};
use crate::call_buffers::IntoCallBuffers;
use crate::op::{Element, Op};
use crate::owned_args::{OwnedArgs, WithoutBuffers};
use crate::protocol::collective::Collective;
use crate::protocol::payload::Buffers;
use crate::protocol::request_buffers::Grouped;
use crate::reduce_op::{IntoReduceOp, ReduceOp};

impl<'a> CollectiveArgs<'a> {
    /// An allreduce: the reduction of the send buffers of all ranks, in every rank's receive buffer.
    #[inline(always)]
    pub fn all_reduce<B: IntoCallBuffers<'a>, O: IntoReduceOp<'a, B::Item>>(buffers: B, op: O) -> B::Args<O::Shared> {
        Self::describe(Collective::AllReduce, None, Counts::Uniform, buffers, op)
    }

    /// A reduce: the reduction of the send buffers of all ranks, in the receive buffer of `root`. In place on every rank the
    /// buffers of the others stay as they are.
    #[inline(always)]
    pub fn reduce<B: IntoCallBuffers<'a>, O: IntoReduceOp<'a, B::Item>>(
        root: usize,
        buffers: B,
        op: O,
    ) -> B::Args<O::Shared> {
        Self::describe(Collective::Reduce, Some(root), Counts::Uniform, buffers, op)
    }

    /// A reduce-scatter: of the reduction of the send buffers of all ranks each rank receives its own block. In place the block
    /// of the result replaces the same block of the contribution.
    #[inline(always)]
    pub fn reduce_scatter<B: IntoCallBuffers<'a>, O: IntoReduceOp<'a, B::Item>>(
        buffers: B,
        op: O,
    ) -> B::Args<O::Shared> {
        Self::describe(Collective::ReduceScatter, None, Counts::Uniform, buffers, op)
    }

    /// A scan: the reduction, in rank order, of the send buffers of the ranks up to this one, in its receive buffer. By any
    /// operator but the average.
    #[inline(always)]
    pub fn scan<B: IntoCallBuffers<'a>, O: IntoReduceOp<'a, B::Item>>(buffers: B, op: O) -> B::Args<O::Shared> {
        Self::describe(Collective::Scan, None, Counts::Uniform, buffers, op)
    }

    /// An exclusive scan: the reduction, in rank order, of the send buffers of the ranks before this one, in its receive buffer.
    /// Rank 0's receive buffer does not change. Any operator but the average.
    #[inline(always)]
    pub fn exclusive_scan<B: IntoCallBuffers<'a>, O: IntoReduceOp<'a, B::Item>>(
        buffers: B,
        op: O,
    ) -> B::Args<O::Shared> {
        Self::describe(Collective::ExclusiveScan, None, Counts::Uniform, buffers, op)
    }

    /// A broadcast: `buf` of `root`, in `buf` of every rank.
    #[inline(always)]
    pub fn broadcast<B: IntoCallBuffers<'a, Item: Element>>(root: usize, buf: B) -> B::Args<Op> {
        Self::moving(Collective::Broadcast, Some(root), buf)
    }

    /// A gather: the send buffers of all ranks in rank order, in the receive buffer of `root`. In place the root's own block
    /// lies there already.
    #[inline(always)]
    pub fn gather<B: IntoCallBuffers<'a, Item: Element>>(root: usize, buffers: B) -> B::Args<Op> {
        Self::moving(Collective::Gather, Some(root), buffers)
    }

    /// An allgather: the send buffers of all ranks in rank order, in every rank's receive buffer. In place each rank's own
    /// block lies there already.
    #[inline(always)]
    pub fn all_gather<B: IntoCallBuffers<'a, Item: Element>>(buffers: B) -> B::Args<Op> {
        Self::moving(Collective::AllGather, None, buffers)
    }

    /// A scatter: one block of the send buffer of `root` to each rank in rank order. In place the root's own block stays where
    /// it is.
    #[inline(always)]
    pub fn scatter<B: IntoCallBuffers<'a, Item: Element>>(root: usize, buffers: B) -> B::Args<Op> {
        Self::moving(Collective::Scatter, Some(root), buffers)
    }

    /// An alltoall: block `r` of the send buffer to rank `r`, whose block for this rank becomes block `r` of the receive buffer.
    #[inline(always)]
    pub fn all_to_all<B: IntoCallBuffers<'a, Item: Element>>(buffers: B) -> B::Args<Op> {
        Self::moving(Collective::AllToAll, None, buffers)
    }

    /// A barrier: ends when every rank has called it. To run, or to start.
    #[inline(always)]
    pub fn barrier<A: WithoutBuffers>() -> A {
        A::without_buffers(CollectiveArgs::internal(Collective::Barrier, Buffers::in_place::<u64>(&mut [])))
    }

    /// An allreduce of many vectors as one message, each of which its result replaces; to be started.
    pub fn all_reduce_grouped<T: Element>(parts: Vec<Vec<T>>, op: Op) -> OwnedArgs<'a, Grouped<T>> {
        OwnedArgs::grouped(Self::internal(Collective::AllReduce, Buffers::in_place::<T>(&mut [])), parts.into(), op)
    }

    /// An allreduce of many messages as one, each in its place: copied one after the other into `memory`, which grows where
    /// needed, and back by [`unpack`]. `lens` are their lengths, the same on all ranks.
    pub fn all_reduce_packed<T: Element, P: AsRef<[T]>>(
        parts: &[P],
        lens: &'a [usize],
        memory: &'a mut Vec<u64>,
        op: Op,
    ) -> Self {
        let op = ReduceOp::Builtin(op);
        let packed = Self::internal(Collective::AllReduce, Buffers::packed(parts, memory));
        CollectiveArgs { op, counts: Counts::Segments(lens), ..packed }
    }

    /// Any collective, for bindings to other languages. `op` has no effect where nothing is reduced.
    #[doc(hidden)]
    #[inline(always)]
    pub fn describe<B: IntoCallBuffers<'a>, O: IntoReduceOp<'a, B::Item>>(
        collective: Collective,
        root: Option<usize>,
        counts: Counts<'a>,
        buffers: B,
        op: O,
    ) -> B::Args<O::Shared> {
        buffers.describe(op, |buffers, op| CollectiveArgs { op, root, counts, ..Self::internal(collective, buffers) })
    }

    #[inline(always)]
    fn moving<B: IntoCallBuffers<'a, Item: Element>>(
        collective: Collective,
        root: Option<usize>,
        buffers: B,
    ) -> B::Args<Op> {
        buffers.describe(Op::Sum, |buffers, _| CollectiveArgs { root, ..Self::internal(collective, buffers) })
    }
}

/// Copies the results of [`CollectiveArgs::all_reduce_packed`] back into the `parts` that were packed into `memory`.
pub fn unpack<T: Element, P: AsMut<[T]> + AsRef<[T]>>(memory: &mut Vec<u64>, parts: &mut [P]) {
    let count = parts.iter().map(|part| part.as_ref().len()).sum();
    Buffers::of_packed::<T>(memory, count).unpack(parts);
}
