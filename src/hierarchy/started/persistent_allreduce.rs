//! The persistent allreduce: what does not depend on its data is made once, and its owner's buffers move from step to step where
//! the futures of `begin.rs` copy them. The steps are those of the future.

use super::steps::{Steps, Waited, is_busy};
use crate::hierarchy::Hierarchy;
use crate::hierarchy::call::Call;
use crate::hierarchy::lowering::Lowering;
use crate::hierarchy::operation::Operation;
use crate::plans::{OwnedPlan, Shape};
use crate::{Error, Op};
use earlybird_shm::{BufferRole, Collective, InactiveRequest, NodeComm, OwnedBuffers, OwnedCall};
use std::sync::Arc;
use std::task::Poll;

/// The next step.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Collect,
    /// Started in the collecting group under this number.
    Collecting(u64),
    Start,
    Exchange(Waited),
    Deliver,
    /// Started in the delivering group under this number.
    Delivering(u64),
}

/// An allreduce by a built-in operator of elements that nodes carry as they are.
pub(super) struct AllReduce {
    steps: Steps,
    lowering: Lowering,
    /// The operations of the node, without buffers while they are idle; `None` while they are started.
    collect: Option<InactiveRequest>,
    deliver: Option<InactiveRequest>,
    /// The leader's plan.
    plan: Option<OwnedPlan>,
    stage: Stage,
}

/// Returns whether the call is one that can be carried out in its own buffers.
pub(super) fn can_carry_out(call: &Call) -> bool {
    call.collective == Collective::AllReduce && call.lowering.builtin().is_some() && call.lowering.keeps_elements()
}

impl AllReduce {
    /// A call by this plan on the buffers of `owned`, which it leaves there.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a plan that does not exist; [`Error::Usage`] while another thread is in a call.
    pub(super) fn new(
        between: &Arc<Hierarchy>,
        owned: &mut OwnedCall,
        call: &Call,
        shape: Shape,
    ) -> Result<Self, Error> {
        let steps = Steps::new(between, (call.collective, call.signature), (0, 0));
        let (lowering, buffers) = (call.lowering, owned.buffers());
        let plan = if steps.topology().leads() { Some(between.lock()?.plans.owned(shape)?) } else { None };
        let mut allreduce = AllReduce { steps, lowering, collect: None, deliver: None, plan, stage: Stage::Collect };
        let (steps, datatype) = (&allreduce.steps, lowering.datatype());
        let op = lowering.builtin().map_or(Op::Sum, |(_, op)| op);
        buffers.set_role(allreduce.role());
        let mut collect =
            steps.prepare(steps.node(), Operation::reduce(0, datatype), op.into(), std::mem::take(buffers))?;
        take_buffers(&mut collect, buffers);
        buffers.set_role(BufferRole::Received);
        let from_leader = Operation { datatype, ..Operation::broadcast(0) };
        let mut deliver = steps.prepare(steps.deliver(), from_leader, Op::Sum.into(), std::mem::take(buffers))?;
        take_buffers(&mut deliver, buffers);
        (allreduce.collect, allreduce.deliver) = (Some(collect), Some(deliver));
        Ok(allreduce)
    }

    /// The buffers that the collecting operation uses.
    fn role(&self) -> BufferRole {
        if self.steps.topology().leads() { BufferRole::InPart } else { BufferRole::SendOnly }
    }

    /// Starts the call under these numbers: among what is started, and among all calls.
    pub(super) fn start(&mut self, number: u64, call: u64) {
        self.stage = Stage::Collect;
        self.steps.count(number, call);
    }

    /// Makes progress in the call; waits for its end where [`Steps::waits`] allows it.
    pub(super) fn poll(&mut self, call: &mut OwnedCall) -> Poll<Result<(), Error>> {
        let ended = match self.step(call.buffers()) {
            Ok(None) => return Poll::Pending,
            Ok(Some(())) => Ok(()),
            Err(error) => Err(self.steps.failed(error)),
        };
        if ended.is_ok() {
            self.lowering.finish(None, call.buffers().as_buffers().into_bytes().1, self.steps.topology().size());
        }
        Poll::Ready(ended)
    }

