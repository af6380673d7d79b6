//! The reduction operator of a call, one of the library's or a user's, without its type.

use crate::bytes_op::BytesOp;
use crate::op::{DType, Datatype, Element, Op, OpIdentity};
use crate::user_op::{ReduceFn, UserOp};
use bytemuck::Pod;
use std::sync::Arc;

/// The reduction operator of a call.
#[derive(Debug, Clone, Copy)]
pub enum ReduceOp<'a> {
    /// One of the library's. Collectives that do not reduce take no notice of it.
    Builtin(Op),
    /// A user's.
    User(&'a dyn ReduceFn),
}

impl ReduceOp<'_> {
    /// The identity of the operator, as ranks compare it.
    pub fn identity(self) -> OpIdentity {
        match self {
            ReduceOp::Builtin(op) => op.into(),
            ReduceOp::User(op) => op.identity(),
        }
    }
}

/// The reduction operator of a call that is started and ends later.
#[derive(Debug, Clone)]
pub enum SharedReduceOp {
    /// One of the library's.
    Builtin(Op),
    /// A user's, which the call keeps.
    User(Arc<dyn ReduceFn + Send>),
}

impl From<Op> for SharedReduceOp {
    fn from(op: Op) -> Self {
        SharedReduceOp::Builtin(op)
    }
}

impl SharedReduceOp {
    /// The operator, borrowed.
    #[inline(always)]
    pub fn get(&self) -> ReduceOp<'_> {
        match self {
            SharedReduceOp::Builtin(op) => ReduceOp::Builtin(*op),
            SharedReduceOp::User(op) => ReduceOp::User(&**op),
        }
    }
}

/// The marker of an operator that was only borrowed: the call can be run, but not started.
#[derive(Debug, Clone, Copy)]
pub struct Borrowed;

mod sealed {
    pub trait Sealed {}
}

/// An operator that can reduce buffers of `T`: an [`Op`], a reference to a [`UserOp`], or to a [`BytesOp`] for bytes. A call
/// that is started takes `&Arc<UserOp>` or `&Arc<BytesOp>`, since it keeps the operator.
pub trait IntoReduceOp<'a, T>: sealed::Sealed {
    /// The part of it that a started call keeps.
    type Shared;
    /// The type of the elements in buffers of `T`; it keeps invariant D of the buffers.
    fn datatype(&self) -> Datatype;
    /// The operator without its type.
    fn into_reduce_op(self) -> ReduceOp<'a>;
    /// The part that a started call keeps.
    fn shared(&self) -> Self::Shared;
}

impl sealed::Sealed for Op {}
impl<'a, T: Element> IntoReduceOp<'a, T> for Op {
    type Shared = Op;
    #[inline(always)]
    fn datatype(&self) -> Datatype {
        T::DTYPE.into()
    }
    #[inline(always)]
    fn into_reduce_op(self) -> ReduceOp<'a> {
        ReduceOp::Builtin(self)
    }
    fn shared(&self) -> Op {
        *self
    }
}

impl sealed::Sealed for ReduceOp<'_> {}
/// The operator of a call on bytes with their own datatype: [`CallBuffers::of_bytes`](crate::CallBuffers::of_bytes).
impl<'a> IntoReduceOp<'a, u8> for ReduceOp<'a> {
    type Shared = Borrowed;
    #[inline(always)]
    fn datatype(&self) -> Datatype {
        match self {
            ReduceOp::Builtin(_) => DType::U8.into(),
            ReduceOp::User(op) => Datatype::Opaque(op.element_bytes()),
        }
    }
    #[inline(always)]
    fn into_reduce_op(self) -> ReduceOp<'a> {
        self
    }
    fn shared(&self) -> Borrowed {
        Borrowed
    }
}

impl sealed::Sealed for &SharedReduceOp {}
/// The operator of a call on bytes with their own datatype: [`OwnedBytes`](crate::OwnedBytes).
impl<'a> IntoReduceOp<'a, u8> for &'a SharedReduceOp {
    type Shared = SharedReduceOp;
    #[inline(always)]
    fn datatype(&self) -> Datatype {
        self.get().datatype()
    }
    #[inline(always)]
    fn into_reduce_op(self) -> ReduceOp<'a> {
        self.get()
    }
    fn shared(&self) -> SharedReduceOp {
        SharedReduceOp::clone(self)
    }
}

/// The operators that wrap a function of the user's: each alone, and where calls share it.
macro_rules! user_operators {
    ($([$($parameters:tt)*] $op:ty, $item:ty, $function:path, $datatype:expr;)*) => { $(
        impl<$($parameters)*> sealed::Sealed for &$op {}
        impl<'a, $($parameters)*> IntoReduceOp<'a, $item> for &'a $op where F: $function + Sync {
            type Shared = Borrowed;
            fn datatype(&self) -> Datatype {
                $datatype(self)
            }
            fn into_reduce_op(self) -> ReduceOp<'a> {
                ReduceOp::User(self)
            }
            fn shared(&self) -> Borrowed {
                Borrowed
            }
        }

        impl<$($parameters)*> sealed::Sealed for &Arc<$op> {}
        impl<'a, $($parameters)*> IntoReduceOp<'a, $item> for &'a Arc<$op>
        where
            F: $function + Send + Sync + 'static,
        {
            type Shared = SharedReduceOp;
            fn datatype(&self) -> Datatype {
                $datatype(self)
            }
            fn into_reduce_op(self) -> ReduceOp<'a> {
                ReduceOp::User(&**self)
            }
            fn shared(&self) -> SharedReduceOp {
                SharedReduceOp::User(Arc::<$op>::clone(self))
            }
        }
    )* };
}

user_operators! {
    [T: Pod, F] UserOp<T, F>, T, Fn(&T, &T) -> T, |_: &UserOp<T, F>| {
        DType::of::<T>().map_or(Datatype::Opaque(size_of::<T>()), Datatype::Builtin)
    };
    [F] BytesOp<F>, u8, Fn(&[u8], &mut [u8]), BytesOp::datatype;
}
