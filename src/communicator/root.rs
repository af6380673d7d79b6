//! Operations with a root, under the names of rsmpi: `comm.process_at_rank(0).broadcast_into(&mut buf)`.

use super::Communicator;
use crate::{CallBuffers, CollectiveArgs, Counts, Element, Error, IntoReduceOp};

/// One rank of a communicator as the root of an operation.
///
/// All ranks make the same call with the same root, where the names differ the root the one that ends in `_root`. Ranks
/// leave as soon as they are not needed: the root of a broadcast or scatter when its data is stored, the others of a
/// reduce or gather when theirs is. A rank that has left meets an error of the operation at its next call.
///
/// ```
/// let comm = earlybird::Communicator::from_env()?;
/// let mut seeds = if comm.rank() == 0 { [3u64, 5, 8] } else { [0; 3] };
/// comm.process_at_rank(0).broadcast_into(&mut seeds)?;
/// assert_eq!(seeds, [3, 5, 8]);
/// # Ok::<(), earlybird::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Root<'a> {
    pub(super) comm: &'a Communicator,
    pub(super) rank: usize,
}

impl Communicator {
    /// The rank `rank` as the root of operations. One that does not exist is refused by the operation.
    pub fn process_at_rank(&self, rank: usize) -> Root<'_> {
        Root { comm: self, rank }
    }
}

