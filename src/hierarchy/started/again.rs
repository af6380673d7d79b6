//! The allreduce that is started again and again: what does not depend on its data is made once, and its owner's buffers go from
//! step to step where the futures of `begin.rs` copy them. The steps are those of the future.

use super::steps::{Steps, Waited, is_busy};
use crate::hierarchy::Hierarchy;
use crate::hierarchy::call::Call;
use crate::hierarchy::lowering::Lowering;
use crate::hierarchy::operation::Operation;
use crate::plans::{Apart, Shape};
use crate::{Error, Op};
use earlybird_shm::{BufferRole, Collective, InactiveRequest, OwnedBuffers, OwnedCall};
use std::sync::Arc;
use std::task::Poll;

/// The next step.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Give,
    /// Started in the node's group under this number.
    Giving(u64),
    Start,
    Exchange(Waited),
    Take,
    /// Started in the group that takes.
    Taking(u64),
}

/// An allreduce by a built-in operator of elements that nodes carry as they are.
pub(super) struct AllReduce {
    steps: Steps,
    lowering: Lowering,
    /// The operations of the node, without buffers while they are idle; `None` while they are started.
    give: Option<InactiveRequest>,
    take: Option<InactiveRequest>,
    /// The leader's plan.
    plan: Option<Apart>,
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
        let plan = if steps.topology().leads() { Some(between.lock()?.plans.apart(shape)?) } else { None };
        let mut allreduce = AllReduce { steps, lowering, give: None, take: None, plan, stage: Stage::Give };
        let (steps, datatype) = (&allreduce.steps, lowering.datatype());
        let op = lowering.builtin().map_or(Op::Sum, |(_, op)| op);
        buffers.set_role(allreduce.given());
        let mut give =
            steps.prepare(steps.node(), Operation::reduce(0, datatype), op.into(), std::mem::take(buffers))?;
        give_back(&mut give, buffers);
        buffers.set_role(BufferRole::Received);
        let from_leader = Operation { datatype, ..Operation::broadcast(0) };
        let mut take = steps.prepare(steps.deliver(), from_leader, Op::Sum.into(), std::mem::take(buffers))?;
        give_back(&mut take, buffers);
        (allreduce.give, allreduce.take) = (Some(give), Some(take));
        Ok(allreduce)
    }

    /// The buffers that the operation that gives uses.
    fn given(&self) -> BufferRole {
        if self.steps.topology().leads() { BufferRole::InPart } else { BufferRole::SendOnly }
    }

    /// Starts the call under these numbers: among what is started, and among all calls.
    pub(super) fn start(&mut self, number: u64, call: u64) {
        self.stage = Stage::Give;
        self.steps.count(number, call);
    }

    /// Carries on with the call, as [`Steps::waits`] says.
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
        match self.stage {
            Stage::Giving(number) => {
                if let Ok((mut give, _)) = self.steps.node().finish(number) {
                    give_back(&mut give, call.buffers());
                    self.give = Some(give);
                }
            }
            Stage::Taking(number) => {
                if let Ok((mut take, _)) = self.steps.deliver().finish(number) {
                    give_back(&mut take, call.buffers());
                    self.take = Some(take);
                }
            }
            Stage::Give | Stage::Start | Stage::Exchange(_) | Stage::Take => {}
        }
    }

    /// Carries on; nothing when it must be called again.
    fn step(&mut self, buffers: &mut OwnedBuffers) -> Result<Option<()>, Error> {
        let (leads, given) = (self.steps.topology().leads(), self.given());
        loop {
            self.stage = match self.stage {
                Stage::Give if self.is_alone() => {
                    let (send, recv) = buffers.as_buffers().into_bytes();
                    if let Some(send) = send {
                        recv.copy_from_slice(&send);
                    }
                    Stage::Start
                }
                Stage::Give => {
                    let mut give = self.give.take().ok_or_else(lost)?;
                    give_buffers(&mut give, buffers, given);
                    match self.steps.node().start(give) {
                        Ok(number) => Stage::Giving(number),
                        Err((mut give, error)) => {
                            give_back(&mut give, buffers);
                            self.give = Some(give);
                            return unless_busy(error);
                        }
                    }
                }
                Stage::Giving(number) => {
                    let Some((mut give, result)) = self.steps.given(number)? else { return Ok(None) };
                    give_back(&mut give, buffers);
                    (self.give, self.stage) = (Some(give), Stage::Start);
                    result?;
                    if leads { Stage::Start } else { Stage::Take }
                }
                Stage::Start => match self.steps.start(self.plan.as_mut().ok_or_else(lost)?)? {
                    true => Stage::Exchange(Waited::default()),
                    false => return Ok(None),
                },
                Stage::Exchange(mut waited) => {
                    let plan = self.plan.as_mut().ok_or_else(lost)?;
                    if !self.steps.carry_on(plan, buffers.as_buffers().into_bytes().1, &mut waited)? {
                        self.stage = Stage::Exchange(waited);
                        return Ok(None);
                    }
                    self.steps.pass_exchange();
                    Stage::Take
                }
                Stage::Take if !self.steps.may_take() => return Ok(None),
                Stage::Take if self.is_alone() => {
                    self.steps.pass_taking();
                    self.stage = Stage::Give;
                    return Ok(Some(()));
                }
                Stage::Take => {
                    let mut take = self.take.take().ok_or_else(lost)?;
                    give_buffers(&mut take, buffers, BufferRole::Received);
                    match self.steps.deliver().start(take) {
                        Ok(number) => {
                            self.steps.pass_taking();
                            Stage::Taking(number)
                        }
                        Err((mut take, error)) => {
                            give_back(&mut take, buffers);
                            self.take = Some(take);
                            return unless_busy(error);
                        }
                    }
                }
                Stage::Taking(number) => {
                    let Some((mut take, result)) = self.steps.taken(number)? else { return Ok(None) };
                    give_back(&mut take, buffers);
                    (self.take, self.stage) = (Some(take), Stage::Give);
                    return result.map(Some);
                }
            };
        }
    }

    /// Returns whether the node has one rank, which gives to no other and takes from none.
    fn is_alone(&self) -> bool {
        self.steps.topology().here().len() == 1
    }
}

fn unless_busy(error: Error) -> Result<Option<()>, Error> {
    if is_busy(&error) { Ok(None) } else { Err(error) }
}

/// The error of a child process: the call that its parent started stays there.
fn lost() -> Error {
    Error::usage("the buffers of this call were lost with its group; prepare another one")
}

/// Gives an idle operation the buffers of the call, of which it uses these.
fn give_buffers(request: &mut InactiveRequest, buffers: &mut OwnedBuffers, role: BufferRole) {
    buffers.set_role(role);
    request.swap_buffers(buffers);
}

/// The other way round.
fn give_back(request: &mut InactiveRequest, buffers: &mut OwnedBuffers) {
    request.swap_buffers(buffers);
    buffers.set_role(BufferRole::AsGiven);
}
