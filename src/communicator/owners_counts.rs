//! A gather or scatter over several nodes of blocks whose lengths their owners know: there all ranks must know all, so the root tells
//! them first.

use super::Communicator;
use super::across::MultiNodeCalls;
use crate::Error;
use earlybird_shm::{CallBuffers, CollectiveArgs, Counts, Op};

impl Communicator {
    /// Makes the call once the root, whose `counts` hold, has broadcast them. A rank whose block has another length takes part with one
    /// as long as the root expects, zeros where it sends, so that no rank waits for ever, and gets the error.
    #[cold]
    pub(super) fn run_by_counts_of_root(
        &self,
        across: &MultiNodeCalls<'_>,
        args: CollectiveArgs<'_>,
        counts: &[usize],
    ) -> Result<(), Error> {
        // Refused before anything is shared.
        args.check_in_place(self.rank)?;
        let (root, own, datatype) = args.own_block();
        let agree = |words: &mut [u64]| self.process_at_rank(root).broadcast_into(words);
        if root == self.rank {
            let checked = args.counts(Counts::PerRank(counts)).check(self.rank, self.size)?;
            agree(&mut counts.iter().map(|n| *n as u64).collect::<Vec<_>>())?;
            return across.run(checked);
        }
        let mut words = vec![0; self.size];
        agree(&mut words)?;
        let counts: Vec<usize> = words.into_iter().map(|word| word as usize).collect();
        let of_root = counts[self.rank];
        if own == of_root {
            return self.route(args.counts(Counts::PerRank(&counts)));
        }
        let collective = args.collective();
        let mut block = vec![0; of_root.saturating_mul(datatype.size())];
        let scatters = collective.traits().in_parts;
        let buffers = match scatters {
            true => CallBuffers::of_bytes(Some(&[]), &mut block, datatype),
            false => CallBuffers::of_bytes(Some(&block), &mut [], datatype),
        };
        self.route(CollectiveArgs::describe(collective, Some(root), Counts::PerRank(&counts), buffers, Op::Sum))?;
        let name = collective.name();
        Err(match scatters {
            true => Error::counts_differ(name, [root, self.rank], of_root, own),
            false => Error::counts_differ(name, [self.rank, root], own, of_root),
        })
    }
}
