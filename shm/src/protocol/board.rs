//! The protocol's interface to the system: shared words, payload places, sleep, and the state of the peers.
//!
//! Two boards exist: the mapped segment that ships, and loom cells on the heap, on which loom checks the same protocol code. The
//! protocol itself never sees an address.

use super::geometry::Who;
use super::lines::{EventLine, MemberLines, RankLine, RankSet};
use super::rotation::Rotation;
use super::step::Step;
use crate::Error;
use crate::sync::AtomicU64;

/// True in models with one slot and one area, where every operation reuses the memory of the one before. The models of
/// `shm/tests/loom_ring.rs` have as many areas as the library, and eight slots.
const IS_SMALL: bool = cfg!(all(earlybird_loom, not(feature = "full-ring")));

/// Operation slots in the ring: operation `e` uses slot `e % SLOTS`. A rank that needs nobody, as the root of a broadcast, can be as many
/// operations ahead of the others.
pub const SLOTS: usize = match cfg!(earlybird_loom) {
    true if IS_SMALL => 1,
    true => 8,
    false => 32,
};

/// Payload areas: operation `e` uses area `e % AREAS`. Few, because each is as large as a message.
pub const AREAS: usize = if IS_SMALL { 1 } else { 2 };

/// Deposits that have memory of their own, for more than two operations: they are small.
#[derive(Debug, Clone, Copy)]
pub struct SmallDeposits {
    /// Bytes of a deposit, at most.
    pub bytes: usize,
    /// Operation `e` uses place `e % turns`.
    pub turns: usize,
}

impl SmallDeposits {
    /// Bytes of a rank's places.
    pub const fn room(self) -> usize {
        self.bytes * self.turns
    }
}

/// Short deposits, of which few pages hold those of all slots, and those of one piece.
pub const SMALL_DEPOSITS: [SmallDeposits; 2] = match cfg!(earlybird_loom) {
    true if IS_SMALL => [SmallDeposits { bytes: 48, turns: 1 }, SmallDeposits { bytes: 64, turns: 1 }],
    true => [SmallDeposits { bytes: 48, turns: SLOTS }, SmallDeposits { bytes: 64, turns: 4 }],
    false => [SmallDeposits { bytes: 1024, turns: SLOTS }, SmallDeposits { bytes: 8 * 1024, turns: 8 }],
};

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
        /// Payload area; from [`AREAS`] on the places of [`SMALL_DEPOSITS`].
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
        /// True for the place of the result, false for the contribution; they may be the same.
        result: bool,
        /// Piece number.
        piece: usize,
        /// Bytes before the piece.
        offset: usize,
        /// Bytes of the piece.
        bytes: usize,
    },
}

/// The place of an operation's deposits in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DepositsAt {
    /// That of [`Place::Deposit`].
    pub area: usize,
    /// Bytes before them in each rank's part of it.
    pub base: usize,
}

impl DepositsAt {
    /// The places of deposits of at most `bytes` in operation `epoch`, if they are small.
    #[inline(always)]
    pub fn small(epoch: u64, bytes: usize) -> Option<DepositsAt> {
        // Each size by itself: its turns are a constant then, a power of two.
        match bytes {
            _ if bytes <= SMALL_DEPOSITS[0].bytes => Some(DepositsAt::of_size::<0>(epoch)),
            _ if bytes <= SMALL_DEPOSITS[1].bytes => Some(DepositsAt::of_size::<1>(epoch)),
            _ => None,
        }
    }

    #[inline(always)]
    fn of_size<const SIZE: usize>(epoch: u64) -> DepositsAt {
        let SmallDeposits { bytes, turns } = SMALL_DEPOSITS[SIZE];
        DepositsAt { area: AREAS + SIZE, base: (epoch % turns as u64) as usize * bytes }
    }

    /// The number of operations after which the memory is used again.
    #[inline(always)]
    pub fn turns(self) -> usize {
        self.area.checked_sub(AREAS).map_or(AREAS, |size| SMALL_DEPOSITS[size].turns)
    }
}

/// A private buffer that its owner lets other ranks read: its address, that of the list of where in it the block for each rank begins,
/// and the address and value of a token by which a reader checks that it reads from the right process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Exposed {
    /// Address of the buffer in its owner's memory.
    pub address: u64,
    /// Address of the list in its owner's memory: elements, as `usize`.
    pub starts: u64,
    /// Address of `token` in its owner's memory.
    pub token_address: u64,
    /// A random number of the owner's process.
    pub token: u64,
}

