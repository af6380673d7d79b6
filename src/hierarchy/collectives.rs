//! The dispatch of a call over several nodes to the function of its collective, for blocking and started calls.

use super::operation::{Buf, Bytes, contribution};
use super::phases::Phases;
use crate::Error;
use earlybird_shm::{Collective, ReduceOp};

impl Phases<'_> {
    /// Carries out the call on buffers of the elements of [`Lowering::datatype`](super::lowering::Lowering::datatype). An inner
    /// error is the same on all ranks and concerns this call alone: nothing was moved.
    pub(super) async fn collective(
        &mut self,
        send: Option<Bytes<'_>>,
        recv: &mut Buf<'_>,
    ) -> Result<Result<(), Error>, Error> {
        match (self.call.collective, self.shape, self.op) {
            (Collective::Barrier, Some(shape), _) => self.barrier(shape).await,
            (Collective::Broadcast, Some(shape), _) => {
                if let Some(send) = send.filter(|_| self.topology.rank() == self.call.root) {
                    recv.copy_from_slice(&send);
                }
                self.broadcast(shape, recv).await
            }
            (Collective::AllReduce, Some(shape), _) => self.all_reduce(shape, send, recv).await,
            (Collective::AllReduce | Collective::Reduce, None, ReduceOp::User(op)) => {
                self.reduce_by_user(op, send, recv).await
            }
            (Collective::Reduce, ..) => self.reduce(send, recv).await,
            (collective, ..) => {
                let send = contribution(send, recv);
                match (collective, &self.call.pairs) {
                    (Collective::ReduceScatter, _) => self.reduce_scatter(send, recv).await,
                    (collective, _) if collective.traits().prefix.is_some() => self.scan(send, recv).await,
                    (Collective::AllGather, _) => self.all_gather(send, recv).await,
                    (Collective::Gather, _) => self.gather(send, recv).await,
                    (Collective::Scatter, _) => self.scatter(send, recv).await,
                    (_, None) => self.all_to_all(send, recv).await,
                    (_, Some(counts)) => return self.all_to_all_of_pairs(counts, send, recv).await,
                }
            }
        }
        .map(Ok)
    }
}
