//! The shared memory that the started alltoalls of unequal blocks of a communicator are sent from.
//!
//! What a rank sends stays where it lies until all ranks have read it, and no rank says so by itself. But all ranks begin these
//! calls in one order, and with each call a rank tells how many of them have ended on it: a rank that has heard that a call has ended everywhere
//! sends another one from the same memory. So memory is kept from call to call, mapped by its readers, until the communicator
//! ends. What is too long for that takes memory for one call, which every rank releases once it has read.
//!
//! Invariant **K (kept)**: a block is written by its owner alone, between hearing that the last call sent from it has ended on
//! every rank and publishing its name again.

use crate::Error;
use crate::memory::{AllocationName, Grant, Origin, Region, Segment};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The least size of a kept block, bytes: smaller calls share blocks with larger ones.
const LEAST_BLOCK_BYTES: usize = 64 << 10;

/// The memory of one rank in one group, and its mappings of the others'.
#[derive(Debug)]
pub(super) struct SendMemory {
    segment: Arc<Segment>,
    members: Arc<[usize]>,
    origin: Origin,
    /// Bytes of all blocks together, at most.
    most: usize,
    calls: BegunCalls,
    blocks: Vec<Block>,
    /// The blocks of other ranks, by their names.
    mapped: HashMap<u64, Region>,
}

#[derive(Debug)]
struct Block {
    name: AllocationName,
    region: Region,
    /// The last call that was sent from it.
    call: u64,
}

impl SendMemory {
    /// The memory of a rank of the group of these members, none yet. `most` bytes are kept; `origin` is that of memory which this
    /// rank releases when it leaves the group.
    pub(super) fn new(segment: Arc<Segment>, members: Arc<[usize]>, origin: Origin, most: usize) -> Self {
        let calls = BegunCalls::new(members.len());
        SendMemory { segment, members, origin, most, calls, blocks: Vec::new(), mapped: HashMap::new() }
    }

    /// Numbers of the calls that have begun here, and what the others have told of theirs.
    pub(super) fn calls(&mut self) -> &mut BegunCalls {
        &mut self.calls
    }

    /// A kept block of `bytes` or more from which `call` is sent; `None` if it would be too much to keep, or there is no memory.
    pub(super) fn keep(
        &mut self,
        call: u64,
        bytes: usize,
        timeout: Option<Duration>,
    ) -> Option<(AllocationName, &Region)> {
        let ended = self.calls.ended_everywhere();
        let free = |block: &Block| block.call < ended && block.region.len() >= bytes;
        let known = (0..self.blocks.len()).filter(|at| free(&self.blocks[*at]));
        let at = match known.min_by_key(|at| self.blocks[*at].region.len()) {
            Some(known) => known,
            None => {
                let (name, region) = self.allocate_kept(bytes, timeout)?;
                self.blocks.push(Block { name, region, call });
                self.blocks.len() - 1
            }
        };
        let block = &mut self.blocks[at];
        block.call = call;
        Some((block.name, &block.region))
    }

    fn allocate_kept(&self, bytes: usize, timeout: Option<Duration>) -> Option<(AllocationName, Region)> {
        let size = bytes.max(LEAST_BLOCK_BYTES).checked_next_power_of_two()?;
        let kept: usize = self.blocks.iter().map(|block| block.region.len()).sum();
        if kept.saturating_add(size) > self.most {
            return None;
        }
        let name = self.allocate(size, timeout).ok()?;
        match self.map(name, size) {
            Ok(region) => Some((name, region)),
            Err(_) => {
                self.release(name);
                None
            }
        }
    }

    /// A kept block of another rank with at least `bytes` bytes.
    ///
    /// # Errors
    /// The errors of [`SendMemory::map`].
    pub(super) fn kept_by_other(&mut self, name: AllocationName, bytes: usize) -> Result<&Region, Error> {
        let is_mapped = self.mapped.get(&name.word()).is_some_and(|region| region.len() >= bytes);
        if !is_mapped {
            let region = self.map(name, bytes)?;
            self.mapped.insert(name.word(), region);
        }
        Ok(&self.mapped[&name.word()])
    }

    /// Allocates memory for all ranks of the group, reserved, which each of them releases.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the budget or the node has too little left, or for more than an allocation can have; the other errors of
    /// [`Segment::allocate`].
    pub(super) fn allocate(&self, bytes: usize, timeout: Option<Duration>) -> Result<AllocationName, Error> {
        let rounded = bytes.next_multiple_of(rustix::param::page_size());
        let most = self.segment.max_allocation_bytes();
        if rounded > most {
            return Err(Error::NoSpace { needed: bytes as u64, free: most as u64, hint: String::new() });
        }
        let size = (rounded, rounded as u64);
        self.segment.allocate_one(self.members.to_vec(), size, self.origin, timeout).map(Grant::name)
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
    use crate::memory::{AttachOptions, BudgetLimits};

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
        segment.set_budget(BudgetLimits { total: 64 << 20, base: 0 });
        SendMemory::new(segment, [0].into(), Origin { parent: 1 << 63, serial: 0 }, most)
    }

    #[test]
    fn memory_is_sent_from_again_once_all_have_ended_the_call() {
        let mut memory = memory(4 * LEAST_BLOCK_BYTES);
        let mut names = Vec::new();
        for _ in 0..4 {
            let call = memory.calls().begin();
            names.push(memory.keep(call, 5000, None).unwrap().0);
            memory.calls().end(call);
        }
        assert!(names.iter().enumerate().all(|(i, name)| !names[..i].contains(name)), "no rank has told anything");
        let call = memory.calls().begin();
        assert!(memory.keep(call, 5000, None).is_none(), "more than is kept");
        memory.calls().note(0, 2);
        assert!(names[..2].contains(&memory.keep(call, 5000, None).unwrap().0));
        assert!(memory.keep(call, LEAST_BLOCK_BYTES + 1, None).is_none(), "none is as long");
    }
}
