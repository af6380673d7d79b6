//! The buffers of a modelled call that are registered: the model knows their contents by cells, whatever their address.
//!
//! Invariant **D (datatype)**: a call on words writes words.
#![allow(unsafe_code)]

use earlybird_shm::op::{DType, Datatype};
use earlybird_shm::protocol::payload::Buffers;
use earlybird_shm::protocol::request_buffers::{BufferOwner, OwnedBuffers};
use std::any::Any;

/// Words that a started call owns, in which the result replaces the contribution, and their name.
pub struct RegisteredWords(pub Vec<u64>, pub u64);

impl RegisteredWords {
    /// Converts them to the buffers of a started call.
    pub fn into_owned(self) -> OwnedBuffers {
        // SAFETY: D.
        unsafe { OwnedBuffers::new(Box::new(self), DType::U64.into()) }
    }
}

impl BufferOwner for RegisteredWords {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        Buffers::in_place(&mut self.0).registered([self.1; 2])
    }

    fn owner(&mut self) -> &mut dyn Any {
        &mut self.0
    }

    fn into_owner(self: Box<Self>) -> Box<dyn Any + Send> {
        Box::new(self.0)
    }
}
