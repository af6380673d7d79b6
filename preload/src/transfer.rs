//! Collectives that move data and reduce nothing: how a call on the blocks of both sides is carried out.
//! Ranks may use different types of one signature, so the data moves as bytes.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::block::{Block, per_rank};
use crate::buffers::{are_disjoint, write};
use crate::form::Form;
use crate::functions::MpiFunction;
use crate::intercepted::InterceptedComm;
use crate::non_blocking::{LentBuffers, NewCall};
use crate::outcome::{CallFailure, CallResult, forward, return_code};
use crate::row::{CallMemory, Row, RowBytes};
use crate::scratch::Scratch;
use crate::selection::Selection;
use crate::summary::{self, ForwardReason};
use earlybird::{CallBuffers, CollectiveArgs, Counts, DType, Op};
use std::ffi::c_int;

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
pub enum BlockBytes {
    Uniform(usize),
    /// Of each rank's block, the same on all ranks.
    PerRank(Vec<usize>),
    /// To each rank, and from each.
    PerPair([Vec<usize>; 2]),
}

impl BlockBytes {
    #[inline(always)]
    fn counts(&self) -> Counts<'_> {
        match self {
            BlockBytes::Uniform(_) => Counts::Uniform,
            BlockBytes::PerRank(bytes) => per_rank(bytes),
            BlockBytes::PerPair([send, recv]) => Counts::PerPair { send, recv },
        }
    }

    /// Returns whether the call is forwarded to MPI: by its largest block, or, where no rank knows all blocks, by the function alone.
    #[inline(always)]
    fn prefer_mpi(&self, call: MpiFunction, selection: &Selection) -> bool {
        match self {
            BlockBytes::PerPair(_) => selection.always_prefers_mpi(call),
            _ => selection.prefers_mpi(call, self.counted()),
        }
    }

    /// Bytes of the largest block; of all blocks to send where each pair of ranks has its own.
    #[inline(always)]
    fn counted(&self) -> usize {
        match self {
            BlockBytes::Uniform(bytes) => *bytes,
            BlockBytes::PerRank(bytes) => bytes.iter().copied().max().unwrap_or(0),
            BlockBytes::PerPair([send, _]) => send.iter().sum(),
        }
    }
}

/// An intercepted call that moves data.
pub struct Transfer {
    pub intercepted: &'static InterceptedComm,
    pub root: Option<usize>,
    pub block_bytes: BlockBytes,
    /// True if the blocks to send lie in `recv`; `send` has them too.
    pub is_in_place: bool,
    pub send: Row,
    pub recv: Row,
}

impl Transfer {
    /// Carries out the call: on the caller's memory where blocks follow one another and are apart, else on copies.
    ///
    /// # Safety
    /// Both rows are what MPI demands of the caller.
    #[inline(always)]
    unsafe fn run(&self, call: MpiFunction) -> CallResult {
        let (send, recv) = (&self.send, &self.recv);
        let run = |send: Option<&[u8]>, recv: &mut [u8]| {
            let buffers = CallBuffers::of_bytes(send, recv, DType::U8.into());
            let counts = self.block_bytes.counts();
            let args = CollectiveArgs::describe(call.collective(), self.root, counts, buffers, Op::Sum);
            self.intercepted.comm.run(args)
        };
        if self.is_in_place && recv.is_borrowable() {
            // SAFETY: by the caller's contract; bytes have no alignment and no invalid values.
            return Ok(run(None, unsafe { write(recv.at, recv.bytes) })?);
        }
        // SAFETY: by the caller's contract.
        let sent = unsafe { send.to_bytes()? };
        let is_apart = matches!(sent, RowBytes::Packed(_)) || are_disjoint(send.at, send.bytes, recv.at, recv.bytes);
        if recv.is_borrowable() && is_apart {
            // SAFETY: as above, and disjoint.
            return Ok(run(Some(&sent), unsafe { write(recv.at, recv.bytes) })?);
        }
        let mut received = Scratch::new(recv.bytes);
        run(Some(&sent), &mut received)?;
        // SAFETY: by the caller's contract.
        unsafe { recv.unpack(&received) }
    }

