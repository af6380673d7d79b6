//! Regions of the arena as plain data: their number, requests, grants, and the names of allocations.

/// Bytes of the head of the table of regions.
pub const HEAD_BYTES: usize = 4096;
/// Bytes of the table of regions.
pub const TABLE_BYTES: usize = 2 << 20;
/// Bytes of the records of agreements on survivors, after the table.
pub const RECORDS_BYTES: usize = 2 << 20;
/// Bytes before the first region: the table and the records.
pub const POOL_BYTES: usize = TABLE_BYTES + RECORDS_BYTES;

/// Regions of an arena: one for all ranks, the others for groups of them.
pub const MAX_REGIONS: usize = 4096;

/// Limits of the memory that all groups of a node together may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Bytes in all.
    pub total: u64,
    /// Bytes of them that the group of all ranks takes.
    pub base: u64,
}

/// A request for the region of a new group.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Its ranks, by their number in the segment.
    pub members: Vec<usize>,
    /// Bytes at the start of its region to reserve at once.
    pub lines: usize,
    /// The smallest part of the budget that it can use, bytes.
    pub least: u64,
    /// The largest part of the budget that it can use, bytes.
    pub most: u64,
}

/// A region granted to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Its region.
    pub slot: usize,
    /// The number of the allocation, never given twice in a job.
    pub id: u64,
    /// Its part of the budget, bytes: the most that the group may reserve.
    pub bytes: u64,
}

impl Grant {
    /// The allocation of the group of all ranks.
    pub const BASE: u64 = 1;

    /// The name of the allocation.
    pub fn name(self) -> AllocationName {
        AllocationName { slot: self.slot, id: self.id }
    }
}

/// The operation that made an allocation, so that a rank that does not know its number can still release it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The allocation of the group that was split.
    pub parent: u64,
    /// Distinguishes the splits of that group.
    pub serial: u64,
}

/// The name of an allocation: its region and its number, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationName {
    /// Its region.
    pub slot: usize,
    /// Its number; only the lower 51 bits of it in a name unpacked from a word.
    pub id: u64,
}

const SLOT_BITS: u32 = 13;
const _: () = assert!(MAX_REGIONS < 1 << SLOT_BITS);

impl AllocationName {
    /// Packs the name into a word, never 0: no allocation has the number 0.
    pub fn word(self) -> u64 {
        self.id << SLOT_BITS | self.slot as u64
    }

    /// Unpacks a name from any word.
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
