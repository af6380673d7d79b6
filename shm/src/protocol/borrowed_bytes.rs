//! Memory that a program in another language lends to a started call: the call uses it where it lies, and copies nothing first.
//!
//! Invariant **L (lent)**: the memory stays where it is until its keeper is dropped, the receive buffer may be written, and nobody
//! else uses either of the two, which lie apart, before the call has ended.
#![allow(unsafe_code)]

use super::payload::Buffers;
use super::request_buffers::BufferOwner;
use crate::op::Datatype;
use std::any::Any;
use std::fmt;

/// The bytes of a send buffer and a receive buffer of elements of a datatype, and the value that keeps them where they are. The
/// keeper is dropped with the call: where its request was dropped before, in a later call of the communicator, of any thread.
pub struct BorrowedBytes<K> {
    /// `None` where the result replaces what lies in `recv`.
    send: Option<*const [u8]>,
    recv: *mut [u8],
    pub(crate) datatype: Datatype,
    keeper: K,
}

// SAFETY: L: nobody else uses the memory, and the keeper may be sent.
unsafe impl<K: Send> Send for BorrowedBytes<K> {}

impl<K> BorrowedBytes<K> {
    /// The bytes of elements of `datatype`; without `send` the result replaces what lies in `recv`.
    ///
    /// # Safety
    /// L. An empty buffer may lie anywhere but at address 0.
    pub unsafe fn new(send: Option<*const [u8]>, recv: *mut [u8], datatype: Datatype, keeper: K) -> Self {
        BorrowedBytes { send, recv, datatype, keeper }
    }

    /// The value that keeps the memory.
    pub fn keeper(&self) -> &K {
        &self.keeper
    }

    /// The same, exclusively.
    pub(crate) fn keeper_mut(&mut self) -> &mut K {
        &mut self.keeper
    }
}

impl<K: Send + 'static> BufferOwner for BorrowedBytes<K> {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        // SAFETY: L; any bytes are values of `u8`.
        unsafe {
            match self.send {
                Some(send) => Buffers::erased_apart(&*send, &mut *self.recv, self.datatype),
                None => Buffers::erased_in_place(&mut *self.recv, self.datatype),
            }
        }
    }

    fn owner(&mut self) -> &mut dyn Any {
        self
    }

    fn into_owner(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl<K> fmt::Debug for BorrowedBytes<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BorrowedBytes").field("datatype", &self.datatype).finish_non_exhaustive()
    }
}
