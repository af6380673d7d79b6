//! More forms of the calls that are posted now and completed later: blocks of different lengths, many buffers at once, and
//! operators of users, which the call keeps.

use super::prepared_call::PreparedCall;
use super::request::{Grouped, Pair, one, two};
use super::{Communicator, Persistent, Request, Root};
use crate::{Element, Error, Op, UserOp};
use bytemuck::Pod;
use earlybird_shm::{Collective, OwnedBuffers};

impl Communicator {
    /// Posts [`Communicator::all_gather_varcount_into`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_all_gather_varcount_into<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        counts: &[usize],
    ) -> Result<Request<'_, Pair<T>>, Error> {
        self.all_gather_varcount_into_init(send, recv, counts)?.into_request()
    }

    /// Prepares [`Communicator::immediate_all_gather_varcount_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn all_gather_varcount_into_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        counts: &[usize],
    ) -> Result<Persistent<'_, Pair<T>>, Error> {
        self.unequal(Collective::AllGather, Op::Sum, None, counts, OwnedBuffers::apart(send, recv), two)
    }

    /// Posts [`Communicator::reduce_scatter_varcount_into`]; folded by rank.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_reduce_scatter_varcount_into<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        counts: &[usize],
        op: Op,
    ) -> Result<Request<'_, Pair<T>>, Error> {
        self.reduce_scatter_varcount_into_init(send, recv, counts, op)?.into_request()
    }

    /// Prepares [`Communicator::immediate_reduce_scatter_varcount_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn reduce_scatter_varcount_into_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        counts: &[usize],
        op: Op,
    ) -> Result<Persistent<'_, Pair<T>>, Error> {
        self.unequal(Collective::ReduceScatter, op, None, counts, OwnedBuffers::apart(send, recv), two)
    }

    /// Posts [`Communicator::all_reduce_grouped_in_place`]: many buffers as one operation.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_all_reduce_grouped<T: Element>(
        &self,
        buffers: Vec<Vec<T>>,
        op: Op,
    ) -> Result<Request<'_, Vec<Vec<T>>>, Error> {
        self.all_reduce_grouped_init(buffers, op)?.into_request()
    }

    /// Prepares [`Communicator::immediate_all_reduce_grouped`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn all_reduce_grouped_init<T: Element>(
        &self,
        buffers: Vec<Vec<T>>,
        op: Op,
    ) -> Result<Persistent<'_, Vec<Vec<T>>>, Error> {
        let bytes = buffers.iter().map(|buffer| size_of_val(&buffer[..])).sum();
        let take = |ready: PreparedCall| -> Grouped<T> { ready.into_parts().expect("the type it was made with") };
        if let Some(across) = self.across() {
            return Ok(self.persistent(across.prepared_grouped(op, buffers)?, take));
        }
        self.prepared(Collective::AllReduce, bytes, take, || self.node.ready_grouped(op, buffers))
    }

    /// Posts [`Communicator::all_reduce_in_place`], which is folded by rank. The operator runs inside any call of this
    /// process that carries on with what is posted, in whatever thread; it must call no communicator.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_all_reduce_with<T, F>(
        &self,
        buffer: Vec<T>,
        op: UserOp<T, F>,
    ) -> Result<Request<'_, Vec<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.all_reduce_with_init(buffer, op)?.into_request()
    }

    /// Prepares [`Communicator::immediate_all_reduce_with`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn all_reduce_with_init<T, F>(&self, buffer: Vec<T>, op: UserOp<T, F>) -> Result<Persistent<'_, Vec<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.by_user(Collective::AllReduce, op, None, OwnedBuffers::in_place_of(buffer)?, one)
    }

    /// As [`Communicator::immediate_all_reduce_with`] with a buffer for the result; both come back.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_all_reduce_into_with<T, F>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: UserOp<T, F>,
    ) -> Result<Request<'_, Pair<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.all_reduce_into_with_init(send, recv, op)?.into_request()
    }

    /// Prepares [`Communicator::immediate_all_reduce_into_with`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn all_reduce_into_with_init<T, F>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: UserOp<T, F>,
    ) -> Result<Persistent<'_, Pair<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.by_user(Collective::AllReduce, op, None, OwnedBuffers::apart_of(send, recv)?, two)
    }

    /// Posts [`Communicator::reduce_scatter_block_into`]; folded by rank.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_reduce_scatter_block_into_with<T, F>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: UserOp<T, F>,
    ) -> Result<Request<'_, Pair<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.reduce_scatter_block_into_with_init(send, recv, op)?.into_request()
    }

    /// Prepares [`Communicator::immediate_reduce_scatter_block_into_with`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn reduce_scatter_block_into_with_init<T, F>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: UserOp<T, F>,
    ) -> Result<Persistent<'_, Pair<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.by_user(Collective::ReduceScatter, op, None, OwnedBuffers::apart_of(send, recv)?, two)
    }

    fn unequal<T: Element, B>(
        &self,
        collective: Collective,
        op: Op,
        root: Option<usize>,
        counts: &[usize],
        owned: OwnedBuffers<T>,
        take: fn(PreparedCall) -> B,
    ) -> Result<Persistent<'_, B>, Error> {
        if let Some(across) = self.across() {
            return Ok(self.persistent(across.prepared(collective, op, root, Some(counts), owned)?, take));
        }
        let ready = || self.node.ready_varcount(collective, op, root, counts, owned);
        self.prepared(collective, largest::<T>(counts), take, ready)
    }

    fn by_user<T, F, B>(
        &self,
        collective: Collective,
        op: UserOp<T, F>,
        root: Option<usize>,
        owned: OwnedBuffers<T>,
        take: fn(PreparedCall) -> B,
    ) -> Result<Persistent<'_, B>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        if let Some(across) = self.across() {
            return Ok(self.persistent(across.prepared_with(collective, op, root, owned)?, take));
        }
        let bytes = size_of_val(&owned.recv[..]).max(size_of_val(&owned.send[..]));
        self.prepared(collective, bytes, take, || self.node.ready_with(collective, op, root, owned))
    }
}

