//! Reductions and the barrier of a communicator. Those with a root are methods of [`Root`](super::Root).

use super::Communicator;
use crate::{CollectiveArgs, Counts, Element, Error, IntoReduceOp, Op};
use earlybird_shm::unpack;

impl Communicator {
    /// Reduces `send` of all ranks, element by element, into `recv` of every rank; the bits are equal on all ranks.
    ///
    /// `op` is an [`Op`] of the library's, a [`&UserOp`](crate::UserOp) on a plain type of the caller's, or a
    /// [`&BytesOp`](crate::BytesOp) on bytes; with one of these the bits are equal on all ranks if the operator gives equal
    /// bits for equal operands.
    ///
    /// ```
    /// # let comm = earlybird::Communicator::from_env()?;
    /// // Count, mean and squared distance of samples, merged pairwise.
    /// let merge = earlybird::UserOp::commutative(|a: &[f64; 3], b: &[f64; 3]| {
    ///     let (n, shift) = (a[0] + b[0], b[1] - a[1]);
    ///     [n, (a[0] * a[1] + b[0] * b[1]) / n, a[2] + b[2] + shift * shift * a[0] * b[0] / n]
    /// });
    /// let mut moments = [[4.0, 2.5, 5.0]];
    /// comm.all_reduce_in_place(&mut moments, &merge)?;
    /// # assert_eq!(moments, [[4.0, 2.5, 5.0]]);
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// Any count, 0 included. `recv` must be as long as `send`; after an error its contents are of no use. Integers
    /// wrap; for NaNs and zeros see [`Op`].
    ///
    /// # Errors
    /// [`Error::Usage`] for unequal lengths or a second thread; [`Error::Unsupported`] where `op` does not exist for `T`
    /// (on every rank, before anything is shared); [`Error::PeerDied`], [`Error::Mismatch`],
    /// [`Error::Timeout`], [`Error::NoSpace`]: every rank still in the call returns the same one, a rank that has
    /// completed the call returns it from its next one.
    pub fn all_reduce_into<'a, T: 'a>(
        &self,
        send: &'a [T],
        recv: &'a mut [T],
        op: impl IntoReduceOp<'a, T>,
    ) -> Result<(), Error> {
        self.run(CollectiveArgs::all_reduce((send, recv), op))
    }

    /// Reduces `buf` of all ranks into `buf` of every rank. As [`Communicator::all_reduce_into`] with one buffer.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn all_reduce_in_place<'a, T: 'a>(&self, buf: &'a mut [T], op: impl IntoReduceOp<'a, T>) -> Result<(), Error> {
        self.run(CollectiveArgs::all_reduce(buf, op))
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
        let lens: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
        let mut memory = self.grouped.try_lock().map(|mut kept| std::mem::take(&mut *kept)).unwrap_or_default();
        let result = self.run(CollectiveArgs::all_reduce_packed(buffers, &lens, &mut memory, op));
        unpack(&mut memory, buffers);
        if let Ok(mut kept) = self.grouped.try_lock() {
            *kept = memory;
        }
        result
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn barrier(&self) -> Result<(), Error> {
        self.run(CollectiveArgs::barrier())
    }

