//! The operations of a communicator of several nodes: arguments checked on every rank, elements seen as bytes, then
//! handed to the [`Hierarchy`].

mod operators;

use super::Communicator;
use super::folded::{self, Reduction};
use crate::hierarchy::{Call, Hierarchy, Part, Prepared, put_truth};
use crate::{Algorithm, Choice, Element, Error, FoldOrder, Op};
use earlybird_shm::Signature;
use earlybird_shm::bytes;
use earlybird_shm::op::{ElementType, Operator};
use earlybird_shm::{Collective, DType, Owned};

/// Several nodes, and the communicator that spans them.
pub(super) struct Across<'a> {
    comm: &'a Communicator,
    between: &'a Hierarchy,
}

/// The bytes of a buffer to write to.
fn writing<T: Element>(buf: &mut [T], write: impl FnOnce(&mut [u8]) -> Result<(), Error>) -> Result<(), Error> {
    if T::DTYPE != DType::Bool {
        return write(bytes::of_mut(buf));
    }
    // Not every byte is a bool.
    let mut copy = bytes::of(buf).to_vec();
    write(&mut copy)?;
    put_truth(buf, &copy);
    Ok(())
}

fn lens<T>(counts: &[usize]) -> Vec<usize> {
    counts.iter().map(|count| count * size_of::<T>()).collect()
}

impl Communicator {
    /// The other nodes, where there are some.
    #[inline]
    pub(super) fn across(&self) -> Option<Across<'_>> {
        self.between.as_deref().map(|between| Across { comm: self, between })
    }
}

