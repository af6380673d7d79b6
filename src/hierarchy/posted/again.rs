//! The allreduce that is started again and again: what does not depend on its data is made once, and its owner's vectors go from
//! step to step where the futures of `calls.rs` copy them. The steps are those of the future.

use super::calls::{self, StartedArgs, from_leader, gets, gives, in_place};
use super::steps::{Operation, Steps, Waited, is_busy};
use crate::hierarchy::Hierarchy;
use crate::plans::Apart;
use crate::{DType, Element, Error, Op};
use earlybird_shm::{Collective, InactiveRequest, NodeComm, OwnedBuffers, Signature, bytes};
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;

/// A call that keeps what it needs from one start to the next.
pub(super) trait Again: Send {
    /// A start, under these numbers: among what is posted, and among all calls.
    fn start(&mut self, number: u64, call: u64);
    /// Carries on with the call of these buffers, as [`Steps::waits`] says.
    fn poll(&mut self, owned: &mut dyn Any) -> Poll<Result<(), Error>>;
    /// Takes the buffers back: the node's groups have failed.
    fn give_up(&mut self, owned: &mut dyn Any);
    /// What runs between leaders.
    fn runs(&self) -> &'static str;
}

/// What is to be done next.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Give,
    /// Posted in the node's group under this number.
    Giving(u64),
    Start,
    Exchange(Waited),
    Take,
    /// Posted in the group that takes.
    Taking(u64),
}

/// An allreduce by a built-in operator of elements that nodes carry as they are.
pub(super) struct AllReduce<T> {
    steps: Steps,
    op: Op,
    /// The operations of the node; `None` while they are posted.
    give: Option<InactiveRequest>,
    take: Option<InactiveRequest>,
    /// The leader's plan.
    plan: Option<Apart>,
    runs: &'static str,
    stage: Stage,
    of: PhantomData<T>,
}

/// Whether sums of these elements can be carried in vectors of theirs.
pub(super) fn carries<T: Element>(asked: &StartedArgs) -> bool {
    let is_widened = matches!(T::DTYPE, DType::F16 | DType::BF16) && asked.op == Op::Average;
    asked.collective == Collective::AllReduce && asked.counts.is_none() && T::DTYPE != DType::Bool && !is_widened
}

impl<T: Element> AllReduce<T> {
    /// A call on these buffers, which it leaves there.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operator or a plan that does not exist; [`Error::Usage`] while another thread is in a call.
    pub(super) fn new(
        (between, node): (&Arc<Hierarchy>, &Arc<NodeComm>),
        asked: &StartedArgs,
        signature: Signature,
        owned: &mut OwnedBuffers<T>,
    ) -> Result<Self, Error> {
        let op = asked.op;
        T::DTYPE.must_have(op)?;
        let folds = if op == Op::Average { Op::Sum } else { op };
        let steps = Steps::new((between, node), (Collective::AllReduce, signature), (0, 0));
        let leads = steps.topology().leads();
        let shape = calls::plan::<T>(&steps, asked, folds, owned.recv.len())?.expect("that of an allreduce");
        let plan = if leads { Some(between.lock()?.plans.apart(shape)?) } else { None };
        let (send, recv) = (std::mem::take(&mut owned.send), std::mem::take(&mut owned.recv));
        let given = match (leads, owned.is_in_place()) {
            (true, true) => in_place(recv),
            (true, false) => OwnedBuffers::apart(send, recv),
            (false, true) => gives(recv),
            (false, false) => {
                owned.recv = recv;
                gives(send)
            }
        };
        let mut give = steps.giving(Operation::new(Collective::Reduce, folds, Some(0)), given)?;
        Self::lend_to_give(&mut give, leads, owned);
        let recv = std::mem::take(&mut owned.recv);
        let mut take = steps.taking(from_leader(), if leads { in_place(recv) } else { gets(recv) })?;
        Self::lend_to_take(&mut take, owned);
        let (give, take, runs, stage) = (Some(give), Some(take), shape.name, Stage::Give);
        Ok(AllReduce { steps, op, give, take, plan, runs, stage, of: PhantomData })
    }

    /// Vectors that it needs to the operation that gives, or back.
    fn lend_to_give(give: &mut InactiveRequest, leads: bool, owned: &mut OwnedBuffers<T>) {
        let in_place = owned.is_in_place();
        let none = &mut Vec::new();
        let is_of_type = match (leads, in_place) {
            (true, true) => give.swap(none, &mut owned.recv),
            (true, false) => give.swap(&mut owned.send, &mut owned.recv),
            (false, true) => give.swap(&mut owned.recv, none),
            (false, false) => give.swap(&mut owned.send, none),
        };
        debug_assert!(is_of_type);
    }

