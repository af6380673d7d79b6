//! `single-copy`: ranks read the blocks for them out of the others' private buffers, through the kernel.
//!
//! A deposit costs two copies and this algorithm one, so it carries large blocks where the owner of a buffer waits for the others anyway:
//! for their data in an allgather or alltoall, and in a scatter larger than the arena for the room that its readers make. The mark of entry
//! publishes the address of a rank's buffer; a second mark means that a rank has read all its blocks, and no rank leaves before all
//! that read its buffer have set it. Cost: a system call for each block, its result copied once; in a scatter the ranks copy at the same
//! time what otherwise the root copies alone. Pays in alltoalls and scatters of many ranks, and between two ranks where deposits do not fit into
//! the caches but results do: larger results take longer than by deposits, whose readers write past the caches, as the kernel
//! does not (`docs/results/2026-11-26.md`, `docs/results/2026-11-27.md`).
//!
//! A system may forbid such reads (`ptrace_scope`, seccomp, containers with their own process numbers). The second mark then
//! reports the failure. In the first call of a group all ranks wait for all marks, so all of them repeat the call by `flat`. If all could
//! read, a scatter is trusted from then on: its readers leave at once, and one that cannot read after all, because the root's buffer is
//! memory of another kind, is handed its blocks through the deposit ([`hand_over`]).

use crate::protocol::algorithm::exchange;
use crate::protocol::board::{Board, Exposed, Place};
use crate::protocol::fault;
use crate::protocol::geometry::Who;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::step::Step;
use crate::protocol::wait::Wake;
use crate::protocol::window::Window;
use crate::protocol::word;
use crate::sync::SyncPoint;

/// Values of the second mark: the rank has read all its blocks, or was not permitted to. Larger ones count what is handed over.
const HAS_READ: usize = 1;
const COULD_NOT: usize = 2;

/// Bytes that are handed over at a time: the smallest deposit of any arena.
const HANDOVER_BYTES: usize = if cfg!(earlybird_loom) { 16 } else { 4096 };

/// The outcome of a call that was carried out as one window.
pub(in crate::protocol) struct Outcome {
    /// False if a rank could not read. Then the receive buffers are undefined, the contributions unchanged, and every rank knows it.
    pub(in crate::protocol) is_done: bool,
    /// True if this rank has had something from every other one.
    pub(in crate::protocol) received_from_all: bool,
}

/// Runs the call as one window; `trusted` if every rank of the group could read before.
pub(in crate::protocol) fn run<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
    trusted: bool,
) -> Result<Outcome, Stop> {
    let (board, me) = (op.board, op.me);
    let is_read = w.exchange.is_read(me, false);
    if is_read {
        expose(op, w);
    }
    board.line(op.slot, me).entered.store(word::entered(op.epoch, op.hash), SyncPoint::DepositRelease.order());
    board.step(Step::Entered);
    op.wake();

    let (could_read, received_from_all) = read_all(op, w)?;
    tell(op, could_read);
    board.step(Step::Deposited);

    let root = match w.exchange.depositors {
        Who::Only(root) if trusted => Some(root),
        _ => None,
    };
    let could_not = match root.is_none_or(|root| root == me) {
        true => await_all(op, could_read)?,
        false => Vec::from_iter((!could_read).then_some(me)),
    };
    if let Some(root) = root
        && !could_not.is_empty()
    {
        hand_over(op, w, root, &could_not)?;
    }
    let is_done = could_not.is_empty() || root.is_some();
    op.scratch.ready = could_not;
    end(op, w, is_read, is_done)?;
    // A reader of an empty block has not waited for the root.
    Ok(Outcome { is_done, received_from_all: received_from_all || root.is_none_or(|root| root == me) })
}

/// Writes beside the mark of entry, which is to come, where this rank's contribution lies. If the result replaces it, the others read a copy.
pub(super) fn expose<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) {
    let (board, call) = (op.board, op.call);
    let contribution = match call.replaces_contribution() {
        true => call.copy_contribution(op.scratch.accumulator(call.contribution_bytes())),
        false => call.contribution(),
    };
    let exposed = board.expose(contribution, w.exchange.own_starts().unwrap_or(&[]));
    board.write(place(op, op.me), |words| exposed.write(words));
}

/// Ends the part of an operation in which each rank has read what it could: tells the others whether that was all, and waits until all have
/// told. Returns whether all ranks could. `is_read` if this rank has exposed its contribution.
pub(super) fn conclude<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
    is_read: bool,
    could_read: bool,
) -> Result<bool, Stop> {
    tell(op, could_read);
    let could_not = await_all(op, could_read)?;
    let is_done = could_not.is_empty();
    op.scratch.ready = could_not;
    end(op, w, is_read, is_done)?;
    Ok(is_done)
}

/// Gives this rank's buffer back to its owner: nobody reads it any more. Where its copy was read in vain, it is what it was.
fn end<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>, is_read: bool, is_done: bool) -> Result<(), Stop> {
    // After a failure a rank does not keep its buffer for ranks that still read it.
    if let Some(stop) = fault::failed(op.board).filter(|stop| stop.0.epoch() <= op.epoch) {
        return Err(stop);
    }
    if is_read {
        op.board.end_exposure();
    }
    let call = op.call;
    if is_read && !is_done && call.replaces_contribution() {
        let copy = op.scratch.accumulator(call.contribution_bytes());
        w.read_from(op.me).for_each(|elements| call.restore_contribution(copy, elements));
    }
    Ok(())
}

