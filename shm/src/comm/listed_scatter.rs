//! The rest of a scatter of which only the root knew all lengths, and whose blocks did not fit beside the list of them: a scatter of blocks
//! whose lengths all ranks know.

use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::args::{CollectiveArgs, Counts};
use crate::call_buffers::CallBuffers;
use crate::checked_args::CheckedArgs;
use crate::op::Op;
use crate::protocol::Report;
use crate::protocol::lengths::Announced;
use crate::protocol::payload::largest_bundle;
use crate::protocol::word::Cause;
use std::borrow::Cow;

impl NodeComm {
    /// The counts of all ranks' blocks, if these are the arguments of such a call whose first operation took the fast path, and this rank's
    /// block is as long as the root sends. Then the rest of the call is one of these counts, and may take the fast path, too.
    pub(super) fn take_listed_counts<'a>(&self, args: &CollectiveArgs<'a>) -> Option<Cow<'a, [usize]>> {
        let own_counts = args.counts_of_owners().filter(|_| args.collective.traits().in_parts)?;
        let mut state = self.state.try_lock()?;
        let (Report { announced: Some(Announced::Listed), .. }, address) = state.begun? else { return None };
        let (root, expects, _) = args.own_block();
        let is_root = self.rank == root;
        if address != args.buffers.address_on(is_root) || largest_bundle(self.size, self.windows.deposit).is_none() {
            return None;
        }
        let is_expected = is_root || state.member.lengths().get(self.rank) == Some(&expects);
        is_expected.then(|| {
            state.begun = None;
            if is_root { own_counts.into() } else { state.member.take_lengths().into() }
        })
    }

    /// Makes that scatter. A rank whose block has another length receives as much as the root sends, so that no rank waits for ever, and
    /// gets the error.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on a rank whose block has another length than the root sends; [`Error::Poisoned`] where the root's words say that
    /// there is no list although there must be one. The errors of [`NodeComm::execute`].
    #[cold]
    pub(super) fn scatter_listed(&self, state: &mut NodeState, checked: CheckedArgs<'_>) -> Result<(), Error> {
        let args = checked.args();
        let (root, expects, datatype) = args.own_block();
        let (collective, options, own_counts) = (args.collective, args.options, args.counts_of_owners());
        let counts = match own_counts.filter(|_| self.rank == root) {
            Some(counts) => counts.to_vec(),
            None => state.member.take_lengths(),
        };
        let counts = match largest_bundle(self.size, self.windows.deposit) {
            Some(_) => counts,
            None => self.counts_of_root(state, root, counts)?,
        };
        let Some(&sends) = counts.get(self.rank) else {
            let stop = state.member.fail(Cause::Corrupt, &[]);
            return Err(self.error_of(&state.member, stop));
        };
        if self.rank == root || sends == expects {
            return self.execute_checked_in(state, checked.with_counts_of_all(&counts)?);
        }
        let mut unwanted = vec![0; sends.saturating_mul(datatype.size())];
        let buffers = CallBuffers::of_bytes(Some(&[]), &mut unwanted, datatype);
        let args = CollectiveArgs::describe(collective, Some(root), Counts::PerRank(&counts), buffers, Op::Sum);
        self.execute_in(state, args.options(options))?;
        Err(Error::counts_differ(collective.name(), [root, self.rank], sends, expects))
    }

    /// The elements of each rank's block, which the root tells where a list of them is too long for a deposit of one piece.
    fn counts_of_root(&self, state: &mut NodeState, root: usize, counts: Vec<usize>) -> Result<Vec<usize>, Error> {
        let mut words: Vec<u64> = counts.into_iter().map(|count| count as u64).collect();
        words.resize(self.size, 0);
        self.execute_in(state, CollectiveArgs::broadcast(root, &mut words[..]))?;
        Ok(words.into_iter().map(|word| word as usize).collect())
    }
}
