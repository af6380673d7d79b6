//! What the protocol needs from the world: shared words, payload places, sleep, and news of the peers.
//!
//! Two boards exist: the mapped segment that ships, and the heap of loom cells on which the same protocol lines are
//! model-checked. The protocol itself never sees an address.

use super::geometry::Who;
use super::lines::{EventLine, MemberLines, RankLine, RankSet};
use super::step::Step;
use crate::Error;
use crate::sync::AtomicU64;

/// True in models that have one slot and one area, so that every operation reuses what the one before used. Those of
/// `shm/tests/loom_ring.rs` have as many as ship.
const IS_SMALL: bool = cfg!(all(earlybird_loom, not(earlybird_loom_ring)));

/// Operation slots in the ring: operation `e` uses slot `e % SLOTS`.
pub const SLOTS: usize = if IS_SMALL { 1 } else { 8 };

/// Payload areas: operation `e` uses area `e % AREAS`. Few, because each is as large as a message.
pub const AREAS: usize = if IS_SMALL { 1 } else { 2 };

/// Accumulator chunks of one operation at most.
pub const CHUNKS: usize = if cfg!(earlybird_loom) { 64 } else { 256 };

/// A place for payload in shared memory: where its bytes begin, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Beside the mark in `rank`'s line of `slot`; [`super::lines::INLINE_BYTES`] long.
    Inline {
        /// Operation slot.
        slot: usize,
        /// Owner.
        rank: usize,
        /// Bytes of the payload.
        bytes: usize,
    },
    /// Piece `piece` of `rank`'s deposit in `area`, `offset` bytes into the deposit.
    Deposit {
        /// Payload area.
        area: usize,
        /// Owner.
        rank: usize,
        /// Piece number.
        piece: usize,
        /// Bytes before the piece.
        offset: usize,
        /// Bytes of the piece.
        bytes: usize,
    },
    /// Chunk `chunk` of the accumulator of `area`, `offset` bytes into it.
    Accumulator {
        /// Payload area.
        area: usize,
        /// Chunk number.
        chunk: usize,
        /// Bytes before the chunk.
        offset: usize,
        /// Bytes of the chunk.
        bytes: usize,
    },
    /// Piece `piece` of a buffer that `rank` has registered for this operation, `offset` bytes into it.
    Registered {
        /// Owner.
        rank: usize,
        /// Whether the place of its result, or else its contribution; they may be one.
        result: bool,
        /// Piece number.
        piece: usize,
        /// Bytes before the piece.
        offset: usize,
        /// Bytes of the piece.
        bytes: usize,
    },
}

/// A private buffer that other ranks may read, as its owner tells them: its address, and the address and value of a word by which a
/// reader finds that it has reached the right process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Exposed {
    /// Address of the buffer in its owner's memory.
    pub address: u64,
    /// Address of `token` in its owner's memory.
    pub token_address: u64,
    /// A random number of the owner's process.
    pub token: u64,
}

/// The memory that an operation needs in an area before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Bytes of the accumulator.
    pub accumulator: usize,
    /// Bytes of a rank's deposit.
    pub deposit: usize,
    /// The ranks whose deposits are used here.
    pub whose: Who,
}

impl Need {
    /// An accumulator and the deposits of all ranks.
    pub fn of_all(accumulator: usize, deposit: usize) -> Need {
        Need { accumulator, deposit, whose: Who::All }
    }
}

/// Phases of a wait, for the board of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Reads from here on are watched.
    Start,
    /// So are these, and they give the newest values: peers are inspected after a while, when stores are visible.
    Inspect,
    /// Reads from here on are not watched; those before still are.
    Hold,
    /// Nothing is watched.
    Stop,
}

/// The shared state of a group as one rank sees it.
pub trait Board {
    /// Ranks in the group.
    fn ranks(&self) -> usize;
    /// This rank.
    fn rank(&self) -> usize;

    /// The group's one error; [`Board::healthy`] while there is none.
    fn poison(&self) -> &AtomicU64;
    /// The value of the poison word while the group is well.
    fn healthy(&self) -> u64;
    /// Returns whether the memory is still this group's, as the identity beside the poison word says.
    fn is_ours(&self) -> bool;
    /// "Every operation up to this one is left by `rank`". Writer: `rank`.
    fn left(&self, rank: usize) -> &AtomicU64;
    /// The words by which `rank` tells the others of itself, apart from any operation. Writer: `rank`.
    fn member(&self, rank: usize) -> &MemberLines;

