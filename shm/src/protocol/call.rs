//! A call of one rank: the prepared state that all its operations share, and the buffers of one operation.

use super::collective::Collective;
use super::decide::Thresholds;
use super::shared_result::SharedResult;
use super::signature::Signature;
use super::store_pace::Stores;
use super::window::Window;
use crate::Error;
use crate::config::Algorithm;
use crate::kernels::{self, FinishFn, FoldFn, Kernels};
use crate::op::{DType, Datatype, Op};
use crate::user_op::ReduceFn;
use std::marker::PhantomData;

/// The kind of synchronization by which the ranks of a call meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// `flat` of an allreduce or barrier: no ticket, every rank takes from every rank.
    Flat,
    /// `flat` of every other collective: no ticket, a rank waits only for the ranks whose data it takes.
    Exchange,
    /// No ticket and no deposit: a rank reads the private memory of the others.
    SingleCopy {
        /// True if every rank could do so before.
        trusted: bool,
    },
    /// The arrival word decides the algorithm.
    Ticketed,
}

/// The arithmetic of a fold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arithmetic<'a> {
    /// The library's kernels.
    Built(Kernels),
    /// A user's operator, borrowed from its owner.
    User(&'a dyn ReduceFn),
    /// No arithmetic: data is moved, through this function if not every byte pattern is a value.
    Moved(Option<FinishFn>),
}

/// The state that follows from a call's arguments alone; kept from one call to the next, since calls repeat. The fields that the
/// fast path reads come first.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Prepared<'a> {
    /// The folds of a call that may take the fast path: for payloads that fit in a line, and for larger ones.
    pub(super) fast_folds: Option<[FoldFn; 2]>,
    pub(super) signature: Signature,
    pub(super) hash: u32,
    pub(super) datatype: Datatype,
    /// Bytes of one element of an accumulator.
    pub(super) accumulator_bytes: usize,
    pub(super) arithmetic: Arithmetic<'a>,
    /// The fold for a small number of elements, if its accumulator is the result: nothing is widened, rounded or divided.
    pub(super) fold_few: Option<FoldFn>,
    pub(super) ranks: usize,
    pub(super) in_rank_order: bool,
    pub(super) algorithm: Algorithm,
    pub(super) collective: Collective,
    pub(super) lane: Lane,
    pub(super) root: Option<usize>,
    pub(super) reads_long_blocks: bool,
}

impl<'a> Prepared<'a> {
    /// The collective that moves the data.
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// The type of the elements.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// The root, where the call has one.
    #[inline(always)]
    pub fn root(&self) -> Option<usize> {
        self.root
    }

    /// A call of `signature` by `ranks` ranks on elements of `dtype`. `in_rank_order` is true if it must fold in rank order, because
    /// the order shows in the bits; `algorithm` is the one to run, or to propose in the ticketed lane, never `Auto`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the call folds and the operator does not exist for the type.
    pub fn new(
        signature: Signature,
        dtype: DType,
        op: Op,
        ranks: usize,
        in_rank_order: bool,
        algorithm: Algorithm,
    ) -> Result<Self, Error> {
        let collective = Self::collective_of(signature);
        if !collective.traits().folds {
            let moved = Arithmetic::Moved(kernels::cleaning(dtype));
            return Ok(Self::with(signature, dtype.into(), moved, ranks, in_rank_order, algorithm));
        }
        dtype.must_have(op)?;
        let kernels = kernels::kernels(dtype, op).expect("every pair that exists has kernels: tested");
        let is_plain = kernels.widen.is_none() && kernels.finish.is_none();
        let fold_few = is_plain.then_some(kernels.fold_few);
        let plain = Self::with(signature, dtype.into(), Arithmetic::Built(kernels), ranks, in_rank_order, algorithm);
        Ok(Prepared {
            accumulator_bytes: kernels.accumulator_bytes,
            fold_few,
            fast_folds: fold_few.filter(|_| plain.lane == Lane::Flat).map(|fold_few| [fold_few, kernels.fold]),
            ..plain
        })
    }

    /// A call of `signature` with a user's operator, which [`Prepared::by_user`] adds whenever the call is run or makes progress.
    pub fn of_user(
        signature: Signature,
        datatype: Datatype,
        ranks: usize,
        in_rank_order: bool,
        algorithm: Algorithm,
    ) -> Self {
        Self::with(signature, datatype, Arithmetic::Moved(None), ranks, in_rank_order, algorithm)
    }

    /// Returns whether a user's operator folds.
    pub fn is_by_user(&self) -> bool {
        self.collective.traits().folds && !matches!(self.arithmetic, Arithmetic::Built(_))
    }

