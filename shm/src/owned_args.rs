//! The arguments of a call that is started and ends later: it owns its buffers, its counts and its operator.
//!
//! Invariant **D (datatype)**: whatever a call on the datatype of its buffers writes to them is made of values of their type.
#![allow(unsafe_code)]

use crate::Error;
use crate::args::{CallOptions, CollectiveArgs, Counts, Placement};
use crate::checked_args::CheckedArgs;
use crate::config::Algorithm;
use crate::op::{Element, FoldOrder, Op};
use crate::protocol::collective::Collective;
use crate::protocol::request_buffers::{BufferOwner, Grouped, OwnedBuffers};
use crate::reduce_op::SharedReduceOp;
use crate::shared_buffer::FindAllocations;

/// The arguments of one collective call on buffers of its own, vectors or shared buffers: what the constructors of
/// [`CollectiveArgs`] make of them. `B` are the buffers, which come back when the call has ended, `O` is what the call keeps of
/// its operator.
///
/// ```
/// use earlybird_shm::{CollectiveArgs, Op, OwnedArgs};
/// let args: OwnedArgs<'_, Vec<f32>> = CollectiveArgs::all_reduce(vec![1.0f32, 2.0], Op::Sum);
/// # let _ = args;
/// ```
#[derive(Debug)]
#[must_use = "a description of a call does nothing before it is started"]
pub struct OwnedArgs<'a, B, O = Op> {
    /// The call, but for its buffers and its operator.
    args: CollectiveArgs<'a>,
    buffers: B,
    /// The places at which the other ranks reach the buffers.
    allocations: Option<FindAllocations>,
    op: O,
    /// The lengths of a grouped call.
    segments: Option<Vec<usize>>,
}

impl<'a, B, O> OwnedArgs<'a, B, O> {
    /// The call that `args` describe, on `buffers` of elements of their datatype, and their `allocations` if the other ranks
    /// reach them.
    ///
    /// # Safety
    /// D.
    pub(crate) unsafe fn new(
        args: CollectiveArgs<'a>,
        buffers: B,
        allocations: Option<FindAllocations>,
        op: O,
    ) -> Self {
        OwnedArgs { args, buffers, allocations, op, segments: None }
    }

    /// Sets the block lengths.
    pub fn counts(self, counts: Counts<'a>) -> Self {
        OwnedArgs { args: self.args.counts(counts), ..self }
    }
}

impl<'a, T: Element> OwnedArgs<'a, Grouped<T>> {
    pub(crate) fn grouped(args: CollectiveArgs<'a>, parts: Grouped<T>, op: Op) -> Self {
        OwnedArgs { args, segments: Some(parts.lens()), buffers: parts, allocations: None, op }
    }
}

impl<B: BufferOwner, O: Into<SharedReduceOp>> OwnedArgs<'_, B, O> {
    /// The call without the types of its buffers and its operator.
    pub fn into_call(self) -> OwnedCall {
        let CollectiveArgs { collective, root, counts, buffers, .. } = self.args;
        // SAFETY: D, by the constructor.
        let buffers = unsafe { OwnedBuffers::new(Box::new(self.buffers), buffers.datatype()) };
        let counts = self.segments.as_deref().map_or(counts, Counts::Segments);
        OwnedCall { allocations: self.allocations, ..OwnedCall::new(collective, self.op.into(), root, counts, buffers) }
    }
}

/// The settings of a call that is started: it proceeds while its caller is elsewhere, so arrivals have no order.
const STARTED: CallOptions = CallOptions { algorithm: Algorithm::Auto, order: FoldOrder::Rank, within: 0 };

#[derive(Debug)]
enum OwnedCounts {
    Uniform,
    PerRank(Vec<usize>),
    PerPair(Vec<usize>, Vec<usize>),
    PerOwner(Vec<usize>),
    Segments(Vec<usize>),
}

/// A call that owns all that it needs, and can be carried out any number of times.
#[derive(Debug)]
pub struct OwnedCall {
    collective: Collective,
    op: SharedReduceOp,
    root: Option<usize>,
    counts: OwnedCounts,
    buffers: OwnedBuffers,
    allocations: Option<FindAllocations>,
}

impl OwnedCall {
    /// The call of `collective` on these buffers.
    pub fn new(
        collective: Collective,
        op: SharedReduceOp,
        root: Option<usize>,
        counts: Counts<'_>,
        buffers: OwnedBuffers,
    ) -> Self {
        let counts = match counts {
            Counts::Uniform => OwnedCounts::Uniform,
            Counts::PerRank(counts) => OwnedCounts::PerRank(counts.to_vec()),
            Counts::PerPair { send, recv } => OwnedCounts::PerPair(send.to_vec(), recv.to_vec()),
            Counts::PerOwner(counts) => OwnedCounts::PerOwner(counts.to_vec()),
            Counts::Segments(lens) => OwnedCounts::Segments(lens.to_vec()),
        };
        let buffers = if collective == Collective::Barrier { buffers.of_token() } else { buffers };
        OwnedCall { collective, op, root, counts, buffers, allocations: None }
    }

