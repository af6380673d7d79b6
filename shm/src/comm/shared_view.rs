//! Results that all ranks share: the memory they lie in, who still reads them, and the views that do.
//!
//! Invariants, relied on by every block here:
//!
//! * **H (held)**: the memory of a place is written only in an operation in which no rank said that it still reads there, and
//!   this rank says so as long as a view holds the place. It is mapped as long as the communicator lives, which the view
//!   borrows. No rank reads a draft; only rank 0 writes to one, before it gives the others the word without which they make no
//!   view of it.
//! * **V (values)**: all `count` elements were written as the result of an operation on `T`.
#![allow(unsafe_code)]

use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::args::{CallOptions, CollectiveArgs, Counts};
use crate::op::{Element, Op};
use crate::protocol::board::{Board, Place};
use crate::protocol::collective::Collective;
use crate::protocol::payload::Buffers;
use crate::protocol::shared_result::SharedResult;
use crate::reduce_op::ReduceOp;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// Smaller results are copied: less than telling each other where they lie.
const SHARED_MIN_BYTES: usize = 2 << 10;

/// A result of [`NodeComm::all_reduce_shared`], to read: `[T]`. `Send` and `Sync`, as a `&[T]` is.
#[must_use = "the result can be read through the view only"]
pub struct SharedView<'c, T> {
    at: *const T,
    count: usize,
    kept: Kept<T>,
    comm: PhantomData<&'c NodeComm>,
}

/// What keeps the memory of a view.
enum Kept<T> {
    /// The place that is not written while this exists.
    Place(#[expect(dead_code, reason = "counted, not read")] Arc<()>),
    Words(#[expect(dead_code, reason = "read through its address")] Vec<u64>),
    Elements(#[expect(dead_code, reason = "read through its address")] Vec<T>),
}

// SAFETY: H: what a view reads is not written while it lives, so it is as good as a `&[T]` or a `Vec<T>`.
unsafe impl<T: Element> Send for SharedView<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for SharedView<'_, T> {}

impl<'c, T: Element> SharedView<'c, T> {
    /// A view of a result that only this rank has.
    pub fn copied(result: Vec<T>) -> SharedView<'c, T> {
        SharedView { at: result.as_ptr(), count: result.len(), kept: Kept::Elements(result), comm: PhantomData }
    }

    fn words(mut words: Vec<u64>, count: usize) -> SharedView<'c, T> {
        SharedView { at: words.as_mut_ptr().cast_const().cast(), count, kept: Kept::Words(words), comm: PhantomData }
    }

    /// Whether this rank has a copy of its own, and not a view of the one result.
    pub fn is_copy(&self) -> bool {
        !matches!(self.kept, Kept::Place(_))
    }
}

impl<T: Element> Deref for SharedView<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: H, V: mapped, aligned to a page or as `T`, and not written while `self` lives.
        unsafe { std::slice::from_raw_parts(self.at, self.count) }
    }
}

impl<T: Element> fmt::Debug for SharedView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedView").field("count", &self.count).field("is_copy", &self.is_copy()).finish()
    }
}

/// A result of [`NodeComm::all_reduce_draft`], which no rank reads before rank 0 publishes it.
#[derive(Debug)]
pub struct Draft<'c, T: Element> {
    comm: &'c NodeComm,
    view: SharedView<'c, T>,
}

impl<'c, T: Element> Draft<'c, T> {
    /// The result, for rank 0 to change.
    pub fn edit(&mut self) -> Option<&mut [T]> {
        match self.comm.rank {
            // SAFETY: H: this is rank 0 and the draft is not published; V: what is there is a `T`, and what is written too.
            // The address comes from one that may be written to, and nothing else of this process points there.
            0 => Some(unsafe { std::slice::from_raw_parts_mut(self.view.at.cast_mut(), self.view.count) }),
            _ => None,
        }
    }

    /// Gives all ranks what rank 0 has made of it: a view of the one result, or a copy where they have copies.
    ///
    /// # Errors
    /// The errors of [`NodeComm::execute`].
    pub fn publish(self, options: CallOptions) -> Result<SharedView<'c, T>, Error> {
        if !self.view.is_copy() {
            // What rank 0 wrote is there when its word is.
            self.comm.execute(CollectiveArgs::broadcast(0, &mut [0u8][..]).options(options))?;
            return Ok(self.view);
        }
        // SAFETY: V; a copy is this rank's own.
        let copy = unsafe { std::slice::from_raw_parts_mut(self.view.at.cast_mut(), self.view.count) };
        self.comm.execute(CollectiveArgs::broadcast(0, copy).options(options))?;
        Ok(self.view)
    }
}

impl NodeComm {
    /// Reduces `send` of all ranks into one result that all of them read where it lies. Folded by rank in either order.
    ///
    /// The memory belongs to the group and comes out of the node's budget: at most two results, each as large as the largest
    /// call that used it, until the group goes. A result is not written while some rank has a view of it: when both places are
    /// held by views, when the budget has no room, and for less than 2 KiB, every rank gets a copy of its own.
    ///
    /// # Errors
    /// The errors of [`NodeComm::execute`].
    pub fn all_reduce_shared<T: Element>(
        &self,
        send: &[T],
        op: Op,
        options: CallOptions,
    ) -> Result<SharedView<'_, T>, Error> {
        self.reduce_into_view(send, op, options)
    }

    /// The same, but rank 0 changes the result before anybody reads it: [`Draft::edit`], [`Draft::publish`].
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_shared`].
    pub fn all_reduce_draft<T: Element>(
        &self,
        send: &[T],
        op: Op,
        options: CallOptions,
    ) -> Result<Draft<'_, T>, Error> {
        let view = self.reduce_into_view(send, op, options)?;
        Ok(Draft { comm: self, view })
    }

    fn reduce_into_view<T: Element>(
        &self,
        send: &[T],
        op: Op,
        options: CallOptions,
    ) -> Result<SharedView<'_, T>, Error> {
        T::DTYPE.must_have(op)?;
        let state = &mut *self.lock()?;
        let (bytes, count) = (size_of_val(send), send.len());
        let args = |buffers| CollectiveArgs {
            collective: Collective::AllReduce,
            op: ReduceOp::Builtin(op),
            root: None,
            counts: Counts::Uniform,
            buffers,
            options,
        };
        let mut memory = std::mem::take(&mut state.results.spare);
        if self.size == 1 || bytes < SHARED_MIN_BYTES {
            self.execute_in(state, args(Buffers::into_memory(send, &mut memory)))?;
            return Ok(SharedView::words(memory, count));
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
        let done = self.execute_in(state, args(Buffers::into_memory(send, &mut memory).shared(&shared)));
        let taken = state.results.settle(&shared, offered_bytes);
        done?;
        let Some(place) = taken else { return Ok(SharedView::words(memory, count)) };
        state.results.spare = memory;
        let lent =
            state.results.places[place].as_ref().ok_or_else(|| Error::Poisoned { cause: "a lost result".into() })?;
        let at = Place::Registered { rank: 0, result: true, piece: 0, offset: 0, bytes };
        Ok(SharedView {
            at: state.member.board.write(at, |at| at.cast_const().cast()),
            count,
            kept: Kept::Place(lent.views.clone()),
            comm: PhantomData,
        })
    }
}
