//! Buffers in shared memory and the reductions that work in them.

use super::Communicator;
use crate::{Element, Error, Op, SharedBuffer};
use earlybird_shm::Collective;

impl Communicator {
    /// A buffer of `count` zeros in memory that all ranks of the node reach, for
    /// [`Communicator::all_reduce_shared_in_place`]; for its owner it is a `[T]` like any other. This rank alone calls it.
    ///
    /// It may be used in every communicator of the job and takes its bytes, whole pages, out of their common budget
    /// ([`Config::arena_max_bytes`](crate::Config)) until it is dropped. Costs some microseconds and faulting in its pages;
    /// the others map it when it is first used.
    ///
    /// # Errors
    /// [`Error::NoSpace`], before anything is used, for what the budget, the node, or the largest single buffer cannot hold:
    /// 132 MiB and 2 MiB per rank beyond the second.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<SharedBuffer<T>, Error> {
        self.node.alloc(count)
    }

    /// As [`Communicator::all_reduce_in_place`] on buffers of [`Communicator::alloc`]: every rank gives one, and the data
    /// are folded where they lie. Nothing is copied in or out, and no other shared memory is used, whatever the size. The
    /// fold is by rank in either order, so it is reproducible. On several nodes it is the same call as
    /// [`Communicator::all_reduce_in_place`]: copied as private memory is.
    ///
    /// ```
    /// let comm = earlybird::Communicator::from_env()?;
    /// let mut gradient = comm.alloc::<f32>(1 << 16)?;
    /// gradient.fill(0.5);
    /// comm.all_reduce_shared_in_place(&mut gradient, earlybird::Op::Average)?;
    /// assert_eq!(gradient[7], 0.5);
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Usage`] for a buffer of another job; [`Error::Mismatch`] where
    /// another rank gives private memory. After an error that others may see the buffer holds zeros.
    pub fn all_reduce_shared_in_place<T: Element>(&self, buffer: &mut SharedBuffer<T>, op: Op) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.all_reduce(None, &mut **buffer, op);
        }
        let how = self.how(Collective::AllReduce, size_of_val(&**buffer))?;
        self.done(self.node.all_reduce_shared_in_place(buffer, op, how))
    }

    /// As [`Communicator::all_reduce_shared_in_place`] with the result in another buffer of the same length.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_shared_in_place`]; [`Error::Usage`] for unequal lengths.
    pub fn all_reduce_shared_into<T: Element>(
        &self,
        send: &SharedBuffer<T>,
        recv: &mut SharedBuffer<T>,
        op: Op,
    ) -> Result<(), Error> {
        if let Some(across) = self.across() {
            return across.all_reduce(Some(&**send), &mut **recv, op);
        }
        let how = self.how(Collective::AllReduce, size_of_val(&**send))?;
        self.done(self.node.all_reduce_shared_into(send, recv, op, how))
    }
}
