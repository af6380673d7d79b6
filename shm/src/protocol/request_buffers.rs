//! Buffers that a started call owns, without their type: the call proceeds while its caller does something else.
//!
//! Invariant **D (datatype)**: whatever a call on the datatype of the buffers writes to them is made of values of their type.
#![allow(unsafe_code)]

use super::payload::Buffers;
use crate::Error;
use crate::op::{DType, Datatype, Element};
use std::any::Any;
use std::fmt;

/// The values that a started call can own: a `Vec<T>` or a `SharedBuffer<T>` for a call in place, `(send, recv)` of two of
/// them, a [`Grouped`], an [`OwnedBytes`], or `()` for a call without data. They come back when the call has ended.
pub trait BufferOwner: Any + Send {
    /// The buffers as a call sees them.
    ///
    /// # Safety
    /// D.
    #[doc(hidden)]
    unsafe fn as_buffers(&mut self, datatype: Datatype) -> Buffers<'_>;

    /// Before each start.
    ///
    /// # Errors
    /// The fault of the buffers; then the call is not started.
    #[doc(hidden)]
    fn begin(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// After each end, with its outcome; returns what the caller is told.
    ///
    /// # Errors
    /// That of the outcome, and those that show only when all ranks have told what they send: the same on all, which go on.
    #[doc(hidden)]
    fn end(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        outcome
    }

    /// The values as their owner has given them.
    #[doc(hidden)]
    fn owner(&mut self) -> &mut dyn Any;

    /// The same, for good.
    #[doc(hidden)]
    fn into_owner(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// The owner of a `BufferOwner` that wraps no other one: itself.
macro_rules! owns_itself {
    () => {
        fn owner(&mut self) -> &mut dyn Any {
            self
        }

        fn into_owner(self: Box<Self>) -> Box<dyn Any + Send> {
            self
        }
    };
}

impl BufferOwner for () {
    unsafe fn as_buffers(&mut self, _: Datatype) -> Buffers<'_> {
        Buffers::in_place::<u64>(&mut [])
    }

    owns_itself! {}
}

/// The message of a call without data, so that each rank waits for all: a word, in place of the owner's values.
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
    /// The bytes of the send buffer; `None` where the result replaces what lies in `recv`.
    pub send: Option<Vec<u8>>,
    /// The bytes of the receive buffer.
    pub recv: Vec<u8>,
    /// The type of the elements.
    pub datatype: Datatype,
}

impl OwnedBytes {
    /// The bytes of elements of `datatype`; without `send` the result replaces what lies in `recv`.
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

/// Many vectors that are reduced as one message, each of which its result replaces.
pub struct Grouped<T> {
    parts: Vec<Vec<T>>,
    memory: Vec<u64>,
}

impl<T> Grouped<T> {
    /// The vectors; their lengths must stay as they are while the call is in use.
    pub fn parts_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [T]> {
        self.parts.iter_mut().map(Vec::as_mut_slice)
    }

    /// The vectors, for good.
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

/// Which of its buffers a call uses, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BufferRole {
    /// All, as their owner has given them.
    #[default]
    AsGiven,
    /// The same, in an operation that is a part of the call.
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
}

// D, for both: an `Element` is what its tag says.
impl<T: Element> From<Vec<T>> for OwnedBuffers {
    fn from(buffer: Vec<T>) -> Self {
        OwnedBuffers { owner: Box::new(buffer), datatype: T::DTYPE.into(), role: BufferRole::AsGiven }
    }
}

impl<T: Element> From<(Vec<T>, Vec<T>)> for OwnedBuffers {
    fn from(buffers: (Vec<T>, Vec<T>)) -> Self {
        OwnedBuffers { owner: Box::new(buffers), datatype: T::DTYPE.into(), role: BufferRole::AsGiven }
    }
}

impl From<OwnedBytes> for OwnedBuffers {
    fn from(bytes: OwnedBytes) -> Self {
        let datatype = bytes.datatype;
        OwnedBuffers { owner: Box::new(bytes), datatype, role: BufferRole::AsGiven }
    }
}

impl Default for OwnedBuffers {
    /// No buffers.
    fn default() -> Self {
        OwnedBuffers { owner: Box::new(()), datatype: DType::U64.into(), role: BufferRole::AsGiven }
    }
}

impl OwnedBuffers {
    /// Buffers of elements of `datatype`.
    ///
    /// # Safety
    /// D.
    pub unsafe fn new(owner: Box<dyn BufferOwner>, datatype: Datatype) -> Self {
        OwnedBuffers { owner, datatype, role: BufferRole::AsGiven }
    }

    /// The same values in a call that neither sends nor receives any, and waits for all ranks all the same.
    pub fn of_token(self) -> Self {
        let token = Token { word: [0], owner: self.owner };
        OwnedBuffers { owner: Box::new(token), datatype: DType::U64.into(), role: self.role }
    }

    /// Says which of the buffers a call uses from now on.
    pub fn set_role(&mut self, role: BufferRole) {
        self.role = role;
    }

    /// The buffers as a call sees them.
    pub fn as_buffers(&mut self) -> Buffers<'_> {
        // SAFETY: D, since they were made.
        let buffers = unsafe { self.owner.as_buffers(self.datatype) };
        match self.role {
            BufferRole::AsGiven | BufferRole::InPart => buffers,
            BufferRole::SendOnly => buffers.without_recv(),
            BufferRole::Received => buffers.received_in_place(),
        }
    }

    /// Before each start.
    ///
    /// # Errors
    /// The errors of [`BufferOwner::begin`].
    pub fn begin(&mut self) -> Result<(), Error> {
        if self.role == BufferRole::AsGiven { self.owner.begin() } else { Ok(()) }
    }

    /// After each end, with its outcome; returns what the caller is told.
    ///
    /// # Errors
    /// The errors of [`BufferOwner::end`].
    pub fn end(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        if self.role == BufferRole::AsGiven { self.owner.end(outcome) } else { outcome }
    }

    /// The values as their owner has given them.
    pub(crate) fn owner_as_any(&mut self) -> &mut dyn Any {
        self.owner.owner()
    }

    /// The same, for good.
    pub(crate) fn into_owner_as_any(self) -> Box<dyn Any + Send> {
        self.owner.into_owner()
    }

    /// The same; `None` for another type than theirs.
    pub fn owner<B: BufferOwner>(&mut self) -> Option<&mut B> {
        self.owner_as_any().downcast_mut()
    }

    /// The same, for good.
    pub fn into_owner<B: BufferOwner>(self) -> Option<B> {
        self.into_owner_as_any().downcast().ok().map(|owner| *owner)
    }
}

impl fmt::Debug for OwnedBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBuffers").field("datatype", &self.datatype).finish_non_exhaustive()
    }
}