    /// The same state with a user's operator, which was borrowed.
    pub fn by_user<'b>(&self, operator: &'b dyn ReduceFn) -> Prepared<'b>
    where
        'a: 'b,
    {
        Prepared { arithmetic: Arithmetic::User(operator), ..*self }
    }

    /// The state of the same call with another number of elements in each block, if it runs by the same algorithm.
    pub fn of_length(&self, elements: usize, thresholds: &Thresholds) -> Option<Self> {
        let (signature, bytes) = (self.signature.of_length(elements), elements * self.datatype.size());
        let algorithm = thresholds.choose(self.collective, signature.algorithm()?, bytes, self.in_rank_order);
        (algorithm == self.algorithm).then(|| Prepared { signature, hash: signature.hash(), ..*self })
    }

    fn collective_of(signature: Signature) -> Collective {
        Collective::from_repr(signature.kind as u8).expect("a signature names its collective")
    }

    fn with(
        signature: Signature,
        datatype: Datatype,
        arithmetic: Arithmetic<'a>,
        ranks: usize,
        in_rank_order: bool,
        algorithm: Algorithm,
    ) -> Self {
        let collective = Self::collective_of(signature);
        let lane = match algorithm {
            Algorithm::Flat if collective.traits().reaches_all() => Lane::Flat,
            Algorithm::Flat => Lane::Exchange,
            Algorithm::SingleCopy => Lane::SingleCopy { trusted: false },
            _ => Lane::Ticketed,
        };
        Prepared {
            signature,
            hash: signature.hash(),
            datatype,
            accumulator_bytes: datatype.size(),
            arithmetic,
            fold_few: None,
            fast_folds: None,
            ranks,
            in_rank_order,
            algorithm,
            collective,
            lane,
            root: signature.root(),
            reads_long_blocks: false,
        }
    }

    /// Bytes of one element of an accumulator.
    pub fn accumulator_bytes(&self) -> usize {
        self.accumulator_bytes
    }

    /// Returns whether the call runs window by window: see [`super::geometry`].
    pub fn exchanges(&self) -> bool {
        matches!(self.lane, Lane::Exchange | Lane::SingleCopy { .. })
    }

    /// The same state where every rank is known to be able to read the others' private memory.
    pub fn trusting(self) -> Self {
        match self.lane {
            Lane::SingleCopy { .. } => Prepared { lane: Lane::SingleCopy { trusted: true }, ..self },
            _ => self,
        }
    }

    /// The same state of an alltoall of which no rank knows all lengths, where blocks that are too long for its first operation are read
    /// where they lie.
    pub fn reading_long_blocks(self) -> Self {
        Prepared { reads_long_blocks: true, ..self }
    }

    /// Returns whether long blocks are read so.
    pub fn reads_long_blocks(&self) -> bool {
        self.reads_long_blocks
    }

    /// Replaces the collective that moves the data; the signature stays.
    pub fn carried_as(self, collective: Collective) -> Self {
        Prepared { collective, ..self }
    }

    /// The state of the same call made non-blocking: without a ticket every collective runs as an exchange, since that deposits
    /// and collects separately.
    pub(super) fn started(self) -> Self {
        Prepared { lane: if self.lane == Lane::Flat { Lane::Exchange } else { self.lane }, ..self }
    }

    /// The algorithm to run or to propose.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// One operation of one rank: a whole call, or one segment of a call larger than an area.
///
/// The buffers are private memory of this rank; only `payload.rs` touches them.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The state that all parts of the call share.
    pub(super) prepared: &'a Prepared<'a>,
    /// Elements of this operation.
    pub(super) count: usize,
    /// Bytes per element.
    pub(super) element_bytes: usize,
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    /// Elements that may be read at `send` and written at `recv`; fewer than `count` if this rank sends or receives less.
    pub(super) send_count: usize,
    pub(super) recv_count: usize,
    /// The window of an exchange that this operation carries.
    pub(super) window: Option<&'a Window<'a>>,
    /// The names of the buffers, where they are registered.
    pub(super) registered: Option<[u64; 2]>,
    /// The result that all ranks share, and the offset of this operation's part in it, bytes.
    pub(super) shared: Option<(&'a SharedResult, usize)>,
    /// The stores that write the result.
    pub(super) result_stores: Stores,
    pub(super) borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Call<'a> {
    /// Converts a small call of the fast path for the rest of the protocol, which handles its long waits and errors.
    #[cold]
    pub(super) fn of_fast_path(
        prepared: &'a Prepared<'a>,
        (send, send_count): (*const u8, usize),
        (recv, recv_count): (*mut u8, usize),
    ) -> Self {
        Call {
            prepared,
            count: send_count.max(recv_count),
            element_bytes: prepared.datatype.size(),
            send,
            recv,
            send_count,
            recv_count,
            window: None,
            registered: None,
            shared: None,
            result_stores: Stores::Ordinary,
            borrowed: PhantomData,
        }
    }
}

impl Call<'_> {
    /// Bytes of the payload.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.count * self.element_bytes
    }

    /// Bytes of an accumulator of the payload.
    #[inline]
    pub(super) fn accumulator_bytes(&self) -> usize {
        self.count * self.prepared.accumulator_bytes
    }

    /// Returns whether contributions must be folded in rank order: false if the order does not show in the bits.
    #[inline]
    pub(super) fn in_rank_order(&self) -> bool {
        self.prepared.in_rank_order
    }

    /// Returns whether the result is in shared memory for all ranks to read, and is not copied out.
    pub(super) fn result_is_shared(&self) -> bool {
        self.shared.is_some_and(|(shared, _)| shared.is_taken())
    }

    /// Returns whether the accumulator is the result: nothing is widened, rounded or divided.
    pub(super) fn is_its_own_accumulator(&self) -> bool {
        self.prepared.fold_few.is_some()
    }

    /// Returns whether `rank` gets a result of this reduction.
    pub(super) fn has_result(&self, rank: usize) -> bool {
        self.prepared.root.is_none_or(|root| root == rank)
    }
}
