//! Views of an allreduce's result: the one that all ranks of a node share, or this rank's own copy.
//!
//! Invariants, relied on by every block here:
//!
//! * **H (held)**: the memory of a place is written only in an operation in which no rank has marked the place as held, and this
//!   rank marks it as long as a view reads it. The memory is mapped as long as the communicator lives, which the view borrows:
//!   a place comes only from the communicator that the view was made by.
//! * **V (values)**: all bytes were written as the result of an operation on `T`, or are zero, which is a value of every
//!   [`Element`].
#![allow(unsafe_code)]

use crate::op::Element;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// The result of an allreduce, to read: `[T]`. `Send` and `Sync`, as a `&[T]` is.
#[must_use = "the result can be read through the view only"]
pub struct SharedView<'c, T> {
    pub(crate) memory: ViewMemory,
    borrowed: PhantomData<(&'c (), T)>,
}

/// The memory of a view, without the type of its elements.
#[derive(Debug)]
pub(crate) struct ViewMemory {
    at: *const u8,
    bytes: usize,
    kept: Kept,
    /// The address of the communicator that the view borrows; only compared.
    comm: *const (),
}

/// The memory that a view holds.
#[derive(Debug)]
enum Kept {
    /// The place that is not written while this exists.
    Place(#[expect(dead_code, reason = "counted, not read")] Arc<()>),
    /// A copy, as long as the result or longer.
    Copy(Vec<u64>),
}

// SAFETY: H: what a view reads is not written while it lives, so it is as good as a `&[u8]` or a `Vec<u64>`.
unsafe impl Send for ViewMemory {}
// SAFETY: as above.
unsafe impl Sync for ViewMemory {}

impl ViewMemory {
    /// The view of no elements, for results of the communicator at `comm`.
    fn empty(comm: *const ()) -> Self {
        Self::copy(comm, Vec::new(), 0)
    }

    /// A view of the first `bytes` of `words`.
    pub(crate) fn copy(comm: *const (), mut words: Vec<u64>, bytes: usize) -> Self {
        assert!(bytes <= size_of_val(&words[..]), "a copy of {bytes} bytes in {} words", words.len());
        ViewMemory { at: words.as_mut_ptr().cast(), bytes, kept: Kept::Copy(words), comm }
    }

    /// A view of the shared result at `at`.
    ///
    /// # Safety
    /// H: as long as `place` is held the `bytes` there are not written; they are mapped as long as the communicator at `comm`
    /// lives.
    pub(crate) unsafe fn place(comm: *const (), at: *const u8, bytes: usize, place: Arc<()>) -> Self {
        ViewMemory { at, bytes, kept: Kept::Place(place), comm }
    }

    /// Returns whether the view borrows the communicator at `comm`.
    pub(crate) fn borrows(&self, comm: *const ()) -> bool {
        core::ptr::eq(self.comm, comm)
    }

    /// Lets go of the result: the view has no elements then.
    pub(crate) fn clear(&mut self) {
        *self = Self::empty(self.comm);
    }

    /// Makes the view one of `bytes` zeros of its own, to be written.
    pub(crate) fn own(&mut self, bytes: usize) -> &mut [u8] {
        *self = Self::copy(self.comm, vec![0; bytes.div_ceil(8)], bytes);
        // SAFETY: V: the words were made here and are borrowed with the view.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast_mut(), bytes) }
    }

    /// The words of a copy.
    pub(crate) fn into_words(self) -> Vec<u64> {
        match self.kept {
            Kept::Place(_) => Vec::new(),
            Kept::Copy(words) => words,
        }
    }

    /// Returns whether the result is this rank's own.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(self.kept, Kept::Copy(_))
    }

    /// The bytes, to be written.
    ///
    /// # Safety
    /// They are this rank's own, or H: no other rank reads them before the result is published.
    pub(crate) unsafe fn edit(&mut self) -> &mut [u8] {
        // SAFETY: by the caller's contract; the address comes from one that may be written to.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast_mut(), self.bytes) }
    }
}

impl<'c, T: Element> SharedView<'c, T> {
    /// The view of no elements, for results of the communicator `comm`.
    pub(crate) fn empty<C>(comm: &'c C) -> Self {
        const { assert!(align_of::<T>() <= align_of::<u64>()) }
        SharedView { memory: ViewMemory::empty(std::ptr::from_ref(comm).cast()), borrowed: PhantomData }
    }

    /// True if this rank has a copy of its own, and not a view of the one result.
    pub fn is_copy(&self) -> bool {
        self.memory.is_copy()
    }
}

impl<T: Element> Deref for SharedView<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: H, V: mapped, aligned to a page or to a word, and not written while `self` lives.
        unsafe { std::slice::from_raw_parts(self.memory.at.cast(), self.memory.bytes / size_of::<T>()) }
    }
}

impl<T: Element> fmt::Debug for SharedView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedView").field("count", &self.len()).field("is_copy", &self.is_copy()).finish()
    }
}
