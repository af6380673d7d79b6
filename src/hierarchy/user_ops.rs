//! Operators of callers as the three phases use them: on elements of a type of Rust, and on elements of which only the size
//! is known.

use crate::{BytesOp, Error, UserOp};
use bytemuck::Pod;
use earlybird_shm::op::{Datatype, OpIdentity};
use earlybird_shm::user_op::{ReduceFn, datatype_of};
use earlybird_shm::{Collective, InactiveRequest, NodeComm, OwnedBuffers};
use std::sync::Arc;

/// An operator on elements of one or more items each: buffers are rows of items, and hold whole elements.
pub(crate) trait UserReduction {
    type Item: Pod;

    /// Items of an element.
    fn items(&self) -> usize;

    /// The identity of the operator in a signature.
    fn operator(&self) -> OpIdentity;

    /// The type of the elements in a signature.
    ///
    /// # Errors
    /// The errors of [`datatype_of`].
    fn element(&self) -> Result<Datatype, Error>;

    /// The operator without its type.
    fn reduce_fn(&self) -> &dyn ReduceFn;

    /// Bytes of an element.
    fn bytes(&self) -> usize {
        self.items() * size_of::<Self::Item>()
    }
}

/// An operator that a posted call keeps, and can be started with any number of times.
pub(crate) trait OwnedUserOp: UserReduction<Item: Send> + Send + Sync + Sized + 'static {
    /// Buffers apart.
    ///
    /// # Errors
    /// [`Error::Usage`] for buffers that are no whole number of elements; as [`datatype_of`].
    fn apart(&self, send: Vec<Self::Item>, recv: Vec<Self::Item>) -> Result<OwnedBuffers<Self::Item>, Error>;

    /// One buffer for both.
    ///
    /// # Errors
    /// The errors of [`OwnedUserOp::apart`].
    fn in_place(&self, recv: Vec<Self::Item>) -> Result<OwnedBuffers<Self::Item>, Error>;

    /// The reduction of a node's ranks to the first one.
    ///
    /// # Errors
    /// The errors of [`NodeComm::ready_with`].
    fn ready(this: &Arc<Self>, node: &NodeComm, owned: OwnedBuffers<Self::Item>) -> Result<InactiveRequest, Error>;
}

impl<T: Pod + Send, F: Fn(&T, &T) -> T + Send + Sync + 'static> OwnedUserOp for UserOp<T, F> {
    fn apart(&self, send: Vec<T>, recv: Vec<T>) -> Result<OwnedBuffers<T>, Error> {
        OwnedBuffers::apart_of(send, recv)
    }

    fn in_place(&self, recv: Vec<T>) -> Result<OwnedBuffers<T>, Error> {
        OwnedBuffers::in_place_of(recv)
    }

    fn ready(this: &Arc<Self>, node: &NodeComm, owned: OwnedBuffers<T>) -> Result<InactiveRequest, Error> {
        node.ready_with(Collective::Reduce, this.clone(), Some(0), owned)
    }
}

impl<F: Fn(&[u8], &mut [u8]) + Send + Sync + 'static> OwnedUserOp for BytesOp<F> {
    fn apart(&self, send: Vec<u8>, recv: Vec<u8>) -> Result<OwnedBuffers<u8>, Error> {
        OwnedBuffers::raw(send, recv, BytesOp::datatype(self))
    }

    fn in_place(&self, recv: Vec<u8>) -> Result<OwnedBuffers<u8>, Error> {
        OwnedBuffers::raw_in_place(recv, BytesOp::datatype(self))
    }

    fn ready(this: &Arc<Self>, node: &NodeComm, owned: OwnedBuffers<u8>) -> Result<InactiveRequest, Error> {
        node.ready_raw(Collective::Reduce, this.clone(), Some(0), owned)
    }
}

impl<T: Pod, F: Fn(&T, &T) -> T + Sync> UserReduction for UserOp<T, F> {
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

impl<F: Fn(&[u8], &mut [u8]) + Sync> UserReduction for BytesOp<F> {
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
