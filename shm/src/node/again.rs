//! The call that was made last, made again: an allreduce or barrier of few bytes goes from the handle to the lines with
//! one comparison of its arguments.

use super::run::{Folding, Wish};
use super::{How, NodeComm, State};
use crate::Error;
use crate::mapped::Mapped;
use crate::op::{DType, ElementType, Op};
use crate::protocol::Member;
use crate::protocol::call::Prepared;
use crate::protocol::geometry::Lens;
use crate::protocol::payload::{Buffers, Few};
use crate::protocol::signature::{Collective, Signature};

/// What an allreduce or barrier with an operator of the library is asked for, packed: calls that are asked for alike are
/// prepared alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// From the low end: `collective 8 | dtype 8 | op 8 | order 8 | algorithm 8 | within 16`.
    kind: u64,
    count: usize,
}

impl Asked {
    #[inline(always)]
    pub(super) fn new(collective: Collective, dtype: DType, op: Op, count: usize, how: How) -> Self {
        let kind = collective as u64
            | (dtype as u64) << 8
            | (op as u64) << 16
            | (how.order as u64) << 24
            | (how.algorithm as u64) << 32
            | u64::from(how.within) << 40;
        Asked { kind, count }
    }

    /// What `wish` is, if it is such a call.
    pub(super) fn of(wish: &Wish<'_>, buffers: &Buffers<'_>) -> Option<Self> {
        match (wish.collective, wish.op, wish.lens, buffers.element()) {
            _ if !buffers.are_private() => None,
            (
                Collective::AllReduce | Collective::Barrier,
                Folding::Built(op),
                Lens::Equal(count),
                ElementType::Built(dtype),
            ) => Some(Asked::new(wish.collective, dtype, op, count, wish.how)),
            _ => None,
        }
    }
}

/// What follows from the arguments of the last call.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Kept {
    /// As what it was asked for last.
    pub(super) asked: Option<Asked>,
    pub(super) prepared: Prepared<'static>,
    pub(super) signature: Signature,
}

impl NodeComm {
    /// Carries out a call that is asked for as the one before was; `None`, with nothing done, where the general way must
    /// be gone.
    #[inline(never)]
    pub(super) fn again(&self, asked: Asked, few: Few<'_>) -> Option<Result<(), Error>> {
        let state = &mut *self.state.try_lock()?;
        let State { broken, member, kept: Some(Kept { prepared, asked: Some(last_asked), .. }), last, .. } = state
        else {
            return None;
        };
        if *last_asked != asked || *broken || member.board.is_forked_child() {
            return None;
        }
        let few = few.bind(prepared)?;
        let unwinding = Unwinding { broken, member };
        let done = unwinding.member.run_straight(&few);
        std::mem::forget(unwinding);
        match done? {
            Ok(report) => {
                *last = Some(report);
                Some(Ok(()))
            }
            Err(stop) => Some(Err(self.error_of(member, stop))),
        }
    }
}

/// What is dropped only where a call unwinds: a call that returns pays nothing for it.
struct Unwinding<'a> {
    broken: &'a mut bool,
    member: &'a mut Member<Mapped>,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        *self.broken = true;
        self.member.panicked();
    }
}
