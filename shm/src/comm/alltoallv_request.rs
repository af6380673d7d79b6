//! The preparation of a non-blocking alltoall of unequal blocks.

use super::alltoallv_buffers::AlltoallvBuffers;
use super::node_comm::NodeComm;
use super::requests::InactiveRequest;
use crate::Error;
use crate::config::Algorithm;
use crate::op::{DType, FoldOrder, Op};
use crate::owned_args::OwnedCall;
use crate::protocol::active_request::{ActiveRequest, Blocks};
use crate::protocol::call::Prepared;
use crate::protocol::collective::Collective;
use crate::protocol::signature::Signature;

impl NodeComm {
    /// Prepares an alltoall of unequal blocks, which was checked. The ranks compare counts once all have started it. The bytes
    /// sent take as much shared memory, in whole pages, from the start until all ranks have received their blocks. At
    /// completion, [`Error::Mismatch`] and [`Error::NoSpace`] are the same on all ranks, and the group goes on.
    pub(super) fn prepare_alltoallv(&self, mut call: OwnedCall) -> Result<InactiveRequest, Error> {
        let state = self.lock()?;
        let (origin, timeout) = (state.results.origin(), state.timeout());
        drop(state);
        let checked = call.check(self.rank, self.size)?;
        let datatype = checked.datatype();
        let counts: Vec<u64> =
            checked.pair_counts().into_iter().flatten().flatten().map(|count| *count as u64).collect();
        let me = (self.rank, self.members().to_vec());
        let owned = call.into_buffers();
        let buffers = AlltoallvBuffers::new(me, (&counts, datatype), owned, self.segment.clone(), (origin, timeout));
        let (collective, order) = (Collective::AllToAll, FoldOrder::Rank);
        let signature = Signature::new(collective, datatype, Op::Sum, order, Algorithm::Auto, 0).started().unequal(&[]);
        let prepared = Prepared::new(signature.in_lane(true), DType::U64, Op::Sum, self.size, false, Algorithm::Flat)?;
        let prepared = prepared.carried_as(Collective::AllGather);
        let (buffers, words) = buffers.into_words();
        Ok(InactiveRequest::of(ActiveRequest::new(prepared, buffers, 0, Blocks::Equal(words), self.room())))
    }
}
