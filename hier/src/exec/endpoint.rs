//! A transport shared by several operations: numbers them, and keeps packets that came before their time.

use super::transport::{Failure, Head, Transport};
use std::collections::VecDeque;

/// One rank's end of a transport, with the operations that run over it.
///
/// All ranks start operations in the same order; they may finish them in any. The first failure is the endpoint's for
/// ever.
#[derive(Debug)]
pub struct Endpoint<T> {
    pub(super) transport: T,
    pub(super) stash: Stash,
    pub(super) running: Numbers,
    failed: Option<Failure>,
}

impl<T: Transport> Endpoint<T> {
    /// An endpoint over a transport that nothing was sent on yet.
    pub fn new(transport: T) -> Self {
        let stash = Stash { kept: vec![VecDeque::new(); transport.size()], number: 0, spare: Vec::new() };
        Endpoint { transport, stash, running: Numbers::default(), failed: None }
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The transport, for what it offers beyond the trait. Sending and receiving by hand confuses what runs.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Gives the transport back.
    pub fn into_transport(self) -> T {
        self.transport
    }

    /// What this endpoint failed with.
    pub fn failure(&self) -> Option<&Failure> {
        self.failed.as_ref()
    }

    /// Ends everything that runs here, and on the other ranks, with this failure or the one that stands.
    pub fn fail(&mut self, failure: Failure) -> Failure {
        let stands = match &self.failed {
            Some(earlier) => earlier.clone(),
            None => self.transport.raise(failure),
        };
        self.failed = Some(stands.clone());
        stands
    }
}

/// The operations under way on this rank.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    started: u32,
    active: Vec<u32>,
}

impl Numbers {
    pub(super) fn start(&mut self) -> u32 {
        self.started = self.started.wrapping_add(1);
        self.active.push(self.started);
        self.started
    }

    pub(super) fn end(&mut self, operation: u32) {
        self.active.retain(|running| *running != operation);
    }

    /// Whether a packet of this operation may still be awaited: it runs, or it is yet to start here. Numbers wrap.
    pub(super) fn expects(&self, operation: u32) -> bool {
        operation.wrapping_sub(self.started).wrapping_sub(1) < u32::MAX / 2 || self.active.contains(&operation)
    }

    /// Whether several operations share the lanes, so that one must not leave its packets in the others' way.
    pub(super) fn several(&self) -> bool {
        self.active.len() > 1
    }
}

/// Packets taken off the transport that cannot be applied yet. Their memory is reused.
#[derive(Debug)]
pub(super) struct Stash {
    kept: Vec<VecDeque<(Head, Vec<u8>)>>,
    number: usize,
    spare: Vec<Vec<u8>>,
}

impl Stash {
    pub(super) fn keep(&mut self, from: usize, head: Head, bytes: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        self.kept[from].push_back((head, copy));
        self.number += 1;
    }

    /// How many packets of this operation are kept.
    pub(super) fn count(&self, from: usize, operation: u32) -> usize {
        if self.number == 0 {
            return 0;
        }
        self.kept[from].iter().filter(|(head, _)| head.operation == operation).count()
    }

    /// Hands the oldest packet of this operation to `apply`.
    pub(super) fn take<R>(&mut self, from: usize, operation: u32, apply: impl FnOnce(Head, &[u8]) -> R) -> Option<R> {
        let at = self.kept[from].iter().position(|(head, _)| head.operation == operation)?;
        let (head, bytes) = self.kept[from].remove(at)?;
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
        let mut numbers = Numbers { started: u32::MAX - 1, active: vec![u32::MAX - 1] };
        assert!(numbers.expects(u32::MAX - 1) && numbers.expects(u32::MAX) && numbers.expects(3));
        assert_eq!((numbers.start(), numbers.start()), (u32::MAX, 0));
        assert!(numbers.several() && numbers.expects(u32::MAX));
        numbers.end(u32::MAX);
        assert!(!numbers.expects(u32::MAX) && !numbers.expects(u32::MAX - 5) && numbers.expects(0));
    }
}
