//! Other calls that do the work of an operation, which it must not be slower than.

use super::data::{self, ROOT, Value};
use earlybird::{Collective, CollectiveArgs, Communicator, Counts, Error, Persistent, Side};

/// An operation by other operations, or in another form.
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
    /// The allreduce that contains it, with zeros where a rank has no contribution.
    #[strum(to_string = "as-allreduce")]
    AsAllReduce,
    /// A gather: the allgather, whose result all ranks have.
    #[strum(to_string = "as-allgather")]
    AsAllGather,
    /// A scatter: a broadcast of all blocks.
    #[strum(to_string = "as-broadcast")]
    AsBroadcast,
    /// Any operation: started and waited for.
    #[strum(to_string = "started")]
    Started,
}

use Composed::{AsAllGather, AsAllReduce, AsBroadcast, ReduceBroadcast, ReduceScatterAllGather, Started};

impl Composed {
    /// The compositions that do the work of `op`.
    pub fn of(op: Collective) -> &'static [Composed] {
        match op {
            Collective::AllReduce => &[ReduceBroadcast, ReduceScatterAllGather, Composed::Persistent, Started],
            Collective::Gather => &[AsAllGather, Started],
            Collective::Scatter => &[AsBroadcast, Started],
            // No other call contains what these do.
            Collective::AllToAll | Collective::Scan | Collective::ExclusiveScan => &[Started],
            _ => &[AsAllReduce, Started],
        }
    }
}

/// Elements of the send and the receive buffer that `op` uses on this rank, of those that are there.
pub fn used(op: Collective, rank: usize, (sent, received): (usize, usize)) -> (usize, usize) {
    let of = |side, count| if side == Side::All || rank == ROOT { count } else { 0 };
    (of(op.traits().senders, sent), of(op.traits().receivers, received))
}

/// The buffers and prepared calls that compositions need besides the buffers of the call.
pub struct Kit<'c, T> {
    comm: &'c Communicator,
    persistent: Option<Persistent<'c, (Vec<T>, Vec<T>)>>,
    /// The buffers of a started call, which owns them until it has ended.
    started: (Vec<T>, Vec<T>),
    /// The buffer of an allreduce in place of an operation with smaller contributions.
    whole: Vec<T>,
    /// Between a reduce-scatter and an allgather.
    block: Vec<T>,
    counts: Vec<usize>,
}

impl<'c, T: Value> Kit<'c, T> {
    /// The buffers and calls of the compositions for which `has` is true, with buffers of these lengths.
    ///
    /// # Errors
    /// The errors of preparing a call.
    pub fn new(
        comm: &'c Communicator,
        op: Collective,
        has: impl Fn(Composed) -> bool,
        (sent, received): (usize, usize),
    ) -> Result<Self, Error> {
        let zero = |count: usize, needed: bool| vec![T::from_small(0); if needed { count } else { 0 }];
        let ranks = comm.size();
        let counts: Vec<usize> =
            (0..ranks).map(|rank| received * (rank + 1) / ranks - received * rank / ranks).collect();
        let (own_sent, own_received) = used(op, comm.rank(), (sent, received));
        let prepare = || comm.init(CollectiveArgs::all_reduce((zero(sent, true), zero(received, true)), T::OP));
        Ok(Kit {
            comm,
            started: (zero(own_sent, has(Started)), zero(own_received, has(Started))),
            persistent: has(Composed::Persistent).then(prepare).transpose()?,
            whole: zero(sent.max(received), has(AsAllReduce)),
            block: zero(counts[comm.rank()], has(ReduceScatterAllGather)),
            counts,
        })
    }

    /// Writes this rank's contribution to the composition's own buffers.
    ///
    /// # Errors
    /// None while no call is in progress.
    pub fn fill(&mut self, composed: Composed, rank: usize, call: u64) -> Result<(), Error> {
        match (&mut self.persistent, composed) {
            (Some(persistent), Composed::Persistent) => data::fill(&mut persistent.buffers_mut()?.0, rank, call),
            (_, Started) => data::fill(&mut self.started.0, rank, call),
            _ => self.whole.fill(T::from_small(0)),
        }
        Ok(())
    }

    /// The measured calls; computes in the middle of a started one.
    ///
    /// # Errors
    /// The errors of the composed calls.
    pub fn carry_out(
        &mut self,
        composed: Composed,
        (op, counts): (Collective, Counts<'_>),
        send: &mut [T],
        receive: &mut [T],
        compute: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let (comm, rank) = (self.comm, self.comm.rank());
        let root = comm.process_at_rank(ROOT);
        match (composed, op) {
            (ReduceBroadcast, _) => {
                if rank == ROOT {
                    root.reduce_into_root(send, receive, T::OP)?
                } else {
                    root.reduce_into(send, T::OP)?
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
            (Started, _) => self.start_and_wait(op, counts, compute),
            (AsAllGather, _) => comm.all_gather_into(send, receive),
            (AsBroadcast, _) => {
                root.broadcast_into(send)?;
                receive.copy_from_slice(&send[rank * receive.len()..][..receive.len()]);
                Ok(())
            }
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

    fn start_and_wait(&mut self, op: Collective, counts: Counts<'_>, compute: &mut dyn FnMut()) -> Result<(), Error> {
        let (sent, received) = std::mem::take(&mut self.started);
        self.started = match op {
            Collective::Broadcast => {
                let is_root = self.comm.rank() == ROOT;
                let (buffer, other) = if is_root { (sent, received) } else { (received, sent) };
                let request = self.comm.start(CollectiveArgs::broadcast(ROOT, buffer))?;
                compute();
                let buffer = request.wait()?;
                if is_root { (buffer, other) } else { (other, buffer) }
            }
            _ => {
                let root = op.traits().has_root().then_some(ROOT);
                let buffers = (sent, received);
                let args = CollectiveArgs::describe(op, root, counts, buffers, T::OP);
                let request = self.comm.start(args)?;
                compute();
                request.wait()?
            }
        };
        Ok(())
    }

    /// Copies the result of the call, where it is not in the call's own buffer.
    ///
    /// # Errors
    /// None while no call is in progress.
    pub fn take(&mut self, composed: Composed, receive: &mut [T]) -> Result<(), Error> {
        match (&mut self.persistent, composed) {
            (Some(persistent), Composed::Persistent) => receive.copy_from_slice(&persistent.buffers_mut()?.1),
            (_, Started) => receive[..self.started.1.len()].copy_from_slice(&self.started.1),
            _ => {}
        }
        Ok(())
    }
}