    fn lend_to_take(take: &mut InactiveRequest, owned: &mut OwnedBuffers<T>) {
        let is_of_type = take.swap(&mut Vec::new(), &mut owned.recv);
        debug_assert!(is_of_type);
    }

    /// Carries on; nothing when it must be called again.
    fn step(&mut self, owned: &mut OwnedBuffers<T>) -> Result<Option<()>, Error> {
        let leads = self.steps.topology().leads();
        loop {
            self.stage = match self.stage {
                Stage::Give if self.is_alone() => {
                    if !owned.is_in_place() {
                        owned.recv.copy_from_slice(&owned.send);
                    }
                    Stage::Start
                }
                Stage::Give => {
                    let mut give = self.give.take().ok_or_else(lost)?;
                    Self::lend_to_give(&mut give, leads, owned);
                    match self.steps.node().post(give) {
                        Ok(number) => Stage::Giving(number),
                        Err((mut give, error)) => {
                            Self::lend_to_give(&mut give, leads, owned);
                            self.give = Some(give);
                            return unless_busy(error);
                        }
                    }
                }
                Stage::Giving(number) => {
                    let Some((mut give, result)) = self.steps.given(number)? else { return Ok(None) };
                    Self::lend_to_give(&mut give, leads, owned);
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
                    if !self.steps.carry_on(plan, bytes::of_mut(&mut owned.recv), &mut waited)? {
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
                    Self::lend_to_take(&mut take, owned);
                    match self.steps.deliver().post(take) {
                        Ok(number) => {
                            self.steps.pass_taking();
                            Stage::Taking(number)
                        }
                        Err((mut take, error)) => {
                            Self::lend_to_take(&mut take, owned);
                            self.take = Some(take);
                            return unless_busy(error);
                        }
                    }
                }
                Stage::Taking(number) => {
                    let Some((mut take, result)) = self.steps.taken(number)? else { return Ok(None) };
                    Self::lend_to_take(&mut take, owned);
                    (self.take, self.stage) = (Some(take), Stage::Give);
                    return result.map(Some);
                }
            };
        }
    }

    /// Whether the node has one rank: there is nobody to give to or take from.
    fn is_alone(&self) -> bool {
        self.steps.topology().here().len() == 1
    }
}

fn unless_busy(error: Error) -> Result<Option<()>, Error> {
    if is_busy(&error) { Ok(None) } else { Err(error) }
}

/// What was posted in a process that is this one's parent stays there.
fn lost() -> Error {
    Error::usage("the buffers of this call were lost with its group; prepare another one")
}

impl<T: Element> Again for AllReduce<T> {
    fn start(&mut self, number: u64, call: u64) {
        self.stage = Stage::Give;
        self.steps.count(number, call);
    }

    fn poll(&mut self, owned: &mut dyn Any) -> Poll<Result<(), Error>> {
        let owned = owned.downcast_mut::<OwnedBuffers<T>>().expect("the type it was made with");
        let ended = match self.step(owned) {
            Ok(None) => return Poll::Pending,
            Ok(Some(())) => Ok(()),
            Err(error) => Err(self.steps.failed(error)),
        };
        if ended.is_ok() && self.op == Op::Average {
            bytes::divide(&mut owned.recv, self.steps.topology().size());
        }
        Poll::Ready(ended)
    }

    fn give_up(&mut self, owned: &mut dyn Any) {
        let owned = owned.downcast_mut::<OwnedBuffers<T>>().expect("the type it was made with");
        let leads = self.steps.topology().leads();
        match self.stage {
            Stage::Giving(number) => {
                if let Ok((mut give, _)) = self.steps.node().finish(number) {
                    Self::lend_to_give(&mut give, leads, owned);
                    self.give = Some(give);
                }
            }
            Stage::Taking(number) => {
                if let Ok((mut take, _)) = self.steps.deliver().finish(number) {
                    Self::lend_to_take(&mut take, owned);
                    self.take = Some(take);
                }
            }
            Stage::Give | Stage::Start | Stage::Exchange(_) | Stage::Take => {}
        }
    }

    fn runs(&self) -> &'static str {
        self.runs
    }
}
