//! Calls on buffers in shared memory, which the other ranks reduce where they lie.

use super::node_comm::{NodeComm, NodeState};
use super::registered_buffers::{Uses, names};
use crate::Error;
use crate::checked_args::CheckedArgs;
use crate::op::Element;
use crate::shared_buffer::{Allocations, SharedBuffer};

/// Smaller messages go through the lines of the group, which costs less than mapping the other ranks' buffers.
pub(super) const REGISTERED_MIN_BYTES: usize = 8 << 10;

impl NodeComm {
    /// A buffer of `count` zeros in shared memory. This rank alone takes part. Costs mapping and faulting in its pages.
    ///
    /// # Errors
    /// [`Error::NoSpace`] before anything is used, when the budget or the node has not enough left or the buffer is larger
    /// than one allocation can be; [`Error::Timeout`] when another process is stopped while it holds the lock of the pool.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<SharedBuffer<T>, Error> {
        let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let Some(bytes) = bytes else {
            return Err(Error::usage(format!("a buffer of {count} elements exceeds the address space")));
        };
        let allocation = self.segment.allocate_buffer(bytes, self.lock()?.timeout())?;
        Ok(SharedBuffer::new(allocation, count))
    }

    /// Carries out a call on registered buffers. They are reduced where they lie, in rank order whatever the caller's `FoldOrder`;
    /// or as private memory by [`Algorithm::Chain`](crate::Algorithm), if that was chosen or `auto` runs oversubscribed.
    pub(super) fn execute_registered(
        &self,
        state: &mut NodeState,
        checked: CheckedArgs<'_>,
        buffers: Allocations<'_>,
    ) -> Result<(), Error> {
        let is_registered = checked.selecting_bytes() >= REGISTERED_MIN_BYTES;
        let group = self.group_info.allocation.filter(|_| is_registered);
        let uses = Uses::begin(&buffers, &self.segment, group)?;
        let checked = if is_registered { checked.registered(names(&buffers)) } else { checked };
        let result = self.execute_checked_in(state, checked);
        if result.is_ok() || state.member.failure().is_none() {
            uses.end(&buffers);
        }
        if !matches!(result, Ok(()) | Err(Error::Usage { .. } | Error::Unsupported { .. })) {
            // Ranks that have entered the call may still write there; their reads spoil at most their own failed results.
            buffers.1.detach()?;
        }
        result
    }
}