impl Across<'_> {
    /// A call with blocks of `count` elements, or of each of `counts`.
    fn call<T: Element>(&self, collective: Collective, op: Op, count: usize, root: Option<usize>) -> Call<'_> {
        self.call_of(collective, T::DTYPE.into(), op.into(), count, root)
    }

    fn call_of(
        &self,
        collective: Collective,
        element: ElementType,
        op: Operator,
        count: usize,
        root: Option<usize>,
    ) -> Call<'_> {
        let bytes = count.saturating_mul(element.size());
        let how = self.comm.settings.how(collective, bytes);
        let exchange = match self.comm.settings.choice(collective, bytes) {
            Choice::Plan(name) => Some(name),
            Choice::Node(_) => None,
        };
        let order = if collective.folds() { how.order } else { FoldOrder::Arrival };
        let signature = Signature::new(collective, element, op, order, Algorithm::Auto, count);
        let signature = root.map_or(signature, |root| signature.rooted(root));
        Call { node: &self.comm.node, collective, how, signature, exchange }
    }

    fn call_of_each<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        counts: &[usize],
        root: Option<usize>,
    ) -> Call<'_> {
        let most = counts.iter().copied().max().unwrap_or(0);
        let call = self.call::<T>(collective, op, most, root);
        Call { signature: call.signature.unequal(counts), ..call }
    }

    fn root(&self, root: usize) -> Result<(), Error> {
        match root < self.comm.size() {
            true => Ok(()),
            false => Err(Error::usage(format!("root {root} does not exist among {} ranks", self.comm.size()))),
        }
    }

    /// A rank that is not the root.
    fn other(&self, root: usize, called: &str) -> Result<(), Error> {
        self.root(root)?;
        match root == self.comm.rank() {
            false => Ok(()),
            true => Err(Error::usage(format!("rank {root} is the root and called {called}; call {called}_root there"))),
        }
    }

    fn counts(&self, counts: &[usize]) -> Result<usize, Error> {
        let ranks = self.comm.size();
        if counts.len() != ranks {
            return Err(Error::usage(format!("{} counts for {ranks} ranks; give one per rank", counts.len())));
        }
        let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        sum.ok_or_else(|| Error::usage(format!("the sum of the counts {counts:?} is too large")))
    }

    fn lengths(&self, given: [usize; 2], expected: [usize; 2]) -> Result<(), Error> {
        match given == expected {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "rank {} of {}: the send buffer has {} elements and the receive buffer {}, expected are {} and {}",
                self.comm.rank(),
                self.comm.size(),
                given[0],
                given[1],
                expected[0],
                expected[1]
            ))),
        }
    }

    /// `count` elements for each rank: how many that are.
    fn of_all(&self, count: usize) -> Result<usize, Error> {
        let all = count.checked_mul(self.comm.size());
        all.ok_or_else(|| Error::usage(format!("{count} elements for each of {} ranks are too many", self.comm.size())))
    }

    pub(super) fn all_reduce<T: Element>(&self, send: Option<&[T]>, recv: &mut [T], op: Op) -> Result<(), Error> {
        let call = self.call::<T>(Collective::AllReduce, op, recv.len(), None);
        self.all_reduce_as(&call, send, recv, op)
    }

    fn all_reduce_as<T: Element>(
        &self,
        call: &Call<'_>,
        send: Option<&[T]>,
        recv: &mut [T],
        op: Op,
    ) -> Result<(), Error> {
        struct Whole<'a>(&'a Hierarchy, &'a Call<'a>);
        impl Reduction for Whole<'_> {
            fn run<T: Element>(&self, send: Option<&[T]>, recv: &mut [T], op: Op) -> Result<(), Error> {
                self.0.all_reduce(self.1, send, recv, op)
            }
        }
        folded::fold(send, recv, op, (self.comm.size(), true), &Whole(self.between, call))
    }

    /// Many buffers as one: copied together and back.
    pub(super) fn all_reduce_grouped<T: Element>(&self, buffers: &mut [&mut [T]], op: Op) -> Result<(), Error> {
        let counts: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
        let mut all = buffers.concat();
        let call = self.call::<T>(Collective::AllReduce, op, all.len(), None);
        let call = Call { signature: call.signature.unequal(&counts), ..call };
        self.all_reduce_as(&call, None, &mut all, op)?;
        let mut rest = &all[..];
        for buffer in buffers {
            let (part, after) = rest.split_at(buffer.len());
            buffer.copy_from_slice(part);
            rest = after;
        }
        Ok(())
    }

    pub(super) fn barrier(&self) -> Result<(), Error> {
        self.between.barrier(&self.call::<u8>(Collective::Barrier, Op::Sum, 0, None))
    }

    /// `recv` is there at the root, or, without `send`, at every rank.
    pub(super) fn reduce<T: Element>(
        &self,
        root: usize,
        send: Option<&[T]>,
        recv: Option<&mut [T]>,
        op: Op,
    ) -> Result<(), Error> {
        match (send, &recv) {
            (Some(send), Some(recv)) => crate::plans::equal_lengths(send, recv)?,
            (Some(_), None) => self.other(root, "reduce_into")?,
            _ => self.root(root)?,
        }
        struct ToRoot<'a>(&'a Hierarchy, &'a Call<'a>, usize);
        impl Reduction for ToRoot<'_> {
            fn run<T: Element>(&self, send: Option<&[T]>, recv: &mut [T], op: Op) -> Result<(), Error> {
                self.0.reduce(self.1, self.2, send, recv, op)
            }
        }
        let recv = recv.unwrap_or(&mut []);
        let count = send.map_or(recv.len(), <[T]>::len);
        let call = self.call::<T>(Collective::Reduce, op, count, Some(root));
        let result = (self.comm.size(), self.comm.rank() == root);
        folded::fold(send, recv, op, result, &ToRoot(self.between, &call, root))
    }

    pub(super) fn reduce_scatter<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: Option<&[usize]>,
        op: Op,
    ) -> Result<(), Error> {
        let equal = vec![recv.len(); self.comm.size()];
        let all = match counts {
            Some(counts) => self.counts(counts)?,
            None => self.of_all(recv.len())?,
        };
        let each = counts.unwrap_or(&equal);
        self.lengths([send.len(), recv.len()], [all, each[self.comm.rank()]])?;
        let call = match counts {
            Some(counts) => self.call_of_each::<T>(Collective::ReduceScatter, op, counts, None),
            None => self.call::<T>(Collective::ReduceScatter, op, recv.len(), None),
        };
        struct InParts<'a>(&'a Hierarchy, &'a Call<'a>, &'a [usize]);
        impl Reduction for InParts<'_> {
            fn run<T: Element>(&self, send: Option<&[T]>, recv: &mut [T], op: Op) -> Result<(), Error> {
                self.0.reduce_scatter(self.1, send.unwrap_or(&[]), recv, self.2, op)
            }
        }
        folded::fold(Some(send), recv, op, (self.comm.size(), true), &InParts(self.between, &call, each))
    }

    pub(super) fn broadcast<T: Element>(&self, root: usize, buf: &mut [T]) -> Result<(), Error> {
        self.root(root)?;
        let call = self.call::<T>(Collective::Broadcast, Op::Sum, buf.len(), Some(root));
        writing(buf, |buf| self.between.broadcast(&call, root, buf))
    }

    /// `send` is empty where what is given lies in `recv` already.
    pub(super) fn all_gather<T: Element>(
        &self,
        send: Option<&[T]>,
        recv: &mut [T],
        counts: Option<&[usize]>,
    ) -> Result<(), Error> {
        let (ranks, me) = (self.comm.size(), self.comm.rank());
        if send.is_none() && !recv.len().is_multiple_of(ranks) {
            let given = recv.len();
            return Err(Error::usage(format!("a buffer of {given} elements does not divide among {ranks} ranks")));
        }
        let block = send.map_or(recv.len() / ranks, <[T]>::len);
        let equal = vec![block; ranks];
        let all = match counts {
            Some(counts) => self.counts(counts)?,
            None => self.of_all(block)?,
        };
        let each = counts.unwrap_or(&equal);
        self.lengths([block, recv.len()], [each[me], all])?;
        let call = match counts {
            Some(counts) => self.call_of_each::<T>(Collective::AllGather, Op::Sum, counts, None),
            None => self.call::<T>(Collective::AllGather, Op::Sum, block, None),
        };
        let own = send.map_or_else(|| bytes::of(&recv[me * block..][..block]).to_vec(), |s| bytes::of(s).to_vec());
        writing(recv, |recv| self.between.all_gather(&call, &own, recv, &lens::<T>(each)))
    }

    /// `recv` is there at the root.
    pub(super) fn gather<T: Element>(
        &self,
        root: usize,
        send: &[T],
        recv: Option<&mut [T]>,
        counts: Option<&[usize]>,
    ) -> Result<(), Error> {
        let equal = vec![send.len(); self.comm.size()];
        let all = match counts {
            Some(counts) => self.counts(counts)?,
            None => self.of_all(send.len())?,
        };
        let each = counts.unwrap_or(&equal);
        let name = if counts.is_some() { "gather_varcount_into" } else { "gather_into" };
        match &recv {
            Some(recv) => self.lengths([send.len(), recv.len()], [each[self.comm.rank()], all])?,
            None => {
                self.other(root, name)?;
                self.lengths([send.len(), 0], [each[self.comm.rank()], 0])?;
            }
        }
        let call = match counts {
            Some(counts) => self.call_of_each::<T>(Collective::Gather, Op::Sum, counts, Some(root)),
            None => self.call::<T>(Collective::Gather, Op::Sum, send.len(), Some(root)),
        };
        let recv = recv.unwrap_or(&mut []);
        writing(recv, |recv| self.between.gather(&call, root, bytes::of(send), recv, &lens::<T>(each)))
    }

    /// `send` is there at the root.
    pub(super) fn scatter<T: Element>(
        &self,
        root: usize,
        send: Option<&[T]>,
        recv: &mut [T],
        counts: Option<&[usize]>,
    ) -> Result<(), Error> {
        let equal = vec![recv.len(); self.comm.size()];
        let all = match counts {
            Some(counts) => self.counts(counts)?,
            None => self.of_all(recv.len())?,
        };
        let each = counts.unwrap_or(&equal);
        let name = if counts.is_some() { "scatter_varcount_into" } else { "scatter_into" };
        match send {
            Some(send) => self.lengths([send.len(), recv.len()], [all, each[self.comm.rank()]])?,
            None => {
                self.other(root, name)?;
                self.lengths([0, recv.len()], [0, each[self.comm.rank()]])?;
            }
        }
        let call = match counts {
            Some(counts) => self.call_of_each::<T>(Collective::Scatter, Op::Sum, counts, Some(root)),
            None => self.call::<T>(Collective::Scatter, Op::Sum, recv.len(), Some(root)),
        };
        let send = bytes::of(send.unwrap_or(&[]));
        writing(recv, |recv| self.between.scatter(&call, root, send, recv, &lens::<T>(each)))
    }

    /// The elements of this rank's block of a buffer with one for every rank.
    pub(super) fn own_block<T: Element>(&self, buf: &[T]) -> Result<Vec<T>, Error> {
        let (count, ranks) = (buf.len(), self.comm.size());
        match count.is_multiple_of(ranks) {
            true => Ok(buf[self.comm.rank() * (count / ranks)..][..count / ranks].to_vec()),
            false => Err(Error::usage(format!(
                "a buffer of {count} elements does not divide among {ranks} ranks; give a multiple"
            ))),
        }
    }

    /// Without `send`, what is sent lies in `recv`.
    pub(super) fn all_to_all<T: Element>(&self, send: Option<&[T]>, recv: &mut [T]) -> Result<(), Error> {
        let (count, ranks) = (send.map_or(recv.len(), <[T]>::len), self.comm.size());
        if !count.is_multiple_of(ranks) {
            return Err(Error::usage(format!(
                "a buffer of {count} elements does not divide among {ranks} ranks; give a multiple"
            )));
        }
        self.lengths([count, recv.len()], [count, count])?;
        let call = self.call::<T>(Collective::AllToAll, Op::Sum, count / ranks, None);
        let own = send.is_none().then(|| bytes::of(recv).to_vec());
        writing(recv, |recv| {
            let send = send.map(bytes::of).or(own.as_deref());
            self.between.all_to_all(&call, send.unwrap_or(&[]), recv)
        })
    }

    /// A call that can be posted: as on one node, refused here if its buffers have not the lengths that it needs.
    pub(super) fn prepared<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        root: Option<usize>,
        owned: Owned<T>,
    ) -> Result<Prepared, Error> {
        if let Some(root) = root {
            self.root(root)?;
        }
        if collective.folds() {
            T::DTYPE.must_have(op)?;
        }
        let (send, recv, size) = (owned.send.len(), owned.recv.len(), self.comm.size());
        let gets_all = root.is_none_or(|root| root == self.comm.rank());
        let (block, expected) = match collective {
            _ if owned.is_in_place() => (recv, [0, recv]),
            Collective::AllReduce | Collective::Reduce => (send, [send, if gets_all { send } else { 0 }]),
            Collective::AllGather | Collective::Gather => (send, [send, if gets_all { self.of_all(send)? } else { 0 }]),
            Collective::Scatter => (recv, [if gets_all { self.of_all(recv)? } else { 0 }, recv]),
            Collective::ReduceScatter => (recv, [self.of_all(recv)?, recv]),
            Collective::AllToAll if !send.is_multiple_of(size) => {
                return Err(Error::usage(format!(
                    "a buffer of {send} elements does not divide among {size} ranks; give a multiple"
                )));
            }
            Collective::AllToAll => (send / size, [send, send]),
            _ => (recv, [0, recv]),
        };
        self.lengths([send, recv], expected)?;
        let signature = self.call::<T>(collective, op, block, root).signature.posted();
        Ok(Prepared::new((collective, op, root), signature, owned))
    }

    pub(super) fn split(&self, what: Collective, color: Option<u32>, key: i64) -> Result<Option<Part>, Error> {
        self.between.split(&self.call::<u64>(what, Op::Sum, 0, None), color, key)
    }

    /// Numbers of the last call and what ran in it.
    pub(super) fn last(&self) -> Option<super::CallReport> {
        let (operation, name) = self.between.last()?;
        Some(super::CallReport { operation, algorithm: Choice::Plan(name), place: None })
    }
}
