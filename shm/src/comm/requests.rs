//! Non-blocking and persistent calls of a node: arguments checked, operations prepared once, started and completed.

use super::node_comm::{NodeComm, NodeState};
use super::registered::REGISTERED_MIN_BYTES;
use super::registered_buffers::RegisteredBuffers;
use crate::Error;
use crate::config::Algorithm;
use crate::engine::{self, Drive};
use crate::op::{Datatype, FoldOrder};
use crate::owned_args::OwnedCall;
use crate::protocol::active_request::{ActiveRequest, Room};
use crate::protocol::call::Prepared;
use crate::protocol::collective::Collective;
use crate::protocol::decide::folds_in_rank_order;
use crate::protocol::request_buffers::{BufferOwner, OwnedBuffers};
use crate::protocol::started::Started;
use crate::protocol::{Report, Stop};
use crate::reduce_op::{ReduceOp, SharedReduceOp};

/// A call with its buffers, ready to be started, any number of times.
#[derive(Debug)]
pub struct InactiveRequest(Box<ActiveRequest>);

impl InactiveRequest {
    pub(super) fn of(request: ActiveRequest) -> Self {
        InactiveRequest(Box::new(request))
    }

    /// Marks the call as a part of a larger operation, see [`CallOptions::within`](crate::CallOptions::within).
    pub fn within(mut self, number: u16) -> Self {
        self.0.be_within(number);
        self
    }

    /// Exchanges the buffers for others, of the same lengths and datatype.
    pub fn swap_buffers(&mut self, buffers: &mut OwnedBuffers) {
        std::mem::swap(self.0.buffers(), buffers);
    }

    /// The buffers; `None` for another type than the call was made with.
    pub fn buffers<B: BufferOwner>(&mut self) -> Option<&mut B> {
        self.0.buffers().owner()
    }

    /// Returns the buffers and drops the call; `None` for another type than the call was made with.
    pub fn into_buffers<B: BufferOwner>(self) -> Option<B> {
        self.0.into_buffers().into_owner()
    }
}

/// The end of a started call, with its buffers.
pub type Completion = (InactiveRequest, Result<(), Error>);

impl NodeComm {
    /// Prepares a call that can be started any number of times. It always folds as by `FoldOrder::Rank`: a started call proceeds
    /// while its caller computes, so the order of arrival means nothing. Allreduces that are longer than
    /// [`Thresholds::flat_bytes`](crate::protocol::decide::Thresholds::flat_bytes) run [`Algorithm::Chain`] where any order gives the same bits, else
    /// [`Algorithm::Slices`]; everything else runs as an exchange. An allreduce of shared buffers by one
    /// of the library's operators is one operation of any size.
    ///
    /// # Errors
    /// The errors of [`CollectiveArgs::check`](crate::CollectiveArgs::check); [`Error::Unsupported`] for elements of a user's
    /// type larger than the windows, and for a gather or scatter in place whose owners know the lengths of their blocks; for such a
    /// call and an alltoall of unequal blocks [`Error::Usage`] when another thread is in a call.
    pub fn prepare(&self, mut call: OwnedCall) -> Result<InactiveRequest, Error> {
        let allocations = call.allocations();
        let counts_of_pairs = call.counts_of_pairs(self.rank, self.size)?;
        let checked = call.check(self.rank, self.size)?;
        if let Some(counts) = counts_of_pairs {
            let counts = counts.map(|counts| counts.into_iter().map(|count| count as u64).collect());
            let (called, datatype) = ((checked.collective(), checked.root(), checked.signature()), checked.datatype());
            return self.prepare_unequal(called, (counts, datatype), call.into_buffers());
        }
        let (collective, op, datatype) = (checked.collective(), checked.op(), checked.datatype());
        let bytes = checked.selecting_bytes();
        let registered = allocations.filter(|_| checked.registers() && bytes >= REGISTERED_MIN_BYTES);
        let in_rank_order = match (op, datatype) {
            (ReduceOp::Builtin(op), Datatype::Builtin(dtype)) => {
                folds_in_rank_order(collective, FoldOrder::Rank, dtype, op, self.size)
            }
            _ => true,
        };
        let algorithm = match collective {
            Collective::AllReduce if registered.is_some() => Algorithm::Slices,
            Collective::AllReduce if bytes > self.thresholds.flat_bytes => match in_rank_order {
                true => Algorithm::Slices,
                false => Algorithm::Chain,
            },
            _ => Algorithm::Flat,
        };
        let signature = checked.signature().started().in_lane(algorithm == Algorithm::Flat);
        let signature = if registered.is_some() { signature.registered() } else { signature };
        let prepared = match (op, datatype) {
            (ReduceOp::User(_), _) => {
                self.must_fit(collective, datatype)?;
                Prepared::of_user(signature, datatype, self.size, in_rank_order, algorithm)
            }
            (ReduceOp::Builtin(op), Datatype::Builtin(dtype)) => {
                Prepared::new(signature, dtype, op, self.size, in_rank_order, algorithm)?
            }
            (ReduceOp::Builtin(_), Datatype::Opaque(_)) => {
                return Err(Error::usage("elements of a user's type where nothing but bytes can be moved"));
            }
        };
        let blocks = checked.owned_blocks();
        let (root, operator, buffers) = (call.root(), call.op().clone(), call.into_buffers());
        let (buffers, room) = match registered {
            Some(find) => {
                let group = self.group_info.allocation;
                let buffers = RegisteredBuffers::new(buffers, find, self.segment.clone(), group);
                (buffers.into_owned(datatype), Room::NONE_NEEDED)
            }
            None => (buffers, self.room()),
        };
        let request = ActiveRequest::new(prepared, buffers, (self.rank, root), blocks, room);
        Ok(InactiveRequest::of(match operator {
            SharedReduceOp::User(operator) => request.folded_by(operator),
            SharedReduceOp::Builtin(_) => request,
        }))
    }

