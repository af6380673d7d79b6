//! The blocks of a small exchange as one rank sends and receives them: how long they are, whose they are, and where they lie in deposits.

use crate::kernels::FoldFn;
use crate::protocol::call::{Arithmetic, Lane, Prepared};
use crate::protocol::geometry::{Exchange, KnownLengths, Lens, Who};
use crate::protocol::lines::INLINE_BYTES;
use crate::protocol::pieces::PIECE_BYTES;
use std::ops::Range;

/// Bytes of the largest deposit that goes the fast path.
const MOST_BYTES: usize = 32 * PIECE_BYTES;
/// The same where the blocks of several others are received in the order of the ranks, as those that are folded: what a late one holds up
/// must be little.
pub(super) const MOST_BYTES_OF_MANY: usize = PIECE_BYTES / 2;

/// The bytes of the blocks, by rank.
pub trait BlockSizes: Copy {
    /// Bytes of a block.
    fn of(self, rank: usize) -> usize;
    /// Bytes of all blocks before it.
    fn before(self, rank: usize) -> usize;
    /// Returns whether the block has bytes at all.
    fn has_bytes(self, rank: usize) -> bool;
}

/// The same number of bytes in every block, not 0.
#[derive(Debug, Clone, Copy)]
pub struct EqualSizes(usize);

impl BlockSizes for EqualSizes {
    #[inline(always)]
    fn of(self, _: usize) -> usize {
        self.0
    }

    #[inline(always)]
    fn before(self, rank: usize) -> usize {
        rank * self.0
    }

    #[inline(always)]
    fn has_bytes(self, _: usize) -> bool {
        true
    }
}

/// The bytes before each block, and of all.
#[derive(Debug, Clone, Copy)]
pub struct UnequalSizes<'a>(&'a [usize]);

impl BlockSizes for UnequalSizes<'_> {
    #[inline(always)]
    fn of(self, rank: usize) -> usize {
        self.0[rank + 1] - self.0[rank]
    }

    #[inline(always)]
    fn before(self, rank: usize) -> usize {
        self.0[rank]
    }

    #[inline(always)]
    fn has_bytes(self, rank: usize) -> bool {
        self.of(rank) > 0
    }
}

/// The fold of the blocks of a small exchange.
#[derive(Debug, Clone, Copy)]
pub(super) enum SmallFold {
    /// The library's, and the zeros at the end of the bytes of an element, a power of two.
    Built(FoldFn, u32),
    /// The operator of the call, a user's.
    User,
}

impl SmallFold {
    /// The fold of blocks of so many bytes in the call `prepared`; `None` where its accumulators are not its results.
    fn of(prepared: &Prepared<'_>, block: usize) -> Option<Self> {
        let Arithmetic::Built(kernels) = prepared.arithmetic else { return Some(SmallFold::User) };
        let fold_few = prepared.fold_few?;
        let fold = if block <= INLINE_BYTES { fold_few } else { kernels.fold };
        Some(SmallFold::Built(fold, prepared.accumulator_bytes.trailing_zeros()))
    }
}

/// The blocks of a small exchange as one rank sends and receives them; the same while calls repeat.
#[derive(Debug, Clone)]
pub struct SmallBlocks {
    pub(super) me: usize,
    pub(super) ranks: usize,
    /// Bytes of the largest block, of the largest deposit, and of the largest that could be.
    pub(super) block: usize,
    pub(super) deposit_bytes: usize,
    most_bytes: usize,
    /// The sums of [`UnequalSizes`]; none where all blocks have the same length.
    pub(super) starts: Box<[usize]>,
    /// Bytes of all blocks that this rank sends, and of all that it receives.
    pub(super) send_bytes: usize,
    pub(super) recv_bytes: usize,
    /// The elements that this rank announces, where only the root knows the lengths of all blocks.
    pub(super) announced: Option<usize>,
    /// True if results have a contribution of this rank, and if another rank, or itself in its turn, reads it from its deposit.
    pub(super) contributes: bool,
    pub(super) deposits: bool,
    pub(super) receives: bool,
    /// True if a deposit has a block for each rank, and if a result has one from each.
    pub(super) in_parts: bool,
    pub(super) joins: bool,
    /// The ranks from which a block is received, this one among them if a result has its own.
    pub(super) sources: Range<usize>,
    /// True if a block is received from every other rank.
    pub(super) receives_from_all: bool,
    /// True if blocks are received in the order of the ranks: because they are folded, or come from one other rank at most.
    pub(super) in_order: bool,
    /// The ranks whose deposits this one writes or reads.
    pub(super) whose: Who,
    /// The fold of what is received; `None` where it is copied.
    pub(super) fold: Option<SmallFold>,
    /// True if a fold takes this rank's own contribution in its turn: out of its deposit, since the result may lie where the
    /// contribution did. Otherwise the fold begins with it.
    pub(super) in_turn: bool,
}