impl<'c> Root<'c> {
    /// Posts [`Root::gather_varcount_into`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_gather_varcount_into<T: Element>(
        &self,
        send: Vec<T>,
        counts: &[usize],
    ) -> Result<Request<'c, Vec<T>>, Error> {
        self.gather_varcount_into_init(send, counts)?.into_request()
    }

    /// Prepares [`Root::immediate_gather_varcount_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn gather_varcount_into_init<T: Element>(
        &self,
        send: Vec<T>,
        counts: &[usize],
    ) -> Result<Persistent<'c, Vec<T>>, Error> {
        self.must_be_elsewhere("gather_varcount_into")?;
        let owned = OwnedBuffers::apart(send, Vec::new());
        self.comm.unequal(Collective::Gather, Op::Sum, Some(self.rank), counts, owned, one)
    }

    /// Posts [`Root::gather_varcount_into_root`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_gather_varcount_into_root<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        counts: &[usize],
    ) -> Result<Request<'c, Pair<T>>, Error> {
        self.gather_varcount_into_root_init(send, recv, counts)?.into_request()
    }

    /// Prepares [`Root::immediate_gather_varcount_into_root`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn gather_varcount_into_root_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        counts: &[usize],
    ) -> Result<Persistent<'c, Pair<T>>, Error> {
        self.must_be_here("gather_varcount_into_root", "gather_varcount_into")?;
        let owned = OwnedBuffers::apart(send, recv);
        self.comm.unequal(Collective::Gather, Op::Sum, Some(self.rank), counts, owned, two)
    }

    /// Posts [`Root::scatter_varcount_into`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_scatter_varcount_into<T: Element>(
        &self,
        recv: Vec<T>,
        counts: &[usize],
    ) -> Result<Request<'c, Vec<T>>, Error> {
        self.scatter_varcount_into_init(recv, counts)?.into_request()
    }

    /// Prepares [`Root::immediate_scatter_varcount_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn scatter_varcount_into_init<T: Element>(
        &self,
        recv: Vec<T>,
        counts: &[usize],
    ) -> Result<Persistent<'c, Vec<T>>, Error> {
        self.must_be_elsewhere("scatter_varcount_into")?;
        let owned = OwnedBuffers::apart(Vec::new(), recv);
        self.comm.unequal(Collective::Scatter, Op::Sum, Some(self.rank), counts, owned, one)
    }

    /// Posts [`Root::scatter_varcount_into_root`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_scatter_varcount_into_root<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        counts: &[usize],
    ) -> Result<Request<'c, Pair<T>>, Error> {
        self.scatter_varcount_into_root_init(send, recv, counts)?.into_request()
    }

    /// Prepares [`Root::immediate_scatter_varcount_into_root`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn scatter_varcount_into_root_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        counts: &[usize],
    ) -> Result<Persistent<'c, Pair<T>>, Error> {
        self.must_be_here("scatter_varcount_into_root", "scatter_varcount_into")?;
        let owned = OwnedBuffers::apart(send, recv);
        self.comm.unequal(Collective::Scatter, Op::Sum, Some(self.rank), counts, owned, two)
    }

    /// Posts [`Root::reduce_into`]; folded by rank.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_reduce_into_with<T, F>(&self, send: Vec<T>, op: UserOp<T, F>) -> Result<Request<'c, Vec<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.reduce_into_with_init(send, op)?.into_request()
    }

    /// Prepares [`Root::immediate_reduce_into_with`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn reduce_into_with_init<T, F>(&self, send: Vec<T>, op: UserOp<T, F>) -> Result<Persistent<'c, Vec<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.must_be_elsewhere("reduce_into_with")?;
        let owned = OwnedBuffers::apart_of(send, Vec::new())?;
        self.comm.by_user(Collective::Reduce, op, Some(self.rank), owned, one)
    }

    /// Posts [`Root::reduce_into_root`]; folded by rank.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_reduce_into_root_with<T, F>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: UserOp<T, F>,
    ) -> Result<Request<'c, Pair<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.reduce_into_root_with_init(send, recv, op)?.into_request()
    }

    /// Prepares [`Root::immediate_reduce_into_root_with`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn reduce_into_root_with_init<T, F>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: UserOp<T, F>,
    ) -> Result<Persistent<'c, Pair<T>>, Error>
    where
        T: Pod + Send,
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        self.must_be_here("reduce_into_root_with", "reduce_into_with")?;
        let owned = OwnedBuffers::apart_of(send, recv)?;
        self.comm.by_user(Collective::Reduce, op, Some(self.rank), owned, two)
    }
}

/// Bytes of the largest of blocks with these counts: the same on all ranks.
fn largest<T>(counts: &[usize]) -> usize {
    counts.iter().copied().max().unwrap_or(0).saturating_mul(size_of::<T>())
}