impl Root<'_> {
    /// The rank of the root.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Copies `buf` of the root to `buf` of every rank.
    ///
    /// # Errors
    /// [`Error::Usage`] for a root that does not exist; others as [`Communicator::all_reduce_into`].
    pub fn broadcast_into<T: Element>(&self, buf: &mut [T]) -> Result<(), Error> {
        self.comm.run(CollectiveArgs::broadcast(self.rank, buf))
    }

    /// Gives `send` to the reduction at the root; for every rank but the root.
    ///
    /// # Errors
    /// [`Error::Usage`] on the root, or for one that does not exist; others as [`Communicator::all_reduce_into`].
    pub fn reduce_into<'a, T: 'a>(&self, send: &'a [T], op: impl IntoReduceOp<'a, T>) -> Result<(), Error> {
        self.must_be_elsewhere("reduce_into")?;
        self.comm.run(CollectiveArgs::reduce(self.rank, CallBuffers::send(send), op))
    }

    /// Reduces `send` of all ranks into `recv` of the root, which calls this.
    ///
    /// # Errors
    /// [`Error::Usage`] on another rank or for unequal lengths; others as [`Communicator::all_reduce_into`].
    pub fn reduce_into_root<'a, T: 'a>(
        &self,
        send: &'a [T],
        recv: &'a mut [T],
        op: impl IntoReduceOp<'a, T>,
    ) -> Result<(), Error> {
        self.must_be_here("reduce_into_root", "reduce_into")?;
        self.comm.run(CollectiveArgs::reduce(self.rank, (send, recv), op))
    }

    /// Reduces `buf` of all ranks into `buf` of the root; on the others it stays as it is. Every rank calls it.
    ///
    /// # Errors
    /// [`Error::Usage`] for a root that does not exist; others as [`Communicator::all_reduce_into`].
    pub fn reduce_in_place<'a, T: 'a>(&self, buf: &'a mut [T], op: impl IntoReduceOp<'a, T>) -> Result<(), Error> {
        self.comm.run(CollectiveArgs::reduce(self.rank, buf, op))
    }

    /// Gives `send` to the root; for every rank but the root.
    ///
    /// # Errors
    /// As [`Root::reduce_into`].
    pub fn gather_into<T: Element>(&self, send: &[T]) -> Result<(), Error> {
        self.must_be_elsewhere("gather_into")?;
        self.comm.run(CollectiveArgs::gather(self.rank, CallBuffers::send(send)))
    }

    /// Copies `send` of every rank, in rank order, to `recv` of the root, which calls this. `recv` is as long as `send`
    /// times the ranks.
    ///
    /// # Errors
    /// As [`Root::reduce_into_root`].
    pub fn gather_into_root<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        self.must_be_here("gather_into_root", "gather_into")?;
        self.comm.run(CollectiveArgs::gather(self.rank, (send, recv)))
    }

    /// [`Root::gather_into_root`] in place: the contribution of the root is its block of `buf`.
    ///
    /// # Errors
    /// As [`Root::reduce_into_root`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn gather_in_place_root<T: Element>(&self, buf: &mut [T]) -> Result<(), Error> {
        self.must_be_here("gather_in_place_root", "gather_into")?;
        self.comm.run(CollectiveArgs::gather(self.rank, buf))
    }

    /// [`Root::gather_into`] with blocks of different lengths: rank `r` sends `counts[r]` elements;
    /// all ranks pass the same `counts`.
    ///
    /// # Errors
    /// As [`Root::reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or `send`.
    pub fn gather_varcount_into<T: Element>(&self, send: &[T], counts: &[usize]) -> Result<(), Error> {
        self.must_be_elsewhere("gather_varcount_into")?;
        let counts = Counts::PerRank(counts);
        self.comm.run(CollectiveArgs::gather(self.rank, CallBuffers::send(send)).counts(counts))
    }

    /// [`Root::gather_into_root`] with blocks of different lengths: rank `r` sends `counts[r]` elements;
    /// all ranks pass the same `counts`.
    ///
    /// # Errors
    /// As [`Root::reduce_into_root`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn gather_varcount_into_root<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        self.must_be_here("gather_varcount_into_root", "gather_varcount_into")?;
        self.comm.run(CollectiveArgs::gather(self.rank, (send, recv)).counts(Counts::PerRank(counts)))
    }

    /// Receives this rank's block of the root's buffer; for every rank but the root.
    ///
    /// # Errors
    /// As [`Root::reduce_into`].
    pub fn scatter_into<T: Element>(&self, recv: &mut [T]) -> Result<(), Error> {
        self.must_be_elsewhere("scatter_into")?;
        self.comm.run(CollectiveArgs::scatter(self.rank, CallBuffers::recv(recv)))
    }

    /// Copies `send` of the root, which calls this, one block to each rank in rank order; its own block to `recv`.
    /// `send` is as long as `recv` times the ranks.
    ///
    /// # Errors
    /// As [`Root::reduce_into_root`].
    pub fn scatter_into_root<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        self.must_be_here("scatter_into_root", "scatter_into")?;
        self.comm.run(CollectiveArgs::scatter(self.rank, (send, recv)))
    }

    /// As [`Root::scatter_into_root`]; the root's own block stays in its place in `buf`, which is not changed.
    ///
    /// # Errors
    /// As [`Root::reduce_into_root`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn scatter_in_place_root<T: Element>(&self, buf: &mut [T]) -> Result<(), Error> {
        self.must_be_here("scatter_in_place_root", "scatter_into")?;
        self.comm.run(CollectiveArgs::scatter(self.rank, buf))
    }

    /// [`Root::scatter_into`] with blocks of different lengths: rank `r` receives `counts[r]` elements;
    /// all ranks pass the same `counts`.
    ///
    /// # Errors
    /// As [`Root::reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or `recv`.
    pub fn scatter_varcount_into<T: Element>(&self, recv: &mut [T], counts: &[usize]) -> Result<(), Error> {
        self.must_be_elsewhere("scatter_varcount_into")?;
        let counts = Counts::PerRank(counts);
        self.comm.run(CollectiveArgs::scatter(self.rank, CallBuffers::recv(recv)).counts(counts))
    }

    /// [`Root::scatter_into_root`] with blocks of different lengths: rank `r` receives `counts[r]` elements;
    /// all ranks pass the same `counts`.
    ///
    /// # Errors
    /// As [`Root::reduce_into_root`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn scatter_varcount_into_root<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        self.must_be_here("scatter_varcount_into_root", "scatter_varcount_into")?;
        self.comm.run(CollectiveArgs::scatter(self.rank, (send, recv)).counts(Counts::PerRank(counts)))
    }

    /// Refuses a call that only other ranks than the root make, and a root that does not exist.
    pub(super) fn must_be_elsewhere(&self, called: &str) -> Result<(), Error> {
        match self.rank == self.comm.rank() {
            false => Ok(()),
            true => Err(Error::usage(format!(
                "rank {} is the root and called {called}; call {called}_root there",
                self.rank
            ))),
        }
    }

    /// Refuses a call that only the root makes.
    pub(super) fn must_be_here(&self, called: &str, instead: &str) -> Result<(), Error> {
        let here = self.comm.rank();
        match self.rank == here {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "rank {here} called {called} where rank {} is the root; call {instead} on the others",
                self.rank
            ))),
        }
    }
}
