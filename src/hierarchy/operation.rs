//! An operation of a node's group, as a part of a call over several nodes, and the bytes that it works on.

use super::scratch::ScratchVector;
use crate::DType;
use earlybird_shm::Collective;
use earlybird_shm::op::Datatype;
use std::borrow::Cow;
use std::ops::{Deref, DerefMut, Range};

/// Bytes to send: the caller's memory in a blocking call, a vector in a started one.
pub(super) type Bytes<'d> = Cow<'d, [u8]>;

/// The phase of its call to which an operation of a node belongs. A started call collects in one group of the node's ranks and
/// delivers in another, so that either group has one order of operations on all ranks; a blocking call has one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodePhase {
    /// The first operation, by which leaders receive what they exchange.
    Collect,
    /// An operation before the last one, in the group of delivery.
    BeforeDelivery,
    /// The last operation, by which ranks receive what leaders have exchanged.
    Deliver,
}

/// An operation of a node's group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation<'o> {
    pub collective: Collective,
    pub datatype: Datatype,
    pub root: Option<usize>,
    /// Bytes of each rank's block, where they may differ.
    pub lens: Option<&'o [usize]>,
}

impl<'o> Operation<'o> {
    /// A barrier.
    pub(super) fn barrier() -> Self {
        Operation { collective: Collective::Barrier, datatype: DType::U8.into(), root: None, lens: None }
    }

    /// An operation that moves bytes from or to rank `root` of the node.
    pub(super) fn moving(collective: Collective, root: usize) -> Self {
        Operation { collective, root: Some(root), ..Self::barrier() }
    }

    /// The broadcast of rank `root` of the node.
    pub(super) fn broadcast(root: usize) -> Self {
        Self::moving(Collective::Broadcast, root)
    }

    /// The reduction to rank `root` of the node.
    pub(super) fn reduce(root: usize, datatype: Datatype) -> Self {
        Operation { datatype, ..Self::moving(Collective::Reduce, root) }
    }

    /// The gather of blocks of these lengths to rank `root` of the node.
    pub(super) fn gather(root: usize, lens: &'o [usize]) -> Self {
        Operation { lens: Some(lens), ..Self::moving(Collective::Gather, root) }
    }

    /// The scatter of blocks of these lengths from the leader.
    pub(super) fn scatter(lens: &'o [usize]) -> Self {
        Operation { lens: Some(lens), ..Self::moving(Collective::Scatter, 0) }
    }
}

/// A receive buffer: the caller's memory in a blocking call, a vector in a started one, and for what a leader holds for its node a
/// vector that is kept for later calls.
#[derive(Debug)]
pub(super) enum Buf<'d> {
    Borrowed(&'d mut [u8]),
    Owned(Vec<u8>),
    Scratch(ScratchVector<'d>),
}

impl Buf<'_> {
    /// The bytes, for [`Buf::put`] to return them; of borrowed memory a copy.
    pub(super) fn take(&mut self) -> Vec<u8> {
        match self {
            Buf::Borrowed(bytes) => bytes.to_vec(),
            Buf::Owned(bytes) => std::mem::take(bytes),
            Buf::Scratch(bytes) => bytes.take(),
        }
    }

    /// Replaces the bytes, of which there are as many.
    pub(super) fn put(&mut self, bytes: Vec<u8>) {
        match self {
            Buf::Borrowed(to) => to.copy_from_slice(&bytes),
            Buf::Owned(to) => *to = bytes,
            Buf::Scratch(to) => to.put(bytes),
        }
    }
}

impl Default for Buf<'_> {
    /// The buffer of a rank that receives nothing.
    fn default() -> Self {
        Buf::Owned(Vec::new())
    }
}

impl Deref for Buf<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Buf::Borrowed(bytes) => bytes,
            Buf::Owned(bytes) => bytes,
            Buf::Scratch(bytes) => bytes,
        }
    }
}

impl DerefMut for Buf<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Buf::Borrowed(bytes) => bytes,
            Buf::Owned(bytes) => bytes,
            Buf::Scratch(bytes) => bytes,
        }
    }
}

/// A part of the send buffer. A vector, which only a started call has, is not cut.
pub(super) fn part<'d>(send: &mut Option<Bytes<'d>>, range: Range<usize>) -> Option<Bytes<'d>> {
    match send {
        Some(Cow::Borrowed(whole)) => Some(Cow::Borrowed(&whole[range])),
        Some(Cow::Owned(_)) | None => send.take(),
    }
}

/// The contribution, which lies in `recv` where there is no send buffer.
pub(super) fn contribution<'d>(send: Option<Bytes<'d>>, recv: &[u8]) -> Bytes<'d> {
    send.unwrap_or_else(|| Cow::Owned(recv.to_vec()))
}
