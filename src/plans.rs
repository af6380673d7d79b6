//! Plans as algorithms of a communicator: verified and compiled once per shape, run over the rings of the node.

use crate::transport::{RingOptions, ShmTransport};
use crate::{DType, Element, Error, Op};
use earlybird_hier::exec::{Endpoint, Fold, Geometry, Program, RunError, Running, Token, Transport, compile};
use earlybird_hier::plan::{Contract, Side};
use earlybird_hier::schedule::{self, Params};
use earlybird_hier::{Consistency, OpTraits, PlanError, verify};
use earlybird_shm::Progress;
use earlybird_shm::bytes::{self, ByteFold};
use std::sync::Arc;

/// Compiled shapes that are kept.
const KEPT: usize = 64;

/// Longer messages are cut into packets of this many bytes, so that folding and sending overlap.
const SEGMENT_BYTES: usize = 16 << 10;

/// What a compiled shape is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    name: &'static str,
    elements: usize,
    dtype: DType,
    op: Op,
}

/// The plans of one communicator and the rings they run over.
#[derive(Debug)]
pub(crate) struct Plans {
    endpoint: Endpoint<ShmTransport>,
    reductions: Vec<(Shape, Running<ElementFold>)>,
    barrier: Option<Running<Token>>,
}

impl Plans {
    /// Joins the rings. Collective.
    ///
    /// # Errors
    /// As [`ShmTransport::join`].
    pub(crate) fn join(options: &RingOptions) -> Result<Self, Error> {
        let endpoint = Endpoint::new(ShmTransport::join(options)?);
        Ok(Plans { endpoint, reductions: Vec::new(), barrier: None })
    }

    /// What to drive in long waits.
    pub(crate) fn set_progress(&mut self, progress: Option<Progress>) {
        self.endpoint.transport_mut().rings().set_progress(progress);
    }

    /// Says that a call begins that runs no plan.
    pub(crate) fn begin_other_call(&mut self) {
        self.endpoint.transport_mut().rings().begin(false);
    }

    /// Says that the call that began last did not take place.
    pub(crate) fn take_back_call(&mut self) {
        self.endpoint.transport_mut().rings().take_back();
    }

    /// What the group failed with.
    pub(crate) fn failed(&self) -> Option<&Error> {
        self.endpoint.transport().error()
    }

    /// Reduces `send` of all ranks into `recv` of every rank by the plan of this schedule.
    pub(crate) fn all_reduce_into<T: Element>(
        &mut self,
        name: &'static str,
        send: &[T],
        recv: &mut [T],
        op: Op,
    ) -> Result<(), Error> {
        if send.len() != recv.len() {
            let (send, recv) = (send.len(), recv.len());
            return Err(Error::usage(format!(
                "the send buffer has {send} elements and the receive buffer {recv}; give buffers of one length"
            )));
        }
        recv.copy_from_slice(send);
        self.all_reduce_in_place(name, recv, op)
    }

    /// Reduces `buffer` of all ranks into that of every rank by the plan of this schedule.
    pub(crate) fn all_reduce_in_place<T: Element>(
        &mut self,
        name: &'static str,
        buffer: &mut [T],
        op: Op,
    ) -> Result<(), Error> {
        let shape = Shape { name, elements: buffer.len(), dtype: T::DTYPE, op };
        let index = match self.reductions.iter().position(|(known, _)| *known == shape) {
            Some(index) => index,
            None => {
                let running = self.prepare(shape)?;
                if self.reductions.len() == KEPT {
                    self.reductions.remove(0);
                }
                self.reductions.push((shape, running));
                self.reductions.len() - 1
            }
        };
        let running = &mut self.reductions[index].1;
        exchange(&mut self.endpoint, running, bytes::of_mut(buffer))
    }

    /// Returns when every rank has called it.
    pub(crate) fn barrier(&mut self) -> Result<(), Error> {
        let barrier = match self.barrier.take() {
            Some(barrier) => barrier,
            None => {
                let program = self.compile("dissemination", Contract::Barrier, 1, 1)?;
                Running::new(program, Token, Consistency::Identical).map_err(refused)?
            }
        };
        exchange(&mut self.endpoint, self.barrier.insert(barrier), &mut [0])
    }

    fn prepare(&self, shape: Shape) -> Result<Running<ElementFold>, Error> {
        let program = self.compile(shape.name, Contract::Allreduce, shape.elements, shape.dtype.size())?;
        let fold = ElementFold { fold: ByteFold::new(shape.dtype, shape.op)?, op: shape.op };
        Running::new(program, fold, Consistency::Identical).map_err(refused)
    }

    fn compile(
        &self,
        name: &str,
        contract: Contract,
        elements: usize,
        element_bytes: usize,
    ) -> Result<Arc<Program>, Error> {
        let transport = self.endpoint.transport();
        let params = Params { contract: Some(contract), ..Params::ranks(transport.size()) };
        let plan = schedule::build(name, &params).map_err(unusable)?;
        let plan = verify::verify(plan).map_err(|violation| unusable(violation.into()))?;
        let segment_bytes = SEGMENT_BYTES.min(transport.packet_bytes());
        let program = compile(&plan, transport.rank(), Geometry { elements, element_bytes, segment_bytes });
        program.map(Arc::new).map_err(|error| Error::usage(error.to_string()))
    }
}

/// One call: begun, run, and marked as complete, so that this rank's end fails it no more.
fn exchange<F: Fold>(
    endpoint: &mut Endpoint<ShmTransport>,
    running: &mut Running<F>,
    data: &mut [u8],
) -> Result<(), Error> {
    endpoint.transport_mut().rings().begin(true);
    // The rings know the deadline.
    let result = running.run(endpoint, data, None);
    let transport = endpoint.transport_mut();
    match result {
        Ok(()) => {
            transport.rings().complete_exchange();
            Ok(())
        }
        Err(error) => Err(transport.error().cloned().unwrap_or_else(|| refused(error))),
    }
}

/// The same on all ranks, for it depends on nothing but the call.
fn refused(error: RunError) -> Error {
    match error {
        RunError::Plan(error) => unusable(error),
        other => Error::usage(other.to_string()),
    }
}

fn unusable(error: PlanError) -> Error {
    Error::Unsupported { what: "this plan".into(), hint: error.to_string() }
}

/// The library's operators on its element types.
#[derive(Debug, Clone, Copy)]
struct ElementFold {
    fold: ByteFold,
    op: Op,
}

impl Fold for ElementFold {
    fn element_bytes(&self) -> usize {
        self.fold.dtype().size()
    }

    /// Every operator here is commutative bit for bit.
    fn traits(&self) -> OpTraits {
        OpTraits { commutative: true, exact: !self.fold.dtype().is_inexact(self.op) }
    }

    fn code(&self) -> u64 {
        (self.fold.dtype() as u64) << 8 | self.op as u64
    }

    fn fold(&self, target: &mut [u8], incoming: &[u8], side: Side) {
        self.fold.fold(target, incoming, side == Side::Left);
    }
}
