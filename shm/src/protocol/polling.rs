//! A caller that polls for the end of a started call looks at its peers now and then, as one that waits does: they may be dead, or in
//! another call.

use super::board::Board;
use super::fault;
use super::operation::{Operation, Stop};

/// The beginning of the polls for one call, and the next inspection of the peers.
#[derive(Debug, Default)]
pub(super) struct Polling {
    begun_ns: Option<u64>,
    next_ns: u64,
    inspection: fault::PeerInspection,
    #[cfg(not(earlybird_loom))]
    proof: super::stuck::Proof,
}

/// Interval between two inspections.
const INSPECT_EVERY_NS: u64 = 1_000_000;

impl Polling {
    /// Returns whether an inspection is due; the first time that it is asked is the beginning.
    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        now_ns - begun_ns >= self.next_ns.max(INSPECT_EVERY_NS)
    }
}

impl<B: Board> Operation<'_, B> {
    /// Fails with the group's error, if there is one, and inspects the peers if an inspection is due.
    pub(super) fn check_peers(&mut self, polling: &mut Polling) -> Result<(), Stop> {
        if let Some(stop) = self.poisoned() {
            return Err(stop);
        }
        let now_ns = self.board.now_ns();
        if !polling.is_due(now_ns) {
            return Ok(());
        }
        let begun_ns = polling.begun_ns.unwrap_or(now_ns);
        polling.next_ns = now_ns - begun_ns + INSPECT_EVERY_NS;
        self.inspect(&mut polling.inspection, begun_ns)?;
        #[cfg(not(earlybird_loom))]
        if self.cannot_end(&mut polling.proof) {
            return Err(self.corrupt());
        }
        Ok(())
    }
}
