//! The operations of a communicator of several nodes that move data: arguments checked, elements seen as bytes.

use super::{Across, lens, writing};
use crate::hierarchy::{Call, Counts};
use crate::{Element, Error, Op};
use earlybird_shm::{Collective, bytes, even_part};

impl Across<'_> {
    pub(in crate::communicator) fn broadcast<T: Element>(&self, root: usize, buf: &mut [T]) -> Result<(), Error> {
        self.root(root)?;
        let call = self.call::<T>(Collective::Broadcast, Op::Sum, buf.len(), Some(root));
        writing(buf, |buf| self.between.broadcast(&call, root, buf))
    }

    /// `send` is empty where what is given lies in `recv` already.
    pub(in crate::communicator) fn all_gather<T: Element>(
        &self,
        send: Option<&[T]>,
        recv: &mut [T],
        counts: Option<&[usize]>,
    ) -> Result<(), Error> {
        let me = self.comm.rank();
        let block = send.map_or_else(|| even_part(recv.len(), self.comm.size()), |send| Ok(send.len()))?;
        let (each, all) = self.blocks(block, counts)?;
        self.lengths([block, recv.len()], [each[me], all])?;
        let call = self.call_in_blocks::<T>(Collective::AllGather, Op::Sum, (block, counts), None);
        let own = send.map_or_else(|| bytes::of(&recv[me * block..][..block]).to_vec(), |s| bytes::of(s).to_vec());
        writing(recv, |recv| self.between.all_gather(&call, &own, recv, &lens::<T>(&each)))
    }

    /// `recv` is there at the root.
    pub(in crate::communicator) fn gather<T: Element>(
        &self,
        root: usize,
        send: &[T],
        recv: Option<&mut [T]>,
        counts: Option<&[usize]>,
    ) -> Result<(), Error> {
        let (each, all) = self.blocks(send.len(), counts)?;
        let name = if counts.is_some() { "gather_varcount_into" } else { "gather_into" };
        match &recv {
            Some(recv) => self.lengths([send.len(), recv.len()], [each[self.comm.rank()], all])?,
            None => {
                self.other(root, name)?;
                self.lengths([send.len(), 0], [each[self.comm.rank()], 0])?;
            }
        }
        let call = self.call_in_blocks::<T>(Collective::Gather, Op::Sum, (send.len(), counts), Some(root));
        let recv = recv.unwrap_or(&mut []);
        writing(recv, |recv| self.between.gather(&call, root, bytes::of(send), recv, &lens::<T>(&each)))
    }

    /// `send` is there at the root.
    pub(in crate::communicator) fn scatter<T: Element>(
        &self,
        root: usize,
        send: Option<&[T]>,
        recv: &mut [T],
        counts: Option<&[usize]>,
    ) -> Result<(), Error> {
        let (each, all) = self.blocks(recv.len(), counts)?;
        let name = if counts.is_some() { "scatter_varcount_into" } else { "scatter_into" };
        match send {
            Some(send) => self.lengths([send.len(), recv.len()], [all, each[self.comm.rank()]])?,
            None => {
                self.other(root, name)?;
                self.lengths([0, recv.len()], [0, each[self.comm.rank()]])?;
            }
        }
        let call = self.call_in_blocks::<T>(Collective::Scatter, Op::Sum, (recv.len(), counts), Some(root));
        let send = bytes::of(send.unwrap_or(&[]));
        writing(recv, |recv| self.between.scatter(&call, root, send, recv, &lens::<T>(&each)))
    }

    /// Without `send`, what is sent lies in `recv`.
    pub(in crate::communicator) fn all_to_all<T: Element>(
        &self,
        send: Option<&[T]>,
        recv: &mut [T],
    ) -> Result<(), Error> {
        let count = send.map_or(recv.len(), <[T]>::len);
        let block = even_part(count, self.comm.size())?;
        self.lengths([count, recv.len()], [count, count])?;
        let call = self.call::<T>(Collective::AllToAll, Op::Sum, block, None);
        let own = send.is_none().then(|| bytes::of(recv).to_vec());
        writing(recv, |recv| {
            let send = send.map(bytes::of).or(own.as_deref());
            self.between.all_to_all(&call, send.unwrap_or(&[]), recv)
        })
    }

    /// The same in blocks that differ for every pair: `send_counts` for the ranks, `recv_counts` from them.
    pub(in crate::communicator) fn all_to_all_of_pairs<T: Element>(
        &self,
        send: Option<&[T]>,
        send_counts: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
    ) -> Result<(), Error> {
        let given = [send.map_or(recv.len(), <[T]>::len), recv.len()];
        self.lengths(given, [self.counts(send_counts)?, self.counts(recv_counts)?])?;
        let call = self.call::<T>(Collective::AllToAll, Op::Sum, 0, None);
        // Which counts, the ranks compare in the call.
        let call = Call { signature: call.signature.unequal(&[]), ..call };
        let counts = Counts { send: send_counts, recv: recv_counts, element_bytes: size_of::<T>() };
        let own = send.is_none().then(|| bytes::of(recv).to_vec());
        writing(recv, |recv| {
            let send = send.map(bytes::of).or(own.as_deref());
            self.between.all_to_all_of_pairs(&call, &counts, send.unwrap_or(&[]), recv)
        })
    }
}
