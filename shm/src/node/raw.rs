//! The reductions of a node by operators on elements of which only the size is known.

use super::run::{Folding, Wish};
use super::{How, NodeComm};
use crate::Error;
use crate::bytes_op::BytesOp;
use crate::protocol::geometry::Lens;
use crate::protocol::payload::Buffers;
use crate::protocol::signature::Collective;

impl NodeComm {
    /// As [`NodeComm::all_reduce_into_with`], or `_in_place_with` without `send`.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into_with`]; [`Error::Usage`] for a buffer that is no whole number of elements.
    pub fn all_reduce_raw<F>(
        &self,
        send: Option<&[u8]>,
        recv: &mut [u8],
        op: &BytesOp<F>,
        how: How,
    ) -> Result<(), Error>
    where
        F: Fn(&[u8], &mut [u8]) + Sync,
    {
        let buffers = of_one_length(Buffers::raw(send, recv, op.element())?)?;
        self.reduce_raw_in(Collective::AllReduce, None, op, &buffers, how)
    }

    /// As [`NodeComm::reduce_into_root_with`] on the root, or `reduce_in_place_with` without `send`; as
    /// [`NodeComm::reduce_into_with`] on the others, where `recv` is not used.
    ///
    /// # Errors
    /// As [`NodeComm::reduce_into_root_with`]; [`Error::Usage`] for a buffer that is no whole number of elements.
    pub fn reduce_raw<F>(
        &self,
        send: Option<&[u8]>,
        recv: &mut [u8],
        op: &BytesOp<F>,
        root: usize,
        how: How,
    ) -> Result<(), Error>
    where
        F: Fn(&[u8], &mut [u8]) + Sync,
    {
        self.check_root(root)?;
        let buffers = match root == self.rank {
            true => of_one_length(Buffers::raw(send, recv, op.element())?)?,
            false => Buffers::raw(Some(send.unwrap_or(recv)), &mut [], op.element())?,
        };
        self.reduce_raw_in(Collective::Reduce, Some(root), op, &buffers, how)
    }

    /// As [`NodeComm::reduce_scatter_block_into_with`].
    ///
    /// # Errors
    /// As [`NodeComm::reduce_scatter_block_into_with`]; [`Error::Usage`] for a buffer that is no whole number of elements.
    pub fn reduce_scatter_block_raw<F>(
        &self,
        send: &[u8],
        recv: &mut [u8],
        op: &BytesOp<F>,
        how: How,
    ) -> Result<(), Error>
    where
        F: Fn(&[u8], &mut [u8]) + Sync,
    {
        let buffers = Buffers::raw(Some(send), recv, op.element())?;
        let (lens, folding) = (Lens::Equal(buffers.recv_count()), Folding::User(op, op.operator()));
        self.exchange(Collective::ReduceScatter, folding, None, lens, &buffers, how)
    }

    fn reduce_raw_in<F>(
        &self,
        collective: Collective,
        root: Option<usize>,
        op: &BytesOp<F>,
        buffers: &Buffers<'_>,
        how: How,
    ) -> Result<(), Error>
    where
        F: Fn(&[u8], &mut [u8]) + Sync,
    {
        let (lens, op) = (Lens::Equal(buffers.count()), Folding::User(op, op.operator()));
        self.carry_out(&Wish { collective, op, root, lens, how }, buffers)
    }
}

fn of_one_length(buffers: Buffers<'_>) -> Result<Buffers<'_>, Error> {
    let (send, recv) = (buffers.send_count(), buffers.recv_count());
    match send == recv {
        true => Ok(buffers),
        false => Err(Error::usage(format!(
            "the send buffer has {send} elements and the receive buffer {recv}; give buffers of one length"
        ))),
    }
}
