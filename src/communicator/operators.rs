//! Reductions by operators and on types of the caller's. Those with a root are methods of [`Root`].

use super::{Communicator, Root};
use crate::Error;
use bytemuck::Pod;
use earlybird_shm::{Collective, UserOp};

impl Communicator {
    /// Reduces `send` of all ranks, element by element, into `recv` of every rank, by an operator and on a type of the
    /// caller's. The bits are equal on all ranks if the operator gives equal bits for equal operands.
    ///
    /// ```
    /// # let comm = earlybird::Communicator::from_env()?;
    /// // Count, mean and squared distance of samples, merged pairwise.
    /// let merge = earlybird::UserOp::commutative(|a: &[f64; 3], b: &[f64; 3]| {
    ///     let (n, shift) = (a[0] + b[0], b[1] - a[1]);
    ///     [n, (a[0] * a[1] + b[0] * b[1]) / n, a[2] + b[2] + shift * shift * a[0] * b[0] / n]
    /// });
    /// let mut moments = [[4.0, 2.5, 5.0]];
    /// comm.all_reduce_in_place_with(&mut moments, &merge)?;
    /// # assert_eq!(moments, [[4.0, 2.5, 5.0]]);
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::OperatorPanicked`] on every rank when the operator panics in one;
    /// [`Error::Unsupported`] for an element larger than the arena's windows (1 MiB unless `EARLYBIRD_ARENA_MAX` makes
    /// them smaller).
    pub fn all_reduce_into_with<T, F>(&self, send: &[T], recv: &mut [T], op: &UserOp<T, F>) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        if let Some(across) = self.across() {
            return across.all_reduce_with(Some(send), recv, op);
        }
        let how = self.how(Collective::AllReduce, size_of_val(send))?;
        self.done(self.node.all_reduce_into_with(send, recv, op, how))
    }

    /// Reduces `buf` of all ranks into `buf` of every rank. As [`Communicator::all_reduce_into_with`] with one buffer.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into_with`].
    pub fn all_reduce_in_place_with<T, F>(&self, buf: &mut [T], op: &UserOp<T, F>) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        if let Some(across) = self.across() {
            return across.all_reduce_with(None, buf, op);
        }
        let how = self.how(Collective::AllReduce, size_of_val(buf))?;
        self.done(self.node.all_reduce_in_place_with(buf, op, how))
    }

    /// Reduces `send` of all ranks, one block per rank in rank order, by an operator of the caller's, and gives every rank
    /// its own block in `recv`. `send` must be as long as `recv` times the ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into_with`].
    pub fn reduce_scatter_block_into_with<T, F>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: &UserOp<T, F>,
    ) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        if let Some(across) = self.across() {
            return across.reduce_scatter_with(send, recv, op);
        }
        let how = self.how(Collective::ReduceScatter, size_of_val(recv))?;
        self.done(self.node.reduce_scatter_block_into_with(send, recv, op, how))
    }
}

impl Root<'_> {
    /// Gives `send` to the reduction at the root by an operator of the caller's; for every rank but the root.
    ///
    /// # Errors
    /// As [`Root::reduce_into`] and [`Communicator::all_reduce_into_with`].
    pub fn reduce_into_with<T, F>(&self, send: &[T], op: &UserOp<T, F>) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        if let Some(across) = self.comm.across() {
            return across.reduce_with(self.rank, send, None, op);
        }
        let how = self.comm.how(Collective::Reduce, size_of_val(send))?;
        self.comm.done(self.comm.node.reduce_into_with(send, op, self.rank, how))
    }

    /// Reduces `send` of all ranks into `recv` of the root, which calls this, by an operator of the caller's.
    ///
    /// # Errors
    /// As [`Root::reduce_into_root`] and [`Communicator::all_reduce_into_with`].
    pub fn reduce_into_root_with<T, F>(&self, send: &[T], recv: &mut [T], op: &UserOp<T, F>) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        self.must_be_here("reduce_into_root_with", "reduce_into_with")?;
        if let Some(across) = self.comm.across() {
            return across.reduce_with(self.rank, send, Some(recv), op);
        }
        let how = self.comm.how(Collective::Reduce, size_of_val(send))?;
        self.comm.done(self.comm.node.reduce_into_root_with(send, recv, op, how))
    }

    /// Reduces `buf` of all ranks into `buf` of the root by an operator of the caller's; on the others it stays as it is.
    /// Every rank calls it.
    ///
    /// # Errors
    /// As [`Root::reduce_in_place`] and [`Communicator::all_reduce_into_with`].
    pub fn reduce_in_place_with<T, F>(&self, buf: &mut [T], op: &UserOp<T, F>) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        if let Some(across) = self.comm.across() {
            if self.rank != self.comm.rank() {
                return across.reduce_with(self.rank, buf, None, op);
            }
            let own = buf.to_vec();
            return across.reduce_with(self.rank, &own, Some(buf), op);
        }
        let how = self.comm.how(Collective::Reduce, size_of_val(buf))?;
        self.comm.done(self.comm.node.reduce_in_place_with(buf, op, self.rank, how))
    }
}
