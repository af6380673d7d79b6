//! Memory that a rank borrows from the arena for buffers of its own, which the other ranks can reach.
//!
//! Only its owner holds it, so that nobody takes a lock per operation. Instead the owner says in the table in which groups'
//! operations it lies, before it tells the others its name, and takes that back when the operation has succeeded. What lies
//! in an operation of a group that failed is not given back before the group's own region is, which every rank holds that
//! may still be writing.

use super::allocator::{Claim, Grant, Origin};
use super::table::MAX_USES;
use super::{Region, Segment};
use crate::Error;
use std::sync::Arc;
use std::time::Duration;

/// Borrowed memory: zero at first, reserved and present, out of the budget of the node until it is dropped.
#[derive(Debug)]
pub struct Allocation {
    /// Unmapped after the allocation was given back: nobody touches it any more.
    region: Region,
    /// `None` in a job of one rank, whose memory is private.
    grant: Option<Grant>,
    /// Whether the memory was taken out of the others' reach.
    detached: bool,
    segment: Arc<Segment>,
}

/// A allocation that lies in an operation.
#[derive(Debug)]
#[must_use]
pub struct BufferUse {
    /// The word that says so; `None` where it stays.
    word: Option<usize>,
}

impl Segment {
    /// Borrows `bytes` bytes. No other rank takes part.
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
        let cost = bytes as u64;
        let claim = Claim { members: vec![self.rank()], lines: bytes, least: cost, most: cost };
        // No group has the number 0, so no split of one takes this for its own.
        let origin = Origin { parent: 0, serial: 1 };
        let grants = self.allocate(&[claim], origin, timeout, || true)?;
        let Some(&[grant]) = grants.as_deref() else { unreachable!("one claim that nothing denies") };
        let region = self.region(grant.slot, bytes).inspect_err(|_| self.release(grant.slot, grant.id))?;
        let allocation = Allocation { region, grant: Some(grant), detached: false, segment: self.clone() };
        allocation.region.reserve(0..bytes)?;
        allocation.region.populate_write(0..bytes)?;
        Ok(allocation)
    }
}

/// A node's budget, for memory that lies outside its arena.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    segment: Arc<Segment>,
    timeout: Option<Duration>,
}

/// A part of a budget, spoken for until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    grant: Option<Grant>,
    segment: Arc<Segment>,
}

impl MemoryBudget {
    /// That of the node behind `segment`.
    pub fn new(segment: Arc<Segment>, timeout: Option<Duration>) -> Self {
        MemoryBudget { segment, timeout }
    }

    /// Sets `bytes` bytes aside. No other rank takes part. A job of one rank has no budget.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when too little is left; [`Error::Timeout`] as [`Segment::allocate`].
    pub fn take(&self, bytes: u64) -> Result<Reservation, Error> {
        let segment = self.segment.clone();
        if segment.size() == 1 {
            return Ok(Reservation { grant: None, segment });
        }
        let claim = Claim { members: vec![segment.rank()], lines: 0, least: bytes, most: bytes };
        let grants = segment.allocate(&[claim], Origin { parent: 0, serial: 2 }, self.timeout, || true)?;
        let Some(&[grant]) = grants.as_deref() else { unreachable!("one claim that nothing denies") };
        Ok(Reservation { grant: Some(grant), segment })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(grant) = self.grant {
            self.segment.release(grant.slot, grant.id);
        }
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

    /// The segment it was borrowed from.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// What others find it by, never 0; `None` if no other rank exists.
    pub fn name(&self) -> Option<AllocationName> {
        self.grant.map(|grant| AllocationName { slot: grant.slot, id: grant.id })
    }

    /// Takes the memory out of the others' reach for good: from here on it is private, and zero.
    ///
    /// # Errors
    /// [`Error::System`] when the system refuses.
    pub fn detach(&mut self) -> Result<(), Error> {
        self.detached = self.grant.is_some();
        self.region.make_private()
    }

    /// Says that the memory lies in an operation of the group with this region, before anybody is told its name.
    ///
    /// # Errors
    /// [`Error::Usage`] for memory that the others do not reach any more, and where it lies in operations of too many groups.
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

    /// The operation has succeeded, or has told nobody the name.
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

/// A allocation by its region and its number, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationName {
    /// Its region.
    pub slot: usize,
    /// Its number; of those that are found in a word only the lower 51 bits.
    pub id: u64,
}

const SLOT_BITS: u32 = 13;
const _: () = assert!(super::allocator::MAX_REGIONS < 1 << SLOT_BITS);

impl AllocationName {
    /// As a word, never 0: no allocation has the number 0.
    pub fn word(self) -> u64 {
        self.id << SLOT_BITS | self.slot as u64
    }

    /// From a word, whatever is in it.
    pub fn from_word(word: u64) -> AllocationName {
        AllocationName { slot: (word & ((1 << SLOT_BITS) - 1)) as usize, id: word >> SLOT_BITS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_a_word() {
        for (slot, id) in [(1, 2), (4095, 1), (7, (1 << 51) - 1)] {
            let name = AllocationName { slot, id };
            assert_eq!(AllocationName::from_word(name.word()), name);
            assert_ne!(name.word(), 0);
        }
    }
}
