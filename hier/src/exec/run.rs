//! Runs a compiled program, as often as wanted, without allocating once it has run.
//!
//! [`Running::poll`] does all that can be done now and returns. Packets are folded where they lie, straight into the
//! buffer, as soon as everything before them in the plan's order has happened there. A packet that comes too early
//! stays with the transport, so that its sender is slowed down, unless it could block others: then it is put aside.
//!
//! Nobody can wait for ever in a circle: take the lowest round that anybody has not finished. Its packets are at the
//! head of their queues, or behind packets of other operations, which are put aside; its receivers have no lower round
//! left, so they put aside what they cannot apply yet; so all its sends end, hence all its receives.

use super::endpoint::Endpoint;
use super::fold::Fold;
use super::memory::Memory;
use super::program::Program;
use super::state::State;
use super::transport::{Failure, Head, Transport};
use crate::admit::{self, Consistency};
use crate::error::PlanError;
use crate::plan::Contract;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why an operation cannot be made, started or finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The operator must not use this plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The operator's elements have another size than the program's.
    #[error("the operator works on elements of {operator} bytes, the program was compiled for {program}")]
    ElementBytes {
        /// Of the operator.
        operator: usize,
        /// Of the program.
        program: usize,
    },
    /// The endpoint is another rank, of another group, than the program is for.
    #[error(
        "a program for rank {rank} of {ranks} cannot run on an endpoint of rank {endpoint_rank} of {endpoint_ranks}"
    )]
    Endpoint {
        /// Of the program.
        rank: usize,
        /// Of the program.
        ranks: usize,
        /// Of the endpoint.
        endpoint_rank: usize,
        /// Of the endpoint.
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
    /// Started while it runs.
    #[error("this operation is still running; wait for it, or make another one of the same program")]
    Busy,
    /// Polled while it does not run.
    #[error("this operation was not started")]
    Idle,
    /// The group has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// An operation that can be run again and again: the persistent form.
///
/// The caller's buffer is given to every call that may touch it, the same one from start to end: it is the plan's
/// buffer 0, input and output. After an error it holds nothing of use.
#[derive(Debug)]
pub struct Running<F> {
    program: Arc<Program>,
    fold: F,
    call: u64,
    memory: Memory,
    state: State,
}

impl<F: Fold> Running<F> {
    /// Allocates what the program needs.
    ///
    /// # Errors
    /// [`RunError::Plan`] when the operator and `consistency` do not admit the plan, or a barrier's operator does not
    /// bear repetition; [`RunError::ElementBytes`].
    pub fn new(program: Arc<Program>, fold: F, consistency: Consistency) -> Result<Self, RunError> {
        let (operator, compiled) = (fold.element_bytes(), program.geometry.element_bytes);
        if operator != compiled {
            return Err(RunError::ElementBytes { operator, program: compiled });
        }
        let name = &program.algorithm;
        match program.contract {
            Contract::Barrier if !fold.bears_repetition() => {
                return Err(RunError::Plan(PlanError::NotAdmitted {
                    algorithm: name.clone(),
                    reason: "a barrier combines the same contribution more than once".to_string(),
                    instead: "give it an operator that bears repetition, such as exec::Token".to_string(),
                }));
            }
            // Nothing is combined.
            Contract::Barrier | Contract::Broadcast | Contract::Allgather => {}
            Contract::Allreduce | Contract::Reduce | Contract::ReduceScatter => {
                admit::check(name, program.order, program.consistent, fold.traits(), consistency)?;
            }
        }
        let state = State::new(&program);
        let memory = Memory::new(program.buffers - 1, program.bytes());
        let call = program.digest ^ fold.code().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Running { program, fold, call, memory, state })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// True between a start and the end.
    pub fn is_running(&self) -> bool {
        self.state.operation.is_some()
    }

    /// A rank that it waits for.
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

    /// Does what can be done now; `true` when the operation is complete. Never waits.
    ///
    /// # Errors
    /// [`RunError::Idle`], [`RunError::Length`], the group's failure: the operation has ended then.
    pub fn poll<T: Transport>(&mut self, endpoint: &mut Endpoint<T>, data: &mut [u8]) -> Result<bool, RunError> {
        self.advance(endpoint, data).map(|_| !self.is_running())
    }

    /// As [`Running::poll`]; whether anything moved.
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
        let Running { program, fold, call, memory, state } = self;
        let head = Head { operation, packet: 0, call: *call };
        let (mut moved_at_all, mut looked_again) = (false, false);
        loop {
            let mut moved = state.locals(program, memory, data, fold);
            let mut at = 0;
            while let Some(&lane) = state.open.get(at) {
                let lane = lane as usize;
                while state.receive(program, lane, endpoint, memory, data, fold, head)? {
                    moved = true;
                }
                while state.send(program, lane, endpoint, memory, data, head)? {
                    moved = true;
                }
                match state.is_through(program, lane) {
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
                    // What came before the failure counts.
                    Err(_) if !looked_again => looked_again = true,
                    Err(failure) => return Err(failure),
                }
                continue;
            }
            moved_at_all = true;
        }
    }

    /// Polls until the operation is complete, letting the transport rest in between.
    ///
    /// Only this operation advances; with several under way use [`wait_all`], or a rank that waits for another one
    /// first may wait for this rank for ever.
    ///
    /// # Errors
    /// As [`Running::poll`]; [`Failure::Timeout`] once nothing has moved for `timeout`, on every rank.
    pub fn wait<T: Transport>(
        &mut self,
        endpoint: &mut Endpoint<T>,
        data: &mut [u8],
        timeout: Option<Duration>,
    ) -> Result<(), RunError> {
        wait_all(endpoint, &mut [(self, data)], timeout)
    }

    /// Starts and waits.
    ///
    /// # Errors
    /// As [`Running::start`] and [`Running::wait`].
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

/// Advances all these operations until each is complete. Operations that do not run are passed over.
///
/// # Errors
/// As [`Running::wait`].
pub fn wait_all<T: Transport, F: Fold>(
    endpoint: &mut Endpoint<T>,
    operations: &mut [(&mut Running<F>, &mut [u8])],
    timeout: Option<Duration>,
) -> Result<(), RunError> {
    wait_some(endpoint, operations, timeout, false)
}

/// Advances all these operations until the first of them is complete: the others go on later.
///
/// # Errors
/// As [`Running::wait`].
pub fn wait_first<T: Transport, F: Fold>(
    endpoint: &mut Endpoint<T>,
    operations: &mut [(&mut Running<F>, &mut [u8])],
    timeout: Option<Duration>,
) -> Result<(), RunError> {
    wait_some(endpoint, operations, timeout, true)
}

fn wait_some<T: Transport, F: Fold>(
    endpoint: &mut Endpoint<T>,
    operations: &mut [(&mut Running<F>, &mut [u8])],
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
            // What has come by now may complete an operation; if not, the next pass reports the failure.
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
