//! A call that can be started, any number of times, with its buffers.

use super::begin::{CallFuture, begin};
use super::persistent_allreduce::{self, AllReduce};
use super::steps::Steps;
use crate::Error;
use crate::hierarchy::Hierarchy;
use crate::hierarchy::call::{Call, LeaderPhase};
use earlybird_shm::{BufferOwner, OwnedCall, Signature};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The means by which a started call makes progress.
pub(super) enum Course {
    /// A future of this start.
    Future(CallFuture),
    /// The state that the call keeps from one start to the next.
    Persistent,
}

/// A call that can be started, any number of times, with its buffers.
pub(crate) struct Prepared {
    between: Arc<Hierarchy>,
    owned: OwnedCall,
    call: Arc<Call>,
    /// The exchange between leaders.
    leaders: LeaderPhase,
    /// The state that an allreduce keeps from one start to the next; other calls begin anew.
    kept: Option<Box<AllReduce>>,
}

impl Prepared {
    /// The call that `call` describes, whose arguments were checked.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operator or a plan that does not exist; [`Error::Usage`] while another thread is in a call.
    pub(crate) fn new(between: &Arc<Hierarchy>, mut owned: OwnedCall, call: Call) -> Result<Self, Error> {
        let leaders = between.choose(&call)?;
        if let Some(shape) = leaders.1 {
            // Refused, where it must be, by all ranks, though leaders alone run it.
            between.lock()?.plans.admit(shape)?;
        }
        let kept = match leaders.1.filter(|_| persistent_allreduce::can_carry_out(&call)) {
            Some(shape) => Some(Box::new(AllReduce::new(between, &mut owned, &call, shape)?)),
            None => None,
        };
        Ok(Prepared { between: between.clone(), owned, call: Arc::new(call), leaders, kept })
    }

    /// The signature of the call, the same on all ranks.
    pub(super) fn signature(&self) -> Signature {
        self.call.signature
    }

    /// The buffers; `None` for another type than the call was made with.
    pub(crate) fn buffers<B: BufferOwner>(&mut self) -> Option<&mut B> {
        self.owned.buffers().owner()
    }

    /// The buffers, consuming the call.
    pub(crate) fn into_buffers<B: BufferOwner>(self) -> Option<B> {
        self.owned.into_buffers().into_owner()
    }

    /// Starts a call under these numbers. Returns also the name of the exchange between leaders.
    pub(super) fn begin(&mut self, (number, call): (u64, u64)) -> Result<(Course, &'static str), Error> {
        self.owned.buffers().begin()?;
        let (runs, shape) = self.leaders;
        if let Some(kept) = &mut self.kept {
            kept.start(number, call);
            return Ok((Course::Persistent, runs));
        }
        let steps = Steps::new(&self.between, (self.call.collective, self.call.signature), (number, call));
        let future = begin(&mut self.owned, (self.call.clone(), shape), steps)?;
        Ok((Course::Future(future), runs))
    }

    /// Makes progress in the call.
    pub(super) fn poll(&mut self, course: &mut Course) -> Poll<Result<(), Error>> {
        let ended = match (course, &mut self.kept) {
            (Course::Persistent, Some(kept)) => kept.poll(&mut self.owned),
            (Course::Future(future), _) => {
                let ended = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                ended.map(|outcome| outcome.and_then(|result| self.put(result)))
            }
            (Course::Persistent, None) => unreachable!("begun as it is"),
        };
        ended.map(|outcome| self.owned.buffers().end(outcome))
    }

    /// Puts the result into the receive buffer.
    fn put(&mut self, result: Vec<u8>) -> Result<(), Error> {
        let (lowering, topology) = (self.call.lowering, &self.between.topology);
        let (_, recv) = self.owned.check(topology.rank(), topology.size())?.into_bytes();
        if !lowering.widens() {
            recv.copy_from_slice(&result);
        }
        lowering.finish(lowering.widens().then_some(&result[..]), recv, topology.size());
        lowering.clean(recv);
        self.between.scratch.give_back(result);
        Ok(())
    }

    /// Takes the buffers back after the job has failed.
    pub(super) fn give_up(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.give_up(&mut self.owned);
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("collective", &self.call.collective).finish_non_exhaustive()
    }
}
