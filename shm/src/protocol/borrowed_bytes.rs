//! Buffers of a started call that belong to a program in another language: the call uses them in place, without a copy.
//!
//! Invariant **B (borrowed)**: the memory stays valid until its keeper is dropped, the receive buffer may be written, and nothing
//! else uses either buffer, which do not overlap, before the call has ended.
#![allow(unsafe_code)]

use super::payload::Buffers;
use super::request_buffers::{BufferOwner, owns_itself};
use crate::op::Datatype;
use std::fmt;

/// The bytes of a send buffer and a receive buffer of elements of a datatype, and the keeper, a value that keeps them valid. The
/// keeper is dropped with the call; after a dropped request that is in a later call of the communicator, on any thread.
pub struct BorrowedBytes<K> {
    /// `None` for a call in place, whose result replaces the contribution in `recv`.
    send: Option<*const [u8]>,
    recv: *mut [u8],
    pub(crate) datatype: Datatype,
    keeper: K,
}

// SAFETY: B: nothing else uses the memory, and the keeper may be sent.
unsafe impl<K: Send> Send for BorrowedBytes<K> {}

impl<K> BorrowedBytes<K> {
    /// The bytes of elements of `datatype`; without `send` the call is in place in `recv`.
    ///
    /// # Safety
    /// B. An empty buffer may have any address but 0.
    pub unsafe fn new(send: Option<*const [u8]>, recv: *mut [u8], datatype: Datatype, keeper: K) -> Self {
        BorrowedBytes { send, recv, datatype, keeper }
    }

    /// The value that keeps the memory valid.
    pub fn keeper(&self) -> &K {
        &self.keeper
    }

    /// The value that keeps the memory valid, to change.
    #[cfg(not(earlybird_loom))]
    pub(crate) fn keeper_mut(&mut self) -> &mut K {
        &mut self.keeper
    }
}

impl<K: Send + 'static> BufferOwner for BorrowedBytes<K> {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        // SAFETY: B; any bytes are values of `u8`.
        unsafe {
            match self.send {
                Some(send) => Buffers::erased_apart(&*send, &mut *self.recv, self.datatype),
                None => Buffers::erased_in_place(&mut *self.recv, self.datatype),
            }
        }
    }

    owns_itself! {}
}

impl<K> fmt::Debug for BorrowedBytes<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BorrowedBytes").field("datatype", &self.datatype).finish_non_exhaustive()
    }
}
