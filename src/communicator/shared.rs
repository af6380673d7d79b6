//! Buffers in shared memory and the reductions that work in them.

use super::Communicator;
use crate::{CollectiveArgs, Element, Error, Op, SharedBuffer, SharedView};

impl Communicator {
    /// Reduces `send` of all ranks into one result, which all of them read where it lies: nobody copies it out, and it takes
    /// its memory once and not once per rank. Folded by rank in either order, so it is reproducible.
    ///
    /// **What holds the memory.** It belongs to this communicator and comes out of the budget of the node
    /// ([`Config::arena_max_bytes`](crate::Config)): at most two results, each as large as the largest one that lay there,
    /// until the communicator is dropped on all ranks. A result does not change while this rank has a view of it, whatever
    /// this and other ranks call meanwhile; the view borrows the communicator.
    ///
    /// **A view stops nobody.** No rank waits for a view to be dropped. When views are held of both results, by whichever
    /// ranks, or the budget has no room, every rank receives a copy of its own instead: [`SharedView::is_copy`]. So it does for
    /// less than 2 KiB, by an operator of the caller's own, and on one node where a plan was chosen. Drop views before the call after the next.
    ///
    /// **Several nodes.** Each node has one result of its own, with the same bits, and everything said above goes for each
    /// node by itself: a rank that is alone on its node, and every rank for an average of a half type, has a copy. The data are
    /// folded by rank in each node, then between the nodes as in [`Communicator::all_reduce_into`], not segment by segment.
    ///
    /// ```
    /// let comm = earlybird::Communicator::from_env()?;
    /// let sums = comm.all_reduce_shared(&[1.5f64; 1000], earlybird::Op::Sum)?;
    /// comm.barrier()?; // other calls go on
    /// assert!(sums.iter().all(|x| *x == 1.5));
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// Cost after the last arrival: its deposit and a fold of all ranks' data shared among those present. A result of a new
    /// size is borrowed and faulted in first.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into`]; [`Error::Mismatch`] where another rank asks for a result of its own.
    pub fn all_reduce_shared<T: Element>(&self, send: &[T], op: Op) -> Result<SharedView<'_, T>, Error> {
        let mut view = self.view();
        self.run(CollectiveArgs::all_reduce((send, &mut view), op))?;
        Ok(view)
    }

    /// A view of no elements yet, for the result of a call of this communicator that is described by
    /// `CollectiveArgs::all_reduce((send, &mut view), op)`.
    #[doc(hidden)]
    pub fn view<T: Element>(&self) -> SharedView<'_, T> {
        self.node.view()
    }

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
    /// are folded where they lie: nothing is copied in or out, and no other shared memory is used, whatever the size. The
    /// fold is by rank in either order, so it is reproducible.
    ///
    /// Where ranks outnumber the CPUs copying is faster, and unless [`FoldOrder::Rank`](crate::FoldOrder) shows in the bits
    /// the first to arrive takes [`Algorithm::Chain`](crate::Algorithm), as for private memory: in order of arrival.
    /// [`Communicator::set_algorithm`] with `Slices` keeps the fold where the data lie, with `Chain` the copies everywhere.
    /// On several nodes it is the same call as [`Communicator::all_reduce_in_place`]: copied as private memory is.
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
        self.run(CollectiveArgs::all_reduce(buffer, op))
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
        self.run(CollectiveArgs::all_reduce((send, recv), op))
    }
}
