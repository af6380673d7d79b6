//! Reductions and the barrier of a communicator. Those with a root are methods of [`Root`](super::Root).

use super::Communicator;
use crate::plans::Plans;
use crate::{DType, Element, Error, Op};
use earlybird_shm::Collective;

impl Communicator {
    /// Reduces `send` of all ranks, element by element, into `recv` of every rank; the bits are equal on all ranks.
    ///
    /// Any count, 0 included. `recv` must be as long as `send`; after an error its contents are of no use. Integers
    /// wrap; for NaNs and zeros see [`Op`].
    ///
    /// # Errors
    /// [`Error::Usage`] for unequal lengths or a second thread; [`Error::Unsupported`] where `op` does not exist for `T`
    /// (on every rank, before anything is shared); [`Error::PeerDied`], [`Error::Mismatch`],
    /// [`Error::Timeout`], [`Error::NoSpace`]: every rank still in the call gets the same one, a rank that has
    /// completed the call gets it at its next.
    pub fn all_reduce_into<T: Element>(&self, send: &[T], recv: &mut [T], op: Op) -> Result<(), Error> {
        if let Some(how) = self.settings.straight() {
            return self.node.all_reduce_into(send, recv, op, how);
        }
        if let Some(across) = self.across() {
            return across.all_reduce(Some(send), recv, op);
        }
        if let Some(plan) = self.plan_for(Collective::AllReduce, size_of_val(send)) {
            return self.run_plan(plan, |plans| plans.all_reduce_into(plan, send, recv, op));
        }
        let how = self.how(Collective::AllReduce, size_of_val(send))?;
        self.done(self.node.all_reduce_into(send, recv, op, how))
    }

    /// An allreduce that is asked for as the call before was, its `count` elements of `dtype` given as bytes, in `recv` where nothing is
    /// to `send`: what a binding to another language, which learns the type at run time, tries first. `None`, with nothing
    /// done, for every other call, which must be made by its type.
    ///
    /// ```
    /// # let comm = earlybird::Communicator::from_env()?;
    /// use earlybird::{DType, Op};
    /// let mut value = 3i32.to_ne_bytes();
    /// if comm.all_reduce_again(DType::I32, Op::Sum, 1, None, &mut value).transpose()?.is_none() {
    ///     let mut typed = [i32::from_ne_bytes(value)];
    ///     comm.all_reduce_in_place(&mut typed, Op::Sum)?;
    ///     value = typed[0].to_ne_bytes();
    /// }
    /// assert_eq!(value, 3i32.to_ne_bytes());
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    #[inline]
    pub fn all_reduce_again(
        &self,
        dtype: DType,
        op: Op,
        count: usize,
        send: Option<&[u8]>,
        recv: &mut [u8],
    ) -> Option<Result<(), Error>> {
        self.node.all_reduce_again(dtype, op, count, send, recv, self.settings.straight()?)
    }

