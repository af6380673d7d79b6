//! The reductions of a node by operators of the caller's: arguments checked, as for the built-in ones.

use super::run::{Folding, Wish};
use super::{How, NodeComm};
use crate::Error;
use crate::op::ElementType;
use crate::protocol::geometry::Lens;
use crate::protocol::payload::Buffers;
use crate::protocol::signature::Collective;
use crate::user_op::UserOp;
use bytemuck::Pod;

impl NodeComm {
    /// Reduces `send` of all ranks into `recv` of every rank by an operator of the caller's.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`]; [`Error::OperatorPanicked`] on every rank when the operator panics in one,
    /// [`Error::Unsupported`] when an element is larger than the arena's windows.
    pub fn all_reduce_into_with<T, F>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: &UserOp<T, F>,
        how: How,
    ) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        self.reduce_with(Collective::AllReduce, None, op, &Buffers::apart_of(send, recv)?, how)
    }

    /// Reduces `buf` of all ranks into `buf` of every rank by an operator of the caller's.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into_with`].
    pub fn all_reduce_in_place_with<T, F>(&self, buf: &mut [T], op: &UserOp<T, F>, how: How) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        self.reduce_with(Collective::AllReduce, None, op, &Buffers::in_place_of(buf)?, how)
    }

    /// As [`NodeComm::reduce_into`], by an operator of the caller's.
    ///
    /// # Errors
    /// As [`NodeComm::reduce_into`] and [`NodeComm::all_reduce_into_with`].
    pub fn reduce_into_with<T, F>(&self, send: &[T], op: &UserOp<T, F>, root: usize, how: How) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        self.other_root(root, "reduce_into_with", "reduce_into_root_with")?;
        self.reduce_with(Collective::Reduce, Some(root), op, &Buffers::both_of(send, &mut [])?, how)
    }

    /// As [`NodeComm::reduce_into_root`], by an operator of the caller's.
    ///
    /// # Errors
    /// As [`NodeComm::reduce_into_root`] and [`NodeComm::all_reduce_into_with`].
    pub fn reduce_into_root_with<T, F>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: &UserOp<T, F>,
        how: How,
    ) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        self.reduce_with(Collective::Reduce, Some(self.rank), op, &Buffers::apart_of(send, recv)?, how)
    }

    /// As [`NodeComm::reduce_in_place`], by an operator of the caller's.
    ///
    /// # Errors
    /// As [`NodeComm::reduce_in_place`] and [`NodeComm::all_reduce_into_with`].
    pub fn reduce_in_place_with<T, F>(
        &self,
        buf: &mut [T],
        op: &UserOp<T, F>,
        root: usize,
        how: How,
    ) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        self.check_root(root)?;
        let here = root == self.rank;
        let buffers = if here { Buffers::in_place_of(buf)? } else { Buffers::both_of(buf, &mut [])? };
        self.reduce_with(Collective::Reduce, Some(root), op, &buffers, how)
    }

    /// As [`NodeComm::reduce_scatter_block_into`], by an operator of the caller's.
    ///
    /// # Errors
    /// As [`NodeComm::reduce_scatter_block_into`] and [`NodeComm::all_reduce_into_with`].
    pub fn reduce_scatter_block_into_with<T, F>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: &UserOp<T, F>,
        how: How,
    ) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        let (lens, folding) = (Lens::Equal(recv.len()), Folding::User(op, op.operator()));
        self.exchange(Collective::ReduceScatter, folding, None, lens, &Buffers::both_of(send, recv)?, how)
    }

    /// Refuses elements of a user's type of which no deposit holds what it must.
    pub(super) fn must_fit(&self, collective: Collective, element: ElementType) -> Result<(), Error> {
        // A reduce-scatter folds what all ranks deposit at once.
        let blocks = if collective == Collective::ReduceScatter { self.size } else { 1 };
        let (bytes, window) = (element.size().saturating_mul(blocks), self.windows.deposit);
        let each = if blocks > 1 { format!(" for each of {blocks} ranks") } else { String::new() };
        match bytes <= window {
            true => Ok(()),
            false => Err(Error::Unsupported {
                what: format!("an element of {} bytes{each} in an arena with windows of {window}", element.size()),
                hint: "raise EARLYBIRD_ARENA_MAX, or reduce the parts of the element".into(),
            }),
        }
    }

    fn reduce_with<T, F>(
        &self,
        collective: Collective,
        root: Option<usize>,
        op: &UserOp<T, F>,
        buffers: &Buffers<'_>,
        how: How,
    ) -> Result<(), Error>
    where
        T: Pod,
        F: Fn(&T, &T) -> T + Sync,
    {
        let (lens, op) = (Lens::Equal(buffers.count()), Folding::User(op, op.operator()));
        self.carry_out(&Wish { collective, op, root, lens, how }, buffers)
    }
}
