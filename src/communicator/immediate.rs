//! The collectives that are posted now and completed later, once (`immediate_…`) or again and again (`…_init`).
//!
//! They own their buffers: `docs/protocol.md` says how they proceed. The names are those of the blocking calls.

use super::request::Pair;
use super::{Communicator, Persistent, Request, Root};
use crate::{Element, Error, Op};
use earlybird_shm::Collective;

impl Communicator {
    /// Posts a reduction of `buffer` of all ranks, which becomes the result on every rank.
    ///
    /// Up to 104 bytes travel beside the marks; more run `slices`: deposited here, folded by whoever is inside a call, by
    /// rank, so the bits are the same in every run. `EARLYBIRD_ALLREDUCE` and [`Communicator::set_algorithm`] have no
    /// say in it, but that a plan is refused; [`Communicator::last_call`] tells what ran. Over several nodes it runs as the
    /// blocking call does, by the plan between them that was chosen when it was prepared, but not cut into segments. What
    /// carries on with it is every wait of this process in a call of this library, and [`crate::progress`].
    ///
    /// # Errors
    /// Everything that can be refused at once: [`Error::Usage`], [`Error::Unsupported`] where `op` does not exist for `T`,
    /// and on one node with a plan chosen; the group's one error if it has failed. Others at [`Request::wait`].
    pub fn immediate_all_reduce<T: Element>(&self, buffer: Vec<T>, op: Op) -> Result<Request<'_, Vec<T>>, Error> {
        self.all_reduce_init(buffer, op)?.into_request()
    }

    /// Prepares [`Communicator::immediate_all_reduce`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn all_reduce_init<T: Element>(&self, buffer: Vec<T>, op: Op) -> Result<Persistent<'_, Vec<T>>, Error> {
        self.in_place(Collective::AllReduce, op, None, buffer)
    }

    /// As [`Communicator::immediate_all_reduce`] with a buffer for the result; both come back.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_all_reduce_into<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: Op,
    ) -> Result<Request<'_, Pair<T>>, Error> {
        self.all_reduce_into_init(send, recv, op)?.into_request()
    }

    /// Prepares [`Communicator::immediate_all_reduce_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn all_reduce_into_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: Op,
    ) -> Result<Persistent<'_, Pair<T>>, Error> {
        self.apart(Collective::AllReduce, op, None, send, recv)
    }

    /// Says that this rank has come; the request ends when all have.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_barrier(&self) -> Result<Request<'_, ()>, Error> {
        self.barrier_init()?.into_request()
    }

    /// Prepares [`Communicator::immediate_barrier`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn barrier_init(&self) -> Result<Persistent<'_, ()>, Error> {
        self.meeting()
    }

    /// Posts [`Communicator::all_gather_into`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_all_gather_into<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Request<'_, Pair<T>>, Error> {
        self.all_gather_into_init(send, recv)?.into_request()
    }

    /// Prepares [`Communicator::immediate_all_gather_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn all_gather_into_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Persistent<'_, Pair<T>>, Error> {
        self.apart(Collective::AllGather, Op::Sum, None, send, recv)
    }

    /// Posts [`Communicator::all_to_all_into`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_all_to_all_into<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Request<'_, Pair<T>>, Error> {
        self.all_to_all_into_init(send, recv)?.into_request()
    }

    /// Prepares [`Communicator::immediate_all_to_all_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn all_to_all_into_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Persistent<'_, Pair<T>>, Error> {
        self.apart(Collective::AllToAll, Op::Sum, None, send, recv)
    }

    /// Posts [`Communicator::reduce_scatter_block_into`]; folded by rank.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_reduce_scatter_block_into<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: Op,
    ) -> Result<Request<'_, Pair<T>>, Error> {
        self.reduce_scatter_block_into_init(send, recv, op)?.into_request()
    }

    /// Prepares [`Communicator::immediate_reduce_scatter_block_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn reduce_scatter_block_into_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: Op,
    ) -> Result<Persistent<'_, Pair<T>>, Error> {
        self.apart(Collective::ReduceScatter, op, None, send, recv)
    }
}

