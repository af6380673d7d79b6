//! The multi-writer words as plain values: packing and pure transitions, no atomics.

/// The most ranks on a node that the fields have room for.
pub const MAX_RANKS: usize = 1023;

const fn field(word: u64, low: u32, bits: u32) -> u64 {
    (word >> low) & ((1 << bits) - 1)
}

/// The word in which ranks arrive: `epoch 20 | signature 16 | plan 8 | leader 10 | count 10`.
///
/// Twenty epoch bits suffice because every rank knows the word's previous value exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivalWord(pub u64);

impl ArrivalWord {
    /// The word that the first arriver installs: its plan, its rank, and a count of one.
    pub fn first(epoch: u64, signature: u32, plan: u8, leader: usize) -> Self {
        ArrivalWord(
            (epoch & 0xf_ffff) << 44
                | u64::from(signature & 0xffff) << 28
                | u64::from(plan) << 20
                | (leader as u64) << 10
                | 1,
        )
    }
    /// Returns whether the word belongs to operation `epoch`.
    pub fn is_of(self, epoch: u64) -> bool {
        field(self.0, 44, 20) == epoch & 0xf_ffff
    }
    /// The low 16 bits of the first arriver's signature.
    pub fn signature(self) -> u32 {
        field(self.0, 28, 16) as u32
    }
    /// The plan the first arriver chose.
    pub fn plan(self) -> u8 {
        field(self.0, 20, 8) as u8
    }
    /// The first arriver.
    pub fn leader(self) -> usize {
        field(self.0, 10, 10) as usize
    }
    /// The number of ranks that have arrived.
    pub fn count(self) -> usize {
        field(self.0, 0, 10) as usize
    }
    /// The value once all `ranks` have arrived, which the next user of the slot expects.
    pub fn full(self, ranks: usize) -> Self {
        ArrivalWord(self.0 & !0x3ff | ranks as u64)
    }
}

/// The state of a fold: `epoch 43 | busy 1 | holder 10 | count 10`.
///
/// It guards one accumulator chunk in `chain`, the whole accumulator in `leader`. Nothing is ever reset: a word of
/// another epoch means empty. Epochs are compared for equality, never for order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldWord(pub u64);

/// The meaning of a [`FoldWord`] to operation `epoch` of `ranks` ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldState {
    /// No contribution is folded yet.
    Empty,
    /// `holder` is folding; the word is a try-lock, and no rank waits while it holds one.
    Busy {
        /// The rank that holds it.
        holder: usize,
    },
    /// `count` contributions are in, no rank is folding.
    Open {
        /// Contributions folded so far.
        count: usize,
    },
    /// All contributions are in.
    Final,
}

impl FoldWord {
    /// Claimed by `holder` with `count` contributions already in.
    pub fn busy(epoch: u64, holder: usize, count: usize) -> Self {
        FoldWord(epoch << 21 | 1 << 20 | (holder as u64) << 10 | count as u64)
    }
    /// Free with `count` contributions in.
    pub fn open(epoch: u64, holder: usize, count: usize) -> Self {
        FoldWord(epoch << 21 | (holder as u64) << 10 | count as u64)
    }
    /// Reads the word as operation `epoch` of `ranks` ranks.
    pub fn state(self, epoch: u64, ranks: usize) -> FoldState {
        if self.0 >> 21 != epoch & ((1 << 43) - 1) {
            FoldState::Empty
        } else if field(self.0, 20, 1) == 1 || field(self.0, 0, 10) as usize > ranks {
            // A count above all ranks is damage: such a word is never taken for a result.
            FoldState::Busy { holder: field(self.0, 10, 10) as usize }
        } else if field(self.0, 0, 10) as usize == ranks {
            FoldState::Final
        } else {
            FoldState::Open { count: field(self.0, 0, 10) as usize }
        }
    }
}

/// `epoch 32 | signature 32`: a rank's mark of entry into an operation, the same for every algorithm.
pub fn entered(epoch: u64, signature: u32) -> u64 {
    (epoch & 0xffff_ffff) << 32 | u64::from(signature)
}

/// Returns whether `word` is a mark of entry into operation `epoch`, with any signature.
pub fn has_entered(word: u64, epoch: u64) -> bool {
    word >> 32 == epoch & 0xffff_ffff
}

/// `operations 32 | call history hash 32`: all calls of a rank that has ended.
pub fn ended(epoch: u64, history: u32) -> u64 {
    entered(epoch, history)
}

/// The most pieces of a deposit.
pub const MAX_PIECES: usize = 0xff;

/// `epoch 32 | signature 24 | pieces 8`: the number of pieces that a rank has deposited, and the call they belong to.
///
/// The signature prevents a deposit made in one lane, or for another count, from being folded in the other: no arrival word has
/// compared the calls of the ticketless lane.
pub fn deposited(epoch: u64, signature: u32, pieces: usize) -> u64 {
    epoch << 32 | u64::from(signature & 0xff_ffff) << 8 | pieces as u64
}

/// Returns whether at least `pieces` pieces are ready, for operation `epoch` and a call with this signature.
pub fn has_deposited(word: u64, epoch: u64, signature: u32, pieces: usize) -> bool {
    self::pieces(word, epoch, signature) >= pieces
}

/// The number of pieces that are ready for operation `epoch` and a call with this signature; 0 for any other word.
pub fn pieces(word: u64, epoch: u64, signature: u32) -> usize {
    if word >> 8 == deposited(epoch, signature, 0) >> 8 { (word & 0xff) as usize } else { 0 }
}

