//! The arguments of one collective call, without a type parameter: every form of every collective is built from them.
//!
//! Generics stop here. A call is described by a value of [`CollectiveArgs`], from typed slices by the constructors below, or
//! from the bytes that a binding to another language has by [`CallBuffers::of_bytes`]. What does not fit the communicator is
//! refused by [`CollectiveArgs::check`], and only what was checked can be carried out.
//!
//! Invariant **D (datatype)**: whatever a call on the datatype of its buffers writes to the receive buffer is made of values
//! of the slice's type.
#![allow(unsafe_code)]

use crate::bytes_op::BytesOp;
use crate::config::Algorithm;
use crate::op::{DType, Datatype, Element, FoldOrder, Op, OpIdentity};
use crate::protocol::payload::Buffers;
use crate::protocol::signature::Collective;
use crate::user_op::{ReduceFn, UserOp};
use bytemuck::Pod;
use std::marker::PhantomData;

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

/// The reduction operator of a call.
#[derive(Debug, Clone, Copy)]
pub enum ReduceOp<'a> {
    /// One of the library's. Collectives that do not reduce take no notice of it.
    Builtin(Op),
    /// A user's.
    User(&'a dyn ReduceFn),
}

impl ReduceOp<'_> {
    /// The identity of the operator, as ranks compare it.
    pub fn identity(self) -> OpIdentity {
        match self {
            ReduceOp::Builtin(op) => op.into(),
            ReduceOp::User(op) => op.identity(),
        }
    }
}

impl sealed::Sealed for ReduceOp<'_> {}
/// For bytes with a datatype of their own: [`CallBuffers::of_bytes`].
impl<'a> IntoReduceOp<'a, u8> for ReduceOp<'a> {
    #[inline(always)]
    fn datatype(&self) -> Datatype {
        match self {
            ReduceOp::Builtin(_) => DType::U8.into(),
            ReduceOp::User(op) => Datatype::Opaque(op.element_bytes()),
        }
    }
    #[inline(always)]
    fn into_reduce_op(self) -> ReduceOp<'a> {
        self
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An operator that can reduce buffers of `T`: an [`Op`], a reference to a [`UserOp`], or to a [`BytesOp`] for bytes.
pub trait IntoReduceOp<'a, T>: sealed::Sealed {
    /// The type of the elements in buffers of `T`; it keeps invariant D.
    fn datatype(&self) -> Datatype;
    /// The operator without its type.
    fn into_reduce_op(self) -> ReduceOp<'a>;
}

impl sealed::Sealed for Op {}
impl<'a, T: Element> IntoReduceOp<'a, T> for Op {
    #[inline(always)]
    fn datatype(&self) -> Datatype {
        T::DTYPE.into()
    }
    #[inline(always)]
    fn into_reduce_op(self) -> ReduceOp<'a> {
        ReduceOp::Builtin(self)
    }
}

impl<T, F> sealed::Sealed for &UserOp<T, F> {}
impl<'a, T: Pod, F: Fn(&T, &T) -> T + Sync> IntoReduceOp<'a, T> for &'a UserOp<T, F> {
    fn datatype(&self) -> Datatype {
        DType::of::<T>().map_or(Datatype::Opaque(size_of::<T>()), Datatype::Builtin)
    }
    fn into_reduce_op(self) -> ReduceOp<'a> {
        ReduceOp::User(self)
    }
}

impl<F> sealed::Sealed for &BytesOp<F> {}
impl<'a, F: Fn(&[u8], &mut [u8]) + Sync> IntoReduceOp<'a, u8> for &'a BytesOp<F> {
    fn datatype(&self) -> Datatype {
        BytesOp::datatype(self)
    }
    fn into_reduce_op(self) -> ReduceOp<'a> {
        ReduceOp::User(self)
    }
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
    /// Elements of each of many messages that are reduced as one.
    Segments(&'a [usize]),
}

