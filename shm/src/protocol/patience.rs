//! Settings of waiting: how long a rank spins and yields before it sleeps, adapted to the mean of its own waits.

use crate::config::WaitPreset;

/// The settings of a rank's waits, and the mean wait so far.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The preset in force.
    pub preset: WaitPreset,
    /// True if there are more ranks than CPUs that they may use.
    pub oversubscribed: bool,
    /// Deadline of one wait; `None` waits for ever (deaths are noticed all the same).
    pub timeout_ns: Option<u64>,
    /// Running mean of this rank's own long waits.
    pub mean_wait_ns: u64,
}

pub(super) mod pace {
    use super::Patience;

    /// Polls without a pause, then polls with one, while every rank has a CPU of its own: about 2 and 60 us.
    #[cfg(not(earlybird_loom))]
    pub const fn looks() -> [u32; 2] {
        [400, 1500]
    }
    /// The polls in a model: none, unless the model is about spinning.
    #[cfg(earlybird_loom)]
    pub fn looks() -> [u32; 2] {
        [crate::model::spins(); 2]
    }
    /// Time of the first inspection of the peers, and the longest interval between two.
    pub const INSPECT_FIRST_NS: u64 = 1_000_000;
    pub const INSPECT_MOST_NS: u64 = 100_000_000;

    /// The next step of a wait that lasts.
    pub enum Next {
        Yield,
        Sleep,
    }

    impl Patience {
        pub(in crate::protocol) fn next(&self, waited_ns: u64) -> Next {
            let yields = waited_ns < self.preset.yield_ns(self.oversubscribed, self.mean_wait_ns);
            if yields { Next::Yield } else { Next::Sleep }
        }

        /// Sleep between two polls of a wait that takes long: an eighth of the wait so far, from 50 us to 1 ms.
        pub(in crate::protocol) fn backoff_ns(waited_ns: u64) -> u64 {
            (waited_ns / 8).clamp(50_000, 1_000_000)
        }

        /// Updates the mean with a wait that a peer's wake-up ended.
        pub(in crate::protocol) fn learn(&mut self, waited_ns: u64) {
            self.mean_wait_ns = (7 * self.mean_wait_ns + waited_ns) / 8;
        }
    }
}
