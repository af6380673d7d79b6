//! The buffers of a modelled call that is sent from kept memory, too: written before the rank enters its operation, read by the others before
//! they leave it.
//!
//! Invariant **D (datatype)**: a call on words writes words. Invariant **O (one thread)**: loom runs all ranks of a model on one thread.
#![allow(unsafe_code)]

use super::board::KeptMemory;
use earlybird_shm::op::{DType, Datatype};
use earlybird_shm::protocol::payload::Buffers;
use earlybird_shm::protocol::request_buffers::{BufferOwner, OwnedBuffers};
use std::any::Any;
use std::ops::RangeInclusive;

/// Words that a started call sends and receives, and the memory beside them.
pub struct KeptWords {
    pub words: (Vec<u64>, Vec<u64>),
    pub memory: KeptMemory,
    /// The value that this rank writes.
    pub value: u64,
    /// The ranks that this one reads from, and what they have written.
    pub expected: Vec<(usize, u64)>,
    /// True in a wrong protocol, which does not wait until all have left the operation that was sent from the memory before.
    pub is_early: bool,
}

// SAFETY: O.
unsafe impl Send for KeptWords {}

impl KeptWords {
    /// Converts them to the buffers of a started call.
    pub fn into_owned(self) -> OwnedBuffers {
        // SAFETY: D.
        unsafe { OwnedBuffers::new(Box::new(self), DType::U64.into()) }.following_operations()
    }
}

impl BufferOwner for KeptWords {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        Buffers::apart(&self.words.0, &mut self.words.1)
    }

    fn entering(&mut self, operations: RangeInclusive<u64>, left_by_all: &dyn Fn() -> u64) -> bool {
        let is_free = self.is_early || self.memory.published() <= left_by_all();
        if is_free {
            self.memory.write(self.value, *operations.end());
        }
        is_free
    }

    fn leaving(&mut self) {
        for (rank, value) in &self.expected {
            assert_eq!(self.memory.read(*rank), *value, "kept memory of rank {rank}");
        }
    }

    fn owner(&mut self) -> &mut dyn Any {
        &mut self.words
    }

    fn into_owner(self: Box<Self>) -> Box<dyn Any + Send> {
        Box::new(self.words)
    }
}