    pub(super) fn room(&self) -> Room {
        Room { accumulator: self.windows.accumulator, deposit: self.windows.deposit }
    }

    /// Starts a call and returns its number, by which it is completed. Never waits for another rank.
    ///
    /// # Errors
    /// [`Error::Usage`] when another thread is in a call, or for buffers of other lengths than the call was made with; the
    /// group's one error. The call is returned with the error.
    pub fn start(&self, inactive: InactiveRequest) -> Result<u64, (InactiveRequest, Error)> {
        self.start_then(inactive, |state, started| state.member.number_of(started))
    }

    /// Starts a call as [`NodeComm::start`] does, and returns it if it has completed by then.
    ///
    /// # Errors
    /// The errors of [`NodeComm::start`].
    pub fn start_or_end(&self, inactive: InactiveRequest) -> Result<Started<Completion>, (InactiveRequest, Error)> {
        self.start_then(inactive, |state, started| {
            started.map(|(request, report)| self.ended(state, (request, Ok(report))))
        })
    }

    fn start_then<T>(
        &self,
        mut inactive: InactiveRequest,
        then: impl FnOnce(&mut NodeState, Started<(Box<ActiveRequest>, Report)>) -> T,
    ) -> Result<T, (InactiveRequest, Error)> {
        if !inactive.0.has_prepared_lengths() {
            let message =
                "the call has buffers of other lengths than it was prepared with; give those back that it had";
            return Err((inactive, Error::usage(message)));
        }
        let mut state = match self.lock() {
            Ok(state) => state,
            Err(error) => return Err((inactive, error)),
        };
        self.detach_dropped(&mut state);
        if let Err(error) = inactive.0.buffers().begin() {
            return Err((inactive, error));
        }
        match state.member.start(inactive.0) {
            Ok(started) => Ok(then(&mut state, started)),
            Err((mut request, stop)) => {
                let error = self.error_of(&state.member, stop);
                let error = request.buffers().end(Err(error)).expect_err("a failure stays one");
                Err((InactiveRequest(request), error))
            }
        }
    }

    /// Waits until the call of this number has completed; the other started calls make progress meanwhile.
    ///
    /// # Errors
    /// [`Error::Usage`] when another thread is in a call, or for a number that no started call has.
    pub fn finish(&self, number: u64) -> Result<Completion, Error> {
        let mut state = self.lock()?;
        self.detach_dropped(&mut state);
        let ended = state.member.finish(number);
        let ended = ended.ok_or_else(|| Error::usage(format!("no call was started under the number {number}")))?;
        Ok(self.ended(&mut state, ended))
    }