/// Tells by this rank's second mark whether it could read all its blocks.
fn tell<B: Board>(op: &Operation<'_, B>, could_read: bool) {
    set_outcome(op, if could_read { HAS_READ } else { COULD_NOT });
}

/// Waits until all ranks have told; returns those that could not read.
fn await_all<B: Board>(op: &mut Operation<'_, B>, could_read: bool) -> Result<Vec<usize>, Stop> {
    let (me, ranks) = (op.me, op.ranks);
    let mut could_not = std::mem::take(&mut op.scratch.ready);
    could_not.clear();
    could_not.extend((!could_read).then_some(me));
    for rank in (0..ranks).filter(|rank| *rank != me) {
        if await_outcome(op, rank, |outcome| outcome > 0)? != HAS_READ {
            could_not.push(rank);
        }
    }
    Ok(could_not)
}

/// Sets this rank's second mark.
fn set_outcome<B: Board>(op: &Operation<'_, B>, outcome: usize) {
    let mark = word::deposited(op.epoch, op.hash, outcome);
    op.board.line(op.slot, op.me).read.store(mark, SyncPoint::ReadRelease.order());
    op.wake();
}

/// Waits for a second mark of `rank`; returns its value.
fn await_outcome<B: Board>(
    op: &mut Operation<'_, B>,
    rank: usize,
    expected: impl Fn(usize) -> bool,
) -> Result<usize, Stop> {
    let (slot, epoch, hash) = (op.slot, op.epoch, op.hash);
    op.wait(Wake::Event, |board| {
        let mark = board.line(slot, rank).read.load(SyncPoint::ReadAcquire.order());
        Some(word::pieces(mark, epoch, hash)).filter(|outcome| expected(*outcome))
    })
}

/// Reads from each rank as it arrives; returns whether that was possible, and whether there was something from every other rank.
fn read_all<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) -> Result<(bool, bool), Stop> {
    let board = op.board;
    let mut sources = std::mem::take(&mut op.scratch.sources);
    let received_from_all = exchange::begin(op, w, &mut sources).received_from_all;
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
        could = could && read_block(op, w, source.rank, (source.to, source.left.len()));
    }
    op.scratch.sources = sources;
    Ok((could, received_from_all))
}

/// Reads what `rank` has for this one, to so many elements of the result beginning with the first; returns whether that was possible.
pub(super) fn read_block<B: Board>(
    op: &Operation<'_, B>,
    w: &Window<'_>,
    rank: usize,
    (to, len): (usize, usize),
) -> bool {
    let exposed = op.board.read(place(op, rank), Exposed::read);
    let Some(from) = byte_of_block(op, w, rank, exposed) else { return false };
    op.call.receive(to, len, |to| op.board.read_exposed(rank, exposed, from, to))
}

/// The byte of the buffer of `rank` at which the block for this one begins: where only `rank` knows it, its list is read.
fn byte_of_block<B: Board>(op: &Operation<'_, B>, w: &Window<'_>, rank: usize, exposed: Exposed) -> Option<usize> {
    let start = match w.exchange.own_starts() {
        None => w.sent_at(op.me),
        Some(_) => {
            let mut start = [0; size_of::<usize>()];
            let is_read = op.board.read_exposed(rank, exposed.list(), op.me * size_of::<usize>(), &mut start);
            is_read.then_some(usize::from_ne_bytes(start))?
        }
    };
    start.checked_mul(op.call.element_bytes)
}

/// The place of the words with the address of `rank`'s buffer.
fn place<B: Board>(op: &Operation<'_, B>, rank: usize) -> Place {
    Place::Inline { slot: op.slot, rank, bytes: size_of::<Exposed>() }
}

/// Passes the blocks of `root` through its deposit, step by step, to the ranks that could not read them: on the root all those that
/// `could_not`, on each of them itself.
#[cold]
fn hand_over<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
    root: usize,
    could_not: &[usize],
) -> Result<(), Stop> {
    let (me, element_bytes) = (op.me, op.call.element_bytes);
    for (step, mut part) in w.exchange.windows(element_bytes, HANDOVER_BYTES).enumerate() {
        part.inline = false;
        // The last part may be so short that it lies elsewhere.
        if me == root {
            op.until_all_left(exchange::deposits_at(op, &part).turns())?;
        }
        op.reserve_deposits(part.deposit_most() * element_bytes, Who::Only(root))?;
        // Numbers of steps that follow one another differ, and differ from the other values of the mark.
        let number = COULD_NOT + 1 + step % (word::MAX_PIECES - COULD_NOT);
        if me == root {
            exchange::deposit_silently(op, &part);
            set_outcome(op, number);
            for &rank in could_not {
                await_outcome(op, rank, |outcome| outcome == number)?;
            }
        } else {
            await_outcome(op, root, |outcome| outcome == number)?;
            exchange::receive_from(op, &part, root)?;
            set_outcome(op, number);
        }
    }
    Ok(())
}
