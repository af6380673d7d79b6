//! Buffers in shared memory: reductions work in them, without copying in and out.
//!
//! Invariant **G (given)**: the allocation is at least `count` elements long, at an address aligned for any element, and its
//! memory is touched by other processes only while its owner is inside an operation that it gave the buffer to by `&mut`;
//! after an operation that failed the memory is private, and what others still touch is lent to no other before the group
//! is gone ([`Allocation::begin_use`]). Zeros are a value of every [`Element`].
#![allow(unsafe_code)]

use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::args::{CallOptions, CollectiveArgs};
use crate::memory::{Allocation, AllocationName};
use crate::op::{Element, Op};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Smaller messages go through the lines of the group: less than finding everybody's buffers.
const LENT_MIN_BYTES: usize = 8 << 10;

/// A buffer of this rank in memory that the other ranks of the node can reach: `[T]` for its owner.
///
/// [`NodeComm::alloc`] makes it. It may outlive its communicator, and holds its part of the node's memory until it is
/// dropped. After a call that failed it holds zeros, and no call takes it as a shared buffer any more. `Send` and `Sync`, as
/// a `Vec<T>` is.
#[must_use = "dropping the buffer frees its memory"]
pub struct SharedBuffer<T> {
    allocation: Allocation,
    count: usize,
    elements: PhantomData<T>,
}

impl<T: Element> SharedBuffer<T> {
    /// Bytes of the node's memory budget that it takes: whole pages.
    pub fn budget_bytes(&self) -> u64 {
        self.allocation.bytes() as u64
    }

    fn name(&self) -> u64 {
        self.allocation.name().map_or(0, AllocationName::word)
    }
}

impl<T: Element> Deref for SharedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: G: mapped and long enough while `self` lives, no rank writes while it is borrowed; all bytes are values of
        // `T`, being zero or written through `deref_mut` or as the result of an operation on `T`.
        unsafe { std::slice::from_raw_parts(self.allocation.as_ptr().cast(), self.count) }
    }
}

impl<T: Element> DerefMut for SharedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: G, as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.allocation.as_ptr().cast(), self.count) }
    }
}

impl<T: Element> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer").field("count", &self.count).finish_non_exhaustive()
    }
}

impl NodeComm {
    /// A buffer of `count` zeros in shared memory. This rank alone takes part. Costs mapping and faulting in its pages.
    ///
    /// # Errors
    /// [`Error::NoSpace`] before anything is used, when the budget or the node has not enough left or the buffer is larger
    /// than one allocation can be; [`Error::Timeout`] when another process is stopped while it holds the lock of the pool.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<SharedBuffer<T>, Error> {
        const { assert!(align_of::<T>() <= 4096) }
        let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let Some(bytes) = bytes else {
            return Err(Error::usage(format!("a buffer of {count} elements exceeds the address space")));
        };
        let allocation = self.segment.allocate_buffer(bytes, self.lock()?.timeout())?;
        Ok(SharedBuffer { allocation, count, elements: PhantomData })
    }

    /// Reduces `buffer` of all ranks, each in its place: as [`NodeComm::execute`], by rank in either order and
    /// without copying in and out; by [`Algorithm::Chain`](crate::Algorithm) where that is wished for, or where ranks outnumber CPUs and no
    /// algorithm is.
    ///
    /// # Errors
    /// The errors of [`NodeComm::execute`]; [`Error::Usage`] for a buffer of another job.
    pub fn all_reduce_shared_in_place<T: Element>(
        &self,
        buffer: &mut SharedBuffer<T>,
        op: Op,
        options: CallOptions,
    ) -> Result<(), Error> {
        self.must_be_reachable(buffer)?;
        let names = [buffer.name(); 2];
        let mut state = self.lock()?;
        let entered = buffer.allocation.begin_use(self.lends_to(buffer))?;
        let args = CollectiveArgs::all_reduce(&mut buffer[..], op).options(options);
        let result = self.reduce_registered(&mut state, args, names);
        if result.is_ok() || state.member.failure().is_none() {
            buffer.allocation.end_use(entered);
        }
        keep_or_detach(result, buffer)
    }

    /// Reduces `send` of all ranks into `recv` of every rank, otherwise as [`NodeComm::all_reduce_shared_in_place`].
    ///
    /// # Errors
    /// The errors of [`NodeComm::execute`]; [`Error::Usage`] for a buffer of another job.
    pub fn all_reduce_shared_into<T: Element>(
        &self,
        send: &SharedBuffer<T>,
        recv: &mut SharedBuffer<T>,
        op: Op,
        options: CallOptions,
    ) -> Result<(), Error> {
        self.must_be_reachable(send)?;
        self.must_be_reachable(recv)?;
        let names = [send.name(), recv.name()];
        let mut state = self.lock()?;
        let of_send = send.allocation.begin_use(self.lends_to(send))?;
        let of_recv = match recv.allocation.begin_use(self.lends_to(recv)) {
            Ok(entered) => entered,
            Err(error) => {
                send.allocation.end_use(of_send);
                return Err(error);
            }
        };
        let args = CollectiveArgs::all_reduce((&send[..], &mut recv[..]), op).options(options);
        let result = self.reduce_registered(&mut state, args, names);
        if result.is_ok() || state.member.failure().is_none() {
            send.allocation.end_use(of_send);
            recv.allocation.end_use(of_recv);
        }
        keep_or_detach(result, recv)
    }

    fn reduce_registered(
        &self,
        state: &mut NodeState,
        mut args: CollectiveArgs<'_>,
        names: [u64; 2],
    ) -> Result<(), Error> {
        if !is_small(args.buffers.count() * args.buffers.datatype().size()) {
            args.buffers = args.buffers.registered(names);
        }
        self.execute_in(state, args)
    }

    /// The group in whose operation the buffer is to lie, if others are told of it.
    fn lends_to<T>(&self, buffer: &SharedBuffer<T>) -> Option<(usize, u64)> {
        self.group_info.allocation.filter(|_| !is_small(buffer.count * size_of::<T>()))
    }

    fn must_be_reachable<T>(&self, buffer: &SharedBuffer<T>) -> Result<(), Error> {
        match Arc::ptr_eq(buffer.allocation.segment(), &self.segment) {
            true => Ok(()),
            false => Err(Error::usage(
                "the shared buffer belongs to another job; allocate it from this communicator or one it was split from",
            )),
        }
    }
}

fn is_small(bytes: usize) -> bool {
    bytes < LENT_MIN_BYTES
}

/// A call that failed after it met the others may have left some that still write to `buffer`. What they still read spoils
/// at most their own failed results.
fn keep_or_detach<T>(result: Result<(), Error>, buffer: &mut SharedBuffer<T>) -> Result<(), Error> {
    if !matches!(result, Ok(()) | Err(Error::Usage { .. } | Error::Unsupported { .. })) {
        buffer.allocation.detach()?;
    }
    result
}
