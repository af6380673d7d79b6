//! A call that does not block with its communicator, from the start to the return code.

use crate::abi::{Handle, constants};
use crate::call::return_code;
use crate::comm_cache;
use crate::failure::CallResult;
use crate::intercepted::CommEntry;
use crate::prepared::PreparedCall;
use std::ffi::c_int;
use std::sync::Arc;

/// A prepared call of a communicator, whose state lives as long: the communicator of MPI may be freed before the call has ended.
pub struct CommCall {
    pub call: Box<PreparedCall>,
    pub comm: Handle,
    pub entry: Arc<CommEntry>,
}

impl CommCall {
    /// Returns the return code of the call; a failure is reported to the communicator.
    pub fn return_code(&self, result: CallResult) -> c_int {
        // The error handler of a communicator that was freed is unknown.
        let comm = if comm_cache::is_state(self.comm, &self.entry) { self.comm } else { constants().world };
        return_code(self.call.function, comm, result)
    }

    /// Returns the return code of the call, which has ended and is kept for another one if it was successful.
    pub fn end(mut self, result: CallResult) -> c_int {
        let code = self.return_code(result);
        if code == 0 && self.call.key.is_some() && self.call.forget_buffers().is_ok() {
            self.entry.kept_calls.put(self.call);
        }
        code
    }
}
