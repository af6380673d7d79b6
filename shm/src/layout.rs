//! Where things lie in the arena: pure arithmetic from the number of ranks, the same on every rank.
//!
//! ```text
//! arrival words | events | rank lines | fold words | folded sets | chunk words || payload of area 0 | area 1
//!                                                                   payload = accumulator | a deposit per rank
//! ```
//!
//! The arena is one sparse memory file: offsets are fixed, memory is taken only where something was reserved.

use crate::protocol::board::{AREAS, CHUNKS, SLOTS};
use crate::protocol::lines::{EventLine, RankLine, RankSet, WordLine};

/// Largest accumulator of an area, bytes.
pub const ACCUMULATOR_BYTES: usize = 64 << 20;

/// Largest deposit of a rank in an area, bytes.
pub const DEPOSIT_BYTES: usize = 1 << 20;

/// Payload begins on a huge-page border, should the system ever back the arena with huge pages.
const PAYLOAD_ALIGN: usize = 2 << 20;

/// Offsets into the arena, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    ranks: usize,
    events: usize,
    lines: usize,
    fold_words: usize,
    folded: usize,
    chunks: usize,
    payload: usize,
}

impl Layout {
    /// The layout of a group of `ranks`.
    pub fn new(ranks: usize) -> Self {
        let events = SLOTS * size_of::<WordLine>();
        let lines = events + SLOTS * size_of::<EventLine>();
        let fold_words = lines + SLOTS * ranks * size_of::<RankLine>();
        let folded = fold_words + AREAS * size_of::<WordLine>();
        let chunks = folded + AREAS * size_of::<RankSet>();
        let control_end = chunks + AREAS * CHUNKS * size_of::<WordLine>();
        let payload = control_end.next_multiple_of(PAYLOAD_ALIGN);
        Layout { ranks, events, lines, fold_words, folded, chunks, payload }
    }

    /// Bytes of the arena in all.
    pub fn bytes(&self) -> usize {
        self.payload + AREAS * self.area_bytes()
    }

    /// Bytes of the lines before the payload: reserved at once.
    pub fn control_bytes(&self) -> usize {
        self.chunks + AREAS * CHUNKS * size_of::<WordLine>()
    }

    fn area_bytes(&self) -> usize {
        ACCUMULATOR_BYTES + self.ranks * DEPOSIT_BYTES
    }

    /// Arrival word of `slot`.
    pub fn arrival(&self, slot: usize) -> usize {
        slot * size_of::<WordLine>()
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
    /// Accumulator of `area`.
    pub fn accumulator(&self, area: usize) -> usize {
        self.payload + area * self.area_bytes()
    }
    /// Deposit of `rank` in `area`.
    pub fn deposit(&self, area: usize, rank: usize) -> usize {
        self.accumulator(area) + ACCUMULATOR_BYTES + rank * DEPOSIT_BYTES
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
    /// Splits a budget of `budget_bytes` (`EARLYBIRD_ARENA_MAX`; `None` for the whole arena) between the areas.
    /// `None` if it is too small to hold one page per rank and area.
    pub fn within(budget_bytes: Option<u64>, ranks: usize) -> Option<Self> {
        let layout = Layout::new(ranks);
        let budget = budget_bytes.map_or(layout.bytes(), |b| usize::try_from(b).unwrap_or(usize::MAX));
        let per_area = budget.checked_sub(layout.control_bytes())? / AREAS;
        let page = |bytes: usize| bytes / 4096 * 4096;
        let deposit = page((per_area / 2 / ranks).min(DEPOSIT_BYTES));
        let accumulator = page(per_area.checked_sub(deposit * ranks)?.min(ACCUMULATOR_BYTES));
        (deposit > 0 && accumulator >= deposit).then_some(Windows { accumulator, deposit })
    }

    /// The smallest budget that [`Windows::within`] accepts.
    pub fn least_budget_bytes(ranks: usize) -> u64 {
        (Layout::new(ranks).control_bytes() + AREAS * 2 * ranks * 4096) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::word::MAX_RANKS;

    #[test]
    fn nothing_overlaps_and_everything_is_aligned() {
        for ranks in [1, 2, 3, 64, MAX_RANKS] {
            let l = Layout::new(ranks);
            let mut spans = Vec::new();
            let mut add = |at: usize, len: usize| spans.push((at, at + len));
            for slot in 0..SLOTS {
                add(l.arrival(slot), 128);
                add(l.event(slot), 128);
                (0..ranks).for_each(|rank| add(l.line(slot, rank), 256));
            }
            for area in 0..AREAS {
                add(l.fold_word(area), 128);
                add(l.folded(area), 128);
                (0..CHUNKS).for_each(|chunk| add(l.chunk(area, chunk), 128));
                add(l.accumulator(area), ACCUMULATOR_BYTES);
                (0..ranks).for_each(|rank| add(l.deposit(area, rank), DEPOSIT_BYTES));
            }
            spans.sort_unstable();
            assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "{ranks} ranks");
            assert!(spans.iter().all(|s| s.0 % 128 == 0 && s.1 <= l.bytes()), "{ranks} ranks");
        }
    }

    #[test]
    fn windows_keep_the_budget_or_refuse() {
        for ranks in [1, 2, 8, 64, MAX_RANKS] {
            let all = Windows::within(None, ranks).unwrap();
            assert!(all.deposit > 64 * 1024, "{ranks} ranks: {all:?}");
            let least = Windows::least_budget_bytes(ranks);
            assert!(Windows::within(Some(least), ranks).is_some(), "{ranks} ranks");
            assert_eq!(Windows::within(Some(least - 1), ranks), None, "{ranks} ranks");
            for budget in [least, least + 12_345, 64 << 20, 1 << 30] {
                let Some(w) = Windows::within(Some(budget), ranks) else { continue };
                let used = Layout::new(ranks).control_bytes() + AREAS * (w.accumulator + ranks * w.deposit);
                assert!(used as u64 <= budget, "{ranks} ranks, {budget}: {w:?}");
            }
        }
    }
}