    /// The arguments of the call on its own buffers, checked for rank `rank` of `size`.
    ///
    /// # Errors
    /// The errors of [`CollectiveArgs::check`].
    pub fn check(&mut self, rank: usize, size: usize) -> Result<CheckedArgs<'_>, Error> {
        self.args().check(rank, size)
    }

    /// The arguments of the call on its own buffers, unchecked.
    pub fn args(&mut self) -> CollectiveArgs<'_> {
        let counts = match &self.counts {
            OwnedCounts::Uniform => Counts::Uniform,
            OwnedCounts::PerRank(counts) => Counts::PerRank(counts),
            OwnedCounts::PerPair(send, recv) => Counts::PerPair { send, recv },
            OwnedCounts::PerOwner(of_root) => Counts::PerOwner(of_root),
            OwnedCounts::Segments(lens) => Counts::Segments(lens),
        };
        let (collective, op, root, buffers) = (self.collective, self.op.get(), self.root, self.buffers.as_buffers());
        let placement = Placement::Private;
        CollectiveArgs { collective, op, root, counts, buffers, placement, options: STARTED }
    }

    /// The elements to send to each rank and to receive from each, of a call of which no rank, or only the root, knows all lengths.
    ///
    /// # Errors
    /// The errors of [`CollectiveArgs::check`]; [`Error::Unsupported`] for a gather or scatter in place whose owners know the lengths.
    pub fn counts_of_pairs(&mut self, rank: usize, size: usize) -> Result<Option<[Vec<usize>; 2]>, Error> {
        let of_root = match &self.counts {
            OwnedCounts::PerPair(send, recv) => return Ok(Some([send.clone(), recv.clone()])),
            OwnedCounts::PerOwner(of_root) if self.root == Some(rank) => of_root.clone(),
            OwnedCounts::PerOwner(_) => vec![0; size],
            OwnedCounts::Uniform | OwnedCounts::PerRank(_) | OwnedCounts::Segments(_) => return Ok(None),
        };
        let traits = self.collective.traits();
        let args = self.args();
        if args.buffers.are_in_place() {
            return Err(Error::Unsupported {
                what: format!(
                    "{} in place that does not block, of blocks whose lengths their owners alone know",
                    traits.name
                ),
                hint: "give the block of the root in a buffer of its own".into(),
            });
        }
        let (root, own, _) = args.own_block();
        args.check(rank, size)?;
        let mut with_root = vec![0; size];
        with_root[root] = own;
        Ok(Some(if traits.in_parts { [of_root, with_root] } else { [with_root, of_root] }))
    }

    /// Makes a call of such counts the alltoall of these blocks; other calls stay as they are.
    ///
    /// # Errors
    /// The errors of [`OwnedCall::counts_of_pairs`].
    pub fn become_alltoall(&mut self, rank: usize, size: usize) -> Result<(), Error> {
        if let Some([send, recv]) = self.counts_of_pairs(rank, size)? {
            self.counts = OwnedCounts::PerPair(send, recv);
            (self.collective, self.root) = (Collective::AllToAll, None);
        }
        Ok(())
    }

    /// The operator; of no meaning where the collective does not reduce.
    pub fn op(&self) -> &SharedReduceOp {
        &self.op
    }

    /// The root; 0 where there is none.
    pub fn root(&self) -> usize {
        self.root.unwrap_or(0)
    }

    /// The places at which the other ranks reach the buffers; `None` if they do not.
    pub(crate) fn allocations(&mut self) -> Option<FindAllocations> {
        self.allocations.filter(|find| find(self.buffers.owner_as_any()).is_some())
    }

    /// The buffers.
    pub fn buffers(&mut self) -> &mut OwnedBuffers {
        &mut self.buffers
    }

    /// The buffers, for good.
    pub fn into_buffers(self) -> OwnedBuffers {
        self.buffers
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The arguments of a call without buffers: to run, or to start.
pub trait WithoutBuffers: sealed::Sealed {
    /// Converts from the borrowed form.
    #[doc(hidden)]
    fn without_buffers(args: CollectiveArgs<'static>) -> Self;
}

impl sealed::Sealed for CollectiveArgs<'_> {}
impl WithoutBuffers for CollectiveArgs<'_> {
    #[inline(always)]
    fn without_buffers(args: CollectiveArgs<'static>) -> Self {
        args
    }
}

impl sealed::Sealed for OwnedArgs<'_, ()> {}
impl WithoutBuffers for OwnedArgs<'_, ()> {
    fn without_buffers(args: CollectiveArgs<'static>) -> Self {
        OwnedArgs { args, buffers: (), allocations: None, op: Op::Sum, segments: None }
    }
}
