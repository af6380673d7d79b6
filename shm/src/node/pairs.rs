//! The alltoall whose blocks differ for every pair of ranks: the ranks compare their counts, then move the blocks as in any
//! exchange.

use super::run::{Folding, Wish};
use super::{How, NodeComm, State};
use crate::Error;
use crate::op::{Element, Op};
use crate::protocol::geometry::{Lens, Pairs};
use crate::protocol::payload::Buffers;
use crate::protocol::signature::Collective;

/// What differs if a count of one pair does.
fn trace(from: usize, to: usize, count: usize) -> u64 {
    let mix = |sum: u64, x: usize| (sum ^ x as u64).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31);
    mix(mix(mix(0x9e37_79b9_7f4a_7c15, from), to), count).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

impl NodeComm {
    /// Copies `send_counts[r]` elements of `send` to rank `r`, and to `recv` what each rank sent here: `recv_counts[r]` from
    /// rank `r`. Blocks lie one after the other by rank.
    ///
    /// # Errors
    /// As [`NodeComm::broadcast_into`]; [`Error::Usage`] when counts do not fit the ranks or the buffers;
    /// [`Error::Mismatch`], the same on all ranks, which go on, where a rank sends another number than is expected of it.
    pub fn all_to_all_varcount_into<T: Element>(
        &self,
        send: &[T],
        send_counts: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
        how: How,
    ) -> Result<(), Error> {
        self.all_to_all_of_pairs(send_counts, recv_counts, &Buffers::both(send, recv), how)
    }

    /// As [`NodeComm::all_to_all_varcount_into`] where each rank gets from every other one as much as it sends to it; what
    /// comes replaces what was sent.
    ///
    /// # Errors
    /// As [`NodeComm::all_to_all_varcount_into`].
    pub fn all_to_all_varcount_in_place<T: Element>(
        &self,
        buf: &mut [T],
        counts: &[usize],
        how: How,
    ) -> Result<(), Error> {
        self.all_to_all_of_pairs(counts, counts, &Buffers::in_place(buf), how)
    }

    fn all_to_all_of_pairs(
        &self,
        send: &[usize],
        recv: &[usize],
        buffers: &Buffers<'_>,
        how: How,
    ) -> Result<(), Error> {
        let [send_starts, recv_starts] = self.check_sums([send, recv], [buffers.send_count(), buffers.recv_count()])?;
        let state = &mut *self.lock()?;
        let most = self.compare_counts(state, send, recv)?;
        let pairs = Pairs { me: self.rank, most, send, send_starts: &send_starts, recv, recv_starts: &recv_starts };
        let (op, lens) = (Folding::Built(Op::Sum), Lens::Pairs(pairs));
        self.carry_out_in(state, &Wish { collective: Collective::AllToAll, op, root: None, lens, how }, buffers)
    }

    /// The sums of the counts, which the buffers must have.
    pub(super) fn check_sums(&self, counts: [&[usize]; 2], given: [usize; 2]) -> Result<[Vec<usize>; 2], Error> {
        let starts = [self.starts(counts[0])?, self.starts(counts[1])?];
        let expected = [starts[0][self.size], starts[1][self.size]];
        match given == expected {
            true => Ok(starts),
            false => Err(Error::usage(format!(
                "rank {}: the send buffer has {} elements and the receive buffer {}, the sums of the counts are {} and {}",
                self.rank, given[0], given[1], expected[0], expected[1]
            ))),
        }
    }

    /// The largest count of all pairs, if what every rank sends is what is expected of it.
    fn compare_counts(&self, state: &mut State, send: &[usize], recv: &[usize]) -> Result<usize, Error> {
        let me = self.rank;
        let mut words = vec![0u64; self.size + 1];
        words[me] = send.iter().chain(recv).copied().max().unwrap_or(0) as u64;
        let sent = send.iter().enumerate().fold(0u64, |sum, (to, n)| sum.wrapping_add(trace(me, to, *n)));
        let got = recv.iter().enumerate().fold(0u64, |sum, (from, n)| sum.wrapping_add(trace(from, me, *n)));
        words[self.size] = sent.wrapping_sub(got);
        let last = state.last;
        self.add_up(state, Collective::Counts, &mut words)?;
        if words[self.size] == 0 {
            return Ok(words[..self.size].iter().copied().max().unwrap_or(0) as usize);
        }
        let error = self.find_difference(state, send, recv);
        // What ran inside is none of the caller's operations.
        state.last = last;
        Err(error?)
    }

    /// Which pair differs first, the same on all ranks.
    #[cold]
    fn find_difference(&self, state: &mut State, send: &[usize], recv: &[usize]) -> Result<Error, Error> {
        let sent: Vec<u64> = send.iter().map(|n| *n as u64).collect();
        let mut theirs = vec![0u64; self.size];
        let (op, lens) = (Folding::Built(Op::Sum), Lens::Equal(1));
        let wish = Wish { collective: Collective::AllToAll, op, root: None, lens, how: How::default() };
        self.carry_out_in(state, &wish, &Buffers::both(&sent, &mut theirs))?;
        let mut words = vec![0u64; 3 * self.size];
        if let Some(from) = (0..self.size).find(|from| theirs[*from] != recv[*from] as u64) {
            words[3 * self.rank..][..3].copy_from_slice(&[from as u64 + 1, theirs[from], recv[from] as u64]);
        }
        self.add_up(state, Collective::Counts, &mut words)?;
        let first = (0..self.size).find(|rank| words[3 * rank] != 0);
        let Some(to) = first else { return Err(Error::Poisoned { cause: "counts that differ for no pair".into() }) };
        let (from, gives, expects) = (words[3 * to] as usize - 1, words[3 * to + 1], words[3 * to + 2]);
        Ok(Error::counts_differ(from, to, gives, expects))
    }
}
