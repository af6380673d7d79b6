//! The operations of a communicator that move data from all to all. Those with a root are methods of
//! [`Root`](super::Root).

use super::Communicator;
use super::reductions::largest;
use crate::{Element, Error};
use earlybird_shm::Collective;

impl Communicator {
    /// Copies `send` of every rank, in rank order, to `recv` of every rank.
    ///
    /// `recv` must be as long as `send` times the ranks. What has come is copied while others are still away; cost
    /// after the last arrival: one deposit and one copy of the late rank's part.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn all_gather_into<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.all_gather(Some(send), recv, None);
        }
        self.done(self.node.all_gather_into(send, recv, self.how(Collective::AllGather, size_of_val(send))?))
    }

    /// As [`Communicator::all_gather_into`]; what this rank gives lies in its place in `buf` already.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn all_gather_in_place<T: Element>(&self, buf: &mut [T]) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.all_gather(None, buf, None);
        }
        let how = self.how(Collective::AllGather, size_of_val(buf) / self.size())?;
        self.done(self.node.all_gather_in_place(buf, how))
    }

    /// As [`Communicator::all_gather_into`] where rank `r` gives `counts[r]` elements; all ranks give the same
    /// `counts`. A rank that gives nothing is waited for by nobody.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn all_gather_varcount_into<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.all_gather(Some(send), recv, Some(counts));
        }
        let how = self.how(Collective::AllGather, largest::<T>(counts))?;
        self.done(self.node.all_gather_varcount_into(send, recv, counts, how))
    }

    /// Copies block `r` of `send` to rank `r`, and to block `r` of `recv` what rank `r` sent to this rank.
    ///
    /// `send` and `recv` must be equally long and divide evenly among the ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn all_to_all_into<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.all_to_all(Some(send), recv);
        }
        self.done(self.node.all_to_all_into(send, recv, self.how(Collective::AllToAll, size_of_val(send))?))
    }

    /// As [`Communicator::all_to_all_into`]; what is got replaces what was sent.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`].
    pub fn all_to_all_in_place<T: Element>(&self, buf: &mut [T]) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.all_to_all(None, buf);
        }
        self.done(self.node.all_to_all_in_place(buf, self.how(Collective::AllToAll, size_of_val(buf))?))
    }
}
