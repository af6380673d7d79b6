//! A gather over several nodes of blocks whose lengths their owners know: there all ranks must know all, so the root tells them first.

use super::Communicator;
use crate::Error;
use earlybird_shm::{CallBuffers, CollectiveArgs, Counts, Op};

impl Communicator {
    /// Makes the call once the root, whose `counts` hold, has broadcast them. A rank whose block has another length gives as many zeros as
    /// the root expects, so that no rank waits for ever, and gets the error.
    #[cold]
    pub(super) fn gather_by_counts_of_root(&self, args: CollectiveArgs<'_>, counts: &[usize]) -> Result<(), Error> {
        let (root, own, datatype) = args.as_gather();
        if root == self.rank && counts.len() != self.size {
            let given = counts.len();
            return Err(Error::usage(format!("{given} counts for {} ranks; give one for each rank", self.size)));
        }
        let mut words: Vec<u64> = counts.iter().map(|n| *n as u64).collect();
        words.resize(self.size, 0);
        self.process_at_rank(root).broadcast_into(&mut words)?;
        let counts: Vec<usize> = words.into_iter().map(|word| word as usize).collect();
        let expected = counts[self.rank];
        if root == self.rank || own == expected {
            return self.route(args.counts(Counts::PerRank(&counts)));
        }
        let zeros = vec![0; expected.saturating_mul(datatype.size())];
        let buffers = CallBuffers::of_bytes(Some(&zeros), &mut [], datatype);
        let collective = args.collective();
        self.route(CollectiveArgs::describe(collective, Some(root), Counts::PerRank(&counts), buffers, Op::Sum))?;
        Err(Error::counts_differ(collective.name(), [self.rank, root], own, expected))
    }
}