    /// The arrival word of `slot`.
    fn arrival(&self, slot: usize) -> &AtomicU64;
    /// The line on which ranks sleep in the operation of `slot`.
    fn event(&self, slot: usize) -> &EventLine;
    /// `rank`'s line of `slot`.
    fn line(&self, slot: usize, rank: usize) -> &RankLine;
    /// The fold word of `area` as a whole (`leader`).
    fn fold_word(&self, area: usize) -> &AtomicU64;
    /// The ranks already folded in `area` (`leader`).
    fn folded(&self, area: usize) -> &RankSet;
    /// The fold word of one chunk of `area`, or of slot `area - AREAS`, for operations that have no payload in an area.
    fn chunk(&self, area: usize, chunk: usize) -> &AtomicU64;

    /// Reads payload: the protocol has ordered it after its writer.
    fn read<R>(&self, at: Place, f: impl FnOnce(*const u8) -> R) -> R;
    /// Writes payload: the protocol has made this rank its only user.
    fn write<R>(&self, at: Place, f: impl FnOnce(*mut u8) -> R) -> R;
    /// Reserves and pre-faults what `need` names in `area`; cheap when it was done before.
    fn reserve(&self, area: usize, need: Need) -> Result<(), Error>;

    /// Turns to an operation on registered buffers of `bytes`; the addresses are those of this rank's. Only buffers that are
    /// opened from here on are accessible.
    fn register(&self, contribution: *mut u8, result: *mut u8, bytes: usize);
    /// Makes the buffers that `rank` has registered under these names accessible as [`Place::Registered`].
    fn open(&self, rank: usize, names: [u64; 2]) -> Result<(), Error>;

    /// Lets the other ranks read this private buffer, until [`Board::end_exposure`].
    fn expose(&self, buffer: &[u8]) -> Exposed;
    /// Fills `to` from what `rank` has exposed, beginning `offset` bytes into it; returns whether that was possible.
    fn read_exposed(&self, rank: usize, exposed: Exposed, offset: usize, to: &mut [u8]) -> bool;
    /// No rank reads what this one has exposed any more.
    fn end_exposure(&self) {}

    /// Says which reads a blocked rank of a model is to be woken for.
    #[inline(always)]
    fn watch(&self, _: Watch) {}
    /// Returns whether peers are inspected: not in a model without faults and mismatches.
    #[inline(always)]
    fn inspects(&self) -> bool {
        true
    }

    /// Returns whether `rank` has died, executed another program, or left the group for good.
    fn is_gone(&self, rank: usize) -> bool;
    /// Returns whether `rank` lives but cannot run: stopped by a signal or a debugger.
    fn is_held(&self, rank: usize) -> bool;
    /// Prints, once per operation, which ranks are late and in which state.
    fn warn_late(&self, operation: u64, waited_s: u64, missing: &[usize]);
    /// Monotonic nanoseconds, the same clock on all ranks.
    fn now_ns(&self) -> u64;
    /// Fetches this rank's own line of `slot` for writing: the ranks that read it last hold copies, and taking it back
    /// costs as much as the whole small-message call.
    fn prepare_line(&self, slot: usize);
    /// Fetches ahead what an operation in `slot` looks at or writes besides its payload. A hint.
    fn prefetch(&self, slot: usize);
    /// Moves what lies at `at`, just written here and next read elsewhere, out of this core's own cache. A hint.
    fn demote(&self, at: Place);
    /// Drives what the caller wants driven while it waits, where that is due at `now_ns`. Returns whether the call that waits is
    /// to be given up.
    fn drive(&self, now_ns: u64) -> bool;
    /// The longest sleep before that is due again, at most `most_ns`.
    fn sleep_ns(&self, most_ns: u64) -> u64;
    /// Gives the CPU away once.
    fn yield_now(&self);
    /// Sleeps without a wake-up, for words that no rank announces.
    fn backoff(&self, ns: u64);
    /// A protocol step was reached (fault injection).
    fn step(&self, step: Step);
}