    /// Returns the call of this number if it has completed; never waits.
    ///
    /// # Errors
    /// [`Error::Usage`] when another thread is in a call.
    pub fn ask(&self, number: u64) -> Result<Option<Completion>, Error> {
        let mut state = self.lock()?;
        self.detach_dropped(&mut state);
        // A thread that drives progress does not wait for this call, so its deadline does not run and no peer is inspected.
        let ended = match engine::is_driving() {
            true => state.member.take(number),
            false => state.member.ask(number),
        };
        Ok(ended.map(|ended| self.ended(&mut state, ended)))
    }

    /// Returns whether the call of this number has completed, by what was found so far: makes no progress.
    pub fn has_ended(&self, number: u64) -> bool {
        self.lock().is_ok_and(|state| state.member.is_done(number))
    }

    /// Releases the call started under this number: it is completed inside later calls.
    pub fn detach(&self, number: u64) {
        self.dropped.add(number);
        // Where another thread is in a call, a later one does it.
        if let Ok(mut state) = self.lock() {
            self.detach_dropped(&mut state);
        }
    }

    /// Waits until all started calls have completed.
    ///
    /// # Errors
    /// The group's one error; [`Error::Usage`] when another thread is in a call.
    pub fn settle(&self) -> Result<(), Error> {
        let mut state = self.lock()?;
        self.detach_dropped(&mut state);
        let settled = state.member.settle();
        settled.map_err(|stop| self.error_of(&state.member, stop))
    }

    /// Detaches the calls whose handles were dropped. Called wherever calls are started or completed.
    fn detach_dropped(&self, state: &mut NodeState) {
        self.dropped.take().into_iter().for_each(|number| state.member.detach(number));
    }

    fn ended(
        &self,
        state: &mut NodeState,
        (mut request, result): (Box<ActiveRequest>, Result<Report, Stop>),
    ) -> Completion {
        let outcome = result.map_err(|stop| self.error_of(&state.member, stop));
        let ended = request.buffers().end(outcome.as_ref().map(drop).map_err(Clone::clone));
        (InactiveRequest(request), ended.inspect(|()| state.last = outcome.ok()))
    }
}

impl Drive for NodeComm {
    fn drive(&self) -> bool {
        // The thread that is inside a call, perhaps this one, makes progress in the started calls.
        let Some(state) = self.state.try_lock() else { return true };
        self.inside(state).is_ok_and(|mut state| {
            self.detach_dropped(&mut state);
            state.member.progress();
            state.member.has_pending()
        })
    }
}

impl Drop for NodeComm {
    /// Completes the started calls, which other ranks may need, unless this thread is panicking. A difference in the call
    /// histories is only a warning here.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if state.broken || state.member.has_ended() || std::thread::panicking() || self.segment.is_forked_child() {
            return;
        }
        // No caller is left to return an error to; the other ranks get it from their own calls.
        if state.member.failure().is_none()
            && state.member.settle().is_ok()
            && let Err(stop) = state.member.end(false)
            && stop.0.reporter() == self.rank
        {
            let state = self.state.lock();
            crate::warn(format_args!("{}", self.error_of(&state.member, stop)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CollectiveArgs, JoinOptions, Op};

    #[test]
    fn vectors_come_and_go_but_what_is_started_has_its_lengths() {
        let alone = JoinOptions { size: 1, key: "vectors".into(), ..JoinOptions::default() };
        let node = NodeComm::join(&alone).unwrap();
        let args = CollectiveArgs::reduce(0, (vec![7u32; 3], vec![0; 3]), Op::Sum);
        let mut inactive = node.prepare(args.into_call()).unwrap();
        assert!(inactive.buffers::<Vec<u32>>().is_none(), "another type");
        let mut buffers = OwnedBuffers::default();
        inactive.swap_buffers(&mut buffers);
        buffers.owner::<(Vec<u32>, Vec<u32>)>().unwrap().0.pop();
        inactive.swap_buffers(&mut buffers);
        let (mut inactive, error) = node.start(inactive).unwrap_err();
        assert!(matches!(&error, Error::Usage { message } if message.contains("other lengths")), "{error}");
        inactive.buffers::<(Vec<u32>, Vec<u32>)>().unwrap().0.push(9);
        let number = node.start(inactive).unwrap();
        let (inactive, result) = node.finish(number).unwrap();
        result.unwrap();
        assert_eq!(inactive.into_buffers::<(Vec<u32>, Vec<u32>)>().unwrap().1, [7, 7, 9]);
    }
}
