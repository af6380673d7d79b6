//! The cache of other ranks' registered buffers that this process has mapped.
//!
//! A buffer is mapped in its full length when a rank first names it, and stays mapped until the group ends, since programs use
//! few buffers many times. Names come from other processes: each is looked up in the table of regions, and for any name, an
//! address that is returned lies inside a mapping. The owner has reserved the buffer's memory; nothing is reserved here.

use crate::Error;
use crate::memory::{AllocationName, Region, Segment};

/// The buffers of the ranks of one group.
#[derive(Debug)]
pub(crate) struct RegistrationCache {
    /// Every region that was ever named, and how much of it is present for which allocation; the last one of a region counts.
    mapped: Vec<Mapping>,
    /// Contribution and place of the result of every rank in the current operation, [`RegistrationCache::bytes`] each.
    open: Vec<[*mut u8; 2]>,
    bytes: usize,
}

#[derive(Debug)]
struct Mapping {
    name: AllocationName,
    region: Region,
    present_bytes: usize,
}

impl RegistrationCache {
    pub fn new(ranks: usize) -> Self {
        RegistrationCache { mapped: Vec::new(), open: vec![[core::ptr::null_mut(); 2]; ranks], bytes: 0 }
    }

    /// Begins an operation with buffers of `bytes`; `own` are the buffers that this rank registers.
    pub fn begin(&mut self, rank: usize, own: [*mut u8; 2], bytes: usize) {
        self.open.fill([core::ptr::null_mut(); 2]);
        self.open[rank] = own;
        self.bytes = bytes;
    }

    /// Finds the buffers of `rank` by the names of its contribution and of the place of its result.
    ///
    /// # Errors
    /// [`Error::Usage`] for a name of nothing, or of less than the operation needs; as [`Segment::region`].
    pub fn open(&mut self, segment: &Segment, rank: usize, names: [u64; 2]) -> Result<(), Error> {
        let first = self.find(segment, AllocationName::from_word(names[0]))?;
        let second =
            if names[0] == names[1] { first } else { self.find(segment, AllocationName::from_word(names[1]))? };
        self.open[rank] = [first, second];
        Ok(())
    }

    fn find(&mut self, segment: &Segment, name: AllocationName) -> Result<*mut u8, Error> {
        let known = self.mapped.iter().rposition(|known| known.name.slot == name.slot);
        // A buffer in an operation is not freed before the group is.
        if let Some(known) = known.map(|at| &self.mapped[at])
            && known.name == name
            && known.present_bytes >= self.bytes
        {
            return Ok(known.region.as_ptr());
        }
        let bytes = segment.bytes_of(name).filter(|bytes| *bytes >= self.bytes).ok_or_else(|| {
            Error::usage(format!(
                "region {} is named as a buffer of {} bytes or more under number {}; no such buffer is registered",
                name.slot, self.bytes, name.id
            ))
        })?;
        let at = match known.filter(|at| self.mapped[*at].region.len() >= bytes) {
            Some(at) => at,
            None => {
                // Addresses that were given out stay good: an outgrown mapping is kept, and is at most half of the next.
                let outgrown = known.map_or(0, |at| self.mapped[at].region.len());
                let bytes = bytes.max(outgrown.saturating_mul(2)).min(segment.max_allocation_bytes());
                let region = segment.region(name.slot, bytes)?;
                self.mapped.push(Mapping { name, region, present_bytes: 0 });
                self.mapped.len() - 1
            }
        };
        let known = &mut self.mapped[at];
        known.region.populate(0..self.bytes)?;
        (known.name, known.present_bytes) = (name, self.bytes);
        Ok(known.region.as_ptr())
    }

    /// Address of byte `offset` of a buffer of `rank`: its contribution, or the place of its result.
    ///
    /// # Panics
    /// For a rank that was not opened and an offset outside the buffer.
    pub fn at(&self, rank: usize, result: bool, offset: usize) -> *mut u8 {
        let start = self.open[rank][usize::from(result)];
        assert!(
            !start.is_null() && offset <= self.bytes,
            "{offset} of {} bytes that rank {rank} has registered",
            self.bytes
        );
        start.wrapping_add(offset)
    }
}
