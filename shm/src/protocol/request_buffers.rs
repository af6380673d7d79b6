//! Type-erased buffers that a started call owns until it completes.
//!
//! Invariant **D (datatype)**: a call on the datatype of the buffers writes only values of their type to them.
#![allow(unsafe_code)]

use super::payload::Buffers;
use crate::Error;
use crate::op::{DType, Datatype, Element};
use std::any::Any;
use std::fmt;
use std::ops::RangeInclusive;

/// The values that a started call can own: a `Vec<T>` or a `SharedBuffer<T>` for a call in place, `(send, recv)` of two of
/// them, a [`Grouped`], an [`OwnedBytes`], or `()` for a call without data. The completed call returns them.
pub trait BufferOwner: Any + Send {
    /// The buffers, borrowed for a call.
    ///
    /// # Safety
    /// D.
    #[doc(hidden)]
    unsafe fn as_buffers(&mut self, datatype: Datatype) -> Buffers<'_>;

    /// Prepares the buffers; called before each start.
    ///
    /// # Errors
    /// The reason why the buffers cannot be used; then the call is not started.
    #[doc(hidden)]
    fn begin(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Prepares what is sent in a call of these operations, before the first one is entered. `left_by_all` returns the last operation that
    /// every rank has left, with all before it. Returns whether that is done; otherwise it is called again, at the latest once every
    /// rank has left the operation before, and must do it then. Called for those of [`OwnedBuffers::following_operations`] only.
    #[doc(hidden)]
    fn entering(&mut self, operations: RangeInclusive<u64>, left_by_all: &dyn Fn() -> u64) -> bool {
        let _ = (operations, left_by_all);
        true
    }

    /// Uses what was received, after which the rank leaves the last operation. Called as [`BufferOwner::entering`] is.
    #[doc(hidden)]
    fn leaving(&mut self) {}

    /// Finishes the buffers; called with the outcome after each completion. Returns the result for the caller.
    ///
    /// # Errors
    /// The error of the outcome, or one found by comparing the counts of all ranks: the same on all, and the group goes on.
    #[doc(hidden)]
    fn end(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        outcome
    }

    /// The value that the caller passed.
    #[doc(hidden)]
    fn owner(&mut self) -> &mut dyn Any;

    /// Returns the value that the caller passed.
    #[doc(hidden)]
    fn into_owner(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// The `owner` methods of a `BufferOwner` that wraps no other one.
macro_rules! owns_itself {
    () => {
        fn owner(&mut self) -> &mut dyn ::std::any::Any {
            self
        }

        fn into_owner(self: Box<Self>) -> Box<dyn ::std::any::Any + Send> {
            self
        }
    };
}
pub(crate) use owns_itself;

impl BufferOwner for () {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        Buffers::in_place::<u64>(&mut [])
    }

    owns_itself! {}
}

/// The one-word message of a call without data, in place of the owner's values, so that each rank waits for all.
struct Token {
    word: [u64; 1],
    owner: Box<dyn BufferOwner>,
}

impl BufferOwner for Token {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        Buffers::in_place(&mut self.word)
    }

    fn owner(&mut self) -> &mut dyn Any {
        self.owner.owner()
    }

    fn into_owner(self: Box<Self>) -> Box<dyn Any + Send> {
        self.owner.into_owner()
    }
}

impl<T: Send + 'static> BufferOwner for Vec<T> {
    unsafe fn as_buffers(&mut self, datatype: Datatype) -> Buffers<'_> {
        // SAFETY: D, by the caller's contract.
        unsafe { Buffers::erased_in_place(self, datatype) }
    }

    owns_itself! {}
}

impl<T: Send + 'static> BufferOwner for (Vec<T>, Vec<T>) {
    unsafe fn as_buffers(&mut self, datatype: Datatype) -> Buffers<'_> {
        // SAFETY: D, by the caller's contract.
        unsafe { Buffers::erased_apart(&self.0, &mut self.1, datatype) }
    }

    owns_itself! {}
}

