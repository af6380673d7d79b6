//! The buffers that a call is made with: slices that a blocking call borrows, vectors that a started one owns.
//!
//! Invariant **D (datatype)**: whatever a call on the datatype of its buffers writes to the receive buffer is made of values
//! of the slice's type.
#![allow(unsafe_code)]

use crate::args::{CollectiveArgs, Placement};
use crate::op::Datatype;
use crate::owned_args::OwnedArgs;
use crate::protocol::borrowed_bytes::BorrowedBytes;
use crate::protocol::payload::Buffers;
use crate::protocol::request_buffers::OwnedBytes;
use crate::reduce_op::{IntoReduceOp, ReduceOp};
use crate::shared_buffer::{self, MemoryKeeper, SharedBuffer};
use crate::shared_view::SharedView;
use std::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// Buffers that a collective can be called with. `&mut [T]` is both the send and the receive buffer, `(&[T], &mut [T])` are
/// one of each: a blocking call borrows them. So it does a [`SharedBuffer`], or a pair of them, and in an allreduce a
/// [`SharedView`] in place of the receive buffer. `Vec<T>` and `(Vec<T>, Vec<T>)` are the same for a call that is started,
/// which owns them until it has ended, and so are [`SharedBuffer`]s that are not borrowed.
pub trait IntoCallBuffers<'a>: sealed::Sealed {
    /// The type of the values in them.
    type Item;
    /// The arguments of a call on them, which keeps `O` of its operator.
    type Args<O>;
    /// The arguments of a call on them.
    #[doc(hidden)]
    fn describe<O: IntoReduceOp<'a, Self::Item>>(
        self,
        op: O,
        args: impl FnOnce(Buffers<'a>, ReduceOp<'a>) -> CollectiveArgs<'a>,
    ) -> Self::Args<O::Shared>;
}

/// Buffers that a call borrows.
macro_rules! borrowed {
    ($([$($lifetime:lifetime)?] $buffers:ty),* $(,)?) => { $(
        impl<'a, $($lifetime,)? T> sealed::Sealed for $buffers {}
        impl<'a, $($lifetime,)? T> IntoCallBuffers<'a> for $buffers {
            type Item = T;
            type Args<O> = CollectiveArgs<'a>;
            #[inline(always)]
            fn describe<O: IntoReduceOp<'a, T>>(
                self,
                op: O,
                args: impl FnOnce(Buffers<'a>, ReduceOp<'a>) -> CollectiveArgs<'a>,
            ) -> CollectiveArgs<'a> {
                let (buffers, placement) = CallBuffers::from(self).erased(op.datatype());
                CollectiveArgs { placement, ..args(buffers, op.into_reduce_op()) }
            }
        }
    )* };
}

borrowed! {
    [] &'a mut [T],
    [] (&'a [T], &'a mut [T]),
    [] &'a mut SharedBuffer<T>,
    [] (&'a SharedBuffer<T>, &'a mut SharedBuffer<T>),
    ['c] (&'a [T], &'a mut SharedView<'c, T>),
    [] CallBuffers<'a, T>,
}

/// Buffers that a call owns.
macro_rules! owned {
    ($([$($parameter:ident $(: $bound:path)?)?] $buffers:ty, $item:ty, $datatype:expr, $allocations:expr;)*) => { $(
        impl<$($parameter)?> sealed::Sealed for $buffers {}
        impl<'a $(, $parameter: Send + 'static $(+ $bound)?)?> IntoCallBuffers<'a> for $buffers {
            type Item = $item;
            type Args<O> = OwnedArgs<'a, Self, O>;
            fn describe<O: IntoReduceOp<'a, $item>>(
                self,
                op: O,
                args: impl FnOnce(Buffers<'a>, ReduceOp<'a>) -> CollectiveArgs<'a>,
            ) -> OwnedArgs<'a, Self, O::Shared> {
                let datatype: fn(&Self, Datatype) -> Datatype = $datatype;
                let (datatype, shared) = (datatype(&self, op.datatype()), op.shared());
                // SAFETY: D: no values are there.
                let none = unsafe { Buffers::erased_in_place::<u8>(&mut [], datatype) };
                // SAFETY: D: by `IntoReduceOp::datatype`, or the vectors are bytes.
                unsafe { OwnedArgs::new(args(none, op.into_reduce_op()), self, $allocations, shared) }
            }
        }
    )* };
}

