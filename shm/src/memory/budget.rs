//! The node's memory budget for memory outside its arena, and reservations of parts of it.

use std::sync::Arc;
use std::time::Duration;

use super::Segment;
use super::grant::{Grant, Origin};
use crate::Error;

/// A node's memory budget, for memory outside its arena.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    segment: Arc<Segment>,
    timeout: Option<Duration>,
}

/// A reserved part of a budget, returned when dropped.
#[derive(Debug)]
pub struct Reservation {
    grant: Option<Grant>,
    segment: Arc<Segment>,
}

impl MemoryBudget {
    /// The budget of the node behind `segment`.
    pub fn new(segment: Arc<Segment>, timeout: Option<Duration>) -> Self {
        MemoryBudget { segment, timeout }
    }

    /// Reserves `bytes` bytes. No other rank takes part. A job of one rank has no budget.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when too little is left; [`Error::Timeout`] as [`Segment::allocate`].
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, Error> {
        let segment = self.segment.clone();
        if segment.size() == 1 {
            return Ok(Reservation { grant: None, segment });
        }
        let origin = Origin { parent: 0, serial: 2 };
        let grant = segment.allocate_one(vec![segment.rank()], (0, bytes), origin, self.timeout)?;
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
