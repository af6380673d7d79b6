//! Ranks that join and leave, run by loom: the shipping lines of `memory/control.rs` and `memory/liveness_word.rs`. What the
//! kernel does, passing descriptors and marking the word of a thread that ends, is taken for ordered as it promises.

use super::words;
use crate::Error;
use crate::memory::control::{ATTACHED, Control, DETACHED, Identity};
use crate::memory::liveness_word::LivenessState;
use crate::sync::Ordering;
use loom::cell::UnsafeCell;
use std::rc::Rc;
use std::time::Duration;

/// The complaint about a rank whose entry is not seen as it was written.
pub const WRONG_ENTRY: &str = "wrong entry of rank";
/// The panic message about a rank that got another error than the first one.
pub const WRONG_ERROR: &str = "an error that nobody has given";
/// The complaint about a dead rank of which another witness cannot be asked.
pub const UNKNOWN_OWNER: &str = "the owner thread of a dead rank is not known";

/// The error of a rank that sees a death.
pub const DEATH: &str = "died";

const SETTINGS: u64 = 5;

fn identity(rank: usize) -> Identity {
    let number = 100 + rank as u64;
    Identity { pid: number as u32, pid_namespace: 2 * number, start_ticks: 3 * number }
}

fn affinity(rank: usize) -> u64 {
    1 << rank
}

/// The number of the thread that owns a rank's word.
fn owner(rank: usize) -> u32 {
    7 + rank as u32
}

struct SharedControl {
    ranks: usize,
    control: Control,
    /// Memory that all ranks can write.
    memory: UnsafeCell<()>,
}

/// A control segment that modelled ranks share.
pub struct ControlModel(Rc<SharedControl>);

impl ControlModel {
    /// A fresh one, for `ranks` ranks.
    pub fn new(ranks: usize) -> Self {
        words::reset(ranks);
        ControlModel(Rc::new(SharedControl { ranks, control: Control::default(), memory: UnsafeCell::new(()) }))
    }

    /// A copy to move into another thread.
    pub fn share(&self) -> Self {
        ControlModel(self.0.clone())
    }

    fn claim_and_attach(&self, rank: usize) {
        words::enter(rank);
        self.0.control.claim(rank, identity(rank), [affinity(rank)], [SETTINGS]);
        self.0.control.announce(rank, ATTACHED);
    }

    fn check_entries(&self) {
        for (rank, entry) in self.0.control.entries.iter().enumerate().take(self.0.ranks) {
            let found = (entry.identity(), entry.affinity[0].load(Ordering::Relaxed));
            assert_eq!(found, (identity(rank), affinity(rank)), "{WRONG_ENTRY} {rank}");
        }
        assert_eq!(self.0.control.policy[0].load(Ordering::Relaxed), SETTINGS, "{WRONG_ENTRY} 0: its settings");
    }

    /// Rank 0 waits for the others and ends the rendezvous.
    pub fn host(&self) {
        self.claim_and_attach(0);
        words::poll(|| self.0.control.is_complete(self.0.ranks).then_some(()));
        self.check_entries();
        self.0.control.end_rendezvous();
    }

    /// Another rank joins.
    pub fn join(&self, rank: usize) {
        self.claim_and_attach(rank);
        let never = || self.0.control.failure().map_or(Ok(Duration::MAX), Err);
        self.0.control.until_over(never).expect("nobody has failed");
        self.check_entries();
    }

    /// Rank `rank` finds an error of its own; returns the one that stands.
    pub fn fail(&self, rank: usize) -> Error {
        words::enter(rank);
        self.0.control.fail(rank, &Error::usage(rank.to_string()), None)
    }

    /// Waits as rank `rank` in a rendezvous that fails; returns the error of another rank.
    pub fn join_in_vain(&self, rank: usize) -> Error {
        words::enter(rank);
        let failed = || self.0.control.failure().map_or(Ok(Duration::MAX), Err);
        self.0.control.until_over(failed).expect_err("the rendezvous fails")
    }

    /// Rank `rank` has an error of its own, and its process ends while it writes it.
    pub fn die_failing(&self, rank: usize) {
        words::enter(rank);
        self.0.control.own(rank, owner(rank));
        assert!(self.0.control.begin_failure(rank, None), "nobody else has an error");
        self.0.control.living[rank].end_of_owner(owner(rank));
    }

    /// Rank 0 waits for the death of rank `dead` and fails; returns the error that stands. `knows` is false for a wrong protocol,
    /// in which the half-written error of a dead rank is never replaced.
    pub fn host_in_vain(&self, dead: usize, knows: bool) -> Error {
        words::enter(0);
        words::poll(|| self.is_gone(dead).then_some(()));
        self.0.control.fail(0, &Error::usage(DEATH), knows.then_some(dead))
    }

    /// Rank 0 ends the rendezvous and leaves at once.
    pub fn host_and_leave(&self) {
        self.host();
        self.0.control.living[0].leave();
    }

    /// Rank `rank` joins, and looks whether rank 0, which brings the ranks together, is gone before they have met.
    pub fn join_watching(&self, rank: usize) -> Result<(), Error> {
        self.claim_and_attach(rank);
        let control = &self.0.control;
        control.until_over(|| {
            // A change of what is read from here on ends the sleep, as its time does where there are clocks.
            words::start(rank);
            if let Some(error) = control.failure() {
                return Err(error);
            }
            match self.is_gone(0) && !control.is_over() {
                true => Err(control.fail(rank, &Error::usage(DEATH), Some(0))),
                false => Ok(Duration::from_millis(200)),
            }
        })
    }

    fn is_gone(&self, rank: usize) -> bool {
        matches!(self.0.control.living[rank].state(), LivenessState::Left | LivenessState::OwnerDied)
    }

    /// Rank `rank` uses the memory and leaves in order.
    pub fn leave(&self, rank: usize) {
        words::enter(rank);
        self.0.control.own(rank, owner(rank));
        self.0.memory.with_mut(|_| ());
        self.0.control.announce(rank, DETACHED);
        self.0.control.living[rank].leave();
    }

    /// The process of rank `rank` ends.
    pub fn die(&self, rank: usize) {
        words::enter(rank);
        self.0.control.own(rank, owner(rank));
        self.0.control.living[rank].end_of_owner(owner(rank));
    }

    /// Rank 0 looks once at rank `rank`; returns whether that is gone. The memory of one that has left is free then.
    pub fn look_at(&self, rank: usize) -> bool {
        words::enter(0);
        match self.0.control.living[rank].state() {
            LivenessState::Left => {
                self.0.memory.with_mut(|_| ());
                assert_eq!(self.0.control.state(rank), DETACHED, "a rank that left in order is taken for dead");
                true
            }
            LivenessState::OwnerDied => {
                let found = self.0.control.entries[rank].owner.load(Ordering::Relaxed);
                assert_eq!(found, u64::from(owner(rank)), "{UNKNOWN_OWNER}");
                true
            }
            _ => false,
        }
    }
}
