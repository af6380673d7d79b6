//! The end of a rank's calls over rings: compared with the calls of those ranks that have closed the communicator before.

use super::rings::Rings;
use crate::protocol::word;
use crate::sync::SyncPoint;

impl Rings {
    /// Leaves the number of this rank's calls and their history hash behind. Returns a rank that has closed after other
    /// calls. Does not wait: of two ranks that close at once, at least one sees the other's.
    pub fn close(&self, calls: u64, history: u32) -> Option<usize> {
        // one more: 0 is a rank that has not closed
        let mine = word::ended(calls + 1, history);
        self.board.state(self.rank).closed.store(mine, SyncPoint::CallRelease.order());
        SyncPoint::EndFence.fence();
        let differs = |rank: &usize| {
            let theirs = self.board.state(*rank).closed.load(SyncPoint::CallAcquire.order());
            theirs != 0 && theirs != mine
        };
        (0..self.size).find(differs)
    }
}
