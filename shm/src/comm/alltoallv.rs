//! The counts of an alltoall of unequal blocks, which the ranks compare before they move the blocks as in any exchange.

use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::args::CollectiveArgs;
use crate::protocol::collective::Collective;

/// A hash of the count of a pair.
fn pair_hash(from: usize, to: usize, count: usize) -> u64 {
    let mix = |sum: u64, x: usize| (sum ^ x as u64).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31);
    mix(mix(mix(0x9e37_79b9_7f4a_7c15, from), to), count).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

impl NodeComm {
    /// Compares each count sent with the count expected, and returns the largest of all pairs.
    pub(super) fn compare_counts(&self, state: &mut NodeState, send: &[usize], recv: &[usize]) -> Result<usize, Error> {
        let me = self.rank;
        let mut words = vec![0u64; self.size + 1];
        words[me] = send.iter().chain(recv).copied().max().unwrap_or(0) as u64;
        let sent = send.iter().enumerate().fold(0u64, |sum, (to, n)| sum.wrapping_add(pair_hash(me, to, *n)));
        let expected = recv.iter().enumerate().fold(0u64, |sum, (from, n)| sum.wrapping_add(pair_hash(from, me, *n)));
        words[self.size] = sent.wrapping_sub(expected);
        let last = state.last;
        self.add_up(state, Collective::Counts, &mut words)?;
        if words[self.size] == 0 {
            return Ok(words[..self.size].iter().copied().max().unwrap_or(0) as usize);
        }
        let error = self.find_difference(state, send, recv);
        // The last call that callers see is theirs, not one of the operations in here.
        state.last = last;
        Err(error?)
    }

    /// The error that names the first pair whose counts differ, the same on all ranks.
    #[cold]
    fn find_difference(&self, state: &mut NodeState, send: &[usize], recv: &[usize]) -> Result<Error, Error> {
        let send: Vec<u64> = send.iter().map(|n| *n as u64).collect();
        let mut sent = vec![0u64; self.size];
        self.execute_in(state, CollectiveArgs::all_to_all((&send[..], &mut sent[..])))?;
        let mut words = vec![0u64; 3 * self.size];
        if let Some(from) = (0..self.size).find(|from| sent[*from] != recv[*from] as u64) {
            words[3 * self.rank..][..3].copy_from_slice(&[from as u64 + 1, sent[from], recv[from] as u64]);
        }
        self.add_up(state, Collective::Counts, &mut words)?;
        let first = (0..self.size).find(|rank| words[3 * rank] != 0);
        let Some(to) = first else { return Err(Error::Poisoned { cause: "counts that differ for no pair".into() }) };
        let (from, sent, expected) = (words[3 * to] as usize - 1, words[3 * to + 1], words[3 * to + 2]);
        Ok(Error::counts_differ(from, to, sent, expected))
    }
}
