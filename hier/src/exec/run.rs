//! Persistent operations: run a compiled program any number of times, without allocating after the first.
//!
//! [`Running::poll`] makes all progress that is possible and returns. Packets are folded from the transport's memory
//! into the buffer as soon as everything before them in the plan's order has happened there. A packet that comes too
//! early stays with the transport, which slows its sender down, unless it could block others: then it is put aside.
//!
//! No deadlock: take the lowest round that some rank has not finished. Its packets are at the head of their queues, or
//! behind packets of other operations, which are put aside. Its receivers have finished all lower rounds, so they put
//! aside packets that they cannot apply yet. Hence all sends of the round end, and then all its receives.

use super::buffers::Buffers;
use super::endpoint::Endpoint;
use super::fold::Fold;
use super::program::Program;
use super::progress::RunProgress;
use super::running::{RunError, Running};
use super::transport::{Failure, PacketHeader, Transport};
use crate::plan::{Collective, PlanError};
use crate::verify::{Consistency, check_operator};
use std::sync::Arc;
use std::time::Duration;

/// A persistent operation.
///
/// Every call gets the caller's buffer, the same one from start to end: buffer 0 of the plan, input and output. After
/// an error its contents are undefined.
#[derive(Debug)]
pub struct Operation<F> {
    program: Arc<Program>,
    fold: F,
    call: u64,
    memory: Buffers,
    state: RunProgress,
}

impl<F: Fold> Operation<F> {
    /// Allocates the buffers that the program needs.
    ///
    /// # Errors
    /// [`RunError::Plan`] when the operator and `consistency` do not admit the plan, or the operator of a barrier
    /// is not idempotent; [`RunError::ElementBytes`].
    pub fn new(program: Arc<Program>, fold: F, consistency: Consistency) -> Result<Self, RunError> {
        let (operator, compiled) = (fold.element_bytes(), program.geometry.element_bytes);
        if operator != compiled {
            return Err(RunError::ElementBytes { operator, program: compiled });
        }
        let name = &program.algorithm;
        match program.collective {
            Collective::Barrier if !fold.is_idempotent() => {
                return Err(RunError::Plan(PlanError::NotAdmitted {
                    algorithm: name.clone(),
                    reason: "a barrier combines the same contribution more than once".to_string(),
                    instead: "use an idempotent operator, such as the or of bits".to_string(),
                }));
            }
            // These combine no values.
            Collective::Barrier | Collective::Broadcast | Collective::Allgather => {}
            Collective::Allreduce | Collective::Reduce | Collective::ReduceScatter => {
                check_operator(name, program.order, program.consistent, fold.traits(), consistency)?;
            }
        }
        let state = RunProgress::new(&program);
        let memory = Buffers::new(program.buffers - 1, program.bytes());
        let call = program.digest ^ fold.code().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Operation { program, fold, call, memory, state })
    }

    /// Begins a run. Nothing is sent before the first poll.
    ///
    /// # Errors
    /// [`RunError::Busy`], [`RunError::Endpoint`], [`RunError::Packet`], or the endpoint's failure.
    pub fn start<T: Transport>(&mut self, endpoint: &mut Endpoint<T>) -> Result<(), RunError> {
        let (program, transport) = (&*self.program, &endpoint.transport);
        if self.is_running() {
            return Err(RunError::Busy);
        }
        if (program.rank, program.ranks) != (transport.rank(), transport.size()) {
            let (endpoint_rank, endpoint_ranks) = (transport.rank(), transport.size());
            return Err(RunError::Endpoint { rank: program.rank, ranks: program.ranks, endpoint_rank, endpoint_ranks });
        }
        if program.largest_packet() > transport.packet_bytes() {
            return Err(RunError::Packet { given: program.largest_packet(), most: transport.packet_bytes() });
        }
        if let Some(failure) = endpoint.failure() {
            return Err(failure.clone().into());
        }
        self.state.begin(program, endpoint.running.start());
        Ok(())
    }

    /// Starts the operation and waits for its end.
    ///
    /// # Errors
    /// The errors of [`Operation::start`] and [`Running::wait`].
    pub fn run<T: Transport>(
        &mut self,
        endpoint: &mut Endpoint<T>,
        data: &mut [u8],
        timeout: Option<Duration>,
    ) -> Result<(), RunError> {
        self.start(endpoint)?;
        self.wait(endpoint, data, timeout)
    }
}

impl<F: Fold> Running<[u8]> for Operation<F> {
    fn number(&self) -> Option<u32> {
        self.state.operation
    }

    fn awaited(&self) -> Option<usize> {
        self.state.awaited(&self.program)
    }

    fn check(&self, data: &[u8]) -> Result<(), RunError> {
        let (given, expected) = (data.len(), self.program.bytes());
        if given == expected { Ok(()) } else { Err(RunError::Length { given, expected }) }
    }

    fn pass<T: Transport>(&mut self, endpoint: &mut Endpoint<T>, data: &mut [u8]) -> Result<bool, Failure> {
        let Operation { program, fold, call, memory, state } = self;
        let head = PacketHeader { operation: state.operation.unwrap_or_default(), packet: 0, call: *call };
        let mut moved = state.locals(program, memory, data, fold);
        let mut at = 0;
        while let Some(&channel) = state.open.get(at) {
            let channel = channel as usize;
            while state.receive(program, channel, endpoint, memory, data, fold, head)? {
                moved = true;
            }
            while state.send(program, channel, endpoint, memory, data, head)? {
                moved = true;
            }
            match state.is_complete(program, channel) {
                true => _ = state.open.remove(at),
                false => at += 1,
            }
        }
        Ok(moved)
    }

    fn is_complete(&self) -> bool {
        self.state.left == 0
    }

    fn end(&mut self) {
        self.state.operation = None;
    }
}
