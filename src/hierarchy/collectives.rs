//! Every collective over several nodes by its name: one function for blocking and started calls.

use super::alltoallv;
use super::call::Call;
use super::operation::{Buf, contribution};
use super::phases::Phases;
use super::{moves, prefix, reductions};
use crate::Error;
use crate::plans::Shape;
use earlybird_shm::{Collective, ReduceOp};
use std::borrow::Cow;

/// Carries out a call on buffers of the elements of [`Lowering::datatype`](super::lowering::Lowering::datatype). `shape` is the
/// plan between leaders, where they run one. The inner error is every rank's of this call alone: nothing was moved.
pub(super) async fn collective(
    phases: &mut Phases<'_>,
    call: &Call,
    shape: Option<Shape>,
    send: Option<Cow<'_, [u8]>>,
    recv: &mut Buf<'_>,
) -> Result<Result<(), Error>, Error> {
    let (root, lens) = (call.root, &call.lens[..]);
    match (call.collective, shape, phases.op) {
        (Collective::Barrier, Some(shape), _) => moves::barrier(phases, shape).await,
        (Collective::Broadcast, Some(shape), _) => {
            if let Some(send) = send.filter(|_| phases.topology.rank() == root) {
                recv.copy_from_slice(&send);
            }
            moves::broadcast(phases, shape, root, recv).await
        }
        (Collective::AllReduce, Some(shape), _) => {
            reductions::all_reduce(phases, (shape, call.lowering.datatype()), send, recv).await
        }
        (Collective::AllReduce | Collective::Reduce, None, ReduceOp::User(op)) => {
            reductions::by_user(phases, call, op, send, recv).await
        }
        (Collective::Reduce, shape, _) => reductions::reduce(phases, call, shape, send, recv).await,
        (collective, ..) => {
            let send = contribution(send, recv);
            match (collective, &call.pairs) {
                (Collective::ReduceScatter, _) => reductions::reduce_scatter(phases, call, send, recv).await,
                (collective, _) if collective.traits().prefix.is_some() => prefix::scan(phases, call, send, recv).await,
                (Collective::AllGather, _) => moves::all_gather(phases, send, recv, lens).await,
                (Collective::Gather, _) => moves::gather(phases, root, send, recv, lens).await,
                (Collective::Scatter, _) => moves::scatter(phases, root, send, recv, lens).await,
                (_, None) => moves::all_to_all(phases, send, recv).await,
                (_, Some(words)) => {
                    let element_bytes = call.lowering.datatype().size();
                    return alltoallv::all_to_all_of_pairs(phases, (words, element_bytes), send, recv).await;
                }
            }
        }
    }
    .map(Ok)
}
