//! The gather of blocks whose lengths their owners know: each announces its own with its entry, deposits its block, and leaves. The root
//! knows all lengths, and compares them.
//!
//! It is one operation whatever the lengths, since no rank but the root could tell how many the longest block takes. Of a block longer
//! than a deposit the rest follows in parts of half a deposit, which take turns in its two halves. Only the owners of such blocks
//! wait: before a part, until the root has read from all what stood in that half. The root tells so in its `deposited` word, for it
//! deposits nothing.
//!
//! ```text
//! owner  deposit | half 0 (part 0) | half 1 (part 1) | half 0 (part 2) ...    deposited: pieces, then one more for each part
//! root   reads it, tells 1 | reads part 0, tells 2 | reads part 1, tells 3 ...       part 2 is written once 2 was told
//! ```

use super::{announced, exchange};
use crate::protocol::board::{Board, DepositsAt, Place};
use crate::protocol::geometry::Who;
use crate::protocol::lengths::Announced;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::pieces::{PIECE_BYTES, Pieces};
use crate::protocol::step::Step;
use crate::protocol::store_pace::Stores;
use crate::protocol::wait::Wake;
use crate::protocol::window::Window;
use crate::protocol::word;
use crate::sync::SyncPoint;

/// Runs the operation; returns the first rank that sends what the root, which alone knows of it, does not expect.
pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) -> Result<Option<Announced>, Stop> {
    match w.exchange.readers {
        Who::Only(root) if root != op.me => give(op, w, root).map(|()| None),
        _ => gather(op, w),
    }
}

/// Announces and deposits the block of this rank.
fn give<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>, root: usize) -> Result<(), Stop> {
    let (me, len) = (op.me, w.exchange.send_count(op.me));
    op.board.line(op.slot, me).announce(len as u64);
    let first = w.narrowed(len, op.call.element_bytes);
    exchange::enter_and_deposit(op, &first)?;
    let halves = Halves::of(op, &first, me);
    let mut part = first;
    for turn in 0.. {
        let Some(next) = part.next_part(len, halves.elements) else { break };
        part = next;
        await_number(op, root, [turn.max(1), turn + 1], SyncPoint::ReadAcquire)?;
        let (place, elements) = (halves.place(&part, turn), part.stride());
        op.board.write(place, |to| op.call.deposit_part(to, 0, part.sent_at(me), elements, Stores::Ordinary));
        tell(op, halves.before + turn + 1, SyncPoint::DepositRelease);
        op.board.step(Step::Deposited);
    }
    Ok(())
}

/// Receives the blocks of all ranks, as they come.
fn gather<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) -> Result<Option<Announced>, Stop> {
    exchange::enter_and_deposit(op, &w.narrowed(0, op.call.element_bytes))?;
    let own = w.exchange.send_count(op.me);
    if own > 0 {
        op.call.keep_part(0, w.exchange.place_of(op.me), own);
    }
    collect(op, w)
}

/// Receives the blocks of all other ranks, on a root that has entered.
pub(in crate::protocol) fn collect<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
) -> Result<Option<Announced>, Stop> {
    let (me, element_bytes) = (op.me, op.call.element_bytes);
    let mut unexpected: Option<(usize, usize)> = None;
    let mut longer = Vec::new();
    announced::receive_all(op, w, |_, rank, announced| {
        let len = announced as usize;
        let first = w.narrowed(len, element_bytes);
        if len > first.stride() {
            longer.push((rank, len, first));
        }
        if len == w.exchange.send_count(rank) {
            return first;
        }
        if unexpected.is_none_or(|(first, _)| rank < first) {
            unexpected = Some((rank, len));
        }
        w.narrowed(0, element_bytes)
    })?;
    let begun = longer.into_iter().map(|(rank, len, first)| {
        let halves = Halves::of(op, &first, rank);
        // Those of an unexpected length were not awaited.
        op.until_deposited(rank, halves.before)?;
        Ok((len, first, halves))
    });
    let mut longer = begun.collect::<Result<Vec<_>, Stop>>()?;
    for turn in 0.. {
        longer.retain_mut(|(len, part, halves)| match part.next_part(*len, halves.elements) {
            Some(next) => {
                *part = next;
                true
            }
            None => false,
        });
        if longer.is_empty() {
            break;
        }
        tell(op, turn + 1, SyncPoint::ReadRelease);
        for (_, part, halves) in &longer {
            // The part after it may be there, too.
            let numbers = [1, 2].map(|more| halves.before + turn + more);
            await_number(op, halves.rank, numbers, SyncPoint::DepositAcquire)?;
            let (to, len) = (part.place_of(halves.rank), part.part(halves.rank, me).len());
            if len > 0 {
                op.board.read(halves.place(part, turn), |from| op.call.receive_part(from, 0, to, len));
            }
        }
    }
    Ok(unexpected.map(|(from, sends)| Announced::Unexpected { from, sends, expects: w.exchange.send_count(from) }))
}

/// The two halves of a deposit in which the parts after the first, which fills it, take turns.
struct Halves {
    rank: usize,
    at: DepositsAt,
    /// Elements of a half.
    elements: usize,
    element_bytes: usize,
    /// Pieces of the first part, all of which are announced before the others.
    before: usize,
}

impl Halves {
    /// Those of the deposit of `rank`, of which `first` is the first part.
    fn of<B: Board>(op: &Operation<'_, B>, first: &Window<'_>, rank: usize) -> Halves {
        let (element_bytes, elements) = (op.call.element_bytes, (first.stride() / 2).max(1));
        let at = op.deposits_at(first.stride() * element_bytes);
        let before = Pieces::cut(first.stride(), element_bytes, PIECE_BYTES, word::MAX_PIECES).number;
        Halves { rank, at, elements, element_bytes, before }
    }

    fn place(&self, part: &Window<'_>, turn: usize) -> Place {
        let (half, DepositsAt { area, base }) = (turn % 2, self.at);
        let (offset, bytes) = (half * self.elements * self.element_bytes, part.stride() * self.element_bytes);
        Place::Deposit { area, rank: self.rank, piece: half, offset: base + offset, bytes }
    }
}

/// The value of a `deposited` word for a number that only ever grows by one.
fn counted(number: usize) -> usize {
    1 + (number - 1) % word::MAX_PIECES
}

/// Tells the others this number.
fn tell<B: Board>(op: &Operation<'_, B>, number: usize, release: SyncPoint) {
    let mark = word::deposited(op.epoch, op.hash, counted(number));
    op.board.line(op.slot, op.me).deposited.store(mark, release.order());
    op.wake();
}

/// Waits until `rank` has told one of these numbers.
fn await_number<B: Board>(
    op: &mut Operation<'_, B>,
    rank: usize,
    numbers: [usize; 2],
    acquire: SyncPoint,
) -> Result<(), Stop> {
    let (slot, epoch, hash) = (op.slot, op.epoch, op.hash);
    op.wait(Wake::Event, |board| {
        let mark = board.line(slot, rank).deposited.load(acquire.order());
        numbers.map(counted).contains(&word::pieces(mark, epoch, hash)).then_some(())
    })
}
