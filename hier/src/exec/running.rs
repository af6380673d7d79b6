//! Operations under way: how they make progress, end and are waited for, whatever they carry out.

use super::endpoint::Endpoint;
use super::transport::{Failure, Transport};
use crate::plan::PlanError;
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

/// An operation on an endpoint, which works on memory of the type `D`: the same from its start to its end.
pub trait Running<D: ?Sized> {
    /// The number of the current run; `None` unless the operation runs.
    fn number(&self) -> Option<u32>;

    /// A rank that the operation waits for.
    fn awaited(&self) -> Option<usize>;

    /// Refuses memory of another length than the operation needs.
    ///
    /// # Errors
    /// [`RunError::Length`].
    fn check(&self, data: &D) -> Result<(), RunError>;

    /// Sends and receives all packets that are possible now; returns true if there were any.
    ///
    /// # Errors
    /// A failure of the transport or of the operation.
    fn pass<T: Transport>(&mut self, endpoint: &mut Endpoint<T>, data: &mut D) -> Result<bool, Failure>;

    /// Returns whether nothing was left to do after the last pass.
    fn is_complete(&self) -> bool;

    /// Ends the run.
    fn end(&mut self);

    /// True from a start to the end.
    fn is_running(&self) -> bool {
        self.number().is_some()
    }

    /// Makes progress without waiting; `true` when the operation is complete.
    ///
    /// # Errors
    /// [`RunError::Idle`], [`RunError::Length`], or the group's failure, which ends the operation.
    fn poll<T: Transport>(&mut self, endpoint: &mut Endpoint<T>, data: &mut D) -> Result<bool, RunError> {
        self.advance(endpoint, data).map(|_| !self.is_running())
    }

    /// Makes progress without waiting; `true` if there was any.
    ///
    /// # Errors
    /// The errors of [`Running::poll`].
    fn advance<T: Transport>(&mut self, endpoint: &mut Endpoint<T>, data: &mut D) -> Result<bool, RunError> {
        let number = self.number().ok_or(RunError::Idle)?;
        self.check(data)?;
        let advanced = match endpoint.failure() {
            Some(failure) => Err(failure.clone()),
            None => passes(self, endpoint, data),
        };
        if !matches!(advanced, Ok((_, false))) {
            endpoint.running.end(number);
            self.end();
        }
        advanced.map(|(moved, _)| moved).map_err(|failure| endpoint.fail(failure).into())
    }

    /// Waits until the operation is complete.
    ///
    /// Only this operation makes progress. Use [`wait_all`] for several active operations: otherwise a rank that waits for
    /// another of them first would wait for ever.
    ///
    /// # Errors
    /// The errors of [`Running::poll`]; [`Failure::Timeout`] on every rank after `timeout` without progress.
    fn wait<T: Transport>(
        &mut self,
        endpoint: &mut Endpoint<T>,
        data: &mut D,
        timeout: Option<Duration>,
    ) -> Result<(), RunError>
    where
        Self: Sized,
    {
        wait_all(endpoint, &mut [(self, data)], timeout)
    }
}

/// Makes passes until no packet moves; returns whether any did, and whether the operation is complete.
fn passes<T: Transport, D: ?Sized, R: Running<D> + ?Sized>(
    running: &mut R,
    endpoint: &mut Endpoint<T>,
    data: &mut D,
) -> Result<(bool, bool), Failure> {
    let (mut any_moved, mut looked_again) = (false, false);
    loop {
        let moved = running.pass(endpoint, data)?;
        any_moved |= moved;
        match running.is_complete() {
            true if endpoint.transport.is_flushed()? => return Ok((any_moved, true)),
            false if moved => continue,
            _ => {}
        }
        match endpoint.transport.progress() {
            Ok(()) => return Ok((any_moved, false)),
            // Packets that came before the failure count.
            Err(_) if !looked_again => looked_again = true,
            Err(failure) => return Err(failure),
        }
    }
}

/// Waits until all operations are complete. Operations that do not run are skipped.
///
/// # Errors
/// The errors of [`Running::wait`].
pub fn wait_all<T: Transport, D: ?Sized, R: Running<D>>(
    endpoint: &mut Endpoint<T>,
    operations: &mut [(&mut R, &mut D)],
    timeout: Option<Duration>,
) -> Result<(), RunError> {
    wait_some(endpoint, operations, timeout, false)
}

/// Waits until the first of the operations is complete; all make progress meanwhile.
///
/// # Errors
/// The errors of [`Running::wait`].
pub fn wait_first<T: Transport, D: ?Sized, R: Running<D>>(
    endpoint: &mut Endpoint<T>,
    operations: &mut [(&mut R, &mut D)],
    timeout: Option<Duration>,
) -> Result<(), RunError> {
    wait_some(endpoint, operations, timeout, true)
}

fn wait_some<T: Transport, D: ?Sized, R: Running<D>>(
    endpoint: &mut Endpoint<T>,
    operations: &mut [(&mut R, &mut D)],
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
            let waits = operations.iter().filter(|(running, _)| running.is_running());
            let missing = waits.map(|(running, _)| running.awaited()).find(Option::is_some).flatten();
            let missing = missing.unwrap_or(endpoint.transport.rank());
            endpoint.fail(Failure::Timeout { missing, after });
        }
    }
}
