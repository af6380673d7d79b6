//! The operations of a node that move data: arguments checked, from a root, to a root, or from all to all.

use super::run::{Folding, Wish};
use super::{How, NodeComm};
use crate::Error;
use crate::op::{Element, Op};
use crate::protocol::geometry::{Exchange, Lens};
use crate::protocol::payload::Buffers;
use crate::protocol::signature::Collective;
use std::ops::Range;

impl NodeComm {
    /// Copies `buf` of `root` to `buf` of every rank. The root leaves when its data is stored.
    ///
    /// # Errors
    /// [`Error::Usage`] for a root that does not exist or a second thread; the group's one error otherwise.
    pub fn broadcast_into<T: Element>(&self, buf: &mut [T], root: usize, how: How) -> Result<(), Error> {
        self.check_root(root)?;
        let lens = Lens::Equal(buf.len());
        let buffers = if root == self.rank { Buffers::in_place(buf) } else { Buffers::both(&[], buf) };
        self.carry_out(
            &Wish { collective: Collective::Broadcast, op: Folding::Built(Op::Sum), root: Some(root), lens, how },
            &buffers,
        )
    }

    /// Copies `send` of every rank, in rank order, to `recv` of every rank.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] unless `recv` is as long as `send` times the ranks.
    pub fn all_gather_into<T: Element>(&self, send: &[T], recv: &mut [T], how: How) -> Result<(), Error> {
        self.moving(Collective::AllGather, None, Lens::Equal(send.len()), &Buffers::both(send, recv), how)
    }

