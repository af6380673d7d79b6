//! The counts of an alltoall of unequal blocks that differ: the search for a pair of ranks that do not agree.

use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::args::CollectiveArgs;
use crate::protocol::collective::Collective;

impl NodeComm {
    /// The error that names the first pair whose counts differ, the same on all ranks. The last call that callers see stays what it was,
    /// not one of the operations in here.
    #[cold]
    pub(super) fn difference_of(&self, state: &mut NodeState, send: &[usize], recv: &[usize]) -> Result<Error, Error> {
        let last = state.last;
        let found = self.find_difference(state, send, recv);
        state.last = last;
        found
    }

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
        let [from, sent, expected] =
            [words[3 * to] - 1, words[3 * to + 1], words[3 * to + 2]].map(|word| word as usize);
        Ok(Error::counts_differ("alltoall", [from, to], sent, expected))
    }
}