impl<'c> Root<'c> {
    /// Posts a broadcast of the root's `buffer` to that of every rank.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_broadcast<T: Element>(&self, buffer: Vec<T>) -> Result<Request<'c, Vec<T>>, Error> {
        self.broadcast_init(buffer)?.into_request()
    }

    /// Prepares [`Root::immediate_broadcast`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn broadcast_init<T: Element>(&self, buffer: Vec<T>) -> Result<Persistent<'c, Vec<T>>, Error> {
        match self.rank == self.comm.rank() {
            true => self.comm.in_place(Collective::Broadcast, Op::Sum, Some(self.rank), buffer),
            false => self.comm.getting(Collective::Broadcast, self.rank, buffer),
        }
    }

    /// Posts [`Root::reduce_into`]; folded by rank.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_reduce_into<T: Element>(&self, send: Vec<T>, op: Op) -> Result<Request<'c, Vec<T>>, Error> {
        self.reduce_into_init(send, op)?.into_request()
    }

    /// Prepares [`Root::immediate_reduce_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn reduce_into_init<T: Element>(&self, send: Vec<T>, op: Op) -> Result<Persistent<'c, Vec<T>>, Error> {
        self.must_be_elsewhere("reduce_into")?;
        self.comm.giving(Collective::Reduce, op, self.rank, send)
    }

    /// Posts [`Root::reduce_into_root`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_reduce_into_root<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: Op,
    ) -> Result<Request<'c, Pair<T>>, Error> {
        self.reduce_into_root_init(send, recv, op)?.into_request()
    }

    /// Prepares [`Root::immediate_reduce_into_root`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn reduce_into_root_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
        op: Op,
    ) -> Result<Persistent<'c, Pair<T>>, Error> {
        self.must_be_here("reduce_into_root", "reduce_into")?;
        self.comm.apart(Collective::Reduce, op, Some(self.rank), send, recv)
    }

    /// Posts [`Root::gather_into`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_gather_into<T: Element>(&self, send: Vec<T>) -> Result<Request<'c, Vec<T>>, Error> {
        self.gather_into_init(send)?.into_request()
    }

    /// Prepares [`Root::immediate_gather_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn gather_into_init<T: Element>(&self, send: Vec<T>) -> Result<Persistent<'c, Vec<T>>, Error> {
        self.must_be_elsewhere("gather_into")?;
        self.comm.giving(Collective::Gather, Op::Sum, self.rank, send)
    }

    /// Posts [`Root::gather_into_root`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_gather_into_root<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Request<'c, Pair<T>>, Error> {
        self.gather_into_root_init(send, recv)?.into_request()
    }

    /// Prepares [`Root::immediate_gather_into_root`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn gather_into_root_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Persistent<'c, Pair<T>>, Error> {
        self.must_be_here("gather_into_root", "gather_into")?;
        self.comm.apart(Collective::Gather, Op::Sum, Some(self.rank), send, recv)
    }

    /// Posts [`Root::scatter_into`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_scatter_into<T: Element>(&self, recv: Vec<T>) -> Result<Request<'c, Vec<T>>, Error> {
        self.scatter_into_init(recv)?.into_request()
    }

    /// Prepares [`Root::immediate_scatter_into`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn scatter_into_init<T: Element>(&self, recv: Vec<T>) -> Result<Persistent<'c, Vec<T>>, Error> {
        self.must_be_elsewhere("scatter_into")?;
        self.comm.getting(Collective::Scatter, self.rank, recv)
    }

    /// Posts [`Root::scatter_into_root`].
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`].
    pub fn immediate_scatter_into_root<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Request<'c, Pair<T>>, Error> {
        self.scatter_into_root_init(send, recv)?.into_request()
    }

    /// Prepares [`Root::immediate_scatter_into_root`] to be started any number of times.
    ///
    /// # Errors
    /// As [`Communicator::immediate_all_reduce`], but for those of the group.
    pub fn scatter_into_root_init<T: Element>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Persistent<'c, Pair<T>>, Error> {
        self.must_be_here("scatter_into_root", "scatter_into")?;
        self.comm.apart(Collective::Scatter, Op::Sum, Some(self.rank), send, recv)
    }
}
