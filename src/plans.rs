//! The plans of a communicator: verified and compiled once per shape, run over the transport that connects its ranks.

use crate::transport::ShmTransport;
use crate::{Algorithm, Collective, DType, Error, FoldOrder, Op};
use earlybird_hier::exec::{
    Alltoallv, Endpoint, Failure, Fold, Geometry, Operation, Parts, Program, RunError, Running, Transport, compile,
    wait_first,
};
use earlybird_hier::plan::{self, Side};
use earlybird_hier::schedule::{self, Params, ScheduleSpec};
use earlybird_hier::{Consistency, OpTraits, PlanError, verify};
use earlybird_shm::bytes::ByteFold;
use earlybird_shm::channel::CallDescription;
use earlybird_shm::op::Datatype;
use earlybird_shm::{CheckedArgs, ReduceOp, Signature};
use std::sync::Arc;
use std::time::Duration;

/// Compiled plans that are cached.
const MOST_CACHED: usize = 64;

/// Longer messages are cut into packets of this many bytes, so that folding and sending overlap.
const SEGMENT_BYTES: usize = 16 << 10;

/// A transport with the error, the deadline and the calls of its communicator.
pub(crate) trait GroupTransport: Transport {
    /// The group's error in full: the executor's failure names no process.
    fn error(&self) -> Option<&Error>;

    /// The longest time without progress, where the transport does not watch it itself.
    fn deadline(&self) -> Option<Duration> {
        None
    }

    /// Begins a call that runs the plan of this shape.
    fn begin(&mut self, _: &Shape) {}

    /// Completes the call on this rank: the end of its process fails the call no more.
    fn complete(&mut self) {}
}

impl GroupTransport for ShmTransport {
    fn error(&self) -> Option<&Error> {
        ShmTransport::error(self)
    }

    fn begin(&mut self, shape: &Shape) {
        let rings = self.rings();
        rings.begin(true);
        let (collective, dtype, op) = match shape.work {
            Work::Fold(dtype, op) => (Collective::AllReduce, dtype, op),
            Work::Move => (Collective::Barrier, DType::U8, Op::Sum),
        };
        let call = Signature::new(collective, dtype, op, FoldOrder::Arrival, Algorithm::Auto, shape.elements);
        rings.describe_call(rings.calls(), CallDescription::new(call, Some(shape.name)));
    }

    fn complete(&mut self) {
        self.rings().complete_exchange();
    }
}

/// The work of a plan on its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Folds them.
    Fold(DType, Op),
    /// Moves bytes; the elements of the shape are bytes.
    Move,
}

/// The shape of calls that one compiled plan can carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The schedule, with its parameters if it has any.
    pub name: &'static str,
    pub collective: plan::Collective,
    pub root: usize,
    pub elements: usize,
    pub work: Work,
    /// A hash of the call, compared between ranks.
    pub call: u32,
    /// Distinguishes plans of one shape that run at the same time.
    pub turn: u8,
}

/// The plans of one communicator and their transport.
#[derive(Debug)]
pub(crate) struct Plans<T> {
    endpoint: Endpoint<T>,
    cached: Vec<(Shape, OwnedPlan)>,
    /// The programs by shape, for any turn.
    programs: Vec<(Shape, Arc<Program>)>,
    /// The shapes that were admitted, for any size.
    admitted: Vec<Shape>,
}

impl<T: GroupTransport> Plans<T> {
    pub(crate) fn over(transport: T) -> Self {
        Plans { endpoint: Endpoint::new(transport), cached: Vec::new(), programs: Vec::new(), admitted: Vec::new() }
    }

    /// The transport of the plans.
    pub(crate) fn transport_mut(&mut self) -> &mut T {
        self.endpoint.transport_mut()
    }

    /// The error with which the group has failed.
    pub(crate) fn failed(&self) -> Option<&Error> {
        self.endpoint.transport().error()
    }

    /// Makes a call of the collectives that plans carry out, by the plan of this schedule.
    pub(crate) fn execute(&mut self, name: &'static str, checked: CheckedArgs<'_>) -> Result<(), Error> {
        let (dtype, op) = match (checked.collective(), checked.datatype(), checked.op()) {
            (Collective::Barrier, ..) => return self.run(barrier(0), &mut [0]),
            (Collective::AllReduce, Datatype::Builtin(dtype), ReduceOp::Builtin(op)) => (dtype, op),
            (collective, ..) => {
                let what = format!("{} by plan:{name} with a user's operator", collective.name());
                return Err(Error::Unsupported { what, hint: "choose an algorithm of the node".into() });
            }
        };
        let (send, buffer) = checked.into_bytes();
        if let Some(send) = send {
            buffer.copy_from_slice(&send);
        }
        let (elements, work) = (buffer.len() / dtype.size(), Work::Fold(dtype, op));
        let shape = Shape { name, collective: plan::Collective::Allreduce, root: 0, elements, work, call: 0, turn: 0 };
        self.prepare(shape)?;
        self.run(shape, buffer)
    }