    /// Reduces `send` of all ranks, one block per rank in rank order, and copies every rank's block to its `recv`.
    ///
    /// `send` must be as long as `recv` times the ranks. Each rank folds its block as the others' come; cost after the
    /// last arrival: one deposit of the late rank and a fold of one block.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn reduce_scatter_block_into<'a, T: 'a>(
        &self,
        send: &'a [T],
        recv: &'a mut [T],
        op: impl IntoReduceOp<'a, T>,
    ) -> Result<(), Error> {
        self.run(CollectiveArgs::reduce_scatter((send, recv), op))
    }

    /// [`Communicator::reduce_scatter_block_into`] with blocks of different lengths: rank `r` receives
    /// `counts[r]` elements. All ranks pass the same `counts`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn reduce_scatter_varcount_into<'a, T: 'a>(
        &self,
        send: &'a [T],
        recv: &'a mut [T],
        counts: &'a [usize],
        op: impl IntoReduceOp<'a, T>,
    ) -> Result<(), Error> {
        self.run(CollectiveArgs::reduce_scatter((send, recv), op).counts(Counts::PerRank(counts)))
    }

    /// As [`Communicator::reduce_scatter_block_into`]; this rank's block of the result replaces its block of `buf`, whose rest
    /// stays as it is. [`Communicator::all_gather_in_place`] on the same buffer makes an allreduce of it.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn reduce_scatter_block_in_place<'a, T: 'a>(
        &self,
        buf: &'a mut [T],
        op: impl IntoReduceOp<'a, T>,
    ) -> Result<(), Error> {
        self.run(CollectiveArgs::reduce_scatter(buf, op))
    }

    /// As [`Communicator::reduce_scatter_block_in_place`] with blocks of different lengths: block `r` has `counts[r]`
    /// elements. All ranks pass the same `counts`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or `buf`.
    pub fn reduce_scatter_varcount_in_place<'a, T: 'a>(
        &self,
        buf: &'a mut [T],
        counts: &'a [usize],
        op: impl IntoReduceOp<'a, T>,
    ) -> Result<(), Error> {
        self.run(CollectiveArgs::reduce_scatter(buf, op).counts(Counts::PerRank(counts)))
    }

    /// Reduces `send` of the ranks from 0 to this one, in rank order, into `recv`: that of rank 0 is its own contribution, that
    /// of the last rank the reduction of all.
    ///
    /// No rank waits for those after it. Any operator but [`Op::Average`]; it need not be commutative. The order is that of the
    /// ranks whatever was set: on one node, results that round are those of a loop over the ranks.
    ///
    /// ```
    /// # let comm = earlybird::Communicator::from_env()?;
    /// // The place of this rank's items among those of all.
    /// let (mine, mut until_mine) = ([5u64], [0u64]);
    /// comm.scan_into(&mine, &mut until_mine, earlybird::Op::Sum)?;
    /// # assert_eq!(until_mine, [5]);
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// Cost after the last arrival of those up to this rank: one deposit, and a fold of as many vectors as there are such ranks.
    ///
    /// # Errors
    /// The errors of [`Communicator::all_reduce_into`]; [`Error::Unsupported`] for an average.
    pub fn scan_into<'a, T: 'a>(
        &self,
        send: &'a [T],
        recv: &'a mut [T],
        op: impl IntoReduceOp<'a, T>,
    ) -> Result<(), Error> {
        self.run(CollectiveArgs::scan((send, recv), op))
    }

    /// The same as [`Communicator::scan_into`] with one buffer.
    ///
    /// # Errors
    /// The errors of [`Communicator::scan_into`].
    pub fn scan_in_place<'a, T: 'a>(&self, buf: &'a mut [T], op: impl IntoReduceOp<'a, T>) -> Result<(), Error> {
        self.run(CollectiveArgs::scan(buf, op))
    }

    /// Reduces `send` of the ranks before this one, in rank order, into `recv`; that of rank 0 stays as it is, and may be
    /// empty. Otherwise as [`Communicator::scan_into`].
    ///
    /// # Errors
    /// The errors of [`Communicator::scan_into`].
    pub fn exclusive_scan_into<'a, T: 'a>(
        &self,
        send: &'a [T],
        recv: &'a mut [T],
        op: impl IntoReduceOp<'a, T>,
    ) -> Result<(), Error> {
        self.run(CollectiveArgs::exclusive_scan((send, recv), op))
    }

    /// The same as [`Communicator::exclusive_scan_into`] with one buffer.
    ///
    /// # Errors
    /// The errors of [`Communicator::scan_into`].
    pub fn exclusive_scan_in_place<'a, T: 'a>(
        &self,
        buf: &'a mut [T],
        op: impl IntoReduceOp<'a, T>,
    ) -> Result<(), Error> {
        self.run(CollectiveArgs::exclusive_scan(buf, op))
    }
}
