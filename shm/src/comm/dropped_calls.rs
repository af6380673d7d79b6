//! The started calls whose handles were dropped, perhaps while another thread was in a call, which then could not release them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The numbers of these calls.
#[derive(Debug, Default)]
pub(super) struct DroppedCalls {
    numbers: Mutex<Vec<u64>>,
    /// Set once there are any. It orders nothing: what is not seen in one call is in a later one.
    any: AtomicBool,
}

impl DroppedCalls {
    fn numbers(&self) -> MutexGuard<'_, Vec<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call.
    pub(super) fn add(&self, number: u64) {
        self.numbers().push(number);
        self.any.store(true, Relaxed);
    }

    /// Removes all; costs a load where there are none.
    pub(super) fn take(&self) -> Vec<u64> {
        if self.any.load(Relaxed) && self.any.swap(false, Relaxed) {
            return std::mem::take(&mut self.numbers());
        }
        Vec::new()
    }
}