/// The bytes of a send buffer and a receive buffer of elements of a datatype, for bindings to other languages.
#[derive(Debug)]
pub struct OwnedBytes {
    /// The bytes of the send buffer; `None` for a call in place in `recv`.
    pub send: Option<Vec<u8>>,
    /// The bytes of the receive buffer.
    pub recv: Vec<u8>,
    /// The type of the elements.
    pub datatype: Datatype,
}

impl OwnedBytes {
    /// The bytes of elements of `datatype`; without `send` the call is in place in `recv`.
    pub fn new(send: Option<Vec<u8>>, recv: Vec<u8>, datatype: Datatype) -> Self {
        OwnedBytes { send, recv, datatype }
    }
}

impl BufferOwner for OwnedBytes {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        // SAFETY: any bytes are values of `u8`.
        unsafe {
            match &self.send {
                Some(send) => Buffers::erased_apart(send, &mut self.recv, self.datatype),
                None => Buffers::erased_in_place(&mut self.recv, self.datatype),
            }
        }
    }

    owns_itself! {}
}

/// Many vectors that are reduced in place as one message.
pub struct Grouped<T> {
    parts: Vec<Vec<T>>,
    memory: Vec<u64>,
}

impl<T> Grouped<T> {
    /// The vectors; their lengths must stay as they are while the call is in use.
    pub fn parts_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [T]> {
        self.parts.iter_mut().map(Vec::as_mut_slice)
    }

    /// Returns the vectors.
    pub fn into_parts(self) -> Vec<Vec<T>> {
        self.parts
    }

    /// The length of each vector.
    pub(crate) fn lens(&self) -> Vec<usize> {
        self.parts.iter().map(Vec::len).collect()
    }
}

impl<T: Element> From<Vec<Vec<T>>> for Grouped<T> {
    fn from(parts: Vec<Vec<T>>) -> Self {
        let mut memory = Vec::new();
        Buffers::packed::<T, _>(&parts, &mut memory);
        Grouped { parts, memory }
    }
}

impl<T: Element> BufferOwner for Grouped<T> {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        let count = self.parts.iter().map(Vec::len).sum();
        Buffers::of_packed::<T>(&mut self.memory, count)
    }

    fn begin(&mut self) -> Result<(), Error> {
        Buffers::packed::<T, _>(&self.parts, &mut self.memory);
        Ok(())
    }

    fn end(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        outcome?;
        let count = self.parts.iter().map(Vec::len).sum();
        Buffers::of_packed::<T>(&mut self.memory, count).unpack(&mut self.parts);
        Ok(())
    }

    owns_itself! {}
}

impl<T> fmt::Debug for Grouped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grouped").field("lens", &self.lens()).finish_non_exhaustive()
    }
}

/// The use that a call makes of its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BufferRole {
    /// All buffers, in the call that their owner was passed to.
    #[default]
    AsGiven,
    /// All buffers, in an operation that is a part of the call.
    InPart,
    /// The send buffer; nothing is received.
    SendOnly,
    /// The receive buffer, in place.
    Received,
}

/// Buffers that a started call owns.
pub struct OwnedBuffers {
    owner: Box<dyn BufferOwner>,
    datatype: Datatype,
    role: BufferRole,
    /// True if the owner is told when operations are entered and left.
    follows: bool,
}

impl<T: Element> From<Vec<T>> for OwnedBuffers {
    fn from(buffer: Vec<T>) -> Self {
        // SAFETY: D: the datatype of `T`.
        unsafe { OwnedBuffers::new(Box::new(buffer), T::DTYPE.into()) }
    }
}

impl<T: Element> From<(Vec<T>, Vec<T>)> for OwnedBuffers {
    fn from(buffers: (Vec<T>, Vec<T>)) -> Self {
        // SAFETY: D: the datatype of `T`.
        unsafe { OwnedBuffers::new(Box::new(buffers), T::DTYPE.into()) }
    }
}

