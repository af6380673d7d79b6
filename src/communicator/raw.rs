//! Reductions by operators on elements of which only the size is known, for bindings to other languages.

use super::request::{Pair, two};
use super::{Communicator, Persistent, Root};
use crate::{BytesOp, Error};
use earlybird_shm::{Collective, Owned};
use std::borrow::Cow;

impl Communicator {
    /// As [`Communicator::all_reduce_into_with`], or without `send` as [`Communicator::all_reduce_in_place_with`], on
    /// elements of as many bytes as `op` says.
    ///
    /// ```
    /// let comm = earlybird::Communicator::from_env()?;
    /// let op = earlybird::BytesOp::new(2, true, |left, right| right.iter_mut().zip(left).for_each(|(r, l)| *r |= l))?;
    /// let mut pairs = [1, 2, 4, 8];
    /// comm.all_reduce_raw(None, &mut pairs, &op)?;
    /// assert_eq!(pairs, [1, 2, 4, 8]);
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_into_with`]; [`Error::Usage`] for a buffer that is no whole number of elements.
    pub fn all_reduce_raw<F>(&self, send: Option<&[u8]>, recv: &mut [u8], op: &BytesOp<F>) -> Result<(), Error>
    where
        F: Fn(&[u8], &mut [u8]) + Sync,
    {
        if let Some(across) = self.across() {
            return across.all_reduce_with(send, recv, op);
        }
        let how = self.how(Collective::AllReduce, recv.len())?;
        self.done(self.node.all_reduce_raw(send, recv, op, how))
    }

    /// As [`Communicator::reduce_scatter_block_into_with`], on elements of as many bytes as `op` says.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce_raw`].
    pub fn reduce_scatter_block_raw<F>(&self, send: &[u8], recv: &mut [u8], op: &BytesOp<F>) -> Result<(), Error>
    where
        F: Fn(&[u8], &mut [u8]) + Sync,
    {
        if let Some(across) = self.across() {
            return across.reduce_scatter_with(send, recv, op);
        }
        let how = self.how(Collective::ReduceScatter, recv.len())?;
        self.done(self.node.reduce_scatter_block_raw(send, recv, op, how))
    }
}

/// Prepared to be started any number of times; [`Persistent::run`] makes the call once.
impl Communicator {
    /// Prepares [`Communicator::all_reduce_raw`], which is folded by rank. The operator runs inside any call of this
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

    /// Prepares [`Communicator::reduce_scatter_block_raw`]; folded by rank.
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
        let (bytes, owned) = (send.len(), Owned::raw(send, recv, op.element())?);
        if let Some(across) = self.across() {
            return Ok(self.persistent(across.prepared_with(collective, op, root, owned)?, two));
        }
        self.prepared(collective, bytes, two, || self.node.ready_raw(collective, op, root, owned))
    }
}

impl<'c> Root<'c> {
    /// Prepares [`Root::reduce_raw`] with `send` of every rank, and `recv` of the root, empty elsewhere; folded by rank.
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

impl Root<'_> {
    /// Reduces `send` of all ranks, or what lies in `recv` of those that give none, into `recv` of the root, on elements of as
    /// many bytes as `op` says. Every rank calls it; `recv` of the others stays as it is, and is empty where they `send`.
    ///
    /// # Errors
    /// As [`Root::reduce_in_place_with`]; [`Error::Usage`] for a buffer that is no whole number of elements.
    pub fn reduce_raw<F>(&self, send: Option<&[u8]>, recv: &mut [u8], op: &BytesOp<F>) -> Result<(), Error>
    where
        F: Fn(&[u8], &mut [u8]) + Sync,
    {
        if let Some(across) = self.comm.across() {
            let send = match send {
                Some(send) => Cow::Borrowed(send),
                None => Cow::Owned(recv.to_vec()),
            };
            let recv = (self.rank == self.comm.rank()).then_some(recv);
            return across.reduce_with(self.rank, &send, recv, op);
        }
        let how = self.comm.how(Collective::Reduce, send.unwrap_or(recv).len())?;
        self.comm.done(self.comm.node.reduce_raw(send, recv, op, self.rank, how))
    }
}
