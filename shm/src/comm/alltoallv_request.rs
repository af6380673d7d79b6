//! The preparation of a non-blocking alltoall of unequal blocks.

use super::alltoallv_buffers::AlltoallvBuffers;
use super::node_comm::NodeComm;
use super::requests::InactiveRequest;
use crate::Error;
use crate::checked_args::starts;
use crate::config::Algorithm;
use crate::op::{DType, Element, FoldOrder, Op};
use crate::protocol::active_request::{ActiveRequest, Blocks};
use crate::protocol::call::Prepared;
use crate::protocol::request_buffers::OwnedBuffers;
use crate::protocol::signature::{Collective, Signature};

impl NodeComm {
    /// Refuses buffers whose lengths are not the sums of the counts.
    fn check_pairs(&self, counts: [&[usize]; 2], given: [usize; 2]) -> Result<(), Error> {
        let [send, recv] = counts;
        let expected = [starts(send, self.size)?[self.size], starts(recv, self.size)?[self.size]];
        match given == expected {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "rank {}: the send buffer has {} elements and the receive buffer {}, the sums of the counts are {} and {}",
                self.rank, given[0], given[1], expected[0], expected[1]
            ))),
        }
    }

    /// Prepares [`CollectiveArgs::all_to_all`](crate::CollectiveArgs::all_to_all) of unequal blocks: `send_counts[r]` elements go to rank `r`, `recv_counts[r]` come from
    /// there. Counts are compared when all have posted; what is sent takes as much shared memory of the node as it has bytes,
    /// whole pages, from the posting until all have got theirs.
    ///
    /// # Errors
    /// [`Error::Usage`] when counts do not fit the ranks or the buffers, or another thread is in a call. When it ends,
    /// [`Error::Mismatch`] and [`Error::NoSpace`] are the same on all ranks, which go on.
    pub fn ready_pairs<T: Element>(
        &self,
        send_counts: &[usize],
        recv_counts: &[usize],
        owned: OwnedBuffers<T>,
    ) -> Result<InactiveRequest, Error> {
        self.check_pairs([send_counts, recv_counts], [owned.send.len(), owned.recv.len()])?;
        let state = self.lock()?;
        let (origin, timeout) = (state.results.origin(), state.timeout());
        drop(state);
        let me = (self.rank, self.members().to_vec());
        let counts = (send_counts, recv_counts);
        let buffers = AlltoallvBuffers::new(me, counts, owned, self.segment.clone(), (origin, timeout));
        let (collective, order) = (Collective::AllToAll, FoldOrder::Rank);
        let asked = Signature::new(collective, T::DTYPE, Op::Sum, order, Algorithm::Auto, 0).posted().unequal(&[]);
        let prepared = Prepared::new(asked.in_lane(true), DType::U64, Op::Sum, self.size, false, Algorithm::Flat)?;
        let blocks = Blocks::Equal(buffers.told_words());
        let posted =
            ActiveRequest::new(prepared.carried_as(Collective::AllGather), Box::new(buffers), 0, blocks, self.room());
        Ok(InactiveRequest::of(posted))
    }
}