/// The send buffer and the receive buffer of a call: `(send, recv)`, or one for both, `buf`.
#[derive(Debug)]
pub struct CallBuffers<'a, T> {
    send: &'a [T],
    recv: *mut [T],
    in_place: bool,
    /// In place of the type of `T`, which is `u8` then.
    datatype: Option<Datatype>,
    borrowed: PhantomData<&'a mut [T]>,
}

impl<'a, T> From<(&'a [T], &'a mut [T])> for CallBuffers<'a, T> {
    #[inline(always)]
    fn from((send, recv): (&'a [T], &'a mut [T])) -> Self {
        CallBuffers { send, recv, in_place: false, datatype: None, borrowed: PhantomData }
    }
}

impl<'a, T> From<&'a mut [T]> for CallBuffers<'a, T> {
    #[inline(always)]
    fn from(buf: &'a mut [T]) -> Self {
        CallBuffers { send: &[], recv: buf, in_place: true, datatype: None, borrowed: PhantomData }
    }
}

impl<'a, T> CallBuffers<'a, T> {
    /// The buffers of a rank that only sends.
    #[inline(always)]
    pub fn send(send: &'a [T]) -> Self {
        (send, &mut [][..]).into()
    }

    /// The buffers of a rank that only receives.
    #[inline(always)]
    pub fn recv(recv: &'a mut [T]) -> Self {
        (&[][..], recv).into()
    }

    /// The buffers without their type, whose elements are of `datatype`.
    #[inline(always)]
    fn erased(self, datatype: Datatype) -> Buffers<'a> {
        let datatype = self.datatype.unwrap_or(datatype);
        // SAFETY: `recv` was made from an exclusive borrow for `'a`; D: by `IntoReduceOp::datatype`, or the slices are bytes.
        unsafe {
            match self.in_place {
                true => Buffers::erased_in_place(&mut *self.recv, datatype),
                false => Buffers::erased_apart(self.send, &mut *self.recv, datatype),
            }
        }
    }
}

impl<'a> CallBuffers<'a, u8> {
    /// The bytes of elements of `datatype`, at any address; without `send` the result replaces what lies in `recv`.
    #[inline(always)]
    pub fn of_bytes(send: Option<&'a [u8]>, recv: &'a mut [u8], datatype: Datatype) -> Self {
        let buffers = match send {
            Some(send) => CallBuffers::from((send, recv)),
            None => CallBuffers::from(recv),
        };
        CallBuffers { datatype: Some(datatype), ..buffers }
    }
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
    pub(crate) options: CallOptions,
}

