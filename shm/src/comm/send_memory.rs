//! The shared memory that the started alltoalls of unequal blocks of a communicator are sent from.
//!
//! Data that a rank sends stay where they lie until all ranks have read it, and no rank says so by itself. But all ranks begin these
//! calls in one order, and with each call a rank tells how many of them have ended on it: a rank that has heard that a call has ended everywhere
//! sends another one from the same memory, or gives it back. So blocks of memory are kept from call to call, and stay mapped by their readers.
//! Sends that are too long for that take memory for one call, which every rank releases once it has read.
//!
//! Invariant **K (kept)**: a block is written by its owner alone, between hearing that the last call sent from it has ended on
//! every rank and publishing its name again. The group counts as its user, so that without such a message nobody frees it before the group's end.

use crate::Error;
use crate::mapped::GroupInfo;
use crate::memory::{Allocation, AllocationName, BufferUse, Grant, Origin, Region, Segment};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The least size of a kept block, bytes: smaller calls share blocks with larger ones.
const LEAST_BLOCK_BYTES: usize = 64 << 10;

/// The memory of one rank in one group, and its mappings of the others'.
#[derive(Debug)]
pub(super) struct SendMemory {
    segment: Arc<Segment>,
    group: GroupInfo,
    origin: Origin,
    /// Bytes of all blocks together, at most.
    most: usize,
    calls: BegunCalls,
    blocks: Vec<SendBlock>,
    /// The blocks of other ranks, by their region.
    mapped: HashMap<usize, (AllocationName, Region)>,
}

#[derive(Debug)]
struct SendBlock {
    allocation: Allocation,
    group: BufferUse,
    /// The last call that was sent from it.
    call: u64,
}

impl SendMemory {
    /// The memory of a rank of a group, none yet. `most` bytes are kept; `origin` is that of memory which this rank releases when it
    /// leaves the group.
    pub(super) fn new(segment: Arc<Segment>, group: GroupInfo, origin: Origin, most: usize) -> Self {
        let calls = BegunCalls::new(group.members.len());
        SendMemory { segment, group, origin, most, calls, blocks: Vec::new(), mapped: HashMap::new() }
    }

    /// Numbers of the calls that have begun here, and what the others have told of theirs.
    pub(super) fn calls(&mut self) -> &mut BegunCalls {
        &mut self.calls
    }

    /// A kept block of `bytes` or more from which `call` is sent, and its name; `None` if it would be too much to keep, or there is no
    /// memory. Shorter blocks that nobody reads are given back where a longer one is needed.
    pub(super) fn keep(
        &mut self,
        call: u64,
        bytes: usize,
        timeout: Option<Duration>,
    ) -> Option<(AllocationName, *mut u8)> {
        let ended = self.calls.ended_everywhere();
        let suits = |block: &SendBlock| block.call < ended && block.allocation.bytes() >= bytes;
        let known = (0..self.blocks.len()).filter(|at| suits(&self.blocks[*at]));
        let at = match known.min_by_key(|at| self.blocks[*at].allocation.bytes()) {
            Some(known) => known,
            None => {
                let block = self.allocate_kept(call, bytes, timeout)?;
                self.blocks.push(block);
                self.blocks.len() - 1
            }
        };
        let block = &mut self.blocks[at];
        block.call = call;
        Some((block.allocation.name()?, block.allocation.as_ptr()))
    }

    fn allocate_kept(&mut self, call: u64, bytes: usize, timeout: Option<Duration>) -> Option<SendBlock> {
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
        Some(SendBlock { allocation, group, call })
    }

