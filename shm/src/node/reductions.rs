//! The reductions of a node and its barrier: arguments checked, results everywhere, at a root, or in parts.

use super::again::Asked;
use super::exchanges::sums;
use super::run::{Folding, Wish};
use super::{How, NodeComm};
use crate::Error;
use crate::op::{DType, Element, Op};
use crate::protocol::geometry::Lens;
use crate::protocol::payload::{Buffers, Few};
use crate::protocol::signature::Collective;

impl NodeComm {
    /// Reduces `send` of all ranks into `recv` of every rank.
    ///
    /// Any count, 0 included; calls larger than the arena's windows run as several operations. Cost on one node: see
    /// the algorithm files in [`crate::protocol`].
    ///
    /// # Errors
    /// [`Error::Usage`] when the lengths differ or another thread is in a call, [`Error::Unsupported`] when `op` does not
    /// exist for `T`; the group's one error otherwise. After an error `recv` holds nothing of use.
    pub fn all_reduce_into<T: Element>(&self, send: &[T], recv: &mut [T], op: Op, how: How) -> Result<(), Error> {
        self.reduce_for_all(Collective::AllReduce, op, &Buffers::apart(send, recv)?, how)
    }

    /// An allreduce that is asked for as the call before was, its `count` elements of `dtype` given as bytes, in `recv` where nothing is
    /// to `send`. `None`, with nothing done, where the call must be made by its type.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    #[inline(always)]
    pub fn all_reduce_again(
        &self,
        dtype: DType,
        op: Op,
        count: usize,
        send: Option<&[u8]>,
        recv: &mut [u8],
        how: How,
    ) -> Option<Result<(), Error>> {
        let few = Few::of_bytes(send, recv, count, dtype)?;
        self.again(Asked::new(Collective::AllReduce, dtype, op, count, how), few)
    }

    /// Reduces `buf` of all ranks into `buf` of every rank. After an error `buf` holds nothing of use.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn all_reduce_in_place<T: Element>(&self, buf: &mut [T], op: Op, how: How) -> Result<(), Error> {
        self.reduce_for_all(Collective::AllReduce, op, &Buffers::in_place(buf), how)
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn barrier(&self, how: How) -> Result<(), Error> {
        self.reduce_for_all(Collective::Barrier, Op::Sum, &Buffers::in_place::<u64>(&mut []), how)
    }

