//! A transport shared by several operations: numbers the operations and keeps packets that arrive too early.

use super::transport::{Failure, PacketHeader, Transport};
use std::collections::VecDeque;

/// One rank's end of a transport, with the operations that run over it.
///
/// All ranks start operations in the same order and may finish them in any order. The first failure is permanent.
#[derive(Debug)]
pub struct Endpoint<T> {
    pub(super) transport: T,
    pub(super) early: EarlyPackets,
    pub(super) running: OperationNumbers,
    failed: Option<Failure>,
}

impl<T: Transport> Endpoint<T> {
    /// An endpoint over an unused transport.
    pub fn new(transport: T) -> Self {
        let early = EarlyPackets { queues: vec![VecDeque::new(); transport.size()], number: 0, spare: Vec::new() };
        Endpoint { transport, early, running: OperationNumbers::default(), failed: None }
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The transport, for methods beyond the trait. Sending or receiving directly would break running operations.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// The failure of this endpoint, if it has failed.
    pub fn failure(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }

    /// Ends all operations, here and on the other ranks, with this failure or an earlier one.
    pub fn fail(&mut self, failure: Failure) -> Failure {
        let first = match &self.failed {
            Some(earlier) => earlier.clone(),
            None => self.transport.raise(failure),
        };
        self.failed = Some(first.clone());
        first
    }
}

/// The numbers of the active operations of this rank.
#[derive(Debug, Default)]
pub(super) struct OperationNumbers {
    started: u32,
    active: Vec<u32>,
}

impl OperationNumbers {
    pub(super) fn start(&mut self) -> u32 {
        self.started = self.started.wrapping_add(1);
        self.active.push(self.started);
        self.started
    }

    pub(super) fn end(&mut self, operation: u32) {
        self.active.retain(|running| *running != operation);
    }

    /// True if a packet of this operation may still be needed: the operation runs, or has yet to start. Numbers wrap.
    pub(super) fn expects(&self, operation: u32) -> bool {
        operation.wrapping_sub(self.started).wrapping_sub(1) < u32::MAX / 2 || self.active.contains(&operation)
    }

    /// True if several operations run, so that none may leave packets in the transport that block the others.
    pub(super) fn several(&self) -> bool {
        self.active.len() > 1
    }
}

/// Packets that were taken off the transport and cannot be applied yet. Their memory is reused.
#[derive(Debug)]
pub(super) struct EarlyPackets {
    queues: Vec<VecDeque<(PacketHeader, Vec<u8>)>>,
    number: usize,
    spare: Vec<Vec<u8>>,
}

impl EarlyPackets {
    pub(super) fn keep(&mut self, from: usize, head: PacketHeader, bytes: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        self.queues[from].push_back((head, copy));
        self.number += 1;
    }

    /// The number of queued packets of this operation.
    pub(super) fn count(&self, from: usize, operation: u32) -> usize {
        if self.number == 0 {
            return 0;
        }
        self.queues[from].iter().filter(|(head, _)| head.operation == operation).count()
    }

    /// Passes the oldest packet of this operation to `apply`.
    pub(super) fn take<R>(
        &mut self,
        from: usize,
        operation: u32,
        apply: impl FnOnce(PacketHeader, &[u8]) -> R,
    ) -> Option<R> {
        let at = self.queues[from].iter().position(|(head, _)| head.operation == operation)?;
        let (head, bytes) = self.queues[from].remove(at)?;
        self.number -= 1;
        let result = apply(head, &bytes);
        self.spare.push(bytes);
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let mut numbers = OperationNumbers { started: u32::MAX - 1, active: vec![u32::MAX - 1] };
        assert!(numbers.expects(u32::MAX - 1) && numbers.expects(u32::MAX) && numbers.expects(3));
        assert_eq!((numbers.start(), numbers.start()), (u32::MAX, 0));
        assert!(numbers.several() && numbers.expects(u32::MAX));
        numbers.end(u32::MAX);
        assert!(!numbers.expects(u32::MAX) && !numbers.expects(u32::MAX - 5) && numbers.expects(0));
    }
}