impl From<OwnedBytes> for OwnedBuffers {
    fn from(bytes: OwnedBytes) -> Self {
        let datatype = bytes.datatype;
        // SAFETY: D: of this datatype.
        unsafe { OwnedBuffers::new(Box::new(bytes), datatype) }
    }
}

impl Default for OwnedBuffers {
    /// No buffers.
    fn default() -> Self {
        // SAFETY: D: there are none.
        unsafe { OwnedBuffers::new(Box::new(()), DType::U64.into()) }
    }
}

impl OwnedBuffers {
    /// Buffers of elements of `datatype`.
    ///
    /// # Safety
    /// D.
    pub unsafe fn new(owner: Box<dyn BufferOwner>, datatype: Datatype) -> Self {
        OwnedBuffers { owner, datatype, role: BufferRole::AsGiven, follows: false }
    }

    /// Wraps the values for a call without data that waits for all ranks.
    pub fn of_token(self) -> Self {
        let token = Token { word: [0], owner: self.owner };
        OwnedBuffers { owner: Box::new(token), datatype: DType::U64.into(), ..self }
    }

    /// Lets the owner follow the operations: [`BufferOwner::entering`], [`BufferOwner::leaving`].
    pub fn following_operations(self) -> Self {
        OwnedBuffers { follows: true, ..self }
    }

    /// Calls [`BufferOwner::entering`] of an owner that follows the operations.
    #[inline(always)]
    pub(super) fn entering(&mut self, operations: RangeInclusive<u64>, left_by_all: impl Fn() -> u64) -> bool {
        !self.follows || self.owner.entering(operations, &left_by_all)
    }

    /// Calls [`BufferOwner::leaving`] of an owner that follows the operations.
    #[inline(always)]
    pub(super) fn leaving(&mut self) {
        if self.follows {
            self.owner.leaving();
        }
    }

    /// Sets the use that a call makes of the buffers from now on.
    pub fn set_role(&mut self, role: BufferRole) {
        self.role = role;
    }

    /// The buffers, borrowed for a call.
    pub fn as_buffers(&mut self) -> Buffers<'_> {
        // SAFETY: D, since they were made.
        let buffers = unsafe { self.owner.as_buffers(self.datatype) };
        match self.role {
            BufferRole::AsGiven | BufferRole::InPart => buffers,
            BufferRole::SendOnly => buffers.without_recv(),
            BufferRole::Received => buffers.received_in_place(),
        }
    }

    /// Prepares the buffers; called before each start.
    ///
    /// # Errors
    /// The errors of [`BufferOwner::begin`].
    pub fn begin(&mut self) -> Result<(), Error> {
        if self.role == BufferRole::AsGiven { self.owner.begin() } else { Ok(()) }
    }

    /// Finishes the buffers; called with the outcome after each completion. Returns the result for the caller.
    ///
    /// # Errors
    /// The errors of [`BufferOwner::end`].
    pub fn end(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        if self.role == BufferRole::AsGiven { self.owner.end(outcome) } else { outcome }
    }

    /// The value that the caller passed.
    pub(crate) fn owner_as_any(&mut self) -> &mut dyn Any {
        self.owner.owner()
    }

    /// Returns the value that the caller passed.
    pub(crate) fn into_owner_as_any(self) -> Box<dyn Any + Send> {
        self.owner.into_owner()
    }

    /// The value that the caller passed; `None` if it has another type.
    pub fn owner<B: BufferOwner>(&mut self) -> Option<&mut B> {
        self.owner_as_any().downcast_mut()
    }

    /// Returns the value that the caller passed; `None` if it has another type.
    pub fn into_owner<B: BufferOwner>(self) -> Option<B> {
        self.into_owner_as_any().downcast().ok().map(|owner| *owner)
    }
}

impl fmt::Debug for OwnedBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBuffers").field("datatype", &self.datatype).finish_non_exhaustive()
    }
}
