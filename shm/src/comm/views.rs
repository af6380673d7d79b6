//! Allreduces with one shared result per node: reduced into memory that all ranks read, if there is any, else into a copy each.
//!
//! Invariants **H (held)** and **V (values)** of [`crate::shared_view`]: this file takes the places from the group's results, and
//! publishes in each call which places this rank still reads. No rank reads a draft; only rank 0 writes to one, before the
//! broadcast after which the others make their views of it.
#![allow(unsafe_code)]

use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::args::{CallOptions, CollectiveArgs, Placement};
use crate::checked_args::CheckedArgs;
use crate::op::{DType, Datatype, Element};
use crate::protocol::board::{Board, Place};
use crate::protocol::shared_result::SharedResult;
use crate::reduce_op::ReduceOp;
use crate::shared_view::{SharedView, ViewMemory};

/// Smaller results are copied, which costs less than agreeing on a place.
const SHARED_MIN_BYTES: usize = 2 << 10;

/// A shared result that no rank reads before rank 0 publishes it.
#[derive(Debug)]
pub struct Draft<'a> {
    comm: &'a NodeComm,
    result: ViewMemory,
    datatype: Datatype,
    /// The view that is to show it.
    view: &'a mut ViewMemory,
}

impl Draft<'_> {
    /// The bytes of the result, for rank 0 to change.
    pub fn edit(&mut self) -> Option<&mut [u8]> {
        // SAFETY: H: this is rank 0, and the draft is not published.
        (self.comm.rank == 0).then(|| unsafe { self.result.edit() })
    }

    /// Gives all ranks the result as rank 0 has changed it: the one result, or a copy where they have copies.
    ///
    /// # Errors
    /// The errors of [`NodeComm::execute`].
    pub fn publish(mut self, options: CallOptions) -> Result<(), Error> {
        if let (Datatype::Builtin(DType::Bool), Some(bytes)) = (self.datatype, self.edit()) {
            // V: not every byte is a `bool`.
            bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        let mut token = [0];
        let bytes = match self.result.is_copy() {
            // SAFETY: a copy is this rank's own.
            true => unsafe { self.result.edit() },
            // Rank 0's writes are visible once its broadcast is.
            false => &mut token[..],
        };
        self.comm.execute(CollectiveArgs::broadcast(0, bytes).options(options))?;
        *self.view = self.result;
        Ok(())
    }
}

impl NodeComm {
    /// A view of no elements yet, for the result of an allreduce of this communicator:
    /// `CollectiveArgs::all_reduce((send, &mut view), op)`. Folded in rank order whatever the `FoldOrder`. The view's previous
    /// result is released first.
    ///
    /// The memory belongs to the group and comes out of the node's budget: at most two results, each as large as the largest
    /// call that used it, until the group goes. A result is not written while some rank has a view of it: when both places are
    /// held by views, when the budget has no room, for less than 2 KiB, and by a user's operator, every rank gets a copy of its
    /// own.
    pub fn view<T: Element>(&self) -> SharedView<'_, T> {
        SharedView::empty(self)
    }

    /// Checks the arguments of an allreduce into a view for [`NodeComm::execute_draft`].
    ///
    /// # Errors
    /// The errors of [`CollectiveArgs::check`]; [`Error::Usage`] for a view of another communicator.
    pub fn check_draft<'a>(&self, args: CollectiveArgs<'a>) -> Result<CheckedArgs<'a>, Error> {
        match &args.placement {
            Placement::SharedResult(view) => self.must_make(view)?,
            _ => return Err(Error::usage("a draft of a result that no view is to show; give a view")),
        }
        args.check(self.rank, self.size)
    }

    /// Carries out an allreduce into a view, whose result rank 0 may change before the ranks can read it: [`Draft::edit`], then
    /// [`Draft::publish`].
    ///
    /// # Errors
    /// The errors of [`NodeComm::execute`].
    pub fn execute_draft<'a>(&'a self, mut checked: CheckedArgs<'a>) -> Result<Draft<'a>, Error> {
        let Placement::SharedResult(view) = checked.take_placement() else { unreachable!("checked for a draft") };
        let datatype = checked.datatype();
        let result = self.execute_into_view(&mut *self.lock()?, checked, view)?;
        Ok(Draft { comm: self, result, datatype, view })
    }

    /// Carries out an allreduce into `view`, and returns the view's new memory.
    pub(super) fn execute_into_view(
        &self,
        state: &mut NodeState,
        checked: CheckedArgs<'_>,
        view: &mut ViewMemory,
    ) -> Result<ViewMemory, Error> {
        self.must_make(view)?;
        view.clear();
        let comm = std::ptr::from_ref(self).cast();
        let bytes = checked.selecting_bytes();
        let memory = match std::mem::take(&mut state.results.spare) {
            spare if size_of_val(&spare[..]) >= bytes => spare,
            _ => vec![0; bytes.div_ceil(8)],
        };
        // Not touched where the result is shared.
        let mut result = ViewMemory::copy(comm, memory, bytes);
        // SAFETY: a copy is this rank's own.
        let checked = checked.received_in(unsafe { result.edit() });
        if self.size == 1 || bytes < SHARED_MIN_BYTES || matches!(checked.op(), ReduceOp::User(_)) {
            self.execute_checked_in(state, checked)?;
            return Ok(result);
        }
        let (offer, offered_bytes) = match self.rank {
            0 => {
                let timeout = state.timeout();
                let NodeState { member, results, .. } = &mut *state;
                results.offer(&member.board, bytes, timeout)
            }
            _ => ((0, 0), 0),
        };
        let shared = SharedResult::new(state.results.held(), offer, bytes);
        let done = self.execute_checked_in(state, checked.shared(&shared));
        let taken = state.results.settle(&shared, offered_bytes);
        done?;
        let Some(place) = taken else { return Ok(result) };
        let place = state.results.places[place].as_ref();
        let views = place.ok_or_else(|| Error::Poisoned { cause: "a lost result".into() })?.views.clone();
        state.results.spare = result.into_words();
        let at = Place::Registered { rank: 0, result: true, piece: 0, offset: 0, bytes };
        // SAFETY: H: the place is held from here on, and the board maps it as long as this communicator lives.
        Ok(state.member.board.write(at, |at| unsafe { ViewMemory::place(comm, at, bytes, views) }))
    }

    /// Refuses a view that does not borrow this communicator.
    fn must_make(&self, view: &ViewMemory) -> Result<(), Error> {
        match view.borrows(std::ptr::from_ref(self).cast()) {
            true => Ok(()),
            false => Err(Error::usage("the view was made by another communicator; give one of the one that is called")),
        }
    }
}
