//! Buffers in shared memory, in which an allreduce works where they lie, without copying in and out.
//!
//! Invariant **G (given)**: the allocation is at least `count` elements long, at an address aligned for any element, and its
//! memory is touched by other processes only while its owner is inside an operation that it gave the buffer to by `&mut`;
//! after an operation that failed the memory is private, and what others still touch is allocated to no other rank before the
//! group is gone ([`Allocation::begin_use`]). Zeros are a value of every [`Element`].
#![allow(unsafe_code)]

use crate::memory::Allocation;
use crate::op::Element;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A buffer of this rank in memory that the other ranks of the node can reach: `[T]` for its owner.
///
/// It may outlive its communicator, and holds its part of the node's memory until it is dropped. After a call that failed it
/// holds zeros, and no call takes it as a shared buffer any more. `Send` and `Sync`, as a `Vec<T>` is.
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

impl<T> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer").field("count", &self.count).finish_non_exhaustive()
    }
}
