//! Operators of callers as the three phases use them: on elements of a type of Rust, and on elements of which only the size
//! is known.

use crate::{BytesOp, Error, UserOp};
use bytemuck::Pod;
use earlybird_shm::op::{Datatype, OpIdentity};
use earlybird_shm::user_op::{ReduceFn, datatype_of};
use earlybird_shm::{Collective, NodeComm, Owned, Ready};
use std::sync::Arc;

/// An operator on elements of one or more items each: buffers are rows of items, and hold whole elements.
pub(crate) trait CallersOp {
    type Item: Pod;

    /// Items of an element.
    fn items(&self) -> usize;

    /// What it is in a signature.
    fn operator(&self) -> OpIdentity;

    /// What its elements are in a signature.
    ///
    /// # Errors
    /// As [`datatype_of`].
    fn element(&self) -> Result<Datatype, Error>;

    /// The operator without its type.
    fn reduce_fn(&self) -> &dyn ReduceFn;

    /// Bytes of an element.
    fn bytes(&self) -> usize {
        self.items() * size_of::<Self::Item>()
    }
}

/// An operator that a posted call keeps, and can be started with any number of times.
pub(crate) trait Kept: CallersOp<Item: Send> + Send + Sync + Sized + 'static {
    /// Buffers apart.
    ///
    /// # Errors
    /// [`Error::Usage`] for buffers that are no whole number of elements; as [`datatype_of`].
    fn apart(&self, send: Vec<Self::Item>, recv: Vec<Self::Item>) -> Result<Owned<Self::Item>, Error>;

    /// One buffer for both.
    ///
    /// # Errors
    /// As [`Kept::apart`].
    fn in_place(&self, recv: Vec<Self::Item>) -> Result<Owned<Self::Item>, Error>;

    /// The reduction of a node's ranks to the first one.
    ///
    /// # Errors
    /// As [`NodeComm::ready_with`].
    fn ready(this: &Arc<Self>, node: &NodeComm, owned: Owned<Self::Item>) -> Result<Ready, Error>;
}

impl<T: Pod + Send, F: Fn(&T, &T) -> T + Send + Sync + 'static> Kept for UserOp<T, F> {
    fn apart(&self, send: Vec<T>, recv: Vec<T>) -> Result<Owned<T>, Error> {
        Owned::apart_of(send, recv)
    }

    fn in_place(&self, recv: Vec<T>) -> Result<Owned<T>, Error> {
        Owned::in_place_of(recv)
    }

    fn ready(this: &Arc<Self>, node: &NodeComm, owned: Owned<T>) -> Result<Ready, Error> {
        node.ready_with(Collective::Reduce, this.clone(), Some(0), owned)
    }
}

impl<F: Fn(&[u8], &mut [u8]) + Send + Sync + 'static> Kept for BytesOp<F> {
    fn apart(&self, send: Vec<u8>, recv: Vec<u8>) -> Result<Owned<u8>, Error> {
        Owned::raw(send, recv, BytesOp::datatype(self))
    }

    fn in_place(&self, recv: Vec<u8>) -> Result<Owned<u8>, Error> {
        Owned::raw_in_place(recv, BytesOp::datatype(self))
    }

    fn ready(this: &Arc<Self>, node: &NodeComm, owned: Owned<u8>) -> Result<Ready, Error> {
        node.ready_raw(Collective::Reduce, this.clone(), Some(0), owned)
    }
}

impl<T: Pod, F: Fn(&T, &T) -> T + Sync> CallersOp for UserOp<T, F> {
    type Item = T;

    fn items(&self) -> usize {
        1
    }

    fn operator(&self) -> OpIdentity {
        UserOp::identity(self)
    }

    fn element(&self) -> Result<Datatype, Error> {
        datatype_of::<T>()
    }

    fn reduce_fn(&self) -> &dyn ReduceFn {
        self
    }
}

impl<F: Fn(&[u8], &mut [u8]) + Sync> CallersOp for BytesOp<F> {
    type Item = u8;

    fn items(&self) -> usize {
        BytesOp::datatype(self).size()
    }

    fn operator(&self) -> OpIdentity {
        BytesOp::identity(self)
    }

    fn element(&self) -> Result<Datatype, Error> {
        Ok(BytesOp::datatype(self))
    }

    fn reduce_fn(&self) -> &dyn ReduceFn {
        self
    }
}
