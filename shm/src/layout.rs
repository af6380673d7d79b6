//! Layout of a region of the arena: pure arithmetic from the number of ranks, the same on every rank.
//!
//! ```text
//! poison | member lines | arrival words | events | rank lines | fold words | folded sets | chunk words of areas | chunk words of slots
//!    || small deposits, by rank | payload of area 0 | area 1;   payload = accumulator | a deposit per rank
//! ```
//!
//! The arena is a sparse memory file: offsets are fixed, memory is taken only where something was reserved.

use crate::protocol::board::{AREAS, CHUNKS, SLOTS, SMALL_DEPOSITS};
use crate::protocol::lines::{EventLine, MemberLines, RankLine, RankSet, WordLine};
use crate::sync::AtomicU64;

/// Largest accumulator of an area, bytes.
pub const ACCUMULATOR_BYTES: usize = 64 << 20;

/// Largest deposit of a rank in an area, bytes.
pub const DEPOSIT_BYTES: usize = 1 << 20;

/// With shorter deposits in areas, small ones have no memory of their own: it is scarce.
const LEAST_WITH_SMALL: usize = SMALL_DEPOSITS[1].room();

/// Payload begins on a huge-page border, should the system ever back the arena with huge pages.
const PAYLOAD_ALIGN: usize = 2 << 20;

/// Offsets into a region, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    lines: usize,
    events: usize,
    ranks: usize,
    arrivals: usize,
    fold_words: usize,
    folded: usize,
    chunks: usize,
    slot_chunks: usize,
    /// Of each size.
    small_deposits: [usize; SMALL_DEPOSITS.len()],
    payload: usize,
}

impl Layout {
    /// Ranks in the group.
    #[inline(always)]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The layout of a group of `ranks`.
    pub fn new(ranks: usize) -> Self {
        let arrivals = size_of::<WordLine>() + ranks * size_of::<MemberLines>();
        let events = arrivals + SLOTS * size_of::<WordLine>();
        let lines = events + SLOTS * size_of::<EventLine>();
        let fold_words = lines + SLOTS * ranks * size_of::<RankLine>();
        let folded = fold_words + AREAS * size_of::<WordLine>();
        let chunks = folded + AREAS * size_of::<RankSet>();
        let slot_chunks = chunks + AREAS * CHUNKS * size_of::<WordLine>();
        let control_end = slot_chunks + SLOTS * CHUNKS * size_of::<AtomicU64>();
        let short = control_end.next_multiple_of(PAYLOAD_ALIGN);
        let small_deposits = [short, short + ranks * SMALL_DEPOSITS[0].room()];
        let payload = (short + Self::small_deposit_bytes(ranks)).next_multiple_of(PAYLOAD_ALIGN);
        Layout { ranks, arrivals, events, lines, fold_words, folded, chunks, slot_chunks, small_deposits, payload }
    }

    /// Bytes of the region in all.
    pub fn bytes(&self) -> usize {
        self.payload + AREAS * self.area_bytes()
    }

    /// Bytes of the lines before the payload: reserved at once.
    pub fn control_bytes(&self) -> usize {
        self.slot_chunks + SLOTS * CHUNKS * size_of::<AtomicU64>()
    }

    /// Bytes of the small deposits of all ranks.
    fn small_deposit_bytes(ranks: usize) -> usize {
        ranks * SMALL_DEPOSITS.iter().map(|small| small.room()).sum::<usize>()
    }

    fn area_bytes(&self) -> usize {
        ACCUMULATOR_BYTES + self.ranks * DEPOSIT_BYTES
    }

