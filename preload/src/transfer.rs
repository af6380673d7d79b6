//! A call that moves data, run or started on the blocks of both sides. Ranks may use different types of one signature, so the data
//! moves as bytes.
#![allow(unsafe_code)]

use crate::abi::Handle;
use crate::block::per_rank;
use crate::buffers::{are_disjoint, read, write};
use crate::call::{MpiCall, NewRequest};
use crate::description::StartDescription;
use crate::failure::{CallFailure, CallResult};
use crate::functions::MpiFunction;
use crate::intercepted::InterceptedComm;
use crate::new_call::NewCall;
use crate::prepared::RequestBuffers;
use crate::row::{CallSide, Row, RowBytes};
use crate::scratch::Scratch;
use crate::selection::Selection;
use crate::summary::{self, ForwardReason};
use earlybird::{CallBuffers, Collective, CollectiveArgs, Counts, DType, Op};
use std::ffi::c_int;
use std::slice;

/// The reason why a call does not begin.
pub enum Refusal {
    Forward(ForwardReason),
    Failed(CallFailure),
}

impl From<ForwardReason> for Refusal {
    fn from(reason: ForwardReason) -> Self {
        Refusal::Forward(reason)
    }
}

impl From<CallFailure> for Refusal {
    fn from(failure: CallFailure) -> Self {
        Refusal::Failed(failure)
    }
}

/// Bytes of the blocks.
pub enum BlockBytes<'a> {
    Uniform(usize),
    /// Of each rank's block, the same on all ranks.
    PerRank(&'a [usize]),
    /// On the root, of each rank's block; other ranks know their own.
    PerOwner(&'a [usize]),
    /// On such another rank, of its own block.
    Own(usize),
    /// To each rank, then from each.
    PerPair(&'a [usize]),
}

impl BlockBytes<'_> {
    #[inline(always)]
    fn counts(&self) -> Counts<'_> {
        match self {
            BlockBytes::Uniform(_) => Counts::Uniform,
            BlockBytes::PerRank(bytes) => per_rank(bytes),
            BlockBytes::PerOwner(bytes) => Counts::PerOwner(bytes),
            BlockBytes::Own(bytes) => Counts::PerOwner(slice::from_ref(bytes)),
            BlockBytes::PerPair(both) => {
                let (send, recv) = both.split_at(both.len() / 2);
                Counts::PerPair { send, recv }
            }
        }
    }

    /// Returns whether the call is forwarded to MPI: by its largest block, or, where no rank knows all blocks, by the function alone.
    #[inline(always)]
    fn prefer_mpi(&self, function: MpiFunction, selection: &Selection) -> bool {
        match self {
            BlockBytes::PerPair(_) | BlockBytes::PerOwner(_) | BlockBytes::Own(_) => {
                selection.always_prefers_mpi(function)
            }
            _ => selection.prefers_mpi(function, self.counted()),
        }
    }

    /// Bytes of the largest block; of all blocks to send where each pair of ranks has its own.
    #[inline(always)]
    fn counted(&self) -> usize {
        match self {
            BlockBytes::Uniform(bytes) | BlockBytes::Own(bytes) => *bytes,
            BlockBytes::PerRank(bytes) | BlockBytes::PerOwner(bytes) => bytes.iter().copied().max().unwrap_or(0),
            BlockBytes::PerPair(both) => both[..both.len() / 2].iter().sum(),
        }
    }
}

/// An intercepted call that moves data.
pub struct Transfer<'a> {
    pub intercepted: &'static InterceptedComm,
    pub root: Option<usize>,
    pub block_bytes: BlockBytes<'a>,
    /// True if the blocks to send lie in `recv`; `send` has them too.
    pub is_in_place: bool,
    pub send: Row,
    pub recv: Row,
}

