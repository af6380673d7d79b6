//! Allocations: memory of the arena for the registered buffers of one rank, which the other ranks can map.
//!
//! Only the owner holds an allocation, so no operation takes a lock. Instead the owner writes into the table which groups use
//! the buffer, before it publishes the buffer's name, and clears the entry when the operation has succeeded. A buffer in an
//! operation that failed stays allocated until the group's own region is freed (deferred release): every rank that may still
//! be writing holds that region.

use super::grant::{AllocationName, Grant, Origin};
use super::table::MAX_USES;
use super::{Region, Segment};
use crate::Error;
use std::sync::Arc;
use std::time::Duration;

/// Allocated memory: zero at first, reserved and present, part of the node's budget until it is dropped.
#[derive(Debug)]
pub struct Allocation {
    /// Unmapped after the allocation was released: no rank touches it any more.
    region: Region,
    /// `None` in a job of one rank, whose memory is private.
    grant: Option<Grant>,
    /// True if the memory was made private, out of the other ranks' reach.
    detached: bool,
    segment: Arc<Segment>,
}

/// The use of an allocation by operations of a group.
#[derive(Debug)]
#[must_use]
pub struct BufferUse {
    /// The table's word to clear at the end; `None` if the entry stays.
    word: Option<usize>,
}

impl Segment {
    /// Allocates `bytes` bytes for this rank. No other rank takes part.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the budget or the node has too little left, or for more than [`Segment::max_allocation_bytes`];
    /// [`Error::Timeout`] as [`Segment::allocate`].
    pub fn allocate_buffer(self: &Arc<Self>, bytes: usize, timeout: Option<Duration>) -> Result<Allocation, Error> {
        let most = self.max_allocation_bytes();
        if bytes > most {
            return Err(Error::NoSpace {
                needed: bytes as u64,
                free: most as u64,
                hint: format!("one buffer in shared memory has at most {most} bytes; allocate several smaller ones"),
            });
        }
        let bytes = bytes.max(1).next_multiple_of(rustix::param::page_size()).min(most);
        if self.size() == 1 {
            return Ok(Allocation {
                region: Region::private(bytes)?,
                grant: None,
                detached: false,
                segment: self.clone(),
            });
        }
        // No group has the number 0, so no split of one takes this for its own.
        let origin = Origin { parent: 0, serial: 1 };
        let grant = self.allocate_one(vec![self.rank()], (bytes, bytes as u64), origin, timeout)?;
        let region = self.region(grant.slot, bytes).inspect_err(|_| self.release(grant.slot, grant.id))?;
        let allocation = Allocation { region, grant: Some(grant), detached: false, segment: self.clone() };
        allocation.region.reserve(0..bytes)?;
        Ok(allocation)
    }
}

impl Allocation {
    /// Start of the memory, page-aligned, [`Allocation::bytes`] bytes, until it is dropped.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr()
    }

    /// Bytes, whole pages.
    pub fn bytes(&self) -> usize {
        self.region.len()
    }

    /// The segment of the allocation.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Name by which other ranks find the allocation; `None` if no other rank exists.
    pub fn name(&self) -> Option<AllocationName> {
        self.grant.map(Grant::name)
    }

    /// Makes the memory private for good, out of the other ranks' reach, and zero.
    ///
    /// # Errors
    /// [`Error::System`] when the system refuses.
    pub fn detach(&mut self) -> Result<(), Error> {
        self.detached = self.grant.is_some();
        self.region.make_private()
    }

    /// Enters the group with this region among the users of the memory, before the memory's name is published.
    ///
    /// # Errors
    /// [`Error::Usage`] for detached memory, and for memory in use by operations of too many groups.
    pub fn begin_use(&self, group: Option<(usize, u64)>) -> Result<BufferUse, Error> {
        if self.detached {
            return Err(Error::usage(
                "the shared buffer was in a call that failed, and the others do not reach it any more; allocate another one",
            ));
        }
        let (Some(grant), Some((slot, id))) = (self.grant, group) else { return Ok(BufferUse { word: None }) };
        let word = self.segment.table().begin_use(grant.slot, AllocationName { slot, id });
        word.map(|word| BufferUse { word }).map_err(|()| {
            Error::usage(format!(
                "the shared buffer lies in calls of {MAX_USES} communicators that have not ended or have failed; drop those that \
                 failed, or allocate another buffer"
            ))
        })
    }

    /// Ends the use: the operation has succeeded, or has not published the name.
    pub fn end_use(&self, buffer_use: BufferUse) {
        if let Some(word) = buffer_use.word {
            self.segment.table().end_use(word);
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(grant) = self.grant {
            self.segment.release(grant.slot, grant.id);
        }
    }
}