    /// Refuses work that no plan of this name, collective and root may carry out, whatever the size: the same on all ranks.
    pub(crate) fn admit(&mut self, shape: Shape) -> Result<(), Error> {
        let shape = Shape { elements: 0, turn: 0, call: 0, ..shape };
        if self.admitted.contains(&shape) {
            return Ok(());
        }
        let plan = plan_of(&shape, self.endpoint.transport().size())?;
        let fold = AnyFold::new(&shape)?;
        if let Work::Fold(..) = shape.work {
            verify::admit(plan, fold.traits(), Consistency::Identical).map_err(unusable)?;
        }
        self.admitted.push(shape);
        Ok(())
    }

    /// Compiles the plan of a shape. Plans that are prepared for one call stay cached until its end, up to half of the cache.
    pub(crate) fn prepare(&mut self, shape: Shape) -> Result<(), Error> {
        if self.cached.iter().any(|(known, _)| *known == shape) {
            return Ok(());
        }
        let running = self.owned(shape)?;
        if self.cached.len() == MOST_CACHED {
            self.cached.drain(..MOST_CACHED / 2);
        }
        self.cached.push((shape, running));
        Ok(())
    }

    /// A plan of this shape that the caller owns.
    pub(crate) fn owned(&mut self, shape: Shape) -> Result<OwnedPlan, Error> {
        let fold = AnyFold::new(&shape)?;
        let known = self.programs.iter().find(|(known, _)| *known == Shape { turn: 0, ..shape });
        let program = match known {
            Some((_, program)) => program.clone(),
            None => {
                let transport = self.endpoint.transport();
                let plan = plan_of(&shape, transport.size())?;
                let (elements, element_bytes) = (shape.elements, fold.element_bytes());
                let segment_bytes = SEGMENT_BYTES.min(transport.packet_bytes());
                let program = compile(&plan, transport.rank(), Geometry { elements, element_bytes, segment_bytes });
                let program: Arc<Program> = program.map(Arc::new).map_err(|error| Error::usage(error.to_string()))?;
                if self.programs.len() == MOST_CACHED {
                    self.programs.drain(..MOST_CACHED / 2);
                }
                self.programs.push((Shape { turn: 0, ..shape }, program.clone()));
                program
            }
        };
        Operation::new(program, fold, Consistency::Identical).map_err(refused)
    }

    /// Runs a plan from beginning to end.
    pub(crate) fn run(&mut self, shape: Shape, data: &mut [u8]) -> Result<(), Error> {
        self.prepare(shape)?;
        self.endpoint.transport_mut().begin(&shape);
        self.start(shape, data)?;
        self.finish(shape, data, None)?;
        self.endpoint.transport_mut().complete();
        Ok(())
    }

    fn at(&self, shape: Shape) -> usize {
        self.cached.iter().position(|(known, _)| *known == shape).expect("prepared before it runs")
    }

    /// Starts a prepared plan and sends what can be sent now.
    pub(crate) fn start(&mut self, shape: Shape, data: &mut [u8]) -> Result<(), Error> {
        let at = self.at(shape);
        let running = &mut self.cached[at].1;
        let result = running.start(&mut self.endpoint).and_then(|()| running.poll(&mut self.endpoint, data));
        result.map(drop).map_err(|error| self.error(error))
    }

    /// Waits until a started plan is complete; the one that was started after it advances meanwhile.
    pub(crate) fn finish(
        &mut self,
        shape: Shape,
        data: &mut [u8],
        next: Option<(Shape, &mut [u8])>,
    ) -> Result<(), Error> {
        let (at, after) = (self.at(shape), next.as_ref().map(|(shape, _)| self.at(*shape)));
        let deadline = self.endpoint.transport().deadline();
        let result = match (next, after.and_then(|after| self.cached.get_disjoint_mut([at, after]).ok())) {
            (Some((_, later)), Some([(_, first), (_, second)])) => {
                wait_first(&mut self.endpoint, &mut [(first, data), (second, later)], deadline)
            }
            _ => self.cached[at].1.wait(&mut self.endpoint, data, deadline),
        };
        result.map_err(|error| self.error(error))
    }

