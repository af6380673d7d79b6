//! Progress of started calls of several nodes from elsewhere: by the progress engine, and at the communicator's end.

use super::super::{Hierarchy, State};
use earlybird_shm::engine::{Drive, Handle};
use std::sync::TryLockError;
use std::thread;

impl Drive for Hierarchy {
    fn drive(&self) -> bool {
        match self.started.queue.try_lock() {
            Ok(_) if self.started.deliver.is_forked() => false,
            Ok(mut queue) => {
                let was_here_last = queue.user == Some(thread::current().id());
                let may = |state: &mut State| state.plans.transport_mut().may_be_driven(was_here_last);
                if self.lock().is_ok_and(|mut state| may(&mut state)) {
                    self.advance(&mut queue);
                }
                !queue.is_settled()
            }
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(_)) => false,
        }
    }
}

/// The nodes of a communicator, whose started calls end with it.
#[derive(Debug)]
pub(crate) struct MultiNodeComm(Handle<Hierarchy>);

impl MultiNodeComm {
    pub fn new(between: Hierarchy) -> Self {
        MultiNodeComm(Handle::new(between))
    }
}

impl std::ops::Deref for MultiNodeComm {
    type Target = Handle<Hierarchy>;

    fn deref(&self) -> &Handle<Hierarchy> {
        &self.0
    }
}

impl Drop for MultiNodeComm {
    fn drop(&mut self) {
        self.0.end_started();
    }
}
