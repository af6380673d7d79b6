//! The shared memory that the started calls of a communicator are sent from whose blocks have lengths that not all ranks know.
//!
//! Data that a rank sends stay where they lie until all ranks that receive any of it have read it, which they do before they leave the operation
//! in which they learn of it. So a rank sends another call from the same memory, or gives it back, once all have left that operation: blocks of
//! memory are kept from call to call, and stay mapped by their readers. Sends that are too long for that take memory for one call, which every
//! rank that reads it releases then.
//!
//! Invariant **K (kept)**: a block is written by its owner alone, after every rank has left the last operation that has published its name, and
//! before the next one does. The group counts as its user, so that nobody frees it before the group's end unless its owner does by the same rule.

use crate::Error;
use crate::mapped::GroupInfo;
use crate::memory::{Allocation, AllocationName, BufferUse, Grant, Origin, Region, Segment};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The least size of a kept block, bytes: smaller calls share blocks with larger ones.
const LEAST_BLOCK_BYTES: usize = 64 << 10;

/// Blocks that calls one after the other take in turn: with one, what is written is in the caches of those that have just read it.
const IN_TURN: usize = 2;

/// The memory of one rank in one group, and its mappings of the others'.
#[derive(Debug)]
pub(super) struct SendMemory {
    segment: Arc<Segment>,
    group: GroupInfo,
    origin: Origin,
    /// Bytes of all blocks together, at most.
    most: usize,
    blocks: Vec<SendBlock>,
    /// The last operation that every rank was seen to have left.
    left: u64,
    /// The blocks of other ranks, by their region.
    mapped: HashMap<usize, (AllocationName, Region)>,
}

#[derive(Debug)]
struct SendBlock {
    allocation: Allocation,
    group: BufferUse,
    /// The last operation that has published its name.
    published: u64,
}

impl SendMemory {
    /// The memory of a rank of a group, none yet. `most` bytes are kept; `origin` is that of memory which this rank releases when it
    /// leaves the group.
    pub(super) fn new(segment: Arc<Segment>, group: GroupInfo, origin: Origin, most: usize) -> Self {
        SendMemory { segment, group, origin, most, blocks: Vec::new(), left: 0, mapped: HashMap::new() }
    }

    /// Looks for the last operation that every rank has left.
    pub(super) fn look(&mut self, left_by_all: &dyn Fn() -> u64) -> u64 {
        self.left = left_by_all();
        self.left
    }

    /// A kept block of `bytes` or more, whose name operation `number` publishes; `None` if it would be too much to keep, or there is no
    /// memory. Shorter blocks that nobody reads are given back where a longer one is needed. What all have left is looked for where no block is
    /// known to be free, for it takes the time of a cache miss.
    pub(super) fn keep(
        &mut self,
        number: u64,
        left_by_all: &dyn Fn() -> u64,
        bytes: usize,
        timeout: Option<Duration>,
    ) -> Option<(AllocationName, *mut u8)> {
        let mut at = self.free_block(bytes);
        if at.is_none() && self.blocks.len() >= IN_TURN {
            self.look(left_by_all);
            at = self.free_block(bytes);
        }
        let at = match at {
            Some(free) => free,
            None => {
                let block = self.allocate_kept(bytes, timeout)?;
                self.blocks.push(block);
                self.blocks.len() - 1
            }
        };
        let block = &mut self.blocks[at];
        block.published = number;
        Some((block.allocation.name()?, block.allocation.as_ptr()))
    }

    /// The place of the smallest block of `bytes` or more that nobody reads, as far as was seen.
    fn free_block(&self, bytes: usize) -> Option<usize> {
        let suits = |block: &SendBlock| block.published <= self.left && block.allocation.bytes() >= bytes;
        let free = (0..self.blocks.len()).filter(|at| suits(&self.blocks[*at]));
        free.min_by_key(|at| self.blocks[*at].allocation.bytes())
    }

    fn allocate_kept(&mut self, bytes: usize, timeout: Option<Duration>) -> Option<SendBlock> {
        let size = bytes.max(LEAST_BLOCK_BYTES).checked_next_power_of_two()?;
        // The next call needs another one.
        if size > self.most / 2 {
            return None;
        }
        self.give_back_unread();
        let kept: usize = self.blocks.iter().map(|block| block.allocation.bytes()).sum();
        if kept + size > self.most {
            return None;
        }
        let allocation = self.segment.allocate_buffer(size, timeout).ok()?;
        let group = allocation.begin_use(self.group.allocation).ok()?;
        Some(SendBlock { allocation, group, published: 0 })
    }

    /// Gives back the blocks that nobody reads; returns their number.
    fn give_back_unread(&mut self) -> usize {
        let (before, left) = (self.blocks.len(), self.left);
        for unread in self.blocks.extract_if(.., |block| block.published <= left) {
            unread.allocation.end_use(unread.group);
        }
        before - self.blocks.len()
    }

