//! `single-copy`: every rank reads the blocks for it out of the others' private buffers, through the kernel.
//!
//! A deposit costs two copies and this algorithm one, so it carries large blocks of collectives in which all ranks need each
//! other's data anyway (allgather, alltoall): no rank waits for one whose data it does not need. The mark of entry publishes the
//! address of a rank's buffer; a second mark means that the rank has read all its blocks, and no rank leaves before all have
//! set it. Cost: P-1 system calls per rank, its result copied once. Pays where deposits do not fit into the caches
//! (`docs/results/2026-11-23.md`).
//!
//! A system may forbid such reads (`ptrace_scope`, seccomp, containers with their own process numbers). The second mark then
//! reports the failure. All ranks wait for all marks, so all of them repeat the call by `flat`.

use crate::protocol::algorithm::exchange;
use crate::protocol::board::{Board, Exposed, Place};
use crate::protocol::fault;
use crate::protocol::geometry::Window;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::step::Step;
use crate::protocol::wait::Wake;
use crate::protocol::word;
use crate::sync::SyncPoint;

/// Values of the second mark: the rank has read all its blocks, or was not permitted to.
const HAS_READ: usize = 1;
const COULD_NOT: usize = 2;

/// Runs the call as one window; returns whether every rank could read. Otherwise the receive buffers are undefined and the
/// contributions unchanged.
pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) -> Result<bool, Stop> {
    let (board, call, epoch, hash, me) = (op.board, op.call, op.epoch, op.hash, op.me);
    let line = board.line(op.slot, me);
    // If the result replaces the contribution, the others read a copy.
    let copied = call.replaces_contribution();
    let exposed = match copied {
        true => board.expose(call.copy_contribution(op.scratch.accumulator(call.contribution_bytes()))),
        false => board.expose(call.contribution()),
    };
    board.write(place(op, me), |words| exposed.write(words));
    line.entered.store(word::entered(epoch, hash), SyncPoint::DepositRelease.order());
    board.step(Step::Entered);
    op.wake();

    let could_read = read_all(op, w)?;
    let outcome = if could_read { HAS_READ } else { COULD_NOT };
    line.deposited.store(word::deposited(epoch, hash, outcome), SyncPoint::ReadRelease.order());
    board.step(Step::Deposited);
    op.wake();

    let (slot, mut all_could) = (op.slot, could_read);
    for rank in (0..op.ranks).filter(|rank| *rank != me) {
        let theirs = op.wait(Wake::Event, |board| {
            let mark = board.line(slot, rank).deposited.load(SyncPoint::ReadAcquire.order());
            Some(word::pieces(mark, epoch, hash)).filter(|outcome| *outcome > 0)
        })?;
        all_could &= theirs == HAS_READ;
    }
    // After a failure a rank does not keep its buffer for ranks that still read it.
    if let Some(stop) = fault::failed(board).filter(|stop| stop.0.epoch() <= epoch) {
        return Err(stop);
    }
    board.end_exposure();
    if copied && !all_could {
        call.restore_contribution(op.scratch.accumulator(call.contribution_bytes()));
    }
    Ok(all_could)
}

/// Reads from each rank as it arrives; returns whether that was possible.
fn read_all<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) -> Result<bool, Stop> {
    let (board, call, me) = (op.board, op.call, op.me);
    let mut sources = std::mem::take(&mut op.scratch.sources);
    exchange::begin(op, w, &mut sources);
    let mut could = true;
    while !sources.is_empty() {
        exchange::until_more(op, w, &sources)?;
        let arrived = |rank: usize| {
            let mark = board.line(op.slot, rank).entered.load(SyncPoint::DepositAcquire.order());
            word::has_entered(mark, op.epoch).then_some(mark)
        };
        let Some((i, mark)) = (0..sources.len()).find_map(|i| arrived(sources[i].rank).map(|mark| (i, mark))) else {
            continue;
        };
        let source = sources.remove(i);
        if mark != word::entered(op.epoch, op.hash) {
            return Err(op.mismatch(source.rank));
        }
        let exposed = board.read(place(op, source.rank), Exposed::read);
        let from = w.sent_at(me) * call.element_bytes;
        could = could
            && call.receive(source.to, source.left.len(), |to| board.read_exposed(source.rank, exposed, from, to));
    }
    op.scratch.sources = sources;
    Ok(could)
}

/// The place of the words with the address of `rank`'s buffer.
fn place<B: Board>(op: &Operation<'_, B>, rank: usize) -> Place {
    Place::Inline { slot: op.slot, rank, bytes: size_of::<Exposed>() }
}
