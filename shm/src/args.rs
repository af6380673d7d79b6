//! The arguments of one collective call, without a type parameter: every form of every collective is built from them, by the
//! constructors in `constructors.rs`.
//!
//! Generics stop there. A call is described by a value of [`CollectiveArgs`], from typed slices, or from the bytes that a
//! binding to another language has by [`CallBuffers::of_bytes`](crate::CallBuffers::of_bytes). With vectors in place of slices
//! the same constructors describe a call that is started and ends later: [`OwnedArgs`](crate::OwnedArgs). What does not fit
//! the communicator is refused by [`CollectiveArgs::check`], and only what was checked can be carried out.

use crate::config::Algorithm;
use crate::op::{Datatype, FoldOrder, Op};
use crate::protocol::collective::Collective;
use crate::protocol::payload::Buffers;
use crate::reduce_op::ReduceOp;
use crate::shared_buffer::Allocations;
use crate::shared_view::ViewMemory;

/// The settings of one call. All ranks must give the same: ranks that differ get [`Error::Mismatch`](crate::Error::Mismatch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallOptions {
    /// The algorithm, or `Auto`.
    pub algorithm: Algorithm,
    /// The order in which contributions are reduced.
    pub order: FoldOrder,
    /// The number of the larger operation that this call is a part of, 0 for none; 11 bits count.
    pub within: u16,
}

/// Elements that ranks send each other: of the blocks, one per rank.
#[derive(Debug, Clone, Copy, Default)]
pub enum Counts<'a> {
    /// Blocks of one length, which follows from the buffers.
    #[default]
    Uniform,
    /// Elements of each rank's block, the same list on all ranks.
    PerRank(&'a [usize]),
    /// An alltoall of blocks that differ for every pair of ranks: elements to each rank, and from each.
    PerPair {
        /// Elements for each rank.
        send: &'a [usize],
        /// Elements from each rank.
        recv: &'a [usize],
    },
    /// A gather or scatter of blocks whose owners know their lengths, and the root those of all: elements of each rank's block on the
    /// root, of no meaning elsewhere. In a gather no rank but the root waits for another, unless its own block is longer than a
    /// deposit; in a scatter no rank waits for any but the root. Started, neither has a form in place; over several nodes it is the alltoall of
    /// these blocks then, which ends when all ranks have started it, and a difference is an error of all ranks.
    PerOwner(&'a [usize]),
    /// Elements of each of many messages that are reduced as one.
    Segments(&'a [usize]),
}

/// The place of a call's buffers.
#[derive(Debug, Default)]
pub(crate) enum Placement<'a> {
    /// In memory of this rank.
    #[default]
    Private,
    /// In memory that the other ranks of the node can map. Counts for an allreduce by one of the library's operators; any other
    /// call takes such buffers as private.
    Registered(Allocations<'a>),
    /// The result is to lie where all ranks of the node read it. There is no receive buffer: the view is filled instead.
    SharedResult(&'a mut ViewMemory),
}

/// The arguments of one collective call on borrowed buffers.
///
/// ```
/// use earlybird_shm::{CollectiveArgs, Op};
/// let mut sums = [1.0f32, 2.0];
/// let args = CollectiveArgs::all_reduce(&mut sums[..], Op::Sum);
/// # let _ = args;
/// ```
#[derive(Debug)]
pub struct CollectiveArgs<'a> {
    pub(crate) collective: Collective,
    pub(crate) op: ReduceOp<'a>,
    pub(crate) root: Option<usize>,
    pub(crate) counts: Counts<'a>,
    pub(crate) buffers: Buffers<'a>,
    pub(crate) placement: Placement<'a>,
    pub(crate) options: CallOptions,
}

impl<'a> CollectiveArgs<'a> {
    /// An allreduce-like operation of the library's own on `buffers`, by sums.
    #[inline(always)]
    pub(crate) fn internal(collective: Collective, buffers: Buffers<'a>) -> Self {
        let (op, options) = (ReduceOp::Builtin(Op::Sum), CallOptions::default());
        let placement = Placement::Private;
        CollectiveArgs { collective, op, root: None, counts: Counts::Uniform, buffers, placement, options }
    }

    /// Sets the block lengths.
    pub fn counts(self, counts: Counts<'a>) -> Self {
        CollectiveArgs { counts, ..self }
    }

    /// The counts of a gather or scatter of which only the root has them.
    #[doc(hidden)]
    #[inline]
    pub fn counts_of_owners(&self) -> Option<&'a [usize]> {
        match self.counts {
            Counts::PerOwner(counts) if self.collective.traits().has_blocks_at_root() => Some(counts),
            _ => None,
        }
    }

    /// The root of a gather or scatter, the elements of this rank's block if it is not the root, and their type.
    #[doc(hidden)]
    pub fn own_block(&self) -> (usize, usize, Datatype) {
        let buffers = &self.buffers;
        let own = if self.collective.traits().in_parts { buffers.recv_count() } else { buffers.send_count() };
        (self.root.unwrap_or(0), own, buffers.datatype())
    }

    /// Sets the operator.
    pub fn op(self, op: Op) -> Self {
        CollectiveArgs { op: ReduceOp::Builtin(op), ..self }
    }

    /// Sets the options.
    #[inline(always)]
    pub fn options(self, options: CallOptions) -> Self {
        CollectiveArgs { options, ..self }
    }

    /// Sets the options of arguments where they lie.
    #[inline(always)]
    pub fn set_options(&mut self, options: CallOptions) -> &Self {
        self.options = options;
        self
    }

    /// The collective.
    #[inline(always)]
    pub fn collective(&self) -> Collective {
        self.collective
    }
}
