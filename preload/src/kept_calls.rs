//! Calls that have ended, still prepared: the next call of their communicator that differs in nothing but its buffers' addresses starts
//! one of them again, since preparing takes half of the instructions of a small call that does not block.

use crate::description::{Lengths, StartDescription};
use crate::prepared::PreparedCall;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest number of calls that a communicator keeps.
const MOST: usize = 8;

/// The calls that a communicator keeps, in the order in which they ended.
#[derive(Default)]
pub struct KeptCalls(Mutex<VecDeque<Box<PreparedCall>>>);

impl KeptCalls {
    fn calls(&self) -> MutexGuard<'_, VecDeque<Box<PreparedCall>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that was prepared as this one on buffers of these lengths.
    pub fn take(&self, call: &StartDescription<'_>, lengths: Lengths) -> Option<Box<PreparedCall>> {
        let mut calls = self.calls();
        let fits = |kept: &PreparedCall| kept.key.as_ref().is_some_and(|key| call.has_key(lengths, key));
        let at = calls.iter().rposition(|kept| fits(kept))?;
        calls.remove(at)
    }

    /// Keeps a call that has ended, in place of the first where there is no room.
    pub fn put(&self, call: Box<PreparedCall>) {
        let mut calls = self.calls();
        if calls.len() == MOST {
            calls.pop_front();
        }
        calls.push_back(call);
    }
}