/// The cause of a group's failure in the poison word; zero, no cause, is "healthy".
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum Cause {
    /// A rank died or left while it was needed; detail 0 is the rank.
    PeerDied = 1,
    /// A deadline expired; detail 0 is the first missing rank, detail 1 the deadline in nanoseconds.
    Timeout = 2,
    /// Two calls differ; details: other rank, its call (2 words), the reporter's call (2 words).
    Mismatch = 3,
    /// Memory could not be reserved; details: bytes needed, bytes free.
    NoSpace = 4,
    /// A shared word held what no healthy rank writes.
    Corrupt = 5,
    /// A user's operator panicked; details: length of the message, its first bytes.
    OperatorPanicked = 6,
    /// The system refused memory; details: errno, bytes, and for a registered buffer its owner's rank plus one.
    System = 7,
    /// A rank panicked inside a call, or unwound through one, and lives on.
    Panicked = 8,
    /// The memory belongs to another group by now. Never stored.
    Lost = 9,
    /// A rank's progress function interrupted its call.
    Interrupted = 10,
}

/// The group's one error: `cause 8 | reporter 16 | epoch 40`. Without a cause the group is healthy, and the rest of the word is
/// the number of its allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoisonWord(pub u64);

impl PoisonWord {
    /// Packs an error; never zero, since every cause is at least 1.
    pub fn new(cause: Cause, reporter: usize, epoch: u64) -> Self {
        PoisonWord((cause as u64) << 56 | (reporter as u64) << 40 | epoch & ((1 << 40) - 1))
    }
    /// The word of a healthy group in the memory of allocation `id`.
    pub const fn healthy(id: u64) -> u64 {
        id & ((1 << 56) - 1)
    }
    /// Returns whether the word is an error.
    pub fn is_error(self) -> bool {
        self.0 >> 56 != 0
    }
    /// The cause; an unknown code reads as `Corrupt`.
    pub fn cause(self) -> Cause {
        Cause::from_repr((self.0 >> 56) as u8).unwrap_or(Cause::Corrupt)
    }
    /// The rank whose detail words describe the error.
    pub fn reporter(self) -> usize {
        field(self.0, 40, 16) as usize
    }
    /// The operation in which it was raised.
    pub fn epoch(self) -> u64 {
        field(self.0, 0, 40)
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;

    #[test]
    fn arrival_fields_do_not_touch_each_other() {
        for epoch in [0, 1, 0xf_fffe, 0xf_ffff, 0x10_0000, u64::MAX] {
            for leader in [0, 1, MAX_RANKS] {
                let w = ArrivalWord::first(epoch, 0xdead_beef, 255, leader);
                assert!(w.is_of(epoch) && !w.is_of(epoch.wrapping_add(1)));
                assert_eq!((w.signature(), w.plan(), w.leader(), w.count()), (0xbeef, 255, leader, 1));
                let full = w.full(MAX_RANKS);
                assert_eq!((full.count(), full.leader(), full.plan()), (MAX_RANKS, leader, 255));
                assert_eq!(ArrivalWord(w.0 + 1022).0, full.0, "1023 arrivals must not carry into the leader");
            }
        }
    }

    #[test]
    fn a_fold_word_of_another_epoch_is_empty() {
        for epoch in [1, 2, (1 << 43) - 1, 1 << 43] {
            let w = FoldWord::open(epoch, 3, 4);
            assert_eq!(w.state(epoch, 4), FoldState::Final);
            assert_eq!(w.state(epoch, 5), FoldState::Open { count: 4 });
            assert_eq!(w.state(epoch, 3), FoldState::Busy { holder: 3 }, "more contributions than ranks");
            assert_eq!(w.state(epoch + 1, 4), FoldState::Empty);
            assert_eq!(w.state(epoch + (1 << 42), 4), FoldState::Empty);
            assert_eq!(FoldWord::busy(epoch, 7, 4).state(epoch, 4), FoldState::Busy { holder: 7 });
        }
    }

    #[test]
    fn marks_compare_by_equality_of_epochs() {
        assert!(has_entered(entered(u64::from(u32::MAX) + 5, 9), 4));
        assert!(!has_entered(entered(5, 9), 4));
        for epoch in [7, (1 << 32) + 7] {
            let word = deposited(epoch, 0xdead_beef, MAX_PIECES);
            assert!(has_deposited(word, 7, 0xdead_beef, MAX_PIECES) && has_deposited(word, 7, 0xdead_beef, 1));
            assert!(!has_deposited(word, 8, 0xdead_beef, 1), "another operation");
            assert!(!has_deposited(word, 7, 0xdead_beee, 1), "another call");
            assert!(!has_deposited(word, 7, 0xdeac_beef, 1), "another call");
        }
        assert!(!has_deposited(deposited(7, 1, 3), 7, 1, 4), "too few");
    }

    #[test]
    fn poison_round_trips() {
        let w = PoisonWord::new(Cause::Mismatch, MAX_RANKS, (1 << 40) + 7);
        assert_eq!((w.cause(), w.reporter(), w.epoch()), (Cause::Mismatch, MAX_RANKS, 7));
        assert_eq!(PoisonWord(0xff << 56).cause(), Cause::Corrupt);
        assert!(w.is_error() && !PoisonWord(PoisonWord::healthy(u64::MAX)).is_error());
    }
}
