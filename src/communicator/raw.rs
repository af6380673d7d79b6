//! Reductions by operators on elements of which only the size is known, for bindings to other languages.

use super::request::{Pair, two};
use super::{Communicator, Persistent, Root};
use crate::{BytesOp, Error};
use earlybird_shm::{Collective, OwnedBuffers};

/// Prepared to be started any number of times; [`Persistent::run`] makes the call once.
impl Communicator {
    /// Prepares [`Communicator::all_reduce_into`] with a [`BytesOp`], which is folded by rank. The operator runs inside any call of this
    /// communicator that carries on with what is posted.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group; [`Error::Usage`] for a buffer that is no whole
    /// number of elements.
    pub fn all_reduce_raw_init<F>(
        &self,
        send: Vec<u8>,
        recv: Vec<u8>,
        op: BytesOp<F>,
    ) -> Result<Persistent<'_, Pair<u8>>, Error>
    where
        F: Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
    {
        self.raw_init(Collective::AllReduce, op, None, send, recv)
    }

    /// Prepares [`Communicator::reduce_scatter_block_into`] with a [`BytesOp`]; folded by rank.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_raw_init`].
    pub fn reduce_scatter_block_raw_init<F>(
        &self,
        send: Vec<u8>,
        recv: Vec<u8>,
        op: BytesOp<F>,
    ) -> Result<Persistent<'_, Pair<u8>>, Error>
    where
        F: Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
    {
        self.raw_init(Collective::ReduceScatter, op, None, send, recv)
    }

    fn raw_init<F>(
        &self,
        collective: Collective,
        op: BytesOp<F>,
        root: Option<usize>,
        send: Vec<u8>,
        recv: Vec<u8>,
    ) -> Result<Persistent<'_, Pair<u8>>, Error>
    where
        F: Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
    {
        let (bytes, owned) = (send.len(), OwnedBuffers::raw(send, recv, op.datatype())?);
        if let Some(across) = self.across() {
            return Ok(self.persistent(across.prepared_with(collective, op, root, owned)?, two));
        }
        self.prepared(collective, bytes, two, || self.node.ready_raw(collective, op, root, owned))
    }
}

impl<'c> Root<'c> {
    /// Prepares a reduce with a [`BytesOp`] with `send` of every rank, and `recv` of the root, empty elsewhere; folded by rank.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_raw_init`].
    pub fn reduce_raw_init<F>(
        &self,
        send: Vec<u8>,
        recv: Vec<u8>,
        op: BytesOp<F>,
    ) -> Result<Persistent<'c, Pair<u8>>, Error>
    where
        F: Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
    {
        self.comm.raw_init(Collective::Reduce, op, Some(self.rank), send, recv)
    }
}