    /// The group's one error.
    pub fn poison(&self) -> usize {
        0
    }
    /// Lines that `member` publishes apart from any operation.
    pub fn member(&self, member: usize) -> usize {
        size_of::<WordLine>() + member * size_of::<MemberLines>()
    }
    /// Arrival word of `slot`.
    pub fn arrival(&self, slot: usize) -> usize {
        self.arrivals + slot * size_of::<WordLine>()
    }
    /// Event line of `slot`.
    pub fn event(&self, slot: usize) -> usize {
        self.events + slot * size_of::<EventLine>()
    }
    /// Line of `rank` in `slot`.
    pub fn line(&self, slot: usize, rank: usize) -> usize {
        self.lines + (slot * self.ranks + rank) * size_of::<RankLine>()
    }
    /// Fold word of `area`.
    pub fn fold_word(&self, area: usize) -> usize {
        self.fold_words + area * size_of::<WordLine>()
    }
    /// Set of folded ranks of `area`.
    pub fn folded(&self, area: usize) -> usize {
        self.folded + area * size_of::<RankSet>()
    }
    /// Fold word of `chunk` of `area`.
    pub fn chunk(&self, area: usize, chunk: usize) -> usize {
        self.chunks + (area * CHUNKS + chunk) * size_of::<WordLine>()
    }
    /// Chunk word of `chunk` of `slot`, packed: a chunk of what is folded there takes long.
    pub fn slot_chunk(&self, slot: usize, chunk: usize) -> usize {
        self.slot_chunks + (slot * CHUNKS + chunk) * size_of::<AtomicU64>()
    }
    /// Accumulator of `area`.
    pub fn accumulator(&self, area: usize) -> usize {
        self.payload + area * self.area_bytes()
    }
    /// Deposit of `rank` in `area`; from `AREAS` on its small deposits, of which each size has its own.
    #[inline(always)]
    pub fn deposit(&self, area: usize, rank: usize) -> usize {
        match area.checked_sub(AREAS) {
            None => self.accumulator(area) + ACCUMULATOR_BYTES + rank * DEPOSIT_BYTES,
            Some(size) => self.small_deposits[size] + rank * SMALL_DEPOSITS[size].room(),
        }
    }
    /// Bytes of [`Layout::deposit`].
    #[inline(always)]
    pub fn deposit_room(area: usize) -> usize {
        area.checked_sub(AREAS).map_or(DEPOSIT_BYTES, |size| SMALL_DEPOSITS[size].room())
    }
}

/// The largest pieces a call is cut into so that the payload in use never exceeds the group's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Bytes of one operation that folds into an accumulator only (`chain`).
    pub accumulator: usize,
    /// Bytes of one operation that deposits (`flat`, `leader`, the static leaders).
    pub deposit: usize,
}

impl Windows {
    /// Splits what a group may reserve between the areas, besides small deposits if there is enough for them. `None` if it is too little to
    /// hold one page per rank and area.
    pub fn within(budget_bytes: u64, ranks: usize) -> Option<Self> {
        let layout = Layout::new(ranks);
        let budget = usize::try_from(budget_bytes).unwrap_or(usize::MAX);
        let payload = budget.checked_sub(layout.control_bytes())?;
        let page = |bytes: usize| bytes / 4096 * 4096;
        let split = |payload: usize, most: usize| {
            let per_area = payload / AREAS;
            let deposit = page((per_area / 2 / ranks).min(most));
            let accumulator = page(per_area.checked_sub(deposit * ranks)?.min(ACCUMULATOR_BYTES));
            (deposit > 0 && accumulator >= deposit).then_some(Windows { accumulator, deposit })
        };
        let without_small = payload.checked_sub(Layout::small_deposit_bytes(ranks));
        let with_small = without_small.and_then(|payload| split(payload, DEPOSIT_BYTES));
        with_small.filter(Windows::have_small).or_else(|| split(payload, LEAST_WITH_SMALL - 4096))
    }

    /// Returns whether small deposits have memory of their own: where large ones are not that short.
    pub fn have_small(&self) -> bool {
        self.deposit >= LEAST_WITH_SMALL
    }

    /// The windows that rank 0 wrote, bounded by the layout; `None` if they are too small.
    pub fn from_words(accumulator: u64, deposit: u64) -> Option<Self> {
        let page = |word: u64, most: usize| usize::try_from(word).unwrap_or(usize::MAX).min(most) / 4096 * 4096;
        let deposit = page(deposit, DEPOSIT_BYTES);
        let accumulator = page(accumulator, ACCUMULATOR_BYTES);
        (deposit > 0 && accumulator >= deposit).then_some(Windows { accumulator, deposit })
    }

    /// Default budget of all communicators of `ranks` ranks together: four times the most that one can use.
    pub fn default_budget_bytes(ranks: usize) -> u64 {
        4 * Layout::new(ranks).bytes() as u64
    }

    /// Part of a budget for the group of all ranks: all it can use, at most half, at least what it needs.
    pub fn base_bytes(budget_bytes: u64, ranks: usize) -> u64 {
        let half = (budget_bytes / 2).max(Self::least_budget_bytes(ranks)).min(budget_bytes);
        half.min(Layout::new(ranks).bytes() as u64)
    }

