//! The posted alltoall of blocks that differ for every pair of ranks.

use super::request::{Pair, two};
use super::{Communicator, Persistent, Request};
use crate::{Element, Error};
use earlybird_shm::{Collective, OwnedBuffers};

impl Communicator {
    /// Posts [`Communicator::all_to_all_varcount_into`].
    ///
    /// On one node what this rank sends is given in the posting call: it lies in shared memory of the node, whole pages out of
    /// [`Config::arena_max_bytes`](crate::Config), until every rank has got its part. Over several nodes the data are given when
    /// all counts have been compared, in a later call of this communicator: a rank that does not come back to it holds up the
    /// others.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`]; [`Error::Usage`] when counts do not fit the ranks or the buffers. At
    /// [`Request::wait`] also [`Error::Mismatch`] where one sends another number than is expected of it, and on one node
    /// [`Error::NoSpace`] where what one sends finds no shared memory: on all ranks, which can go on.
    pub fn immediate_all_to_all_varcount_into<T: Element>(
        &self,
        send: Vec<T>,
        send_counts: &[usize],
        recv: Vec<T>,
        recv_counts: &[usize],
    ) -> Result<Request<'_, Pair<T>>, Error> {
        self.all_to_all_varcount_into_init(send, send_counts, recv, recv_counts)?.into_request()
    }

    /// Prepares [`Communicator::immediate_all_to_all_varcount_into`] to be started any number of times, with these counts.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_to_all_varcount_into`], but for those of the group.
    pub fn all_to_all_varcount_into_init<T: Element>(
        &self,
        send: Vec<T>,
        send_counts: &[usize],
        recv: Vec<T>,
        recv_counts: &[usize],
    ) -> Result<Persistent<'_, Pair<T>>, Error> {
        let owned = OwnedBuffers::apart(send, recv);
        if let Some(across) = self.across() {
            return Ok(self.persistent(across.prepared_pairs(send_counts, recv_counts, owned)?, two));
        }
        let bytes = size_of_val(&owned.recv[..]).max(size_of_val(&owned.send[..]));
        let ready = || self.node.ready_pairs(send_counts, recv_counts, owned);
        self.prepared(Collective::AllToAll, bytes, two, ready)
    }
}
