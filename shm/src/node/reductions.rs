//! The reductions of a node and its barrier: arguments checked, results everywhere, at a root, or in parts.

use super::run::{Folding, Wish};
use super::{How, NodeComm};
use crate::Error;
use crate::op::{Element, Op};
use crate::protocol::call::Collective;
use crate::protocol::geometry::Lens;
use crate::protocol::payload::Buffers;
use crate::user_op::UserOp;
use bytemuck::Pod;

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
        self.reduce(Collective::AllReduce, None, op, &Buffers::apart(send, recv)?, how)
    }

    /// Reduces `buf` of all ranks into `buf` of every rank. After an error `buf` holds nothing of use.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn all_reduce_in_place<T: Element>(&self, buf: &mut [T], op: Op, how: How) -> Result<(), Error> {
        self.reduce(Collective::AllReduce, None, op, &Buffers::in_place(buf), how)
    }

    /// Reduces `send` of all ranks into `recv` of every rank by an operator of the caller's.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`]; [`Error::OperatorPanicked`] on every rank when the operator panics in one,
    /// [`Error::Unsupported`] when an element is larger than the arena's windows.
    pub fn all_reduce_into_with<T, F>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: &UserOp<T, F>,
        how: How,
    ) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        self.reduce_with(op, &Buffers::apart_of(send, recv)?, how)
    }

    /// Reduces `buf` of all ranks into `buf` of every rank by an operator of the caller's.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into_with`].
    pub fn all_reduce_in_place_with<T, F>(&self, buf: &mut [T], op: &UserOp<T, F>, how: How) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        self.reduce_with(op, &Buffers::in_place_of(buf)?, how)
    }

    fn reduce_with<T, F>(&self, op: &UserOp<T, F>, buffers: &Buffers<'_>, how: How) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        let (lens, op) = (Lens::Equal(buffers.count()), Folding::User(op, op.operator()));
        self.carry_out(&Wish { collective: Collective::AllReduce, op, root: None, lens, how }, buffers)
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn barrier(&self, how: How) -> Result<(), Error> {
        self.reduce(Collective::Barrier, None, Op::Sum, &Buffers::in_place::<u64>(&mut []), how)
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
        self.exchange(Collective::ReduceScatter, op, None, lens, &Buffers::both(send, recv), how)
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
        self.exchange(Collective::ReduceScatter, op, None, lens, &Buffers::both(send, recv), how)
    }

    #[inline]
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
