//! The operations of a communicator that move data from all to all. Those with a root are methods of
//! [`Root`](super::Root).

use super::Communicator;
use crate::{CollectiveArgs, Counts, Element, Error};

impl Communicator {
    /// Copies `send` of every rank, in rank order, to `recv` of every rank.
    ///
    /// `recv` must be as long as `send` times the ranks. What has come is copied while others are still away; cost
    /// after the last arrival: one deposit and one copy of the late rank's part.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn all_gather_into<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        self.run(CollectiveArgs::all_gather((send, recv)))
    }

    /// [`Communicator::all_gather_into`] in place: the contribution of this rank is its block of `buf`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn all_gather_in_place<T: Element>(&self, buf: &mut [T]) -> Result<(), Error> {
        self.run(CollectiveArgs::all_gather(buf))
    }

    /// [`Communicator::all_gather_into`] with blocks of different lengths: rank `r` sends `counts[r]` elements; all ranks pass
    /// the same `counts`. No rank waits for one that sends nothing.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn all_gather_varcount_into<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        self.run(CollectiveArgs::all_gather((send, recv)).counts(Counts::PerRank(counts)))
    }

    /// Copies block `r` of `send` to rank `r`, and to block `r` of `recv` what rank `r` sent to this rank.
    ///
    /// `send` and `recv` must be equally long and divide evenly among the ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn all_to_all_into<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        self.run(CollectiveArgs::all_to_all((send, recv)))
    }

    /// [`Communicator::all_to_all_into`] in place: the received blocks replace the sent ones.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn all_to_all_in_place<T: Element>(&self, buf: &mut [T]) -> Result<(), Error> {
        self.run(CollectiveArgs::all_to_all(buf))
    }

    /// Copies blocks of any length: `send_counts[r]` elements of `send` to rank `r`, and to `recv` what the ranks sent to this
    /// one, `recv_counts[r]` elements from rank `r`. Blocks lie one after the other in rank order, without gaps.
    ///
    /// Each rank knows its own counts only. The first operation compares them, on several nodes a small one before it; so no rank leaves
    /// before all have come. A call takes as many operations as its largest block.
    ///
    /// ```
    /// let comm = earlybird::Communicator::from_env()?;
    /// let (mine, me) = ([1u32, 2, 3], comm.rank());
    /// let mut counts = vec![0; comm.size()];
    /// counts[me] = 3; // all for this rank itself
    /// let mut got = [0; 3];
    /// comm.all_to_all_varcount_into(&mine, &counts, &mut got, &counts)?;
    /// assert_eq!(got, mine);
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] when counts do not fit the ranks or the buffers;
    /// [`Error::Mismatch`] on all ranks, which can go on, when one sends another number than is expected of it; the receive buffers are
    /// of no use then.
    pub fn all_to_all_varcount_into<T: Element>(
        &self,
        send: &[T],
        send_counts: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
    ) -> Result<(), Error> {
        let counts = Counts::PerPair { send: send_counts, recv: recv_counts };
        self.run(CollectiveArgs::all_to_all((send, recv)).counts(counts))
    }

    /// [`Communicator::all_to_all_varcount_into`] in place: each rank receives from every other one as much as it sends there: `counts[r]`
    /// elements, which replace the sent ones.
    ///
    /// # Errors
    /// As [`Communicator::all_to_all_varcount_into`].
    pub fn all_to_all_varcount_in_place<T: Element>(&self, buf: &mut [T], counts: &[usize]) -> Result<(), Error> {
        self.run(CollectiveArgs::all_to_all(buf).counts(Counts::PerPair { send: counts, recv: counts }))
    }
}
