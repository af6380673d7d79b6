//! Calls that are under way in a test, each with what is left to do for it.

use crate::common::mix;

/// The rest of a call: waits and checks.
pub type Rest<'c> = Box<dyn FnOnce() + 'c>;

/// Does the rest of every call, in another order than they were started: that of the seed.
pub fn finish_in_another_order(mut open: Vec<Rest<'_>>, seed: u64) {
    while !open.is_empty() {
        let next = mix(seed ^ (open.len() as u64 * 64)) as usize % open.len();
        open.swap_remove(next)();
    }
}