    /// A kept block of another rank with at least `bytes` bytes.
    ///
    /// # Errors
    /// The errors of [`SendMemory::map`].
    pub(super) fn kept_by_other(&mut self, name: AllocationName, bytes: usize) -> Result<&Region, Error> {
        let is_mapped = |(known, region): &(AllocationName, Region)| *known == name && region.len() >= bytes;
        if !self.mapped.get(&name.slot).is_some_and(is_mapped) {
            self.mapped.insert(name.slot, (name, self.map(name, bytes)?));
        }
        Ok(&self.mapped[&name.slot].1)
    }

    /// Allocates memory for these ranks of the group, or all, reserved, which each of them releases. Kept blocks that nobody reads make room
    /// for it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the budget or the node has too little left, or for more than an allocation can have; the other errors of
    /// [`Segment::allocate`].
    pub(super) fn allocate(
        &mut self,
        bytes: usize,
        ranks: Option<&[usize]>,
        timeout: Option<Duration>,
    ) -> Result<AllocationName, Error> {
        let rounded = bytes.next_multiple_of(rustix::param::page_size());
        let most = self.segment.max_allocation_bytes();
        if rounded > most {
            return Err(Error::NoSpace { needed: bytes as u64, free: most as u64, hint: String::new() });
        }
        let size = (rounded, rounded as u64);
        let (segment, members, origin) = (self.segment.clone(), self.group.members.clone(), self.origin);
        let users =
            || ranks.map_or_else(|| members.to_vec(), |ranks| ranks.iter().map(|rank| members[*rank]).collect());
        let allocate = || segment.allocate_one(users(), size, origin, timeout).map(Grant::name);
        match allocate() {
            Err(Error::NoSpace { .. }) if self.give_back_unread() > 0 => allocate(),
            other => other,
        }
    }

    /// Maps memory that a rank has allocated, of `least` bytes or more, and makes it present, which takes less time than the faults
    /// of a copy.
    ///
    /// # Errors
    /// [`Error::Poisoned`] for a name that no such memory has; [`Error::System`] when the address space is used up.
    pub(super) fn map(&self, name: AllocationName, least: usize) -> Result<Region, Error> {
        let bytes = self.segment.bytes_of(name).filter(|allocated| *allocated >= least);
        let none = || Error::Poisoned { cause: "memory that a rank sends from and was allocated for none".into() };
        let region = self.segment.region(name.slot, bytes.ok_or_else(none)?)?;
        region.populate(0..region.len())?;
        Ok(region)
    }

    /// Releases memory that this rank does not touch any more; the last release gives it back.
    pub(super) fn release(&self, name: AllocationName) {
        self.segment.release(name.slot, name.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::AttachOptions;

    /// A rank alone with a segment: what it is told stands for the others.
    fn memory(most: usize) -> SendMemory {
        let options =
            AttachOptions { size: 1, key: "send-memory".into(), region_bytes: 1 << 20, ..AttachOptions::default() };
        let (segment, _) = Segment::attach(&options).unwrap();
        let group = GroupInfo { me: 0, members: [0].into(), allocation: None };
        SendMemory::new(segment, group, Origin { parent: 1 << 63, serial: 0 }, most)
    }

    /// The address that operation `number` sends so many bytes from, where all have left operation `left`; without another rank it has no name.
    fn send(memory: &mut SendMemory, (number, left): (u64, u64), bytes: usize) -> Option<usize> {
        memory.keep(number, &|| left, bytes, None);
        let published = memory.blocks.iter().find(|block| block.published == number);
        published.map(|block| block.allocation.as_ptr() as usize)
    }

    #[test]
    fn memory_is_sent_from_again_once_all_have_left() {
        let mut memory = memory(4 * LEAST_BLOCK_BYTES);
        let blocks = [1, 2, 3, 4].map(|number| send(&mut memory, (number, 0), 5000).unwrap());
        assert!(blocks.iter().enumerate().all(|(i, at)| !blocks[..i].contains(at)), "no rank has left anything");
        assert_eq!(send(&mut memory, (5, 0), 5000), None, "more than is kept");
        assert!(blocks[..2].contains(&send(&mut memory, (6, 2), 5000).unwrap()));
    }

    #[test]
    fn blocks_that_are_too_short_are_given_back_unless_they_are_read() {
        let mut memory = memory(4 * LEAST_BLOCK_BYTES);
        assert!(send(&mut memory, (1, 0), 1).is_some() && send(&mut memory, (2, 0), 1).is_some());
        assert_eq!(send(&mut memory, (3, 0), 2 * LEAST_BLOCK_BYTES + 1), None, "two of them are more than is kept");
        assert!(send(&mut memory, (4, 0), 2 * LEAST_BLOCK_BYTES).is_some());
        assert_eq!(send(&mut memory, (5, 0), 2 * LEAST_BLOCK_BYTES), None, "all may still be read");
        assert!(send(&mut memory, (6, 2), 2 * LEAST_BLOCK_BYTES).is_some());
        let lengths: Vec<usize> = memory.blocks.iter().map(|block| block.allocation.bytes()).collect();
        assert_eq!(lengths, [2 * LEAST_BLOCK_BYTES; 2]);
    }
}