    /// Moves parts between every pair of ranks.
    pub(crate) fn exchange(&mut self, call: u32, parts: &mut [Parts<'_>]) -> Result<(), Error> {
        let mut exchange = self.start_parts(call)?;
        self.wait(&mut exchange, parts)
    }

    /// Starts an owned plan.
    pub(crate) fn restart(&mut self, plan: &mut OwnedPlan) -> Result<(), Error> {
        plan.start(&mut self.endpoint).map_err(|error| self.error(error))
    }

    /// Compiles and starts an owned plan.
    pub(crate) fn start_owned(&mut self, shape: Shape) -> Result<OwnedPlan, Error> {
        let mut plan = self.owned(shape)?;
        self.restart(&mut plan).map(|()| plan)
    }

    /// Starts moving parts between every pair of ranks.
    pub(crate) fn start_parts(&mut self, call: u32) -> Result<Alltoallv, Error> {
        Alltoallv::start(&mut self.endpoint, parts_of(call)).map_err(|error| self.error(error))
    }

    /// Makes progress in an owned plan. Returns a rank that it waits for, or nothing when it is complete.
    pub(crate) fn poll<D: ?Sized>(
        &mut self,
        running: &mut impl Running<D>,
        data: &mut D,
    ) -> Result<Option<usize>, Error> {
        let ended = running.poll(&mut self.endpoint, data).map_err(|error| self.error(error))?;
        Ok((!ended).then(|| running.awaited().unwrap_or(0)))
    }

    /// Waits until an owned plan is complete.
    pub(crate) fn wait<D: ?Sized>(&mut self, running: &mut impl Running<D>, data: &mut D) -> Result<(), Error> {
        let deadline = self.endpoint.transport().deadline();
        running.wait(&mut self.endpoint, data, deadline).map_err(|error| self.error(error))
    }

    /// Fails the group if `awaited` was waited for too long, where the transport does not do so itself.
    pub(crate) fn give_up(&mut self, awaited: usize, waited: Duration) -> Option<Error> {
        let after = self.endpoint.transport().deadline().filter(|deadline| waited > *deadline)?;
        let failure = self.endpoint.fail(Failure::Timeout { missing: awaited, after });
        Some(self.error(failure.into()))
    }

    fn error(&self, error: RunError) -> Error {
        self.failed().cloned().unwrap_or_else(|| refused(error))
    }
}

/// A plan outside the cache, which its owner starts any number of times.
pub(crate) type OwnedPlan = Operation<AnyFold>;

/// The hash by which ranks compare a call that moves parts.
fn parts_of(call: u32) -> u64 {
    u64::from(call) << 8 | 1
}

/// The barrier's plan: a token goes round.
pub(crate) fn barrier(call: u32) -> Shape {
    let (name, collective) = ("dissemination", plan::Collective::Barrier);
    Shape { name, collective, root: 0, elements: 1, work: Work::Move, call, turn: 0 }
}

fn plan_of(shape: &Shape, ranks: usize) -> Result<verify::Verified<plan::Plan>, Error> {
    let root = matches!(shape.collective, plan::Collective::Reduce | plan::Collective::Broadcast).then_some(shape.root);
    let named: ScheduleSpec = shape.name.parse().map_err(unusable)?;
    let params = Params { collective: Some(shape.collective), root, ranks, ..named.params };
    let plan = schedule::build(named.schedule.name, &params).map_err(unusable)?;
    verify::verify(plan).map_err(|violation| unusable(violation.into()))
}

/// The error of a plan that is refused: the same on all ranks, since it depends on the call only.
fn refused(error: RunError) -> Error {
    match error {
        RunError::Plan(error) => unusable(error),
        other => Error::usage(other.to_string()),
    }
}

fn unusable(error: PlanError) -> Error {
    Error::Unsupported { what: "this plan".into(), hint: error.to_string() }
}

/// The library's operators on its element types, or bytes that are moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnyFold {
    fold: Option<(ByteFold, Op)>,
    call: u32,
}

impl AnyFold {
    fn new(shape: &Shape) -> Result<Self, Error> {
        let fold = match shape.work {
            Work::Fold(dtype, op) => Some((ByteFold::new(dtype, op)?, op)),
            Work::Move => None,
        };
        Ok(AnyFold { fold, call: shape.call })
    }
}

impl Fold for AnyFold {
    fn element_bytes(&self) -> usize {
        self.fold.map_or(1, |(fold, _)| fold.dtype().size())
    }

    /// Every operator here is commutative bit for bit.
    fn traits(&self) -> OpTraits {
        OpTraits { commutative: true, exact: self.fold.is_none_or(|(fold, op)| !fold.dtype().is_inexact(op)) }
    }

    fn is_idempotent(&self) -> bool {
        self.fold.is_none()
    }

    fn code(&self) -> u64 {
        let folds = self.fold.map_or(1, |(fold, op)| (fold.dtype() as u64) << 8 | op as u64);
        u64::from(self.call) << 16 | folds
    }

    fn fold(&self, target: &mut [u8], incoming: &[u8], side: Side) {
        match self.fold {
            Some((fold, _)) => fold.fold(target, incoming, side == Side::Left),
            None => target.iter_mut().zip(incoming).for_each(|(t, i)| *t |= i),
        }
    }
}
