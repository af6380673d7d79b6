//! Calls made of other calls that do the same work: what an operation must not be slower than.

use super::data::{self, ROOT, Value};
use earlybird::{Collective, Communicator, Error, Persistent};
use std::fmt;
use std::str::FromStr;

/// An operation composed of other operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Composed {
    /// An allreduce: a reduce to rank 0 and a broadcast from there.
    ReduceBroadcast,
    /// An allreduce: a reduce-scatter of near-equal blocks and an allgather.
    ReduceScatterAllGather,
    /// An allreduce that was prepared once and is started again and again.
    Persistent,
    /// Any other operation: the allreduce that contains it, zeros where a rank has nothing to give.
    AsAllReduce,
}

use Composed::{AsAllReduce, ReduceBroadcast, ReduceScatterAllGather};

const ALL: [Composed; 4] = [ReduceBroadcast, ReduceScatterAllGather, Composed::Persistent, AsAllReduce];

impl Composed {
    /// Those that do the work of `op`.
    pub fn of(op: Collective) -> &'static [Composed] {
        match op {
            Collective::AllReduce => &ALL[..3],
            _ => &ALL[3..],
        }
    }
}

impl fmt::Display for Composed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceBroadcast => "reduce+broadcast",
            ReduceScatterAllGather => "reduce-scatter+allgather",
            Composed::Persistent => "persistent",
            AsAllReduce => "as-allreduce",
        })
    }
}

impl FromStr for Composed {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        ALL.into_iter().find(|composed| composed.to_string() == text).ok_or(())
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
    /// For buffers of these lengths.
    ///
    /// # Errors
    /// The errors of preparing a call.
    pub fn new(comm: &'c Communicator, variants: &[Composed], sent: usize, received: usize) -> Result<Self, Error> {
        let zero = |count: usize, needed: bool| vec![T::from_small(0); if needed { count } else { 0 }];
        let persistent = variants.contains(&Composed::Persistent);
        let ranks = comm.size();
        let counts: Vec<usize> =
            (0..ranks).map(|rank| received * (rank + 1) / ranks - received * rank / ranks).collect();
        Ok(Kit {
            comm,
            persistent: match persistent {
                true => Some(comm.all_reduce_into_init(zero(sent, true), zero(received, true), T::OP)?),
                false => None,
            },
            whole: zero(sent.max(received), variants.contains(&AsAllReduce)),
            block: zero(counts[comm.rank()], variants.contains(&ReduceScatterAllGather)),
            counts,
        })
    }

    /// Writes what this rank gives into buffers of the composition's own.
    ///
    /// # Errors
    /// None while no call is in progress.
    pub fn fill(&mut self, composed: Composed, rank: usize, call: u64) -> Result<(), Error> {
        match (&mut self.persistent, composed) {
            (Some(persistent), Composed::Persistent) => data::fill(persistent.send_mut()?, rank, call),
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
            receive.copy_from_slice(persistent.recv()?);
        }
        Ok(())
    }
}