    /// Starts the call, on the same memory or on copies, and writes its request.
    ///
    /// # Safety
    /// The contract of `run`; `request` is where the caller wants the request.
    #[cold]
    unsafe fn start(self, function: MpiFunction, comm: Handle, request: *mut Handle) -> CallResult {
        let Transfer { intercepted, root, block_bytes, is_in_place, send, recv } = self;
        let send = match is_in_place && recv.is_borrowable() {
            true => None,
            // SAFETY: by the caller's contract.
            false => Some(match unsafe { send.to_bytes()? } {
                RowBytes::Borrowed(bytes) if are_disjoint(send.at, send.bytes, recv.at, recv.bytes) => {
                    CallMemory::Lent(send.at, bytes.len())
                }
                bytes => CallMemory::Own(bytes.to_vec()),
            }),
        };
        let (recv, deliver_to) = recv.lend()?;
        let buffers = LentBuffers { send, recv, deliver_to };
        let counts = block_bytes.counts();
        let call = NewCall { intercepted, function, comm, root, counts, dtype: DType::U8, op: Op::Sum };
        // SAFETY: by the caller's contract.
        unsafe { call.start(buffers, request) }
    }
}

/// Runs or starts a call that moves data, or forwards it: its return code, or `None`. `call` is the blocking function. `counted` is what a forwarded call adds to the summary.
///
/// # Safety
/// The rows are what MPI demands of the caller.
#[inline(always)]
pub unsafe fn carry_out(
    call: MpiFunction,
    comm: Handle,
    (count, dtype): (i64, Handle),
    transfer: Result<Transfer, Refusal>,
    form: Form,
) -> Option<c_int> {
    let call = form.of(call);
    let transfer = match transfer {
        Ok(transfer) => transfer,
        Err(Refusal::Forward(ForwardReason::Argument)) => return forward(call, ForwardReason::Argument, 0, dtype),
        Err(Refusal::Forward(reason)) => return forward(call, reason, count, dtype),
        Err(Refusal::Failed(failure)) => return Some(return_code(call, comm, Err(failure))),
    };
    if transfer.block_bytes.prefer_mpi(call, &transfer.intercepted.selection) {
        return forward(call, ForwardReason::Faster, count, dtype);
    }
    if summary::is_counting() {
        summary::count_intercepted(call, transfer.block_bytes.counted());
    }
    // SAFETY: by the caller's contract.
    let result = unsafe {
        match form {
            Form::Blocking => transfer.run(call),
            Form::NonBlocking(request) => transfer.start(call, comm, request),
        }
    };
    Some(return_code(call, comm, result))
}

/// The communicator and the root of a call.
#[inline(always)]
pub fn rooted(root: c_int, comm: Handle, form: Form) -> Result<(&'static InterceptedComm, usize), ForwardReason> {
    let intercepted = form.comm(comm)?;
    let root = usize::try_from(root).ok().filter(|root| *root < intercepted.size);
    Ok((intercepted, root.ok_or(ForwardReason::Argument)?))
}

/// The block of `count` elements.
#[inline(always)]
pub fn block(intercepted: &InterceptedComm, count: i64, dtype: Handle, comm: Handle) -> Result<Block, ForwardReason> {
    Block::new(intercepted.handles, count, dtype, comm).ok_or(ForwardReason::Argument)
}

/// Refuses MPI_IN_PLACE on a rank that is not the root of a gather or a scatter.
#[inline(always)]
pub fn check_not_in_place(is_in_place: bool) -> CallResult {
    let what = "MPI_IN_PLACE on a rank that is not the root";
    match is_in_place {
        false => Ok(()),
        true => Err(CallFailure::Argument(constants().err_buffer, what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use earlybird::Interpose;

    #[test]
    fn blocks_of_one_length_are_uniform_and_the_largest_selects() {
        assert!(matches!(BlockBytes::PerRank(vec![5, 5]).counts(), Counts::Uniform));
        let unequal = BlockBytes::PerRank(vec![5, 9, 0]);
        assert!(matches!(unequal.counts(), Counts::PerRank([5, 9, 0])));
        assert_eq!(unequal.counted(), 9);
        let pairs = BlockBytes::PerPair([vec![1, 2], vec![3, 4]]);
        assert_eq!(pairs.counted(), 3);
        let selection = |given| Selection::new(&Interpose::read(given).unwrap().1, false);
        let (some, all) = (selection("alltoall=mpi:2-"), selection("alltoall=mpi"));
        for (bytes, by_size) in [(unequal, true), (pairs, false)] {
            assert_eq!(bytes.prefer_mpi(MpiFunction::Alltoallv, &some), by_size);
            assert!(bytes.prefer_mpi(MpiFunction::Alltoallv, &all));
        }
    }
}