impl Exposed {
    /// The list of where blocks begin, to be read as the buffer is.
    pub fn list(self) -> Self {
        Exposed { address: self.starts, ..self }
    }
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
    /// Reads from here on are watched: a change of what they read wakes the rank.
    Start,
    /// Reads from here on are watched and return the newest values, as in an inspection of the peers after a long wait.
    Inspect,
    /// Reads from here on are not watched; earlier ones still are.
    Hold,
    /// No read is watched.
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
    /// The value of the poison word while the group is healthy.
    fn healthy(&self) -> u64;
    /// Returns whether the memory still belongs to this group, by the identity beside the poison word.
    fn is_ours(&self) -> bool;
    /// "Every operation up to this one is left by `rank`". Writer: `rank`.
    fn left(&self, rank: usize) -> &AtomicU64;
    /// The words of `rank` that belong to no operation. Writer: `rank`.
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

    /// Reads payload, which the protocol has ordered after its writer.
    fn read<R>(&self, at: Place, f: impl FnOnce(*const u8) -> R) -> R;
    /// Writes payload, whose only user the protocol has made this rank.
    fn write<R>(&self, at: Place, f: impl FnOnce(*mut u8) -> R) -> R;
    /// The places of deposits in turn.
    fn rotation(&self) -> Rotation;
    /// The place of deposits of at most `bytes` in the area of operation `epoch`.
    #[inline(always)]
    fn deposits_in_area(&self, epoch: u64, bytes: usize) -> DepositsAt {
        let base = self.rotation().base(epoch / AREAS as u64, bytes);
        DepositsAt { area: (epoch % AREAS as u64) as usize, base }
    }
    /// The place of deposits of at most `bytes` of an exchange.
    #[inline(always)]
    fn deposits_at(&self, epoch: u64, bytes: usize) -> DepositsAt {
        self.small_deposits_at(epoch, bytes).unwrap_or_else(|| self.deposits_in_area(epoch, bytes))
    }
    /// The same, if they are small and have places of their own.
    #[inline(always)]
    fn small_deposits_at(&self, epoch: u64, bytes: usize) -> Option<DepositsAt> {
        DepositsAt::small(epoch, bytes).filter(|_| self.rotation().has_small)
    }
    /// The same need, with room for all places that its deposits go around.
    #[inline(always)]
    fn with_all_places(&self, need: Need) -> Need {
        Need { deposit: self.rotation().room(need.deposit), ..need }
    }
    /// Returns whether the memory that `need` names in `area` is known to be there.
    #[inline(always)]
    fn has_reserved(&self, _area: usize, _need: Need) -> bool {
        false
    }
    /// Reserves and pre-faults the memory that `need` names in `area`, as [`Place`] has it; cheap when that was done before.
    fn reserve(&self, area: usize, need: Need) -> Result<(), Error>;

    /// Begins an operation on registered buffers of `bytes`; the addresses are those of this rank's own. Only buffers that are
    /// opened from here on are accessible.
    fn register(&self, contribution: *mut u8, result: *mut u8, bytes: usize);
    /// Makes the buffers that `rank` has registered under these names accessible as [`Place::Registered`].
    fn open(&self, rank: usize, names: [u64; 2]) -> Result<(), Error>;

    /// Lets the other ranks read this private buffer, and where in it the block for each of them begins, until [`Board::end_exposure`].
    fn expose(&self, buffer: &[u8], starts: &[usize]) -> Exposed;
    /// Fills `to` from the exposed buffer of `rank`, beginning `offset` bytes into it; returns false if the system refuses.
    fn read_exposed(&self, rank: usize, exposed: Exposed, offset: usize, to: &mut [u8]) -> bool;
    /// Ends the exposure: no rank reads the buffer any more.
    fn end_exposure(&self) {}

    /// Tells a model which reads a blocked rank is to be woken for.
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
    /// Prefetches this rank's own line of `slot` for writing: other ranks hold copies of it, and invalidating them costs as much
    /// as the whole small-message call.
    fn prepare_line(&self, slot: usize);
    /// Prefetches the words of `slot` that an operation reads or writes. A hint.
    fn prefetch(&self, slot: usize);
    /// Moves the payload at `at`, just written here and next read by another core, out of this core's own cache. A hint.
    fn demote(&self, at: Place);
    /// Calls the progress function if it is due at `now_ns`. Returns true if the waiting call is to be interrupted.
    fn drive(&self, now_ns: u64) -> bool;
    /// The longest sleep before the progress function is due again, at most `most_ns`.
    fn sleep_ns(&self, most_ns: u64) -> u64;
    /// Yields the CPU once.
    fn yield_now(&self);
    /// Sleeps for `ns`, where no rank sends a wake-up.
    fn backoff(&self, ns: u64);
    /// Called at each protocol step, for fault injection.
    fn step(&self, step: Step);
}
