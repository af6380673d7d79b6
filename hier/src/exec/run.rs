//! Persistent operations: run a compiled program any number of times, without allocating after the first.
//!
//! [`Operation::poll`] makes all progress that is possible and returns. Packets are folded from the transport's memory
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
use super::transport::{Failure, PacketHeader, Transport};
use crate::plan::{Collective, PlanError};
use crate::verify::{Consistency, check_operator};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The reason why an operation cannot be made, started or finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The operator must not use this plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The operator's elements have another size than the program's.
    #[error("the operator works on elements of {operator} bytes, the program was compiled for {program}")]
    ElementBytes {
        /// Bytes of the operator's elements.
        operator: usize,
        /// Bytes of the program's elements.
        program: usize,
    },
    /// The endpoint is another rank, of another group, than the program is for.
    #[error(
        "a program for rank {rank} of {ranks} cannot run on an endpoint of rank {endpoint_rank} of {endpoint_ranks}"
    )]
    Endpoint {
        /// Rank of the program.
        rank: usize,
        /// Number of ranks of the program.
        ranks: usize,
        /// Rank of the endpoint.
        endpoint_rank: usize,
        /// Number of ranks of the endpoint.
        endpoint_ranks: usize,
    },
    /// The program's packets are larger than the transport's.
    #[error(
        "the program has packets of {given} bytes, the transport takes at most {most}; compile with smaller segments"
    )]
    Packet {
        /// Bytes of the largest packet.
        given: usize,
        /// Bytes the transport takes.
        most: usize,
    },
    /// The buffer has another length than the program was compiled for.
    #[error("the buffer has {given} bytes, the program was compiled for {expected}")]
    Length {
        /// Bytes given.
        given: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// The operation was started while it runs.
    #[error("this operation is still running; wait for it, or make another one of the same program")]
    Busy,
    /// The operation was polled while it does not run.
    #[error("this operation was not started")]
    Idle,
    /// The group has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

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
                    instead: "use an idempotent operator such as exec::Token".to_string(),
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

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// True from a start to the end.
    pub fn is_running(&self) -> bool {
        self.state.operation.is_some()
    }

    /// A rank that the operation waits for.
    pub fn awaited(&self) -> Option<usize> {
        self.state.awaited(&self.program)
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

    /// Makes progress without waiting; `true` when the operation is complete.
    ///
    /// # Errors
    /// [`RunError::Idle`], [`RunError::Length`], or the group's failure, which ends the operation.
    pub fn poll<T: Transport>(&mut self, endpoint: &mut Endpoint<T>, data: &mut [u8]) -> Result<bool, RunError> {
        self.advance(endpoint, data).map(|_| !self.is_running())
    }

    /// Makes progress without waiting; `true` if there was any.
    pub(super) fn advance<T: Transport>(
        &mut self,
        endpoint: &mut Endpoint<T>,
        data: &mut [u8],
    ) -> Result<bool, RunError> {
        let operation = self.state.operation.ok_or(RunError::Idle)?;
        if data.len() != self.program.bytes() {
            return Err(RunError::Length { given: data.len(), expected: self.program.bytes() });
        }
        let moved = match endpoint.failure() {
            Some(failure) => Err(failure.clone()),
            None => self.pass(endpoint, data, operation),
        };
        let ended = moved.and_then(|moved| Ok((moved, self.state.left == 0 && endpoint.transport.is_flushed()?)));
        match ended {
            Ok((moved, ended)) => {
                if ended {
                    endpoint.running.end(operation);
                    self.state.operation = None;
                }
                Ok(moved)
            }
            Err(failure) => {
                endpoint.running.end(operation);
                self.state.operation = None;
                Err(endpoint.fail(failure).into())
            }
        }
    }

    fn pass<T: Transport>(
        &mut self,
        endpoint: &mut Endpoint<T>,
        data: &mut [u8],
        operation: u32,
    ) -> Result<bool, Failure> {
        let Operation { program, fold, call, memory, state } = self;
        let head = PacketHeader { operation, packet: 0, call: *call };
        let (mut moved_at_all, mut looked_again) = (false, false);
        loop {
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
                match state.is_through(program, channel) {
                    true => _ = state.open.remove(at),
                    false => at += 1,
                }
            }
            if state.left == 0 {
                return Ok(true);
            }
            if !moved {
                match endpoint.transport.progress() {
                    Ok(()) => return Ok(moved_at_all),
                    // Packets that came before the failure count.
                    Err(_) if !looked_again => looked_again = true,
                    Err(failure) => return Err(failure),
                }
                continue;
            }
            moved_at_all = true;
        }
    }

    /// Waits until the operation is complete.
    ///
    /// Only this operation makes progress. If several are under way use [`wait_all`]: a rank that waits for another
    /// operation first would never be served.
    ///
    /// # Errors
    /// The errors of [`Operation::poll`]; [`Failure::Timeout`] on every rank after `timeout` without progress.
    pub fn wait<T: Transport>(
        &mut self,
        endpoint: &mut Endpoint<T>,
        data: &mut [u8],
        timeout: Option<Duration>,
    ) -> Result<(), RunError> {
        wait_all(endpoint, &mut [(self, data)], timeout)
    }

    /// Starts the operation and waits for its end.
    ///
    /// # Errors
    /// The errors of [`Operation::start`] and [`Operation::wait`].
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

/// Waits until all operations are complete. Operations that do not run are skipped.
///
/// # Errors
/// The errors of [`Operation::wait`].
pub fn wait_all<T: Transport, F: Fold>(
    endpoint: &mut Endpoint<T>,
    operations: &mut [(&mut Operation<F>, &mut [u8])],
    timeout: Option<Duration>,
) -> Result<(), RunError> {
    wait_some(endpoint, operations, timeout, false)
}

/// Waits until the first of the operations is complete; all make progress meanwhile.
///
/// # Errors
/// The errors of [`Operation::wait`].
pub fn wait_first<T: Transport, F: Fold>(
    endpoint: &mut Endpoint<T>,
    operations: &mut [(&mut Operation<F>, &mut [u8])],
    timeout: Option<Duration>,
) -> Result<(), RunError> {
    wait_some(endpoint, operations, timeout, true)
}

fn wait_some<T: Transport, F: Fold>(
    endpoint: &mut Endpoint<T>,
    operations: &mut [(&mut Operation<F>, &mut [u8])],
    timeout: Option<Duration>,
    first: bool,
) -> Result<(), RunError> {
    let mut idle = 0;
    let mut since = None;
    loop {
        let (mut moved, mut left) = (false, false);
        for (at, (running, data)) in operations.iter_mut().enumerate().filter(|(_, (r, _))| r.is_running()) {
            moved |= running.advance(endpoint, data)?;
            left |= running.is_running() && (at == 0 || !first);
        }
        if !left {
            return Ok(());
        }
        if moved {
            (idle, since) = (0, None);
            continue;
        }
        idle += 1;
        if endpoint.transport.idle(idle).is_err() {
            // Packets that have come by now may complete an operation; if not, the next pass reports the failure.
            continue;
        }
        if let Some(after) = timeout
            && since.get_or_insert_with(Instant::now).elapsed() > after
        {
            let missing = operations
                .iter()
                .filter(|(running, _)| running.is_running())
                .find_map(|(r, _)| r.state.awaited(&r.program));
            endpoint.fail(Failure::Timeout { missing: missing.unwrap_or(0), after });
        }
    }
}
