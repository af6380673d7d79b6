//! Calls made of other calls that do the same work: what an operation must not be slower than.

use super::data::{self, ROOT, Value};
use earlybird::{Collective, CollectiveArgs, Communicator, Error, Persistent};

/// An operation composed of other operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
pub enum Composed {
    /// An allreduce: a reduce to rank 0 and a broadcast from there.
    #[strum(to_string = "reduce+broadcast")]
    ReduceBroadcast,
    /// An allreduce: a reduce-scatter of near-equal blocks and an allgather.
    #[strum(to_string = "reduce-scatter+allgather")]
    ReduceScatterAllGather,
    /// An allreduce that was prepared once and is started again and again.
    #[strum(to_string = "persistent")]
    Persistent,
    /// Any other operation: the allreduce that contains it, zeros where a rank has nothing to give.
    #[strum(to_string = "as-allreduce")]
    AsAllReduce,
}

use Composed::{AsAllReduce, ReduceBroadcast, ReduceScatterAllGather};

impl Composed {
    /// Those that do the work of `op`.
    pub fn of(op: Collective) -> &'static [Composed] {
        match op {
            Collective::AllReduce => &[ReduceBroadcast, ReduceScatterAllGather, Composed::Persistent],
            _ => &[AsAllReduce],
        }
    }
}

/// The buffers and prepared calls that compositions need besides the buffers of the call.
pub struct Kit<'c, T> {
    comm: &'c Communicator,
    persistent: Option<Persistent<'c, (Vec<T>, Vec<T>)>>,
    /// For an allreduce in place of an operation with less to give.
    whole: Vec<T>,
    /// Between a reduce-scatter and an allgather.
    block: Vec<T>,
    counts: Vec<usize>,
}

impl<'c, T: Value> Kit<'c, T> {
    /// For those compositions that `has` names, and buffers of these lengths.
    ///
    /// # Errors
    /// The errors of preparing a call.
    pub fn new(
        comm: &'c Communicator,
        has: impl Fn(Composed) -> bool,
        sent: usize,
        received: usize,
    ) -> Result<Self, Error> {
        let zero = |count: usize, needed: bool| vec![T::from_small(0); if needed { count } else { 0 }];
        let ranks = comm.size();
        let counts: Vec<usize> =
            (0..ranks).map(|rank| received * (rank + 1) / ranks - received * rank / ranks).collect();
        let prepare = || comm.init(CollectiveArgs::all_reduce((zero(sent, true), zero(received, true)), T::OP));
        Ok(Kit {
            comm,
            persistent: has(Composed::Persistent).then(prepare).transpose()?,
            whole: zero(sent.max(received), has(AsAllReduce)),
            block: zero(counts[comm.rank()], has(ReduceScatterAllGather)),
            counts,
        })
    }

    /// Writes what this rank gives into buffers of the composition's own.
    ///
    /// # Errors
    /// None while no call is in progress.
    pub fn fill(&mut self, composed: Composed, rank: usize, call: u64) -> Result<(), Error> {
        match (&mut self.persistent, composed) {
            (Some(persistent), Composed::Persistent) => data::fill(&mut persistent.buffers_mut()?.0, rank, call),
            _ => self.whole.fill(T::from_small(0)),
        }
        Ok(())
    }

    /// The measured calls.
    ///
    /// # Errors
    /// The errors of the composed calls.
    pub fn carry_out(
        &mut self,
        composed: Composed,
        op: Collective,
        send: &mut [T],
        receive: &mut [T],
    ) -> Result<(), Error> {
        let (comm, rank) = (self.comm, self.comm.rank());
        let root = comm.process_at_rank(ROOT);
        match (composed, op) {
            (ReduceBroadcast, _) => {
                match rank == ROOT {
                    true => root.reduce_into_root(send, receive, T::OP)?,
                    false => root.reduce_into(send, T::OP)?,
                }
                root.broadcast_into(receive)
            }
            (ReduceScatterAllGather, _) => {
                comm.reduce_scatter_varcount_into(send, &mut self.block, &self.counts, T::OP)?;
                comm.all_gather_varcount_into(&self.block, receive, &self.counts)
            }
            (Composed::Persistent, _) => match &mut self.persistent {
                Some(persistent) => persistent.run(),
                None => Err(Error::usage("no persistent call was prepared")),
            },
            (AsAllReduce, Collective::AllGather) => {
                receive.copy_from_slice(&self.whole);
                receive[rank * send.len()..][..send.len()].copy_from_slice(send);
                comm.all_reduce_in_place(receive, T::OP)
            }
            (AsAllReduce, Collective::ReduceScatter) => {
                comm.all_reduce_into(send, &mut self.whole, T::OP)?;
                receive.copy_from_slice(&self.whole[rank * receive.len()..][..receive.len()]);
                Ok(())
            }
            (AsAllReduce, Collective::Broadcast) if rank != ROOT => comm.all_reduce_into(&self.whole, receive, T::OP),
            (AsAllReduce, Collective::Barrier) => comm.all_reduce_in_place(&mut [T::from_small(0)], T::OP),
            (AsAllReduce, _) => comm.all_reduce_into(send, receive, T::OP),
        }
    }

    /// Copies the result of the call, where it is not in the call's own buffer.
    ///
    /// # Errors
    /// None while no call is in progress.
    pub fn take(&mut self, composed: Composed, receive: &mut [T]) -> Result<(), Error> {
        if let (Some(persistent), Composed::Persistent) = (&mut self.persistent, composed) {
            receive.copy_from_slice(&persistent.buffers_mut()?.1);
        }
        Ok(())
    }
}
