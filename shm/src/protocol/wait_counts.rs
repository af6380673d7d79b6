//! How much a rank has done and how often it has looked in vain: the word that it publishes while it waits (`stuck.rs`). Both counts
//! only grow, so no two waits of a rank have one word.

/// The counts of one rank.
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub struct WaitCounts {
    /// The waits that the rank has begun, and the changes that others may wait for.
    moves: u32,
    looks: u32,
}

impl WaitCounts {
    /// Counts a wait that begins, or a change that others may wait for.
    #[inline(always)]
    pub fn moved(&mut self) {
        self.moves = self.moves.wrapping_add(1);
    }

    /// The number of waits and changes so far.
    pub fn moves(&self) -> u32 {
        self.moves
    }

    /// Counts an unsuccessful look. Returns the word to publish.
    #[cfg(not(earlybird_loom))]
    pub fn looked(&mut self) -> u64 {
        self.looks = self.looks.wrapping_add(1);
        u64::from(self.moves) << 32 | u64::from(self.looks)
    }
}
