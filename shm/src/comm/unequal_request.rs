//! The preparation of a non-blocking call of blocks whose lengths not all ranks know: an alltoall of unequal blocks, and a gather or scatter
//! of blocks whose lengths their owners know.

use super::node_comm::{NodeComm, NodeState};
use super::requests::InactiveRequest;
use super::send_memory::SendMemory;
use super::unequal_buffers::{OwnSide, UnequalBuffers};
use super::unequal_row::Telling;
use crate::Error;
use crate::config::Algorithm;
use crate::op::{DType, Datatype, Op};
use crate::protocol::active_request::{ActiveRequest, Blocks};
use crate::protocol::call::Prepared;
use crate::protocol::collective::Collective;
use crate::protocol::request_buffers::OwnedBuffers;
use crate::protocol::signature::Signature;
use std::sync::{Arc, Mutex};

/// Bytes that one rank keeps at most, for two calls one after the other: what was sent in the first may still be read.
const MOST_KEPT_BYTES: usize = 32 << 20;

impl NodeComm {
    /// Prepares such a call, which was checked. The ranks compare counts once those that tell them have started it. What is sent
    /// takes shared memory that is kept for later calls, or as much of its own, in whole pages, from the start until all ranks that receive any
    /// of it have done so. At completion, [`Error::Mismatch`] and [`Error::NoSpace`] are the same on all ranks that receive the counts, and the
    /// group goes on.
    ///
    /// `sends` and `expects` are the elements of `datatype` for each rank and from each.
    pub(super) fn prepare_unequal(
        &self,
        (collective, root, signature): (Collective, usize, Signature),
        ([sends, expects], datatype): ([Vec<u64>; 2], Datatype),
        owned: OwnedBuffers,
    ) -> Result<InactiveRequest, Error> {
        let (memory, timeout) = {
            let mut state = self.lock()?;
            (self.send_memory(&mut state), state.timeout())
        };
        let (telling, carrier) = match collective.traits().has_blocks_at_root() {
            false => (Telling::All, Collective::AllGather),
            true if collective.traits().in_parts => (Telling::ByRoot(root), Collective::Broadcast),
            true => (Telling::ToRoot(root), Collective::Gather),
        };
        let side = OwnSide { me: self.rank, name: collective.name(), datatype, sends, expects };
        let (buffers, words) = UnequalBuffers::new(telling, side, owned, memory, timeout).into_words();
        let signature = signature.started().in_lane(true);
        let prepared = Prepared::new(signature, DType::U64, Op::Sum, self.size, false, Algorithm::Flat)?;
        let prepared = prepared.carried_as(carrier);
        let (who, blocks) = ((self.rank, root), Blocks::Equal(words));
        Ok(InactiveRequest::of(ActiveRequest::new(prepared, buffers, who, blocks, self.room())))
    }

    /// The memory that such calls are sent from. All ranks together keep half as much as the group's own memory, at most.
    fn send_memory(&self, state: &mut NodeState) -> Arc<Mutex<SendMemory>> {
        let origin = state.results.origin();
        let make = || {
            let share = usize::try_from(self.budget_bytes).unwrap_or(usize::MAX) / 2 / self.size;
            SendMemory::new(self.segment.clone(), self.group_info.clone(), origin, share.min(MOST_KEPT_BYTES))
        };
        state.send_memory.get_or_insert_with(|| Arc::new(Mutex::new(make()))).clone()
    }
}