    /// Reduces `buf` of all ranks into `buf` of every rank. As [`Communicator::all_reduce_into`] with one buffer.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn all_reduce_in_place<T: Element>(&self, buf: &mut [T], op: Op) -> Result<(), Error> {
        if let Some(how) = self.settings.straight() {
            return self.node.all_reduce_in_place(buf, op, how);
        }
        if let Some(across) = self.across() {
            return across.all_reduce(None, buf, op);
        }
        if let Some(plan) = self.plan_for(Collective::AllReduce, size_of_val(buf)) {
            return self.run_plan(plan, |plans| plans.all_reduce_in_place(plan, buf, op));
        }
        let how = self.how(Collective::AllReduce, size_of_val(buf))?;
        self.done(self.node.all_reduce_in_place(buf, op, how))
    }

    /// Reduces many buffers of all ranks, each in its place, as one operation: gradients of a model's layers, say. Their
    /// number and lengths are the same on all ranks.
    ///
    /// Every element is copied once in and once back, into memory that the communicator keeps. Small buffers gain much,
    /// large ones lose: on two CPUs 64 buffers of 64 bytes took 2 us instead of 13 on 2 ranks and 14 us instead of 420 on
    /// 4; 64 of 16 KiB gained nothing on 2 ranks, 16 of 256 KiB took 1.5 to 3.5 times as long as one by one.
    ///
    /// ```
    /// # let comm = earlybird::Communicator::from_env()?;
    /// let (mut weights, mut bias) = ([0.5f32; 64], [1.0f32; 8]);
    /// comm.all_reduce_grouped_in_place(&mut [&mut weights, &mut bias], earlybird::Op::Average)?;
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Mismatch`] also where ranks give buffers of other lengths, even if
    /// the sums of the lengths are equal.
    pub fn all_reduce_grouped_in_place<T: Element>(&self, buffers: &mut [&mut [T]], op: Op) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.all_reduce_grouped(buffers, op);
        }
        let how = self.how(Collective::AllReduce, buffers.iter().map(|buffer| size_of_val(&**buffer)).sum())?;
        self.done(self.node.all_reduce_grouped_in_place(buffers, op, how))
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn barrier(&self) -> Result<(), Error> {
        if let Some(how) = self.settings.straight() {
            return self.node.barrier(how);
        }
        if let Some(across) = self.across() {
            return across.barrier();
        }
        if let Some(plan) = self.plan_for(Collective::Barrier, 0) {
            return self.run_plan(plan, Plans::barrier);
        }
        self.done(self.node.barrier(self.how(Collective::Barrier, 0)?))
    }

    /// Reduces `send` of all ranks, one block per rank in rank order, and gives every rank its own block in `recv`.
    ///
    /// `send` must be as long as `recv` times the ranks. Each rank folds its block as the others' come; cost after the
    /// last arrival: one deposit of the late rank and a fold of one block.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn reduce_scatter_block_into<T: Element>(&self, send: &[T], recv: &mut [T], op: Op) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.reduce_scatter(send, recv, None, op);
        }
        let how = self.how(Collective::ReduceScatter, size_of_val(recv))?;
        self.done(self.node.reduce_scatter_block_into(send, recv, op, how))
    }

    /// As [`Communicator::reduce_scatter_block_into`] with blocks of different lengths: rank `r` gets `counts[r]`
    /// elements. All ranks give the same `counts`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn reduce_scatter_varcount_into<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        op: Op,
    ) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.reduce_scatter(send, recv, Some(counts), op);
        }
        let how = self.how(Collective::ReduceScatter, largest::<T>(counts))?;
        self.done(self.node.reduce_scatter_varcount_into(send, recv, counts, op, how))
    }

    /// As [`Communicator::reduce_scatter_block_into`]; this rank's block of the result replaces its block of `buf`, whose rest
    /// stays as it is. [`Communicator::all_gather_in_place`] on the same buffer makes an allreduce of it.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn reduce_scatter_block_in_place<T: Element>(&self, buf: &mut [T], op: Op) -> Result<(), Error> {
        let block = buf.len() / self.size();
        if let Some(across) = self.across() {
            let send = buf.to_vec();
            return across.reduce_scatter(&send, &mut buf[self.rank * block..][..block], None, op);
        }
        let how = self.how(Collective::ReduceScatter, block * size_of::<T>())?;
        self.done(self.node.reduce_scatter_block_in_place(buf, op, how))
    }

    /// As [`Communicator::reduce_scatter_block_in_place`] with blocks of different lengths: block `r` has `counts[r]`
    /// elements. All ranks give the same `counts`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or `buf`.
    pub fn reduce_scatter_varcount_in_place<T: Element>(
        &self,
        buf: &mut [T],
        counts: &[usize],
        op: Op,
    ) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.reduce_scatter_in_place(buf, counts, op);
        }
        let how = self.how(Collective::ReduceScatter, largest::<T>(counts))?;
        self.done(self.node.reduce_scatter_varcount_in_place(buf, counts, op, how))
    }
}

/// Bytes of the largest of blocks with these counts: the same on all ranks.
pub(super) fn largest<T>(counts: &[usize]) -> usize {
    counts.iter().copied().max().unwrap_or(0).saturating_mul(size_of::<T>())
}
