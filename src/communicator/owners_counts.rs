//! A gather over several nodes of blocks whose lengths their owners know: there all ranks must know all, so the root tells them first.

use super::Communicator;
use super::across::MultiNodeCalls;
use crate::Error;
use earlybird_shm::{CallBuffers, CollectiveArgs, Counts, Op};

impl Communicator {
    /// Makes the call once the root, whose `counts` hold, has broadcast them. A rank whose block has another length gives as many zeros as
    /// the root expects, so that no rank waits for ever, and gets the error.
    #[cold]
    pub(super) fn gather_by_counts_of_root(
        &self,
        across: &MultiNodeCalls<'_>,
        args: CollectiveArgs<'_>,
        counts: &[usize],
    ) -> Result<(), Error> {
        let (root, own, datatype) = args.as_gather();
        let agree = |words: &mut [u64]| self.process_at_rank(root).broadcast_into(words);
        if root == self.rank {
            // Refused before anything is shared.
            let checked = args.counts(Counts::PerRank(counts)).check(self.rank, self.size)?;
            agree(&mut counts.iter().map(|n| *n as u64).collect::<Vec<_>>())?;
            return across.run(checked);
        }
        let mut words = vec![0; self.size];
        agree(&mut words)?;
        let counts: Vec<usize> = words.into_iter().map(|word| word as usize).collect();
        let expected = counts[self.rank];
        if own == expected {
            return self.route(args.counts(Counts::PerRank(&counts)));
        }
        let zeros = vec![0; expected.saturating_mul(datatype.size())];
        let buffers = CallBuffers::of_bytes(Some(&zeros), &mut [], datatype);
        let collective = args.collective();
        self.route(CollectiveArgs::describe(collective, Some(root), Counts::PerRank(&counts), buffers, Op::Sum))?;
        Err(Error::counts_differ(collective.name(), [self.rank, root], own, expected))
    }
}
