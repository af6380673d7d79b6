//! A collective call as Python describes it: the same for its blocking, its non-blocking and its persistent form.
#![allow(unsafe_code)]

use crate::buffers::BufferArg;
use crate::fold::{self, CallOp};
use crate::shared_memory::LockedBuffers;
use crate::signals;
use earlybird::{
    BorrowedBytes, CallBuffers, Collective, CollectiveArgs, Communicator, Counts, Datatype, MemoryKeeper, OwnedArgs,
    SharedBuffer, SharedReduceOp,
};
use pyo3::prelude::*;
use std::ptr;

/// Elements of the blocks of a call.
pub enum Blocks {
    Uniform,
    PerRank(Vec<usize>),
    PerPair { send: Vec<usize>, recv: Vec<usize> },
}

impl Blocks {
    fn counts(&self) -> Counts<'_> {
        match self {
            Blocks::Uniform => Counts::Uniform,
            Blocks::PerRank(counts) => Counts::PerRank(counts),
            Blocks::PerPair { send, recv } => Counts::PerPair { send, recv },
        }
    }

    /// Counts bytes in place of elements of this many.
    fn scale(&mut self, bytes: usize) {
        let scale = |counts: &mut Vec<usize>| counts.iter_mut().for_each(|count| *count = count.saturating_mul(bytes));
        match self {
            Blocks::Uniform => {}
            Blocks::PerRank(counts) => scale(counts),
            Blocks::PerPair { send, recv } => [send, recv].into_iter().for_each(scale),
        }
    }
}

/// A collective call.
pub struct Call {
    pub collective: Collective,
    /// Without effect where nothing is reduced.
    pub op: CallOp,
    pub root: Option<usize>,
    pub blocks: Blocks,
    /// `None` if the contribution lies in the receive buffer.
    pub send: Option<BufferArg>,
    pub recv: BufferArg,
    /// False if the call leaves the receive buffer as it is: on the root of a broadcast, and of a scatter in place.
    pub has_result: bool,
    /// True if the other ranks work in buffers that lie in shared memory.
    pub is_shared: bool,
    /// The shared memory that the buffers are, where that is so; from the check on.
    pub locked: Option<LockedBuffers>,
}

impl Call {
    /// Refuses buffers that cannot be used. Their lengths are checked against the call by the library.
    pub fn checked(mut self, py: Python<'_>) -> PyResult<Self> {
        fold::refuse_inside(py)?;
        if self.has_result {
            self.recv.check_writable()?;
        }
        if let Some(send) = &self.send {
            send.check_pair(&self.recv)?;
        }
        if let CallOp::Function(_) = &self.op {
            self.send.iter_mut().chain([&mut self.recv]).for_each(BufferArg::allow_any_bytes);
        } else if self.collective.traits().folds {
            contribution(&self.send, &self.recv).check_elements()?;
        } else if let Datatype::Opaque(bytes) = self.recv.datatype {
            self.send.iter_mut().chain([&mut self.recv]).for_each(BufferArg::become_bytes);
            self.blocks.scale(bytes);
        }
        if self.is_shared {
            self.locked = LockedBuffers::take(py, self.send.as_ref(), &self.recv)?;
        }
        Ok(self)
    }

    /// Refuses what cannot be sent anew at each start.
    pub fn check_persistent(&self) -> PyResult<()> {
        if self.has_result { Ok(()) } else { self.recv.check_writable() }
    }

    /// Makes the blocking call, which was checked.
    pub fn run(mut self, py: Python<'_>, comm: &Communicator) -> PyResult<()> {
        let (datatype, mut locked, mut copy) = (self.recv.datatype, self.locked.take(), Vec::new());
        let done = signals::call(py, || {
            let buffers = match &mut locked {
                Some(locked) => locked.call_buffers().datatype(datatype),
                // SAFETY: C; apart from each other and writable, as checked.
                None => unsafe {
                    let recv = if !self.has_result && self.recv.is_readonly {
                        copy.extend_from_slice(self.recv.bytes());
                        &mut copy
                    } else {
                        self.recv.bytes_mut()
                    };
                    CallBuffers::of_bytes(self.send.as_ref().map(|send| send.bytes()), recv, datatype)
                },
            };
            comm.run(self.args(buffers))
        });
        self.op.explain(py, done)
    }

    #[inline(always)]
    fn args<'a>(&'a self, buffers: CallBuffers<'a, u8>) -> CollectiveArgs<'a> {
        CollectiveArgs::describe(self.collective, self.root, self.blocks.counts(), buffers, self.op.get())
    }

    /// Hands the call, which was checked, to `begin` as one that is started, on the caller's buffers, which it keeps.
    pub fn owned<T>(self, begin: impl FnOnce(OwnedArgs<'_, CallBytes, SharedReduceOp>) -> T) -> T {
        let Call { collective, op, root, blocks, send, recv, has_result, locked, .. } = self;
        let datatype = recv.datatype;
        let copy = match !has_result && recv.is_readonly {
            // SAFETY: C.
            true => Some(unsafe { recv.bytes() }.to_vec()),
            false => None,
        };
        let mut kept = Kept { locked, send, recv, folds: collective.traits().folds, copy };
        let recv = match &mut kept.copy {
            Some(copy) => ptr::from_mut(copy.as_mut_slice()),
            None => kept.recv.raw_bytes(),
        };
        let send = kept.send.as_ref().map(|send| send.raw_bytes().cast_const());
        // SAFETY: L: C; apart from each other and writable, as checked.
        let bytes = unsafe { BorrowedBytes::new(send, recv, datatype, kept) };
        begin(CollectiveArgs::describe(collective, root, blocks.counts(), bytes, &op.shared()))
    }
}

/// The memory of a started call: the caller's.
pub type CallBytes = BorrowedBytes<Kept>;

/// The holders that keep the memory of a started call in its place.
pub struct Kept {
    locked: Option<LockedBuffers>,
    send: Option<BufferArg>,
    recv: BufferArg,
    folds: bool,
    /// Elements that are sent from a receive buffer which cannot be written.
    copy: Option<Vec<u8>>,
}

impl Kept {
    /// Refuses, before a call is started once more, elements that cannot be reduced.
    pub fn check_elements(&self) -> PyResult<()> {
        if self.folds { contribution(&self.send, &self.recv).check_elements() } else { Ok(()) }
    }
}

impl MemoryKeeper for Kept {
    fn shared_buffers(&mut self) -> Option<(Option<&SharedBuffer<u8>>, &mut SharedBuffer<u8>)> {
        self.locked.as_mut().map(LockedBuffers::buffers)
    }
}

/// The buffer with the elements that a rank contributes.
pub fn contribution<'a>(send: &'a Option<BufferArg>, recv: &'a BufferArg) -> &'a BufferArg {
    send.as_ref().unwrap_or(recv)
}