    /// As [`NodeComm::all_gather_into`]; what this rank gives lies in its place in `buf` already.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn all_gather_in_place<T: Element>(&self, buf: &mut [T], how: How) -> Result<(), Error> {
        let (block, own) = self.own_block(buf.len())?;
        self.moving(Collective::AllGather, None, Lens::Equal(block), &Buffers::own_part(buf, own), how)
    }

    /// As [`NodeComm::all_gather_into`] where rank `r` gives `counts[r]` elements. All ranks give the same `counts`.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn all_gather_varcount_into<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        how: How,
    ) -> Result<(), Error> {
        let starts = self.starts(counts)?;
        self.moving(Collective::AllGather, None, Lens::Each(counts, &starts), &Buffers::both(send, recv), how)
    }

    /// Gives `send` to another rank, `root`, and leaves at once.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] when this rank is the root.
    pub fn gather_into<T: Element>(&self, send: &[T], root: usize, how: How) -> Result<(), Error> {
        self.other_root(root, "gather_into", "gather_into_root")?;
        self.moving(Collective::Gather, Some(root), Lens::Equal(send.len()), &Buffers::both(send, &mut []), how)
    }

    /// Copies `send` of every rank, in rank order, to `recv` of this rank, the root.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] unless `recv` is as long as `send` times the ranks.
    pub fn gather_into_root<T: Element>(&self, send: &[T], recv: &mut [T], how: How) -> Result<(), Error> {
        let lens = Lens::Equal(send.len());
        self.moving(Collective::Gather, Some(self.rank), lens, &Buffers::both(send, recv), how)
    }

    /// As [`NodeComm::gather_into_root`]; what the root gives lies in its place in `buf` already.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn gather_in_place_root<T: Element>(&self, buf: &mut [T], how: How) -> Result<(), Error> {
        let (block, own) = self.own_block(buf.len())?;
        let buffers = Buffers::own_part(buf, own);
        self.moving(Collective::Gather, Some(self.rank), Lens::Equal(block), &buffers, how)
    }

    /// As [`NodeComm::gather_into`] where rank `r` gives `counts[r]` elements. All ranks give the same `counts`.
    ///
    /// # Errors
    /// As [`NodeComm::gather_into`]; [`Error::Usage`] when `counts` does not fit the ranks or `send`.
    pub fn gather_varcount_into<T: Element>(
        &self,
        send: &[T],
        counts: &[usize],
        root: usize,
        how: How,
    ) -> Result<(), Error> {
        self.other_root(root, "gather_varcount_into", "gather_varcount_into_root")?;
        let starts = self.starts(counts)?;
        let lens = Lens::Each(counts, &starts);
        self.moving(Collective::Gather, Some(root), lens, &Buffers::both(send, &mut []), how)
    }

    /// As [`NodeComm::gather_into_root`] where rank `r` gives `counts[r]` elements.
    ///
    /// # Errors
    /// As [`NodeComm::gather_into_root`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn gather_varcount_into_root<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        how: How,
    ) -> Result<(), Error> {
        let starts = self.starts(counts)?;
        let lens = Lens::Each(counts, &starts);
        self.moving(Collective::Gather, Some(self.rank), lens, &Buffers::both(send, recv), how)
    }

    /// Gets this rank's part of what another rank, `root`, scatters.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] when this rank is the root.
    pub fn scatter_into<T: Element>(&self, recv: &mut [T], root: usize, how: How) -> Result<(), Error> {
        self.other_root(root, "scatter_into", "scatter_into_root")?;
        self.moving(Collective::Scatter, Some(root), Lens::Equal(recv.len()), &Buffers::both(&[], recv), how)
    }

    /// Copies `send` of this rank, the root, one block to each rank in rank order; its own block to `recv`. The root
    /// leaves when its data is stored.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] unless `send` is as long as `recv` times the ranks.
    pub fn scatter_into_root<T: Element>(&self, send: &[T], recv: &mut [T], how: How) -> Result<(), Error> {
        let lens = Lens::Equal(recv.len());
        self.moving(Collective::Scatter, Some(self.rank), lens, &Buffers::both(send, recv), how)
    }

    /// As [`NodeComm::scatter_into_root`]; the root's own block stays in its place in `buf`, which is not changed.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] unless `buf` divides evenly among the ranks.
    pub fn scatter_in_place_root<T: Element>(&self, buf: &mut [T], how: How) -> Result<(), Error> {
        let (block, own) = self.own_block(buf.len())?;
        self.moving(Collective::Scatter, Some(self.rank), Lens::Equal(block), &Buffers::kept_part(buf, own), how)
    }

    /// As [`NodeComm::scatter_into`] where rank `r` gets `counts[r]` elements. All ranks give the same `counts`.
    ///
    /// # Errors
    /// As [`NodeComm::scatter_into`]; [`Error::Usage`] when `counts` does not fit the ranks or `recv`.
    pub fn scatter_varcount_into<T: Element>(
        &self,
        recv: &mut [T],
        counts: &[usize],
        root: usize,
        how: How,
    ) -> Result<(), Error> {
        self.other_root(root, "scatter_varcount_into", "scatter_varcount_into_root")?;
        let starts = self.starts(counts)?;
        let lens = Lens::Each(counts, &starts);
        self.moving(Collective::Scatter, Some(root), lens, &Buffers::both(&[], recv), how)
    }

    /// As [`NodeComm::scatter_into_root`] where rank `r` gets `counts[r]` elements.
    ///
    /// # Errors
    /// As [`NodeComm::scatter_into_root`]; [`Error::Usage`] when `counts` does not fit the ranks or the buffers.
    pub fn scatter_varcount_into_root<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        how: How,
    ) -> Result<(), Error> {
        let starts = self.starts(counts)?;
        let lens = Lens::Each(counts, &starts);
        self.moving(Collective::Scatter, Some(self.rank), lens, &Buffers::both(send, recv), how)
    }

    /// Copies block `r` of `send` to rank `r`, and to block `r` of `recv` what rank `r` sent here.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] unless both are equally long and divide among the ranks.
    pub fn all_to_all_into<T: Element>(&self, send: &[T], recv: &mut [T], how: How) -> Result<(), Error> {
        let lens = Lens::Equal(even_part(send.len(), self.size)?);
        self.moving(Collective::AllToAll, None, lens, &Buffers::both(send, recv), how)
    }

    /// As [`NodeComm::all_to_all_into`]; what is got replaces what was sent.
    ///
    /// # Errors
    /// As [`NodeComm::all_to_all_into`].
    pub fn all_to_all_in_place<T: Element>(&self, buf: &mut [T], how: How) -> Result<(), Error> {
        let lens = Lens::Equal(even_part(buf.len(), self.size)?);
        self.moving(Collective::AllToAll, None, lens, &Buffers::in_place(buf), how)
    }

    fn moving(
        &self,
        collective: Collective,
        root: Option<usize>,
        lens: Lens<'_>,
        buffers: &Buffers<'_>,
        how: How,
    ) -> Result<(), Error> {
        self.exchange(collective, Folding::Built(Op::Sum), root, lens, buffers, how)
    }

    /// Carries out an exchange if its buffers are as long as its blocks say.
    pub(super) fn exchange(
        &self,
        collective: Collective,
        op: Folding<'_>,
        root: Option<usize>,
        lens: Lens<'_>,
        buffers: &Buffers<'_>,
        how: How,
    ) -> Result<(), Error> {
        let exchange = Exchange::new(collective, root.unwrap_or(0), self.size, lens);
        let given = [buffers.send_count(), buffers.recv_count()];
        self.check_lengths(collective, &exchange, buffers.element().size(), given)?;
        self.carry_out(&Wish { collective, op, root, lens, how }, buffers)
    }

    /// Refuses counts of more elements than an address space holds, and buffers that have not the lengths that an exchange
    /// needs.
    pub(super) fn check_lengths(
        &self,
        collective: Collective,
        exchange: &Exchange<'_>,
        element_bytes: usize,
        given: [usize; 2],
    ) -> Result<(), Error> {
        let largest = exchange.largest();
        let bytes = largest.and_then(|count| count.checked_mul(element_bytes));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(Error::usage(format!(
                "{} on {} ranks: {} elements of {element_bytes} bytes, blocks of up to {}, are more than the {} bytes that \
                 an address space holds; give smaller counts",
                collective.name(),
                self.size,
                largest.map_or_else(|| format!("more than {}", usize::MAX), |count| count.to_string()),
                exchange.most(),
                isize::MAX,
            )));
        }
        let expected = [exchange.send_count(self.rank), exchange.recv_count(self.rank)];
        if given != expected {
            return Err(Error::usage(format!(
                "{} on {} ranks, rank {}: the send buffer has {} elements and the receive buffer {}, \
                 expected are {} and {}",
                collective.name(),
                self.size,
                self.rank,
                given[0],
                given[1],
                expected[0],
                expected[1]
            )));
        }
        Ok(())
    }

    pub(super) fn check_root(&self, root: usize) -> Result<(), Error> {
        match root < self.size {
            true => Ok(()),
            false => Err(Error::usage(format!("root {root} does not exist among {} ranks", self.size))),
        }
    }

    /// Refuses what only ranks other than the root may call.
    pub(super) fn other_root(&self, root: usize, called: &str, instead: &str) -> Result<(), Error> {
        self.check_root(root)?;
        match root == self.rank {
            false => Ok(()),
            true => Err(Error::usage(format!("rank {root} is the root and called {called}; call {instead} there"))),
        }
    }

    /// Elements of this rank's block of a buffer of `count`, and where it lies.
    pub(super) fn own_block(&self, count: usize) -> Result<(usize, Range<usize>), Error> {
        let block = even_part(count, self.size)?;
        Ok((block, self.rank * block..(self.rank + 1) * block))
    }

    /// Sums of the counts of all ranks.
    pub(super) fn starts(&self, counts: &[usize]) -> Result<Vec<usize>, Error> {
        if counts.len() != self.size {
            return Err(Error::usage(format!("{} counts for {} ranks; give one per rank", counts.len(), self.size)));
        }
        sums(counts)
    }
}

/// Sums of the counts before each block, and of all.
pub(super) fn sums(counts: &[usize]) -> Result<Vec<usize>, Error> {
    let mut sum = 0usize;
    let mut starts = vec![sum];
    for count in counts {
        let more = sum.checked_add(*count);
        sum = more.ok_or_else(|| Error::usage(format!("the sum of the counts {counts:?} is too large")))?;
        starts.push(sum);
    }
    Ok(starts)
}

/// Elements of a block of a buffer of `count` with one for each of `ranks`.
///
/// # Errors
/// [`Error::Usage`] where they do not divide.
pub fn even_part(count: usize, ranks: usize) -> Result<usize, Error> {
    match count.is_multiple_of(ranks) {
        true => Ok(count / ranks),
        false => Err(Error::usage(format!(
            "a buffer of {count} elements does not divide among {ranks} ranks; give a multiple"
        ))),
    }
}
