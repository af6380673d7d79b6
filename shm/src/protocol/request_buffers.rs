//! Buffers that posted operations own: of the library's types, of a user's, or many as one message.
#![allow(unsafe_code)]

use super::payload::Buffers;
use crate::Error;
use crate::op::{Datatype, Element};
use crate::user_op::datatype_of;
use bytemuck::Pod;
use std::any::Any;
use std::fmt;

/// Buffers that a posted operation owns.
pub trait RequestBuffers: Any + Send + fmt::Debug {
    /// The buffers as a call sees them.
    fn lend(&mut self) -> Buffers<'_>;
    /// Before a start.
    fn begin(&mut self) {}
    /// After the end of what was started.
    ///
    /// # Errors
    /// The errors that show only when all ranks have told what they give: the same on all, which go on.
    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// A send buffer and a receive buffer; where one is not there, or is the other, its vector is empty.
pub struct OwnedBuffers<T> {
    /// The contribution, unless that is `recv`.
    pub send: Vec<T>,
    /// The place of the result.
    pub recv: Vec<T>,
    /// The result replaces the contribution, which lies in `recv`.
    in_place: bool,
    /// Invariant **D**: what a call on it writes is made of values of `T`.
    datatype: Datatype,
}

impl<T> OwnedBuffers<T> {
    /// Returns whether the result replaces the contribution.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// Values of `T` that are one element.
    pub fn values_per_element(&self) -> usize {
        self.datatype.size() / size_of::<T>().max(1)
    }
}

// D: an `Element` is what its tag says, any bytes are a value of a `Pod`, and of `u8`.
impl<T: Element> OwnedBuffers<T> {
    /// Two buffers.
    pub fn apart(send: Vec<T>, recv: Vec<T>) -> Self {
        OwnedBuffers { send, recv, in_place: false, datatype: T::DTYPE.into() }
    }

    /// One buffer for both.
    pub fn in_place(recv: Vec<T>) -> Self {
        OwnedBuffers { send: Vec::new(), recv, in_place: true, datatype: T::DTYPE.into() }
    }
}

impl<T: Pod> OwnedBuffers<T> {
    /// Two buffers, for a user's operator.
    ///
    /// # Errors
    /// The errors of [`datatype_of`].
    pub fn apart_of(send: Vec<T>, recv: Vec<T>) -> Result<Self, Error> {
        Ok(OwnedBuffers { send, recv, in_place: false, datatype: datatype_of::<T>()? })
    }

    /// One buffer for both, for a user's operator.
    ///
    /// # Errors
    /// The errors of [`datatype_of`].
    pub fn in_place_of(recv: Vec<T>) -> Result<Self, Error> {
        Ok(OwnedBuffers { send: Vec::new(), recv, in_place: true, datatype: datatype_of::<T>()? })
    }
}

impl OwnedBuffers<u8> {
    /// Two buffers of the bytes of elements of `datatype`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a buffer that is no whole number of elements.
    pub fn raw(send: Vec<u8>, recv: Vec<u8>, datatype: Datatype) -> Result<Self, Error> {
        [&send, &recv].into_iter().try_for_each(|buffer| datatype.must_fill(buffer.len()))?;
        Ok(OwnedBuffers { send, recv, in_place: false, datatype })
    }

    /// One buffer for both, of the bytes of elements of `datatype`.
    ///
    /// # Errors
    /// The errors of [`OwnedBuffers::raw`].
    pub fn raw_in_place(recv: Vec<u8>, datatype: Datatype) -> Result<Self, Error> {
        datatype.must_fill(recv.len())?;
        Ok(OwnedBuffers { send: Vec::new(), recv, in_place: true, datatype })
    }
}

impl<T: Send + 'static> RequestBuffers for OwnedBuffers<T> {
    fn lend(&mut self) -> Buffers<'_> {
        // SAFETY: D.
        unsafe {
            match self.in_place {
                true => Buffers::erased_in_place(&mut self.recv, self.datatype),
                false => Buffers::erased_apart(&self.send, &mut self.recv, self.datatype),
            }
        }
    }
}

impl<T> fmt::Debug for OwnedBuffers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = (self.send.len(), self.recv.len());
        f.debug_struct("OwnedBuffers")
            .field("counts", &counts)
            .field("in_place", &self.in_place)
            .finish_non_exhaustive()
    }
}

/// Many buffers as one message, each of which the result replaces.
pub struct GroupedBuffers<T> {
    /// The buffers.
    pub parts: Vec<Vec<T>>,
    memory: Vec<u64>,
}

impl<T: Element> GroupedBuffers<T> {
    /// Of these buffers.
    pub fn new(parts: Vec<Vec<T>>) -> Self {
        let mut grouped = GroupedBuffers { parts, memory: Vec::new() };
        grouped.begin();
        grouped
    }

    fn count(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }
}

impl<T: Element> RequestBuffers for GroupedBuffers<T> {
    fn lend(&mut self) -> Buffers<'_> {
        let count = self.count();
        Buffers::of_packed::<T>(&mut self.memory, count)
    }

    fn begin(&mut self) {
        Buffers::packed::<T, _>(&self.parts, &mut self.memory);
    }

    fn end(&mut self) -> Result<(), Error> {
        let count = self.count();
        Buffers::of_packed::<T>(&mut self.memory, count).unpack(&mut self.parts);
        Ok(())
    }
}

impl<T> fmt::Debug for GroupedBuffers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupedBuffers").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}