    /// The smallest budget that [`Windows::within`] accepts.
    pub fn least_budget_bytes(ranks: usize) -> u64 {
        (Layout::new(ranks).control_bytes() + AREAS * 2 * ranks * 4096) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::board::DepositsAt;
    use crate::protocol::word::MAX_RANKS;

    #[test]
    fn nothing_overlaps_and_everything_is_aligned() {
        for ranks in [1, 2, 3, 64, MAX_RANKS] {
            let l = Layout::new(ranks);
            let mut spans = Vec::new();
            let mut add = |at: usize, len: usize| spans.push((at, at + len));
            add(l.poison(), 128);
            (0..ranks).for_each(|rank| add(l.member(rank), 256));
            for slot in 0..SLOTS {
                add(l.arrival(slot), 128);
                add(l.event(slot), 128);
                (0..ranks).for_each(|rank| add(l.line(slot, rank), 256));
                add(l.slot_chunk(slot, 0), 8 * CHUNKS);
            }
            for area in 0..AREAS {
                add(l.fold_word(area), 128);
                add(l.folded(area), 128);
                (0..CHUNKS).for_each(|chunk| add(l.chunk(area, chunk), 128));
                add(l.accumulator(area), ACCUMULATOR_BYTES);
            }
            for area in 0..AREAS + SMALL_DEPOSITS.len() {
                (0..ranks).for_each(|rank| add(l.deposit(area, rank), Layout::deposit_room(area)));
            }
            spans.sort_unstable();
            assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "{ranks} ranks");
            assert!(spans.iter().all(|s| s.0 % 128 == 0 && s.1 <= l.bytes()), "{ranks} ranks");
        }
    }

    #[test]
    fn small_deposits_lie_apart_until_their_turn_comes_again() {
        for bytes in SMALL_DEPOSITS.iter().flat_map(|small| [small.bytes / 2 + 1, small.bytes]) {
            let first = DepositsAt::small(5, bytes).expect("small");
            let places = (5..).take(first.turns()).map(|e| DepositsAt::small(e, bytes).expect("small"));
            let places: Vec<_> = places.collect();
            for (i, place) in places.iter().enumerate() {
                assert_eq!(place.area, first.area);
                assert!(place.base + bytes <= Layout::deposit_room(place.area), "{bytes}: {place:?}");
                assert!(places[..i].iter().all(|other| other.base.abs_diff(place.base) >= bytes), "{bytes}: {place:?}");
            }
        }
        assert_eq!(DepositsAt::small(5, SMALL_DEPOSITS[1].bytes + 1), None);
    }

    #[test]
    fn windows_of_whatever_words_lie_inside_the_layout() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut noise = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..100_000 {
            let (a, d) = (noise() >> (round % 64), noise() >> (round / 64 % 64));
            let Some(w) = Windows::from_words(a, d) else { continue };
            assert!(w.accumulator <= ACCUMULATOR_BYTES && w.deposit <= DEPOSIT_BYTES, "{a} {d}: {w:?}");
            assert!(w.deposit >= 4096 && w.accumulator >= w.deposit, "{a} {d}: {w:?}");
            assert!(w.accumulator % 4096 == 0 && w.deposit % 4096 == 0, "{a} {d}: {w:?}");
        }
        for ranks in [1, 64, MAX_RANKS] {
            let all = Windows::within(Layout::new(ranks).bytes() as u64, ranks).unwrap();
            assert_eq!(Windows::from_words(all.accumulator as u64, all.deposit as u64), Some(all));
        }
    }

    #[test]
    fn windows_keep_the_budget_or_refuse() {
        for ranks in [1, 2, 8, 64, MAX_RANKS] {
            let all = Windows::within(Layout::new(ranks).bytes() as u64, ranks).unwrap();
            assert!(all.deposit > 64 * 1024 && all.have_small(), "{ranks} ranks: {all:?}");
            let least = Windows::least_budget_bytes(ranks);
            assert!(Windows::within(least, ranks).is_some_and(|w| !w.have_small()), "{ranks} ranks");
            assert_eq!(Windows::within(least - 1, ranks), None, "{ranks} ranks");
            // a budget that does for one group does for that of all ranks, and from twice that on leaves room for others
            assert_eq!(Windows::base_bytes(least, ranks), least);
            assert_eq!(Windows::base_bytes(least - 1, ranks), least - 1, "refused later, with what is needed");
            assert_eq!(Windows::base_bytes(4 * least, ranks), 2 * least);
            let (usual, whole) = (Windows::default_budget_bytes(ranks), Layout::new(ranks).bytes() as u64);
            assert_eq!((Windows::base_bytes(usual, ranks), usual), (whole, 4 * whole));
            for budget in [least, least + 12_345, 64 << 20, 1 << 30] {
                let Some(w) = Windows::within(budget, ranks) else { continue };
                let slots = if w.have_small() { Layout::small_deposit_bytes(ranks) } else { 0 };
                let used = Layout::new(ranks).control_bytes() + slots + AREAS * (w.accumulator + ranks * w.deposit);
                assert!(used as u64 <= budget, "{ranks} ranks, {budget}: {w:?}");
            }
        }
    }
}
