//! The reductions of a communicator of several nodes: arguments checked, averages and truth values folded as what nodes carry.

use super::Across;
use crate::communicator::folded::{self, Reduction};
use crate::hierarchy::{Call, Hierarchy};
use crate::{DType, Element, Error, Op, SharedView};
use earlybird_shm::Collective;

impl<'a> Across<'a> {
    pub(in crate::communicator) fn all_reduce<T: Element>(
        &self,
        send: Option<&[T]>,
        recv: &mut [T],
        op: Op,
    ) -> Result<(), Error> {
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

    /// One result per node.
    pub(in crate::communicator) fn all_reduce_shared<T: Element>(
        &self,
        send: &[T],
        op: Op,
    ) -> Result<SharedView<'a, T>, Error> {
        let call = self.call::<T>(Collective::AllReduce, op, send.len(), None);
        let call = Call { signature: call.signature.shared(), ..call };
        if matches!((T::DTYPE, op), (DType::F16 | DType::BF16, Op::Average)) {
            // Its sums are wider than its elements: a copy for each rank.
            let mut result = send.to_vec();
            self.all_reduce_as(&call, None, &mut result, op)?;
            return Ok(SharedView::copied(result));
        }
        self.between.all_reduce_shared(&call, send, op)
    }

    /// Many buffers as one: copied together and back.
    pub(in crate::communicator) fn all_reduce_grouped<T: Element>(
        &self,
        buffers: &mut [&mut [T]],
        op: Op,
    ) -> Result<(), Error> {
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

    /// `recv` is there at the root, or, without `send`, at every rank.
    pub(in crate::communicator) fn reduce<T: Element>(
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

    pub(in crate::communicator) fn reduce_scatter<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: Option<&[usize]>,
        op: Op,
    ) -> Result<(), Error> {
        let (each, all) = self.blocks(recv.len(), counts)?;
        self.lengths([send.len(), recv.len()], [all, each[self.comm.rank()]])?;
        let call = self.call_in_blocks::<T>(Collective::ReduceScatter, op, (recv.len(), counts), None);
        struct InParts<'a>(&'a Hierarchy, &'a Call<'a>, &'a [usize]);
        impl Reduction for InParts<'_> {
            fn run<T: Element>(&self, send: Option<&[T]>, recv: &mut [T], op: Op) -> Result<(), Error> {
                self.0.reduce_scatter(self.1, send.unwrap_or(&[]), recv, self.2, op)
            }
        }
        folded::fold(Some(send), recv, op, (self.comm.size(), true), &InParts(self.between, &call, &each))
    }

    /// The same with blocks of these counts; the result replaces this rank's block of `buf`.
    pub(in crate::communicator) fn reduce_scatter_in_place<T: Element>(
        &self,
        buf: &mut [T],
        counts: &[usize],
        op: Op,
    ) -> Result<(), Error> {
        let (all, me) = (self.counts(counts)?, self.comm.rank());
        self.lengths([buf.len(), counts[me]], [all, counts[me]])?;
        let (send, first) = (buf.to_vec(), counts[..me].iter().sum::<usize>());
        self.reduce_scatter(&send, &mut buf[first..first + counts[me]], Some(counts), op)
    }
}