impl SmallBlocks {
    /// The blocks of rank `me` in the call `prepared`, with so many bytes to send and to receive, if that may go the fast path: as one
    /// operation, whose deposits have at most `window_bytes`. `None` on a root to which owners announce their
    /// lengths: see [`super::SmallGather`].
    pub fn new(
        prepared: &Prepared<'_>,
        [to_send, to_receive]: [usize; 2],
        me: usize,
        window_bytes: usize,
        lengths: KnownLengths<'_>,
    ) -> Option<Self> {
        let (traits, ranks) = (prepared.collective.traits(), prepared.ranks);
        let (in_parts, joins) = (traits.in_parts, traits.joins());
        // The senders and receivers do not depend on the lengths, which follow from them.
        let exchange = Exchange::new(prepared.collective, prepared.root.unwrap_or(0), ranks, Lens::Equal(0));
        let sources = if exchange.readers.has(me) { exchange.sources(me) } else { 0..0 };
        let (contributes, receives) = (exchange.depositors.has(me), !sources.is_empty());
        let number = |of_each: bool| if of_each { ranks } else { 1 };
        let (sent, received) = (number(in_parts), number(joins));
        let starts = match lengths {
            KnownLengths::Each(counts) => sums(counts, prepared.datatype.size()).filter(|_| !(in_parts && joins))?,
            KnownLengths::Equal | KnownLengths::Own => Vec::new(),
        };
        let equal = if contributes { to_send / sent } else { to_receive / received };
        let bytes_of = |rank: usize| if starts.is_empty() { equal } else { starts[rank + 1] - starts[rank] };
        let (own, block) = (bytes_of(me), (0..ranks).map(bytes_of).max()?);
        let bytes_in_all =
            |of_each: bool| if of_each { (0..ranks).map(bytes_of).fold(0, usize::saturating_add) } else { own };
        let fold = match prepared.arithmetic {
            Arithmetic::Moved(None) if !traits.folds => None,
            Arithmetic::Moved(Some(_)) => return None,
            _ => Some(SmallFold::of(prepared, block)?),
        };
        let in_turn = fold.is_some() && receives && (prepared.in_rank_order || traits.prefix.is_some());
        let [send_bytes, recv_bytes] =
            [if contributes { bytes_in_all(in_parts) } else { 0 }, if receives { bytes_in_all(joins) } else { 0 }];
        let owners_announce = matches!(lengths, KnownLengths::Own);
        let deposit_bytes = block.saturating_mul(sent);
        let is_source = |rank: usize| sources.contains(&rank) && bytes_of(if in_parts { me } else { rank }) > 0;
        let others = (0..ranks).filter(|rank| *rank != me && is_source(*rank)).count();
        let most_bytes = window_bytes.min(match fold {
            Some(_) if others > 1 => MOST_BYTES_OF_MANY,
            // An element of a user's may not end where a piece does.
            Some(SmallFold::User) => PIECE_BYTES,
            _ => MOST_BYTES,
        });
        let fits = prepared.lane == Lane::Exchange
            && block > 0
            && !(owners_announce && receives)
            && deposit_bytes <= most_bytes
            && (!contributes || to_send == send_bytes)
            && (!receives || to_receive == recv_bytes);
        fits.then_some(SmallBlocks {
            me,
            ranks,
            block,
            deposit_bytes,
            most_bytes,
            starts: starts.into(),
            send_bytes,
            recv_bytes,
            announced: owners_announce.then(|| block / prepared.datatype.size()),
            contributes,
            deposits: contributes && exchange.is_read(me, in_turn) && (in_parts || own > 0),
            receives,
            in_parts,
            joins,
            sources,
            receives_from_all: others + 1 == ranks,
            in_order: fold.is_some() || others <= 1,
            whose: exchange.deposits_used_by(me),
            fold,
            in_turn,
        })
    }

    /// The blocks of the call `prepared`, which differs from that of these, all of one length, by a block of so many bytes, not 0; `None` where
    /// it may not go the fast path.
    pub fn of_length(&self, prepared: &Prepared<'_>, block: usize) -> Option<Self> {
        let scaled = |bytes: usize| bytes / self.block * block;
        let deposit_bytes = scaled(self.deposit_bytes);
        let fold = match self.fold {
            None => None,
            Some(_) => Some(SmallFold::of(prepared, block)?),
        };
        let fits = self.are_equal() && self.announced.is_none() && deposit_bytes <= self.most_bytes;
        fits.then(|| SmallBlocks {
            block,
            deposit_bytes,
            starts: Box::default(),
            send_bytes: scaled(self.send_bytes),
            recv_bytes: scaled(self.recv_bytes),
            sources: self.sources.clone(),
            fold,
            ..*self
        })
    }

    /// Bytes of the largest block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Returns whether all blocks have the same length.
    pub(in crate::protocol) fn are_equal(&self) -> bool {
        self.starts.is_empty()
    }

    /// The lengths of blocks that all have one.
    #[inline(always)]
    pub(super) fn equal_sizes(&self) -> EqualSizes {
        EqualSizes(self.block)
    }

    /// The lengths of blocks that have their own.
    #[inline(always)]
    pub(super) fn unequal_sizes(&self) -> UnequalSizes<'_> {
        UnequalSizes(&self.starts)
    }
}

/// The bytes before each block, and of all; `None` where no number holds them.
fn sums(counts: &[usize], element_bytes: usize) -> Option<Vec<usize>> {
    let mut sums = vec![0usize];
    for count in counts {
        sums.push(count.checked_mul(element_bytes)?.checked_add(sums[sums.len() - 1])?);
    }
    Some(sums)
}

/// The sums of the counts before each rank, and of all, where a buffer is known to have as many elements.
pub(super) fn starts(counts: &[usize]) -> Vec<usize> {
    sums(counts, 1).expect("a buffer has as many elements")
}
