//! Blocking calls over several nodes: one at a time, from beginning to end, inside `MultiNodeComm::block`, which waits for what was started.

use super::Hierarchy;
use super::call::{Call, LeaderPhase};
use super::operation::Buf;
use super::phases::{Blocking, Mode, Phases};
use super::{State, errors};
use crate::Error;
use earlybird_hier::exec::Transport;
use earlybird_shm::{CallOptions, CheckedArgs, ReduceOp};
use std::borrow::Cow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

impl Hierarchy {
    /// Makes a blocking call, which was described by the same arguments.
    pub(crate) fn run_checked(&self, call: &Call, checked: CheckedArgs<'_>) -> Result<(), Error> {
        let (lowering, leaders, op) = (call.lowering, self.choose(call)?, checked.op());
        if checked.has_shared_result() && lowering.builtin().is_some() && !lowering.widens() {
            return self.run_shared(call, leaders, checked);
        }
        let (send, recv) = checked.into_private().into_bytes();
        let send = send.map(|send| lowering.widened(send));
        let mut sums = lowering.widens().then(|| lowering.widened(Cow::Borrowed(recv)).into_owned());
        let result = self.carry_out(call, leaders, lowering.op(op), async |phases| {
            let mut room = Buf::Borrowed(sums.as_deref_mut().unwrap_or(recv));
            // Borrowed even where it was widened into a vector, so that segments of it can be borrowed.
            phases.collective(send.as_deref().map(Cow::Borrowed), &mut room).await
        });
        if result.is_ok() {
            lowering.finish(sums.as_deref(), recv, self.topology.size());
        }
        lowering.clean(recv);
        result
    }

    /// Carries out a call whose arguments were checked, with this operator. All ranks refuse a plan that cannot be, before anything
    /// is shared. An inner error of `body` is every rank's of this call alone, and the communicator goes on.
    pub(super) fn carry_out<'a, R>(
        &'a self,
        call: &Call,
        (name, shape): LeaderPhase,
        op: ReduceOp<'a>,
        body: impl AsyncFnOnce(&mut Phases<'_>) -> Result<Result<R, Error>, Error>,
    ) -> Result<R, Error> {
        let mut state = self.lock()?;
        let State { plans, history, last, .. } = &mut *state;
        if let Some(error) = plans.failed() {
            return Err(error.clone());
        }
        plans.transport_mut().may_call()?;
        if plans.transport_mut().progress().is_err() {
            // Others have failed in a call that this rank only begins.
            let unheard = Error::Poisoned { cause: "the nodes cannot reach each other any more".into() };
            return Err(self.fail(plans.transport_mut(), call.signature, &unheard));
        }
        if let Some(shape) = shape {
            plans.admit(shape)?;
        }
        let number = history.add(call.signature);
        plans.transport_mut().begin_call(call.collective, number, call.signature);
        let options = CallOptions { within: call.signature.hash() as u16, ..call.options };
        let (node, scratch, outnumbers_cpus) = (&*self.node, &self.scratch, self.outnumbers_cpus);
        let blocking = Blocking { node, plans, scratch, options, outnumbers_cpus };
        let ended = at_once(body(&mut Phases::new(&self.topology, (call, shape), op, Mode::Blocking(blocking))));
        match ended {
            Ok(done) => {
                plans.transport_mut().complete_call();
                plans.transport_mut().end_call(number);
                if done.is_ok() {
                    *last = Some((number, name));
                }
                done
            }
            // A forked child is no rank: it must not fail the job.
            Err(Error::Forked) => Err(Error::Forked),
            Err(error) => Err(self.fail(plans.transport_mut(), call.signature, &error)),
        }
    }

    /// The end of the membership, as `NodeComm::end`, for the ranks of all nodes that share memory; otherwise for those of this node.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut state = self.lock()?;
        let State { plans, history, .. } = &mut *state;
        if let Some(error) = plans.failed() {
            return Err(error.clone());
        }
        let channel = plans.transport_mut();
        let closed = match channel.close(history.calls, history.hash) {
            Ok(()) => {
                self.node.end().map_err(|error| channel.report(errors::fault_of(&error, &self.topology, self.deadline)))
            }
            Err(error) => Err(error),
        };
        closed.inspect_err(|_| self.end_node())
    }
}

/// The result of a future whose steps wait for their ends themselves.
pub(super) fn at_once<R>(future: impl Future<Output = R>) -> R {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a step of a blocking call waits for its end"),
    }
}