    /// Takes the buffers back: the node's groups have failed.
    pub(super) fn give_up(&mut self, call: &mut OwnedCall) {
        let (node, number, idle) = match self.stage {
            Stage::Collecting(number) => (self.steps.node(), number, &mut self.collect),
            Stage::Delivering(number) => (self.steps.deliver(), number, &mut self.deliver),
            Stage::Collect | Stage::Start | Stage::Exchange(_) | Stage::Deliver => return,
        };
        if let Ok((mut request, _)) = node.finish(number) {
            take_buffers(&mut request, call.buffers());
            *idle = Some(request);
        }
    }

    /// Makes progress; `None` when it must be called again.
    fn step(&mut self, buffers: &mut OwnedBuffers) -> Result<Option<()>, Error> {
        let (leads, role) = (self.steps.topology().leads(), self.role());
        loop {
            self.stage = match self.stage {
                Stage::Collect if self.is_alone() => {
                    let (send, recv) = buffers.as_buffers().into_bytes();
                    if let Some(send) = send {
                        recv.copy_from_slice(&send);
                    }
                    Stage::Start
                }
                Stage::Collect => match start(self.steps.node(), &mut self.collect, buffers, role)? {
                    Some(number) => Stage::Collecting(number),
                    // Operations have one order, so this one cannot be started later.
                    None => {
                        std::thread::yield_now();
                        Stage::Collect
                    }
                },
                Stage::Collecting(number) => {
                    let Some((mut collect, result)) = self.steps.ended(self.steps.node(), number)? else {
                        return Ok(None);
                    };
                    take_buffers(&mut collect, buffers);
                    (self.collect, self.stage) = (Some(collect), Stage::Start);
                    result?;
                    if leads { Stage::Start } else { Stage::Deliver }
                }
                Stage::Start => match self.steps.start(self.plan.as_mut().ok_or_else(lost)?)? {
                    true => Stage::Exchange(Waited::default()),
                    false => return Ok(None),
                },
                Stage::Exchange(mut waited) => {
                    let plan = self.plan.as_mut().ok_or_else(lost)?;
                    if !self.steps.progress(plan, buffers.as_buffers().into_bytes().1, &mut waited)? {
                        self.stage = Stage::Exchange(waited);
                        return Ok(None);
                    }
                    self.steps.pass_exchange();
                    Stage::Deliver
                }
                Stage::Deliver if !self.steps.may_deliver() => return Ok(None),
                Stage::Deliver if self.is_alone() => {
                    self.steps.pass_delivery();
                    self.stage = Stage::Collect;
                    return Ok(Some(()));
                }
                Stage::Deliver => {
                    let deliver = start(self.steps.deliver(), &mut self.deliver, buffers, BufferRole::Received)?;
                    let Some(number) = deliver else { return Ok(None) };
                    self.steps.pass_delivery();
                    Stage::Delivering(number)
                }
                Stage::Delivering(number) => {
                    let Some((mut deliver, result)) = self.steps.ended(self.steps.deliver(), number)? else {
                        return Ok(None);
                    };
                    take_buffers(&mut deliver, buffers);
                    (self.deliver, self.stage) = (Some(deliver), Stage::Collect);
                    return result.map(Some);
                }
            };
        }
    }

    /// Returns whether the node has one rank, which has nobody to collect from or to deliver to.
    fn is_alone(&self) -> bool {
        self.steps.topology().here().len() == 1
    }
}

/// Starts an idle operation on the buffers of the call. Returns its number, or `None` if it has to be tried again.
fn start(
    node: &NodeComm,
    idle: &mut Option<InactiveRequest>,
    buffers: &mut OwnedBuffers,
    role: BufferRole,
) -> Result<Option<u64>, Error> {
    let mut request = idle.take().ok_or_else(lost)?;
    buffers.set_role(role);
    request.swap_buffers(buffers);
    node.start(request).map(Some).or_else(|(mut request, error)| {
        take_buffers(&mut request, buffers);
        *idle = Some(request);
        if is_busy(&error) { Ok(None) } else { Err(error) }
    })
}

/// The error of a child process: the call that its parent started stays there.
fn lost() -> Error {
    Error::usage("the buffers of this call were lost with its group; prepare another one")
}

/// Moves the buffers from an idle operation back to the call.
fn take_buffers(request: &mut InactiveRequest, buffers: &mut OwnedBuffers) {
    request.swap_buffers(buffers);
    buffers.set_role(BufferRole::AsGiven);
}