owned! {
    [T] Vec<T>, T, |_, datatype| datatype, None;
    [T] (Vec<T>, Vec<T>), T, |_, datatype| datatype, None;
    [T] SharedBuffer<T>, T, |_, datatype| datatype, Some(shared_buffer::in_place::<T>);
    [T] (SharedBuffer<T>, SharedBuffer<T>), T, |_, datatype| datatype, Some(shared_buffer::apart::<T>);
    [] OwnedBytes, u8, |bytes, _| bytes.datatype, None;
    [K: MemoryKeeper] BorrowedBytes<K>, u8, |bytes, _| bytes.datatype, Some(shared_buffer::borrowed::<K>);
}

/// The send buffer and the receive buffer of a call: `(send, recv)`, or one for both, `buf`.
#[derive(Debug)]
pub struct CallBuffers<'a, T> {
    send: *const [T],
    recv: *mut [T],
    in_place: bool,
    placement: Placement<'a>,
    /// In place of the type of `T`, which is `u8` then.
    datatype: Option<Datatype>,
    borrowed: PhantomData<&'a mut [T]>,
}

impl<'a, T> From<(&'a [T], &'a mut [T])> for CallBuffers<'a, T> {
    #[inline(always)]
    fn from((send, recv): (&'a [T], &'a mut [T])) -> Self {
        Self::new(Some(send), recv, Placement::Private)
    }
}

impl<'a, T> From<&'a mut [T]> for CallBuffers<'a, T> {
    #[inline(always)]
    fn from(buf: &'a mut [T]) -> Self {
        Self::new(None, buf, Placement::Private)
    }
}

impl<'a, T> From<&'a mut SharedBuffer<T>> for CallBuffers<'a, T> {
    fn from(buf: &'a mut SharedBuffer<T>) -> Self {
        let all = buf.as_raw();
        Self::new(None, all, Placement::Registered((None, &mut buf.allocation)))
    }
}

impl<'a, T> From<(&'a SharedBuffer<T>, &'a mut SharedBuffer<T>)> for CallBuffers<'a, T> {
    fn from((send, recv): (&'a SharedBuffer<T>, &'a mut SharedBuffer<T>)) -> Self {
        let all = recv.as_raw();
        let placement = Placement::Registered((Some(&send.allocation), &mut recv.allocation));
        Self::new(Some(send.as_raw()), all, placement)
    }
}

impl<'a, T> From<(&'a [T], &'a mut SharedView<'_, T>)> for CallBuffers<'a, T> {
    fn from((send, view): (&'a [T], &'a mut SharedView<'_, T>)) -> Self {
        Self::new(Some(send), &mut [], Placement::SharedResult(&mut view.memory))
    }
}

impl<'a, T> CallBuffers<'a, T> {
    /// Buffers that were borrowed for `'a`, the receive buffer exclusively; without `send` it is both.
    #[inline(always)]
    fn new(send: Option<*const [T]>, recv: *mut [T], placement: Placement<'a>) -> Self {
        let (in_place, send) = (send.is_none(), send.unwrap_or(&[]));
        CallBuffers { send, recv, in_place, placement, datatype: None, borrowed: PhantomData }
    }

    /// The buffers of a rank that only sends.
    #[inline(always)]
    pub fn send(send: &'a [T]) -> Self {
        (send, &mut [][..]).into()
    }

    /// The buffers of a rank that only receives.
    #[inline(always)]
    pub fn recv(recv: &'a mut [T]) -> Self {
        (&[][..], recv).into()
    }

    /// The buffers without their type, whose elements are of `datatype`, and where they lie.
    #[inline(always)]
    fn erased(self, datatype: Datatype) -> (Buffers<'a>, Placement<'a>) {
        let datatype = self.datatype.unwrap_or(datatype);
        // SAFETY: both were made from borrows for `'a`, that of `recv` exclusive; D: by `IntoReduceOp::datatype`, or the slices
        // are bytes.
        let buffers = unsafe {
            match self.in_place {
                true => Buffers::erased_in_place(&mut *self.recv, datatype),
                false => Buffers::erased_apart(&*self.send, &mut *self.recv, datatype),
            }
        };
        (buffers, self.placement)
    }
}

impl<'a> CallBuffers<'a, u8> {
    /// The bytes of elements of `datatype`, at any address; without `send` the result replaces what lies in `recv`.
    #[inline(always)]
    pub fn of_bytes(send: Option<&'a [u8]>, recv: &'a mut [u8], datatype: Datatype) -> Self {
        let buffers = match send {
            Some(send) => CallBuffers::from((send, recv)),
            None => CallBuffers::from(recv),
        };
        buffers.datatype(datatype)
    }

    /// Sets the datatype of the bytes.
    #[inline(always)]
    pub fn datatype(self, datatype: Datatype) -> Self {
        CallBuffers { datatype: Some(datatype), ..self }
    }
}
