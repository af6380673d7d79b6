//! The division of a payload into chunks: pure arithmetic, the same on every rank.

use super::board::{DepositsAt, Place, SMALL_DEPOSITS};
use super::call::Call;

/// Bytes of the pieces in which a deposit that is too large for a line is announced.
pub(super) const PIECE_BYTES: usize = SMALL_DEPOSITS[1].bytes;

/// The chunks of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    /// Elements of every chunk but the last.
    pub elements: usize,
    /// Number of chunks, at least 1.
    pub number: usize,
    /// Elements in all.
    pub count: usize,
    /// Bytes per element.
    pub element_bytes: usize,
    /// Bytes per element of an accumulator.
    pub accumulator_bytes: usize,
    /// Their place in deposits.
    pub at: DepositsAt,
}

impl Pieces {
    /// Cuts `count` elements into at most `most` pieces of about `target_bytes`; piece borders are multiples of 64
    /// bytes so that no two ranks write one cache line.
    pub fn cut(count: usize, element_bytes: usize, target_bytes: usize, most: usize) -> Self {
        // The least number of elements that fills whole lines: 64 / gcd(64, size).
        let line = 64 >> element_bytes.trailing_zeros().min(6);
        let elements = (target_bytes / element_bytes).max(count.div_ceil(most)).max(1).next_multiple_of(line);
        let number = count.div_ceil(elements).max(1);
        Pieces { elements, number, count, element_bytes, accumulator_bytes: element_bytes, at: DepositsAt::default() }
    }

    /// Cuts the payload of `call` as [`Pieces::cut`] does.
    pub fn of(call: &Call<'_>, target_bytes: usize, most: usize) -> Self {
        let cut = Self::cut(call.count, call.element_bytes, target_bytes, most);
        Pieces { accumulator_bytes: call.prepared.accumulator_bytes, ..cut }
    }

    /// `count` elements in one piece.
    pub(super) fn one(count: usize, element_bytes: usize) -> Self {
        let (elements, number, accumulator_bytes, at) = (count.max(1), 1, element_bytes, DepositsAt::default());
        Pieces { elements, number, count, element_bytes, accumulator_bytes, at }
    }

    /// The payload of `call` in one piece.
    pub fn whole(call: &Call<'_>) -> Self {
        let one = Self::one(call.count, call.element_bytes);
        Pieces { accumulator_bytes: call.prepared.accumulator_bytes, ..one }
    }

    /// The same pieces, in deposits there.
    pub(super) fn deposited(self, at: DepositsAt) -> Self {
        Pieces { at, ..self }
    }

    /// Bytes before piece `i` in the whole payload.
    pub fn offset(&self, i: usize) -> usize {
        i * self.elements * self.element_bytes
    }

    /// Bytes of piece `i`.
    pub fn bytes(&self, i: usize) -> usize {
        self.len(i) * self.element_bytes
    }

    /// The place of piece `i` of `rank`'s deposit.
    pub(super) fn deposit(&self, rank: usize, i: usize) -> Place {
        let DepositsAt { area, base } = self.at;
        Place::Deposit { area, rank, piece: i, offset: base + self.offset(i), bytes: self.bytes(i) }
    }

    /// The place of chunk `i` of the accumulator of `area`.
    pub(super) fn accumulator(&self, area: usize, i: usize) -> Place {
        let (offset, bytes) = (self.accumulator_offset(i), self.accumulator_piece_bytes(i));
        Place::Accumulator { area, chunk: i, offset, bytes }
    }

    /// Bytes before piece `i` of an accumulator.
    pub fn accumulator_offset(&self, i: usize) -> usize {
        i * self.elements * self.accumulator_bytes
    }

    /// Bytes of piece `i` of an accumulator.
    pub fn accumulator_piece_bytes(&self, i: usize) -> usize {
        self.len(i) * self.accumulator_bytes
    }

    /// Elements of piece `i`.
    pub fn len(&self, i: usize) -> usize {
        self.elements.min(self.count - (i * self.elements).min(self.count))
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_element_once() {
        for element_bytes in [1, 2, 3, 4, 8, 12, 16, 24, 64, 100, 128, 1000, 4097] {
            for count in [0, 1, 15, 16, 17, 1000, 100_003, 1 << 20] {
                for target in [64, 4096, 65_536] {
                    for most in [1, 2, 256] {
                        let p = Pieces::cut(count, element_bytes, target, most);
                        assert!(p.number >= 1 && p.number <= most.max(1), "{p:?}");
                        assert_eq!((0..p.number).map(|i| p.len(i)).sum::<usize>(), count, "{p:?}");
                        assert!((0..p.number).all(|i| p.offset(i).is_multiple_of(64)));
                    }
                }
            }
        }
    }
}