impl<'a> CollectiveArgs<'a> {
    /// An allreduce: the reduction of the send buffers of all ranks, in every rank's receive buffer.
    #[inline(always)]
    pub fn all_reduce<T: 'a>(buffers: impl Into<CallBuffers<'a, T>>, op: impl IntoReduceOp<'a, T>) -> Self {
        Self::reducing(Collective::AllReduce, None, buffers.into(), op)
    }

    /// A reduce: the reduction of the send buffers of all ranks, in the receive buffer of `root`. In place on every rank the
    /// buffers of the others stay as they are.
    #[inline(always)]
    pub fn reduce<T: 'a>(root: usize, buffers: impl Into<CallBuffers<'a, T>>, op: impl IntoReduceOp<'a, T>) -> Self {
        Self::reducing(Collective::Reduce, Some(root), buffers.into(), op)
    }

    /// A reduce-scatter: of the reduction of the send buffers of all ranks each rank receives its own block. In place the block
    /// of the result replaces the same block of the contribution.
    #[inline(always)]
    pub fn reduce_scatter<T: 'a>(buffers: impl Into<CallBuffers<'a, T>>, op: impl IntoReduceOp<'a, T>) -> Self {
        Self::reducing(Collective::ReduceScatter, None, buffers.into(), op)
    }

    /// A broadcast: `buf` of `root`, in `buf` of every rank.
    #[inline(always)]
    pub fn broadcast<T: Element>(root: usize, buf: impl Into<CallBuffers<'a, T>>) -> Self {
        Self::moving(Collective::Broadcast, Some(root), buf.into())
    }

    /// A gather: the send buffers of all ranks in rank order, in the receive buffer of `root`. In place the root's own block
    /// lies there already.
    #[inline(always)]
    pub fn gather<T: Element>(root: usize, buffers: impl Into<CallBuffers<'a, T>>) -> Self {
        Self::moving(Collective::Gather, Some(root), buffers.into())
    }

    /// An allgather: the send buffers of all ranks in rank order, in every rank's receive buffer. In place each rank's own
    /// block lies there already.
    #[inline(always)]
    pub fn all_gather<T: Element>(buffers: impl Into<CallBuffers<'a, T>>) -> Self {
        Self::moving(Collective::AllGather, None, buffers.into())
    }

    /// A scatter: one block of the send buffer of `root` to each rank in rank order. In place the root's own block stays where
    /// it is.
    #[inline(always)]
    pub fn scatter<T: Element>(root: usize, buffers: impl Into<CallBuffers<'a, T>>) -> Self {
        Self::moving(Collective::Scatter, Some(root), buffers.into())
    }

    /// An alltoall: block `r` of the send buffer to rank `r`, whose block for this rank becomes block `r` of the receive buffer.
    #[inline(always)]
    pub fn all_to_all<T: Element>(buffers: impl Into<CallBuffers<'a, T>>) -> Self {
        Self::moving(Collective::AllToAll, None, buffers.into())
    }

    /// A barrier: returns when every rank has called it.
    #[inline(always)]
    pub fn barrier() -> Self {
        Self::internal(Collective::Barrier, Buffers::in_place::<u64>(&mut []))
    }

    /// An allreduce of many messages as one, each in its place: copied one after the other into `memory`, which grows where
    /// needed, and back by [`unpack`]. `lens` are their lengths, the same on all ranks.
    pub fn all_reduce_packed<T: Element, P: AsRef<[T]>>(
        parts: &[P],
        lens: &'a [usize],
        memory: &'a mut Vec<u64>,
        op: Op,
    ) -> Self {
        let op = ReduceOp::Builtin(op);
        let packed = Self::internal(Collective::AllReduce, Buffers::packed(parts, memory));
        CollectiveArgs { op, counts: Counts::Segments(lens), ..packed }
    }

    /// An allreduce-like operation of the library's own on `buffers`, by sums.
    #[inline(always)]
    pub(crate) fn internal(collective: Collective, buffers: Buffers<'a>) -> Self {
        let (op, options) = (ReduceOp::Builtin(Op::Sum), CallOptions::default());
        CollectiveArgs { collective, op, root: None, counts: Counts::Uniform, buffers, options }
    }

    /// The same call on blocks of these lengths.
    pub fn counts(self, counts: Counts<'a>) -> Self {
        CollectiveArgs { counts, ..self }
    }

    /// The same call with these settings.
    #[inline(always)]
    pub fn options(self, options: CallOptions) -> Self {
        CollectiveArgs { options, ..self }
    }

    /// The collective.
    #[inline(always)]
    pub fn collective(&self) -> Collective {
        self.collective
    }

    #[inline(always)]
    fn reducing<T: 'a>(
        collective: Collective,
        root: Option<usize>,
        buffers: CallBuffers<'a, T>,
        op: impl IntoReduceOp<'a, T>,
    ) -> Self {
        let buffers = buffers.erased(op.datatype());
        let (op, counts, options) = (op.into_reduce_op(), Counts::Uniform, CallOptions::default());
        CollectiveArgs { collective, op, root, counts, buffers, options }
    }

    #[inline(always)]
    fn moving<T: Element>(collective: Collective, root: Option<usize>, buffers: CallBuffers<'a, T>) -> Self {
        CollectiveArgs { root, ..Self::internal(collective, buffers.erased(T::DTYPE.into())) }
    }
}

/// Copies the results of [`CollectiveArgs::all_reduce_packed`] back into the `parts` that were packed into `memory`.
pub fn unpack<T: Element, P: AsMut<[T]> + AsRef<[T]>>(memory: &mut Vec<u64>, parts: &mut [P]) {
    let count = parts.iter().map(|part| part.as_ref().len()).sum();
    Buffers::of_packed::<T>(memory, count).unpack(parts);
}
