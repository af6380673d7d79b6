//! Operators of callers as the three phases use them: on elements of a type of Rust, and on elements of which only the size
//! is known.

use crate::{BytesOp, Error, UserOp};
use bytemuck::{Pod, bytes_of, pod_read_unaligned};
use earlybird_shm::op::{ElementType, Operator};
use earlybird_shm::user_op::element_type;
use earlybird_shm::{Collective, How, NodeComm, Owned, Ready};
use std::sync::Arc;

/// An operator on elements of one or more items each: buffers are rows of items, and hold whole elements.
pub(crate) trait CallersOp {
    type Item: Pod;

    /// Items of an element.
    fn items(&self) -> usize;

    /// What it is in a signature.
    fn operator(&self) -> Operator;

    /// What its elements are in a signature.
    ///
    /// # Errors
    /// As [`element_type`].
    fn element(&self) -> Result<ElementType, Error>;

    /// Gives `send` to the reduction at the first rank of a node; for the others.
    ///
    /// # Errors
    /// As [`NodeComm::reduce_into_with`].
    fn give(&self, node: &NodeComm, send: &[Self::Item], how: How) -> Result<(), Error>;

    /// Reduces `send` of a node's ranks, or `recv` in place, into `recv` of the first one, which calls this.
    ///
    /// # Errors
    /// As [`NodeComm::reduce_into_root_with`].
    fn get(&self, node: &NodeComm, send: Option<&[Self::Item]>, recv: &mut [Self::Item], how: How)
    -> Result<(), Error>;

    /// `left = left op right`, at any address.
    ///
    /// # Errors
    /// [`Error::Usage`] for operands of different lengths.
    fn fold(&self, left: &mut [u8], right: &[u8]) -> Result<(), Error>;

    /// Whether operands must stand in rank order.
    fn is_ordered(&self) -> bool {
        matches!(self.operator(), Operator::User { ordered: true, .. })
    }

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
    /// [`Error::Usage`] for buffers that are no whole number of elements; as [`element_type`].
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
        Owned::raw(send, recv, BytesOp::element(self))
    }

    fn in_place(&self, recv: Vec<u8>) -> Result<Owned<u8>, Error> {
        Owned::raw_in_place(recv, BytesOp::element(self))
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

    fn operator(&self) -> Operator {
        UserOp::operator(self)
    }

    fn element(&self) -> Result<ElementType, Error> {
        element_type::<T>()
    }

    fn give(&self, node: &NodeComm, send: &[T], how: How) -> Result<(), Error> {
        node.reduce_into_with(send, self, 0, how)
    }

    fn get(&self, node: &NodeComm, send: Option<&[T]>, recv: &mut [T], how: How) -> Result<(), Error> {
        match send {
            Some(send) => node.reduce_into_root_with(send, recv, self, how),
            None => node.reduce_in_place_with(recv, self, 0, how),
        }
    }

    fn fold(&self, left: &mut [u8], right: &[u8]) -> Result<(), Error> {
        for (left, right) in left.chunks_exact_mut(size_of::<T>()).zip(right.chunks_exact(size_of::<T>())) {
            let folded = self.combine(&pod_read_unaligned(left), &pod_read_unaligned(right));
            left.copy_from_slice(bytes_of(&folded));
        }
        Ok(())
    }
}

impl<F: Fn(&[u8], &mut [u8]) + Sync> CallersOp for BytesOp<F> {
    type Item = u8;

    fn items(&self) -> usize {
        BytesOp::element(self).size()
    }

    fn operator(&self) -> Operator {
        BytesOp::operator(self)
    }

    fn element(&self) -> Result<ElementType, Error> {
        Ok(BytesOp::element(self))
    }

    fn give(&self, node: &NodeComm, send: &[u8], how: How) -> Result<(), Error> {
        node.reduce_raw(Some(send), &mut [], self, 0, how)
    }

    fn get(&self, node: &NodeComm, send: Option<&[u8]>, recv: &mut [u8], how: How) -> Result<(), Error> {
        node.reduce_raw(send, recv, self, 0, how)
    }

    fn fold(&self, left: &mut [u8], right: &[u8]) -> Result<(), Error> {
        self.fold_left(left, right)
    }
}