    /// Gives back the blocks that nobody reads; returns their number.
    fn give_back_unread(&mut self) -> usize {
        let ended = self.calls.ended_everywhere();
        let before = self.blocks.len();
        for unread in self.blocks.extract_if(.., |block| block.call < ended) {
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

    /// Allocates memory for all ranks of the group, reserved, which each of them releases. Kept blocks that nobody reads make room for it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the budget or the node has too little left, or for more than an allocation can have; the other errors of
    /// [`Segment::allocate`].
    pub(super) fn allocate(&mut self, bytes: usize, timeout: Option<Duration>) -> Result<AllocationName, Error> {
        let rounded = bytes.next_multiple_of(rustix::param::page_size());
        let most = self.segment.max_allocation_bytes();
        if rounded > most {
            return Err(Error::NoSpace { needed: bytes as u64, free: most as u64, hint: String::new() });
        }
        let size = (rounded, rounded as u64);
        let (segment, members, origin) = (self.segment.clone(), self.group.members.clone(), self.origin);
        let allocate = || segment.allocate_one(members.to_vec(), size, origin, timeout).map(Grant::name);
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
        let none = || Error::Poisoned { cause: "memory of an alltoall that was allocated for no rank".into() };
        let region = self.segment.region(name.slot, bytes.ok_or_else(none)?)?;
        region.populate(0..region.len())?;
        Ok(region)
    }

    /// Releases memory that this rank does not touch any more; the last release gives it back.
    pub(super) fn release(&self, name: AllocationName) {
        self.segment.release(name.slot, name.id);
    }
}

/// The calls of a group that have begun on one rank, numbered from 0 in the one order that all ranks have, and those that have ended.
#[derive(Debug)]
pub(super) struct BegunCalls {
    begun: u64,
    under_way: BTreeSet<u64>,
    /// Of each rank, as it has told: all calls of lower numbers have ended there.
    ended: Vec<u64>,
}

impl BegunCalls {
    fn new(ranks: usize) -> Self {
        BegunCalls { begun: 0, under_way: BTreeSet::new(), ended: vec![0; ranks] }
    }

    /// Begins a call and returns its number.
    pub(super) fn begin(&mut self) -> u64 {
        let call = self.begun;
        self.begun += 1;
        self.under_way.insert(call);
        call
    }

    /// Ends a call: this rank does not read what was sent in it any more.
    pub(super) fn end(&mut self, call: u64) {
        self.under_way.remove(&call);
    }

    /// All calls of lower numbers have ended on this rank.
    pub(super) fn ended_here(&self) -> u64 {
        self.under_way.first().copied().unwrap_or(self.begun)
    }

    /// Takes down what a rank has told: all calls of numbers lower than `ended` have ended there. Calls end in any order, so an older
    /// message may come later.
    pub(super) fn note(&mut self, rank: usize, ended: u64) {
        self.ended[rank] = self.ended[rank].max(ended);
    }

    fn ended_everywhere(&self) -> u64 {
        self.ended.iter().copied().min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::AttachOptions;

    #[test]
    fn a_call_has_ended_everywhere_when_all_lower_ones_have_on_all_ranks() {
        let mut calls = BegunCalls::new(2);
        let [first, second, third] = [calls.begin(), calls.begin(), calls.begin()];
        assert_eq!((first, second, third, calls.ended_here()), (0, 1, 2, 0));
        calls.end(second);
        assert_eq!(calls.ended_here(), first);
        calls.end(first);
        calls.end(first);
        assert_eq!(calls.ended_here(), third);
        calls.note(0, 3);
        assert_eq!(calls.ended_everywhere(), 0, "rank 1 has told nothing");
        calls.note(1, 2);
        calls.note(1, 1);
        assert_eq!(calls.ended_everywhere(), 2, "a message that comes late takes nothing back");
    }

    /// A rank alone with a segment: what it is told stands for the others.
    fn memory(most: usize) -> SendMemory {
        let options =
            AttachOptions { size: 1, key: "send-memory".into(), region_bytes: 1 << 20, ..AttachOptions::default() };
        let (segment, _) = Segment::attach(&options).unwrap();
        let group = GroupInfo { me: 0, members: [0].into(), allocation: None };
        SendMemory::new(segment, group, Origin { parent: 1 << 63, serial: 0 }, most)
    }

    /// The address that a call of so many bytes is sent from; without another rank it has no name.
    fn send(memory: &mut SendMemory, bytes: usize) -> Option<usize> {
        let call = memory.calls().begin();
        memory.keep(call, bytes, None);
        memory.calls().end(call);
        memory.blocks.iter().find(|block| block.call == call).map(|block| block.allocation.as_ptr() as usize)
    }

    #[test]
    fn memory_is_sent_from_again_once_all_have_ended_the_call() {
        let mut memory = memory(4 * LEAST_BLOCK_BYTES);
        let blocks = [(); 4].map(|()| send(&mut memory, 5000).unwrap());
        assert!(blocks.iter().enumerate().all(|(i, at)| !blocks[..i].contains(at)), "no rank has told anything");
        assert_eq!(send(&mut memory, 5000), None, "more than is kept");
        memory.calls().note(0, 2);
        assert!(blocks[..2].contains(&send(&mut memory, 5000).unwrap()));
    }

    #[test]
    fn blocks_that_are_too_short_are_given_back_unless_they_are_read() {
        let mut memory = memory(4 * LEAST_BLOCK_BYTES);
        assert!(send(&mut memory, 1).is_some() && send(&mut memory, 1).is_some());
        assert_eq!(send(&mut memory, 2 * LEAST_BLOCK_BYTES + 1), None, "two of them are more than is kept");
        assert!(send(&mut memory, 2 * LEAST_BLOCK_BYTES).is_some());
        assert_eq!(send(&mut memory, 2 * LEAST_BLOCK_BYTES), None, "all may still be read");
        memory.calls().note(0, 2);
        assert!(send(&mut memory, 2 * LEAST_BLOCK_BYTES).is_some());
        let lengths: Vec<usize> = memory.blocks.iter().map(|block| block.allocation.bytes()).collect();
        assert_eq!(lengths, [2 * LEAST_BLOCK_BYTES; 2]);
    }
}
