//! The places of shared results: memory that all ranks of a group read, and which places are still read.

use crate::mapped::Mapped;
use crate::memory::{AllocationName, Claim, Origin, Segment};
use crate::protocol::board::Board;
use crate::protocol::shared_result::{RESULTS, SharedResult};
use std::sync::Arc;
use std::time::Duration;

/// A bit in the origin of a group's results, which distinguishes them from the groups split from it.
const RESULTS_OF: u64 = 1 << 63;

/// A group's places for shared results, as known to this rank.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) places: [Option<ResultPlace>; RESULTS],
    /// Bits of the places that some rank still read when the last result was made.
    pub(super) held: u64,
    /// The memory of a copy, until a view takes it.
    pub(super) spare: Vec<u64>,
    /// The origin of all allocations for results of this group.
    pub(super) origin: Origin,
    pub(super) segment: Arc<Segment>,
}

#[derive(Debug)]
pub(super) struct ResultPlace {
    pub(super) name: AllocationName,
    /// Known to rank 0 only.
    pub(super) bytes: usize,
    /// Counts the views that read the place: one reference each, and one of the place itself.
    pub(super) views: Arc<()>,
}

impl Results {
    /// The places of the group with this number, none yet; no split of the group has the same origin.
    pub(super) fn new(segment: Arc<Segment>, group: u64) -> Results {
        let origin = Origin { parent: group | RESULTS_OF, serial: 0 };
        Results { places: Default::default(), held: 0, spare: Vec::new(), origin, segment }
    }

    /// The origin of memory that is allocated for all ranks of the group: what this rank still holds of it is released when it
    /// leaves.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Bits of the places that this rank reads; dropped views do not count.
    pub(super) fn held(&mut self) -> u64 {
        let held = |place: &mut Option<ResultPlace>| {
            place.as_mut().is_some_and(|place| Arc::get_mut(&mut place.views).is_none())
        };
        self.places.iter_mut().enumerate().fold(0, |all, (i, place)| all | u64::from(held(place)) << i)
    }

    /// Finds or allocates memory for a result of `bytes`, on rank 0. Returns its place and name, the name 0 if there is none,
    /// and its size.
    pub(super) fn offer(&mut self, board: &Mapped, bytes: usize, timeout: Option<Duration>) -> ((usize, u64), usize) {
        let busy = self.held() | self.held;
        let fits = |i: usize| self.places[i].as_ref().map(|place| place.bytes >= bytes);
        let mut free = (0..RESULTS).filter(|i| busy >> i & 1 == 0);
        let Some(place) = free.clone().find(|i| fits(*i) == Some(true)).or_else(|| free.next()) else {
            return ((0, 0), 0);
        };
        if let Some(known) = self.places[place].as_ref().filter(|known| known.bytes >= bytes) {
            return ((place, known.name.word()), known.bytes);
        }
        let rounded = bytes.next_multiple_of(rustix::param::page_size());
        if rounded > self.segment.max_allocation_bytes() {
            return ((0, 0), 0);
        }
        let claim = Claim {
            members: board.group_info().members.to_vec(),
            lines: rounded,
            least: rounded as u64,
            most: rounded as u64,
        };
        // A member that is gone has released its allocations already, and would never release one made now.
        let healthy = || (0..board.ranks()).all(|rank| !board.is_gone(rank));
        match self.segment.allocate(&[claim], self.origin, timeout, healthy) {
            Ok(Some(grants)) => ((place, grants[0].name().word()), rounded),
            // Every rank gets a copy then, or the group's error.
            Ok(None) | Err(_) => ((0, 0), 0),
        }
    }

    /// Stores the place that the ranks agreed on and releases the one it replaces. Returns the place, if it was taken.
    pub(super) fn settle(&mut self, shared: &SharedResult, bytes: usize) -> Option<usize> {
        let agreed = shared.agreed()?;
        self.held = agreed.held;
        let (place, word) = agreed.offer;
        if word == 0 || place >= RESULTS {
            return None;
        }
        let name = AllocationName::from_word(word);
        let is_known = self.places[place].as_ref().is_some_and(|known| known.name == name);
        if !is_known {
            let taken = ResultPlace { name, bytes, views: Arc::default() };
            let other = if agreed.taken { self.places[place].replace(taken) } else { Some(taken) };
            if let Some(ResultPlace { name, .. }) = other {
                self.segment.release(name.slot, name.id);
            }
        }
        agreed.taken.then_some(place)
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        // Including memory that rank 0 offered in a call that this rank did not make.
        self.segment.release_all_of(self.origin);
    }
}
