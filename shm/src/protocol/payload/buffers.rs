//! The buffers of a call without their type, and the parts of them that one operation works on: the invariants are those of the payload (B).
#![allow(unsafe_code)]

use crate::kernels;
use crate::op::{Datatype, Element};
use crate::protocol::call::{Call, Prepared};
use crate::protocol::geometry::Exchange;
use crate::protocol::shared_result::SharedResult;
use crate::protocol::store_pace::Stores;
use crate::protocol::window::Window;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;

/// The buffers of one call, borrowed for as long as it runs, without their type.
#[derive(Debug)]
pub struct Buffers<'a> {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    pub(super) count: usize,
    pub(super) send_count: usize,
    pub(super) recv_count: usize,
    pub(super) datatype: Datatype,
    /// The result replaces the contribution.
    pub(super) in_place: bool,
    /// Both are whole numbers of elements.
    pub(super) is_whole: bool,
    /// The names of the buffers, where they are registered.
    pub(super) registered: Option<[u64; 2]>,
    /// The result that all ranks share.
    pub(super) shared: Option<&'a SharedResult>,
    pub(super) borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffers<'a> {
    /// A send buffer and a receive buffer, each of its own length.
    pub fn apart<T: Element>(send: &'a [T], recv: &'a mut [T]) -> Self {
        // SAFETY: an `Element` is what its type's tag says.
        unsafe { Self::erased_apart(send, recv, T::DTYPE.into()) }
    }

    /// One buffer, in which the result replaces the contribution.
    pub fn in_place<T: Element>(buf: &'a mut [T]) -> Self {
        // SAFETY: as above.
        unsafe { Self::erased_in_place(buf, T::DTYPE.into()) }
    }

    /// A send buffer and a receive buffer of elements of `datatype`, each of one or more values of `T`.
    ///
    /// # Safety
    /// Whatever a call on `datatype` writes to `recv` is made of values of `T`.
    #[inline(always)]
    pub unsafe fn erased_apart<T>(send: &'a [T], recv: &'a mut [T], datatype: Datatype) -> Self {
        let counts = [elements(send, datatype), elements(recv, datatype)];
        Self::new(send.as_ptr().cast(), recv.as_mut_ptr().cast(), counts, datatype, false)
    }

    /// One buffer of elements of `datatype`, in which the result replaces the contribution.
    /// # Safety
    /// The contract of [`Buffers::erased_apart`].
    #[inline(always)]
    pub unsafe fn erased_in_place<T>(buf: &'a mut [T], datatype: Datatype) -> Self {
        let (recv, count) = (buf.as_mut_ptr().cast::<u8>(), elements(buf, datatype));
        Self::new(recv, recv, [count; 2], datatype, true)
    }

    #[inline(always)]
    pub(super) fn new(
        send: *const u8,
        recv: *mut u8,
        [(send_count, send_is_whole), (recv_count, recv_is_whole)]: [(usize, bool); 2],
        datatype: Datatype,
        in_place: bool,
    ) -> Self {
        Buffers {
            send,
            recv,
            count: send_count.max(recv_count),
            send_count,
            recv_count,
            datatype,
            in_place,
            is_whole: send_is_whole && recv_is_whole,
            registered: None,
            shared: None,
            borrowed: PhantomData,
        }
    }

    /// The same buffers of a rank whose contribution is only a part of the buffer: where it lies there.
    pub fn with_own_send(self, own: Range<usize>) -> Self {
        assert!(own.start <= own.end && own.end <= self.send_count, "{own:?} of {}", self.send_count);
        Buffers { send: self.send.wrapping_add(own.start * self.datatype.size()), send_count: own.len(), ..self }
    }

    /// The same buffers of a rank whose result is only a part of the buffer: where it lies there.
    pub fn with_own_recv(self, own: Range<usize>) -> Self {
        assert!(own.start <= own.end && own.end <= self.recv_count, "{own:?} of {}", self.recv_count);
        Buffers { recv: self.recv.wrapping_add(own.start * self.datatype.size()), recv_count: own.len(), ..self }
    }

    /// The same buffers of a rank that only sends.
    pub fn without_recv(self) -> Self {
        Buffers { recv_count: 0, count: self.send_count, ..self }
    }

    /// The same buffers of a rank that only receives.
    pub fn without_send(self) -> Self {
        Buffers { send_count: 0, count: self.recv_count, ..self }
    }

    /// The receive buffer, in which the result replaces what was received before.
    pub fn received_in_place(self) -> Self {
        Buffers { send: self.recv, send_count: self.recv_count, count: self.recv_count, in_place: true, ..self }
    }

    /// The send buffer as bytes, and the receive buffer. `None` where both are the same; a copy where one is a part of the other.
    pub fn into_bytes(self) -> (Option<Cow<'a, [u8]>>, &'a mut [u8]) {
        let bytes = [self.send_count, self.recv_count].map(|count| count * self.datatype.size());
        // SAFETY: B: borrowed for `'a`, the receive buffer exclusively. The contribution is given out beside it only where they
        // are apart or one is empty.
        unsafe {
            let send = match () {
                () if !self.in_place || bytes.contains(&0) => {
                    Some(core::slice::from_raw_parts(self.send, bytes[0]).into())
                }
                () if bytes[0] == bytes[1] && core::ptr::eq(self.send, self.recv) => None,
                () => Some(Cow::Owned(core::slice::from_raw_parts(self.send, bytes[0]).to_vec())),
            };
            (send, core::slice::from_raw_parts_mut(self.recv, bytes[1]))
        }
    }

    /// Returns whether the result replaces the contribution.
    pub fn are_in_place(&self) -> bool {
        self.in_place
    }

    /// Returns whether their lengths are whole numbers of elements.
    pub fn are_whole(&self) -> bool {
        self.is_whole
    }

    /// Elements that this rank sends.
    pub fn send_count(&self) -> usize {
        self.send_count
    }

    /// Elements that this rank receives.
    pub fn recv_count(&self) -> usize {
        self.recv_count
    }

    /// Elements of the longer buffer.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The type of the elements.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Makes the result of a group of one, of which `exchange` is: its contribution, where a result has a part of this rank's own.
    pub fn copy(&self, exchange: &Exchange<'_>) {
        if exchange.receives(0, 0) && !core::ptr::eq(self.send, self.recv) {
            // SAFETY: B, and they are not equal; the shorter length.
            unsafe { kernels::copy(self.recv, self.send, self.send_count.min(self.recv_count) * self.datatype.size()) }
        }
    }

    /// The part `elements` of a reduction, barrier or broadcast as one operation.
    #[inline]
    pub fn call<'b>(&'b self, elements: Range<usize>, prepared: &'b Prepared<'b>) -> Call<'b> {
        assert!(elements.start <= elements.end && elements.end <= self.count, "{elements:?} of {}", self.count);
        let count = elements.len();
        let (skip, has) =
            (elements.start * self.datatype.size(), |whole: usize| if whole == self.count { count } else { 0 });
        let mut call = self.whole(prepared, None);
        (call.count, call.send_count, call.recv_count) = (count, has(self.send_count), has(self.recv_count));
        if call.send_count == count {
            // SAFETY: B: the offset lies inside the buffer by the check above.
            call.send = unsafe { call.send.add(skip) };
        }
        if call.recv_count == count {
            // SAFETY: B, as above.
            call.recv = unsafe { call.recv.add(skip) };
        }
        call.shared = self.shared.map(|shared| (shared, skip));
        call
    }

    /// One window of an exchange.
    pub fn window<'b>(&'b self, window: &'b Window<'b>, prepared: &'b Prepared<'b>) -> Call<'b> {
        self.whole(prepared, Some(window))
    }

    #[inline]
    fn whole<'b>(&'b self, prepared: &'b Prepared<'b>, window: Option<&'b Window<'b>>) -> Call<'b> {
        assert!(self.datatype == prepared.datatype, "a call prepared for {:?}", prepared.datatype);
        let element_bytes = self.datatype.size();
        // A block that begins where all of them do replaces nothing else.
        let in_place = self.send == self.recv && self.send_count == self.recv_count;
        let result_bytes = element_bytes * if window.is_some() { self.recv_count } else { self.count };
        Call {
            prepared,
            count: self.count,
            element_bytes,
            send: self.send,
            recv: self.recv,
            send_count: self.send_count,
            recv_count: self.recv_count,
            window,
            registered: self.registered,
            shared: None,
            result_stores: Stores::of_result(prepared.collective, result_bytes, window.is_some(), in_place),
            borrowed: PhantomData,
        }
    }
}

/// Elements of `datatype` in a buffer, and whether they fill it.
#[inline(always)]
pub(super) fn elements<T>(buffer: &[T], datatype: Datatype) -> (usize, bool) {
    let bytes = size_of_val(buffer);
    match datatype {
        // Powers of two, all of them.
        Datatype::Builtin(dtype) => (bytes >> dtype.size().trailing_zeros(), bytes & (dtype.size() - 1) == 0),
        Datatype::Opaque(size) => match bytes.checked_div(size) {
            Some(count) => (count, count * size == bytes),
            // Elements without size are refused later.
            None => (buffer.len(), true),
        },
    }
}