    /// A barrier of the ranks that make a call by a plan. A rank that makes another call gets [`Error::Mismatch`], as they do.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn meet_for_a_plan(&self) -> Result<(), Error> {
        self.reduce_for_all(Collective::Plan, Op::Sum, &Buffers::in_place::<u64>(&mut []), How::default())
    }

    /// Gives `send` to the reduction at another rank, `root`, and leaves as soon as it is not needed any more.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`]; [`Error::Usage`] for a root that does not exist or is this rank.
    pub fn reduce_into<T: Element>(&self, send: &[T], op: Op, root: usize, how: How) -> Result<(), Error> {
        self.other_root(root, "reduce_into", "reduce_into_root")?;
        self.reduce(Collective::Reduce, Some(root), op, &Buffers::both(send, &mut []), how)
    }

    /// Reduces `send` of all ranks into `recv` of this rank, the root.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn reduce_into_root<T: Element>(&self, send: &[T], recv: &mut [T], op: Op, how: How) -> Result<(), Error> {
        self.reduce(Collective::Reduce, Some(self.rank), op, &Buffers::apart(send, recv)?, how)
    }

    /// Reduces `buf` of all ranks into `buf` of `root`; the others' is left as it is.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`]; [`Error::Usage`] for a root that does not exist.
    pub fn reduce_in_place<T: Element>(&self, buf: &mut [T], op: Op, root: usize, how: How) -> Result<(), Error> {
        self.check_root(root)?;
        let buffers = if root == self.rank { Buffers::in_place(buf) } else { Buffers::both(buf, &mut []) };
        self.reduce(Collective::Reduce, Some(root), op, &buffers, how)
    }

    /// Reduces `send` of all ranks, one block per rank in rank order, and gives every rank its block in `recv`.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`]; [`Error::Usage`] unless `send` is as long as `recv` times the ranks.
    pub fn reduce_scatter_block_into<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: Op,
        how: How,
    ) -> Result<(), Error> {
        let lens = Lens::Equal(recv.len());
        self.exchange(Collective::ReduceScatter, Folding::Built(op), None, lens, &Buffers::both(send, recv), how)
    }

    /// As [`NodeComm::reduce_scatter_block_into`] with blocks of different lengths: rank `r` gets `counts[r]` elements.
    /// All ranks give the same `counts`.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn reduce_scatter_varcount_into<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        op: Op,
        how: How,
    ) -> Result<(), Error> {
        let starts = self.starts(counts)?;
        let lens = Lens::Each(counts, &starts);
        self.exchange(Collective::ReduceScatter, Folding::Built(op), None, lens, &Buffers::both(send, recv), how)
    }

    /// As [`NodeComm::reduce_scatter_block_into`]; this rank's block of the result replaces its block of `buf`, whose rest stays
    /// as it is.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn reduce_scatter_block_in_place<T: Element>(&self, buf: &mut [T], op: Op, how: How) -> Result<(), Error> {
        let (block, own) = self.own_block(buf.len())?;
        let (op, lens, buffers) = (Folding::Built(op), Lens::Equal(block), Buffers::kept_part(buf, own));
        self.exchange(Collective::ReduceScatter, op, None, lens, &buffers, how)
    }

    /// As [`NodeComm::reduce_scatter_block_in_place`] with blocks of different lengths, block `r` of `counts[r]` elements.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or `buf`.
    pub fn reduce_scatter_varcount_in_place<T: Element>(
        &self,
        buf: &mut [T],
        counts: &[usize],
        op: Op,
        how: How,
    ) -> Result<(), Error> {
        let starts = self.starts(counts)?;
        if buf.len() != starts[self.size] {
            let (given, expected) = (buf.len(), starts[self.size]);
            return Err(Error::usage(format!("a buffer of {given} elements, the sum of the counts is {expected}")));
        }
        let (op, lens) = (Folding::Built(op), Lens::Each(counts, &starts));
        let buffers = Buffers::kept_part(buf, starts[self.rank]..starts[self.rank + 1]);
        self.exchange(Collective::ReduceScatter, op, None, lens, &buffers, how)
    }

    /// Reduces `parts` of all ranks, each in its place, as one operation: the lengths must be the same on all ranks.
    ///
    /// Every element is copied once into memory that the group keeps, and once back.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`]; a rank with parts of other lengths is [`Error::Mismatch`], their number and
    /// total being equal or not.
    pub fn all_reduce_grouped_in_place<T: Element>(
        &self,
        parts: &mut [&mut [T]],
        op: Op,
        how: How,
    ) -> Result<(), Error> {
        let lens: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let starts = sums(&lens)?;
        let state = &mut *self.lock()?;
        let mut memory = std::mem::take(&mut state.grouped);
        let buffers = Buffers::packed::<T, _>(parts, &mut memory);
        let (lens, op) = (Lens::Each(&lens, &starts), Folding::Built(op));
        let result =
            self.carry_out_in(state, &Wish { collective: Collective::AllReduce, op, root: None, lens, how }, &buffers);
        buffers.unpack::<T, _>(parts);
        state.grouped = memory;
        result
    }

    #[inline(always)]
    fn reduce_for_all(&self, collective: Collective, op: Op, buffers: &Buffers<'_>, how: How) -> Result<(), Error> {
        let again = buffers.few().and_then(|few| {
            let asked = Asked::new(collective, few.dtype(), op, few.count(), how);
            self.again(asked, few)
        });
        again.unwrap_or_else(|| self.reduce(collective, None, op, buffers, how))
    }

    fn reduce(
        &self,
        collective: Collective,
        root: Option<usize>,
        op: Op,
        buffers: &Buffers<'_>,
        how: How,
    ) -> Result<(), Error> {
        let op = Folding::Built(op);
        self.carry_out(&Wish { collective, op, root, lens: Lens::Equal(buffers.count()), how }, buffers)
    }
}
