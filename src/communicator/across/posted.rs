//! Calls over several nodes that can be posted: refused here, as on one node, if their buffers have not the lengths they need.

use super::MultiNodeCalls;
use crate::hierarchy::{OwnedPairCounts, OwnedUserOp, Prepared, StartedArgs};
use crate::{Element, Error, Op};
use earlybird_shm::{Collective, OwnedBuffers, check_root, even_part};

impl MultiNodeCalls<'_> {
    /// A call that can be posted: as on one node, refused here if its buffers have not the lengths that it needs.
    pub(in crate::communicator) fn prepared<T: Element>(
        &self,
        collective: Collective,
        op: Op,
        root: Option<usize>,
        counts: Option<&[usize]>,
        owned: OwnedBuffers<T>,
    ) -> Result<Prepared, Error> {
        if let Some(root) = root {
            check_root(root, self.comm.size())?;
        }
        if collective.folds() {
            T::DTYPE.must_have(op)?;
        }
        let (send, recv) = (owned.send.len(), owned.recv.len());
        let (block, expected) = match counts {
            Some(counts) => self.unequal_lengths(collective, root, counts)?,
            None if owned.is_in_place() => (recv, [0, recv]),
            None => self.equal_lengths(collective, root, send, recv)?,
        };
        self.lengths([send, recv], expected)?;
        let call = self.call_in_blocks::<T>(collective, op, (block, counts), root);
        let asked =
            StartedArgs { collective, op, root, counts: counts.map(<[usize]>::to_vec), exchange: call.exchange };
        let signature = call.signature.posted();
        Ok(match Prepared::again((self.between, &self.comm.node), &asked, signature, owned)? {
            Ok(kept) => kept,
            Err(owned) => Prepared::new(asked, signature, owned),
        })
    }

    /// The reduction of many buffers as one message.
    pub(in crate::communicator) fn prepared_grouped<T: Element>(
        &self,
        op: Op,
        buffers: Vec<Vec<T>>,
    ) -> Result<Prepared, Error> {
        T::DTYPE.must_have(op)?;
        let lens: Vec<usize> = buffers.iter().map(Vec::len).collect();
        let call = self.call::<T>(Collective::AllReduce, op, lens.iter().sum(), None);
        let (collective, exchange) = (Collective::AllReduce, call.exchange);
        let asked = StartedArgs { collective, op, root: None, counts: None, exchange };
        Ok(Prepared::grouped(asked, call.signature.unequal(&lens).posted(), buffers))
    }

    /// A reduction by an operator of the caller's.
    pub(in crate::communicator) fn prepared_with<O: OwnedUserOp>(
        &self,
        collective: Collective,
        op: O,
        root: Option<usize>,
        owned: OwnedBuffers<O::Item>,
    ) -> Result<Prepared, Error> {
        if let Some(root) = root {
            check_root(root, self.comm.size())?;
        }
        let (send, recv) = (owned.send.len(), owned.recv.len());
        let (block, expected) = match owned.is_in_place() {
            true => (recv, [0, recv]),
            false => self.equal_lengths(collective, root, send, recv)?,
        };
        self.lengths([send, recv], expected)?;
        let call = self.call_with(collective, &op, block, root)?;
        Ok(Prepared::with((collective, root), op, call.signature.posted(), owned))
    }

    /// An alltoall of blocks that differ for every pair.
    pub(in crate::communicator) fn prepared_pairs<T: Element>(
        &self,
        send_counts: &[usize],
        recv_counts: &[usize],
        owned: OwnedBuffers<T>,
    ) -> Result<Prepared, Error> {
        let expected = [self.counts(send_counts)?, self.counts(recv_counts)?];
        self.lengths([owned.send.len(), owned.recv.len()], expected)?;
        let call = self.call::<T>(Collective::AllToAll, Op::Sum, 0, None);
        let (send, recv) = (send_counts.to_vec(), recv_counts.to_vec());
        let counts = OwnedPairCounts { send, recv, element_bytes: size_of::<T>() };
        // Which counts, the ranks compare in the call.
        Ok(Prepared::pairs(counts, call.signature.unequal(&[]).posted(), owned))
    }

    /// Elements of a block, and those that this rank must give and get, of calls with blocks of one length.
    fn equal_lengths(
        &self,
        collective: Collective,
        root: Option<usize>,
        send: usize,
        recv: usize,
    ) -> Result<(usize, [usize; 2]), Error> {
        let gets_all = root.is_none_or(|root| root == self.comm.rank());
        let at_root = |count: Result<usize, Error>| if gets_all { count } else { Ok(0) };
        Ok(match collective {
            Collective::AllReduce | Collective::Reduce => (send, [send, at_root(Ok(send))?]),
            Collective::AllGather | Collective::Gather => (send, [send, at_root(self.of_all(send))?]),
            Collective::Scatter => (recv, [at_root(self.of_all(recv))?, recv]),
            Collective::ReduceScatter => (recv, [self.of_all(recv)?, recv]),
            Collective::AllToAll => (even_part(send, self.comm.size())?, [send, send]),
            _ => (recv, [0, recv]),
        })
    }

    /// The same with blocks of these counts.
    fn unequal_lengths(
        &self,
        collective: Collective,
        root: Option<usize>,
        counts: &[usize],
    ) -> Result<(usize, [usize; 2]), Error> {
        let all = self.counts(counts)?;
        let (own, at_root) = (counts[self.comm.rank()], root.is_none_or(|root| root == self.comm.rank()));
        let all = if at_root { all } else { 0 };
        Ok(match collective {
            Collective::AllGather | Collective::Gather => (own, [own, all]),
            _ => (own, [all, own]),
        })
    }
}
