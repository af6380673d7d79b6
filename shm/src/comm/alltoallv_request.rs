//! The preparation of a non-blocking alltoall of unequal blocks.

use super::alltoallv_buffers::AlltoallvBuffers;
use super::node_comm::{NodeComm, NodeState};
use super::requests::InactiveRequest;
use super::send_memory::SendMemory;
use crate::Error;
use crate::config::Algorithm;
use crate::op::{DType, Datatype, FoldOrder, Op};
use crate::protocol::active_request::{ActiveRequest, Blocks};
use crate::protocol::call::Prepared;
use crate::protocol::collective::Collective;
use crate::protocol::request_buffers::OwnedBuffers;
use crate::protocol::signature::Signature;
use std::sync::{Arc, Mutex};

/// Bytes that one rank keeps at most, for two calls one after the other: what was sent in the first may still be read.
const MOST_KEPT_BYTES: usize = 32 << 20;

impl NodeComm {
    /// Prepares an alltoall of unequal blocks, which was checked. The ranks compare counts once all have started it. What is sent
    /// takes shared memory that is kept for later calls, or as much of its own, in whole pages, from the start until all ranks have
    /// received their blocks. At completion, [`Error::Mismatch`] and [`Error::NoSpace`] are the same on all ranks, and the group goes on.
    ///
    /// `counts` are the elements of `datatype` to send to each rank, followed by those to receive from each.
    pub(super) fn prepare_alltoallv(
        &self,
        (counts, datatype): (&[u64], Datatype),
        owned: OwnedBuffers,
    ) -> Result<InactiveRequest, Error> {
        let (memory, timeout) = {
            let mut state = self.lock()?;
            (self.send_memory(&mut state), state.timeout())
        };
        let buffers = AlltoallvBuffers::new((self.rank, self.size), (counts, datatype), owned, memory, timeout);
        let (collective, order) = (Collective::AllToAll, FoldOrder::Rank);
        let signature = Signature::new(collective, datatype, Op::Sum, order, Algorithm::Auto, 0).started().unequal(&[]);
        let prepared = Prepared::new(signature.in_lane(true), DType::U64, Op::Sum, self.size, false, Algorithm::Flat)?;
        let prepared = prepared.carried_as(Collective::AllGather);
        let (buffers, words) = buffers.into_words();
        Ok(InactiveRequest::of(ActiveRequest::new(
            prepared,
            buffers,
            (self.rank, 0),
            Blocks::Equal(words),
            self.room(),
        )))
    }

    /// The memory that started alltoalls are sent from. All ranks together keep half as much as the group's own memory, at most.
    fn send_memory(&self, state: &mut NodeState) -> Arc<Mutex<SendMemory>> {
        let origin = state.results.origin();
        let make = || {
            let share = usize::try_from(self.budget_bytes).unwrap_or(usize::MAX) / 2 / self.size;
            SendMemory::new(self.segment.clone(), self.group_info.clone(), origin, share.min(MOST_KEPT_BYTES))
        };
        state.send_memory.get_or_insert_with(|| Arc::new(Mutex::new(make()))).clone()
    }
}
