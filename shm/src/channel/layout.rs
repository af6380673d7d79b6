//! Layout of the rings in their arena: pure arithmetic from the number of ranks, the same on every rank.
//!
//! ```text
//! poison | bell per rank | state per rank || per ordered pair: acknowledged | slot lines | payload of the slots
//! ```

use super::lines::{AcknowledgedLine, BellLine, RingPoisonLine, SlotLine, StateLine};
use super::ring::RankPair;

/// Slots of a ring.
pub const SLOTS: usize = 8;

const PAGE_BYTES: usize = 4096;

/// Offsets into the arena, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLayout {
    ranks: usize,
    packet_bytes: usize,
}

impl RingLayout {
    /// The layout of a group. The more rings, the smaller their packets: all rings of a group that uses every pair take
    /// at most some hundred MiB up to 64 ranks.
    pub fn new(ranks: usize) -> Self {
        let packet_bytes = match ranks {
            0..=8 => 64 << 10,
            9..=64 => 16 << 10,
            65..=256 => 4 << 10,
            _ => 1 << 10,
        };
        RingLayout { ranks, packet_bytes }
    }

    /// Bytes of the largest packet.
    pub fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    /// The group's error.
    pub fn poison(&self) -> usize {
        0
    }
    /// Line on which `rank` sleeps.
    pub fn bell(&self, rank: usize) -> usize {
        size_of::<RingPoisonLine>() + rank * size_of::<BellLine>()
    }
    /// State line of `rank`.
    pub fn state(&self, rank: usize) -> usize {
        self.bell(self.ranks) + rank * size_of::<StateLine>()
    }

    /// Bytes before the rings: reserved at once.
    pub fn control_bytes(&self) -> usize {
        self.state(self.ranks).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of one ring, reserved when it is first used.
    pub fn ring_bytes(&self) -> usize {
        let lines = size_of::<AcknowledgedLine>() + SLOTS * size_of::<SlotLine>();
        (lines + SLOTS * self.packet_bytes).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of the arena.
    pub fn bytes(&self) -> usize {
        self.control_bytes() + self.ranks * self.ranks * self.ring_bytes()
    }

    /// Start of a ring, which is its `acknowledged` line.
    pub fn ring(&self, pair: RankPair) -> usize {
        self.control_bytes() + (pair.from * self.ranks + pair.to) * self.ring_bytes()
    }
    /// A slot's line.
    pub fn slot(&self, pair: RankPair, slot: usize) -> usize {
        self.ring(pair) + size_of::<AcknowledgedLine>() + slot * size_of::<SlotLine>()
    }
    /// A slot's payload.
    pub fn payload(&self, pair: RankPair, slot: usize) -> usize {
        self.slot(pair, SLOTS) + slot * self.packet_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Windows;

    #[test]
    fn nothing_overlaps_and_everything_is_aligned() {
        for ranks in [1, 2, 3, 9] {
            let l = RingLayout::new(ranks);
            let mut spans = vec![(l.poison(), l.poison() + 128)];
            for rank in 0..ranks {
                spans.push((l.bell(rank), l.bell(rank) + 128));
                spans.push((l.state(rank), l.state(rank) + size_of::<StateLine>()));
            }
            for pair in (0..ranks * ranks).map(|i| RankPair { from: i / ranks, to: i % ranks }) {
                spans.push((l.ring(pair), l.ring(pair) + 128));
                for slot in 0..SLOTS {
                    spans.push((l.slot(pair, slot), l.slot(pair, slot) + 128));
                    spans.push((l.payload(pair, slot), l.payload(pair, slot) + l.packet_bytes()));
                }
            }
            spans.sort_unstable();
            assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "{ranks} ranks");
            assert!(spans.iter().all(|s| s.0 % 128 == 0 && s.1 <= l.bytes()), "{ranks} ranks");
        }
    }

    #[test]
    fn the_usual_budget_has_room_for_rings_between_all_of_64_ranks_and_to_64_others_of_more() {
        for ranks in [2, 3, 8, 9, 64, 65, 256, 257, 1023] {
            let (total, layout) = (Windows::default_budget_bytes(ranks), RingLayout::new(ranks));
            let left = total - Windows::base_bytes(total, ranks);
            let rings = (layout.control_bytes() + ranks * ranks.min(64) * layout.ring_bytes()) as u64;
            assert!(rings <= left, "{ranks}: {rings} of {left}");
        }
    }

    #[test]
    fn the_address_range_stays_moderate() {
        for (ranks, most) in [(8, 64 << 20), (64, 600 << 20), (1023, 12 << 30)] {
            assert!(RingLayout::new(ranks).bytes() <= most, "{ranks}: {}", RingLayout::new(ranks).bytes());
        }
    }
}