impl Transfer<'_> {
    /// Carries out the call: on the caller's memory where blocks follow one another and are apart, else on copies.
    ///
    /// # Safety
    /// Both rows are what MPI demands of the caller.
    #[inline(always)]
    pub unsafe fn run(&self, collective: Collective) -> CallResult {
        let (send, recv) = (&self.send, &self.recv);
        let is_apart =
            self.is_in_place || send.is_borrowable() && are_disjoint(send.at, send.bytes, recv.at, recv.bytes);
        // SAFETY: by the caller's contract; bytes have no alignment and no invalid values, and what is sent is disjoint.
        unsafe {
            if !is_apart || !recv.is_borrowable() {
                return self.run_on_copies(collective);
            }
            let sent = (!self.is_in_place).then(|| read(send.at, send.bytes));
            self.run_on(collective, sent, write(recv.at, recv.bytes))
        }
    }

    /// The same where a side has to be copied.
    ///
    /// # Safety
    /// The contract of `run`.
    #[cold]
    unsafe fn run_on_copies(&self, collective: Collective) -> CallResult {
        let (send, recv) = (&self.send, &self.recv);
        // SAFETY: by the caller's contract, as in `run`.
        unsafe {
            let mut sent = send.to_bytes()?;
            if let (RowBytes::Packed(packed), true) = (&mut sent, recv.is_unread() && recv.bytes == send.bytes) {
                return self.run_on(collective, None, packed);
            }
            if recv.is_borrowable() && matches!(sent, RowBytes::Packed(_)) {
                return self.run_on(collective, Some(&sent), write(recv.at, recv.bytes));
            }
            let mut received = Scratch::new(recv.bytes);
            self.run_on(collective, Some(&sent), &mut received)?;
            recv.unpack(&received)
        }
    }

    /// Runs the call on the bytes of both sides.
    #[inline(always)]
    fn run_on(&self, collective: Collective, send: Option<&[u8]>, recv: &mut [u8]) -> CallResult {
        let buffers = CallBuffers::of_bytes(send, recv, DType::U8.into());
        let args = CollectiveArgs::describe(collective, self.root, self.block_bytes.counts(), buffers, Op::Sum);
        Ok(self.intercepted.comm.run(args)?)
    }

    /// Makes a request of the call, on the same memory or on copies.
    ///
    /// # Safety
    /// The contract of `run`; `request` is where the caller wants the request.
    #[inline(never)]
    unsafe fn begin(self, function: MpiFunction, comm: Handle, request: NewRequest) -> CallResult {
        let Transfer { intercepted, root, block_bytes, is_in_place, send, recv } = self;
        // What only its root knows the lengths of becomes an alltoall, in which the block of the root has a place of its own.
        let is_whole = !matches!(block_bytes, BlockBytes::PerOwner(_) | BlockBytes::Own(_));
        let send = match is_in_place && is_whole && recv.is_borrowable() {
            true => None,
            false if send.is_borrowable() && are_disjoint(send.at, send.bytes, recv.at, recv.bytes) => {
                Some(CallSide::of_bytes(send.at, send.bytes))
            }
            false => Some(send.into_copy()?),
        };
        let recv = recv.into_side()?;
        let counts = block_bytes.counts();
        let call = StartDescription { function, root, counts, dtype: DType::U8.into(), op: Op::Sum.into() };
        let new = NewCall { intercepted, comm, call };
        // SAFETY: by the caller's contract.
        unsafe { new.begin(RequestBuffers { send, recv }, request) }
    }
}

/// Runs or starts a call that moves data, or forwards it: its return code, or `None`. A call that is forwarded counts in the summary
/// with a block of `count` elements.
///
/// # Safety
/// The rows are what MPI demands of the caller.
#[inline(always)]
pub unsafe fn carry_out(
    call: MpiCall,
    (count, dtype): (i64, Handle),
    transfer: Result<Transfer<'_>, Refusal>,
) -> Option<c_int> {
    let transfer = match transfer {
        Ok(transfer) => transfer,
        Err(Refusal::Forward(reason)) => return call.forward(reason, count, dtype),
        Err(Refusal::Failed(failure)) => return call.finish(Err(failure)),
    };
    if transfer.block_bytes.prefer_mpi(call.function, &transfer.intercepted.selection) {
        return call.forward(ForwardReason::Faster, count, dtype);
    }
    if summary::is_counting() {
        summary::count_intercepted(call.function, transfer.block_bytes.counted());
    }
    // SAFETY: by the caller's contract.
    call.finish(unsafe {
        match call.request {
            None => transfer.run(call.collective()),
            Some(request) => transfer.begin(call.function, call.comm, request),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::Measured;
    use earlybird::Interpose;

    #[test]
    fn blocks_of_one_length_are_uniform_and_the_largest_selects() {
        assert!(matches!(BlockBytes::PerRank(&[5, 5]).counts(), Counts::Uniform));
        let unequal = BlockBytes::PerRank(&[5, 9, 0]);
        assert!(matches!(unequal.counts(), Counts::PerRank([5, 9, 0])));
        assert_eq!(unequal.counted(), 9);
        let pairs = BlockBytes::PerPair(&[1, 2, 3, 4]);
        assert_eq!(pairs.counted(), 3);
        let selection = |given| Selection::new(&Interpose::read(given).unwrap().1, Measured::Nowhere);
        let (some, all) = (selection("alltoall=mpi:2-"), selection("alltoall=mpi"));
        for (bytes, by_size) in [(unequal, true), (pairs, false)] {
            assert_eq!(bytes.prefer_mpi(MpiFunction::Alltoallv, &some), by_size);
            assert!(bytes.prefer_mpi(MpiFunction::Alltoallv, &all));
        }
    }
}
