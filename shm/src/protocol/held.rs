//! Buffers that posted operations own: of the library's types, of a user's, or many as one message.

use super::payload::Buffers;
use crate::Error;
use crate::op::{Element, ElementType};
use crate::user_op::element_type;
use bytemuck::Pod;
use std::any::Any;
use std::fmt;

/// Buffers that a posted operation owns.
pub trait Held: Any + Send + fmt::Debug {
    /// The buffers as a call sees them.
    fn lend(&mut self) -> Buffers<'_>;
    /// Before a start.
    fn begin(&mut self) {}
    /// After the end of what was started.
    ///
    /// # Errors
    /// What only shows when all ranks have told what they give: the same on all, which go on.
    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// A contribution and the place of the result; where one is not there, or is the other, its vector is empty.
pub struct Owned<T> {
    /// What this rank gives, unless that is `recv`.
    pub send: Vec<T>,
    /// What this rank gets.
    pub recv: Vec<T>,
    /// The result replaces the contribution, which lies in `recv`.
    in_place: bool,
    element: ElementType,
    lend: for<'a> fn(&'a mut Owned<T>) -> Buffers<'a>,
}

impl<T> Owned<T> {
    /// Whether the result replaces the contribution.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// Entries of the vectors that are one element.
    pub fn entries(&self) -> usize {
        self.element.size() / size_of::<T>().max(1)
    }
}

impl<T: Element> Owned<T> {
    /// Buffers apart.
    pub fn apart(send: Vec<T>, recv: Vec<T>) -> Self {
        let lend: for<'a> fn(&'a mut Owned<T>) -> Buffers<'a> = |owned| Buffers::both(&owned.send, &mut owned.recv);
        Owned { send, recv, in_place: false, element: T::DTYPE.into(), lend }
    }

    /// One buffer for both.
    pub fn in_place(recv: Vec<T>) -> Self {
        let lend: for<'a> fn(&'a mut Owned<T>) -> Buffers<'a> = |owned| Buffers::in_place(&mut owned.recv);
        Owned { send: Vec::new(), recv, in_place: true, element: T::DTYPE.into(), lend }
    }
}

impl<T: Pod> Owned<T> {
    /// As [`Owned::apart`], for a user's operator.
    ///
    /// # Errors
    /// As [`Buffers::apart_of`].
    pub fn apart_of(send: Vec<T>, recv: Vec<T>) -> Result<Self, Error> {
        let element = element_type::<T>()?;
        let lend: for<'a> fn(&'a mut Owned<T>) -> Buffers<'a> =
            |owned| Buffers::both_of(&owned.send, &mut owned.recv).expect("an element that was accepted");
        Ok(Owned { send, recv, in_place: false, element, lend })
    }

    /// As [`Owned::in_place`], for a user's operator.
    ///
    /// # Errors
    /// As [`Buffers::apart_of`].
    pub fn in_place_of(recv: Vec<T>) -> Result<Self, Error> {
        let element = element_type::<T>()?;
        let lend: for<'a> fn(&'a mut Owned<T>) -> Buffers<'a> =
            |owned| Buffers::in_place_of(&mut owned.recv).expect("an element that was accepted");
        Ok(Owned { send: Vec::new(), recv, in_place: true, element, lend })
    }
}

impl Owned<u8> {
    /// As [`Owned::apart`], of elements of which only the size is known.
    ///
    /// # Errors
    /// As [`Buffers::raw`].
    pub fn raw(send: Vec<u8>, mut recv: Vec<u8>, element: ElementType) -> Result<Self, Error> {
        Buffers::raw(Some(&send), &mut recv, element)?;
        let lend: for<'a> fn(&'a mut Owned<u8>) -> Buffers<'a> = |owned| {
            Buffers::raw(Some(&owned.send), &mut owned.recv, owned.element).expect("lengths that were accepted")
        };
        Ok(Owned { send, recv, in_place: false, element, lend })
    }

    /// As [`Owned::in_place`], of elements of which only the size is known.
    ///
    /// # Errors
    /// As [`Buffers::raw`].
    pub fn raw_in_place(mut recv: Vec<u8>, element: ElementType) -> Result<Self, Error> {
        Buffers::raw(None, &mut recv, element)?;
        let lend: for<'a> fn(&'a mut Owned<u8>) -> Buffers<'a> =
            |owned| Buffers::raw(None, &mut owned.recv, owned.element).expect("a length that was accepted");
        Ok(Owned { send: Vec::new(), recv, in_place: true, element, lend })
    }
}

impl<T: Send + 'static> Held for Owned<T> {
    fn lend(&mut self) -> Buffers<'_> {
        (self.lend)(self)
    }
}

impl<T> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = (self.send.len(), self.recv.len());
        f.debug_struct("Owned").field("counts", &counts).field("in_place", &self.in_place).finish_non_exhaustive()
    }
}

/// Many buffers as one message, each of which the result replaces.
pub struct Grouped<T> {
    /// The buffers.
    pub parts: Vec<Vec<T>>,
    memory: Vec<u64>,
}

impl<T: Element> Grouped<T> {
    /// Of these buffers.
    pub fn new(parts: Vec<Vec<T>>) -> Self {
        let mut grouped = Grouped { parts, memory: Vec::new() };
        grouped.begin();
        grouped
    }

    fn count(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }
}

impl<T: Element> Held for Grouped<T> {
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

impl<T> fmt::Debug for Grouped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grouped").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}
