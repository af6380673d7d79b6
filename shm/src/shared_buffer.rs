//! Buffers in shared memory, in which an allreduce works where they lie, without copying in and out.
//!
//! Invariant **G (given)**: the allocation is at least `count` elements long, at an address aligned for any element, and its
//! memory is touched by other processes only while its owner is inside an operation that it gave the buffer to by `&mut`, or
//! a call that is started owns the buffer and has not ended; after an operation that failed the memory is private, and what others still touch is allocated to no other rank before the
//! group is gone ([`Allocation::begin_use`]). Zeros are a value of every [`Element`].
#![allow(unsafe_code)]

use crate::memory::Allocation;
use crate::op::{Datatype, Element};
use crate::protocol::borrowed_bytes::BorrowedBytes;
use crate::protocol::payload::Buffers;
use crate::protocol::request_buffers::{BufferOwner, owns_itself};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A buffer of this rank in memory that the other ranks of the node can reach: `[T]` for its owner.
///
/// It may outlive its communicator, and keeps its part of the node's memory until it is dropped. After a failed call it contains
/// zeros, and no call takes it as a shared buffer any more. `Send` and `Sync`, as a `Vec<T>` is.
#[must_use = "dropping the buffer frees its memory"]
pub struct SharedBuffer<T> {
    pub(crate) allocation: Allocation,
    count: usize,
    elements: PhantomData<T>,
}

impl<T> SharedBuffer<T> {
    /// A buffer of the first `count` elements in `allocation`, which holds zeros.
    pub(crate) fn new(allocation: Allocation, count: usize) -> Self
    where
        T: Element,
    {
        const { assert!(align_of::<T>() <= 4096) }
        assert!(count.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= allocation.bytes()));
        SharedBuffer { allocation, count, elements: PhantomData }
    }

    /// Bytes of the node's memory budget that it takes: whole pages.
    pub fn budget_bytes(&self) -> u64 {
        self.allocation.bytes() as u64
    }

    /// The elements by their address.
    pub(crate) fn as_raw(&self) -> *mut [T] {
        std::ptr::slice_from_raw_parts_mut(self.allocation.as_ptr().cast(), self.count)
    }
}

impl<T: Element> Deref for SharedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: G: mapped and long enough while `self` lives, no rank writes while it is borrowed; all bytes are values of
        // `T`, being zero or written through `deref_mut` or as the result of an operation on `T`.
        unsafe { &*self.as_raw() }
    }
}

impl<T: Element> DerefMut for SharedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: G, as above, and borrowed exclusively.
        unsafe { &mut *self.as_raw() }
    }
}

impl<T: Send + 'static> BufferOwner for SharedBuffer<T> {
    unsafe fn as_buffers(&mut self, datatype: Datatype) -> Buffers<'_> {
        // SAFETY: G, and borrowed exclusively; D of `request_buffers.rs`, by the caller's contract.
        unsafe { Buffers::erased_in_place(&mut *self.as_raw(), datatype) }
    }

    owns_itself! {}
}

impl<T: Send + 'static> BufferOwner for (SharedBuffer<T>, SharedBuffer<T>) {
    unsafe fn as_buffers(&mut self, datatype: Datatype) -> Buffers<'_> {
        // SAFETY: as above, for both.
        unsafe { Buffers::erased_apart(&*self.0.as_raw(), &mut *self.1.as_raw(), datatype) }
    }

    owns_itself! {}
}

/// The allocations of a call's buffers: that of the send buffer, `None` in place, and that of the receive buffer.
pub(crate) type Allocations<'a> = (Option<&'a Allocation>, &'a mut Allocation);

/// Finds the allocations of the buffers that a started call owns.
pub(crate) type FindAllocations = for<'a> fn(&'a mut dyn Any) -> Option<Allocations<'a>>;

/// The allocation of a `SharedBuffer<T>`.
pub(crate) fn in_place<T: 'static>(owner: &mut dyn Any) -> Option<Allocations<'_>> {
    owner.downcast_mut::<SharedBuffer<T>>().map(|buffer| (None, &mut buffer.allocation))
}

/// The allocations of two of them.
pub(crate) fn apart<T: 'static>(owner: &mut dyn Any) -> Option<Allocations<'_>> {
    let buffers = owner.downcast_mut::<(SharedBuffer<T>, SharedBuffer<T>)>();
    buffers.map(|(send, recv)| (Some(&send.allocation), &mut recv.allocation))
}

/// The value that keeps the memory of [`BorrowedBytes`] where it is.
pub trait MemoryKeeper: Send + 'static {
    /// The shared buffers that the memory lies in, the send buffer, `None` in place, and the receive buffer; `None` if it is private.
    fn shared_buffers(&mut self) -> Option<(Option<&SharedBuffer<u8>>, &mut SharedBuffer<u8>)> {
        None
    }
}

/// The allocations of buffers borrowed from another language.
pub(crate) fn borrowed<K: MemoryKeeper>(owner: &mut dyn Any) -> Option<Allocations<'_>> {
    let (send, recv) = owner.downcast_mut::<BorrowedBytes<K>>()?.keeper_mut().shared_buffers()?;
    Some((send.map(|send| &send.allocation), &mut recv.allocation))
}

impl<T> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer").field("count", &self.count).finish_non_exhaustive()
    }
}
