//! The place of a deposit: another one for each operation.
//!
//! Small deposits go around places of their own, if there is memory for them ([`DepositsAt`](super::board::DepositsAt)). Of large ones a store takes its line from all caches that have it. Where the readers of an earlier operation still have it in a cache of
//! their own, that takes four times as long as where they have let go of it (AMD's Zen 4, 64 KiB: 7.3 and 1.8 us,
//! `docs/results/2026-11-26.md`). So deposits go around a part of the area that is larger than such a cache. Where a deposit lies
//! follows from the number of its operation and its size, so all ranks agree; areas are reused in the same order as without.

/// Smaller deposits stay at the beginning of the area, as those of the fast path do.
const LEAST_BYTES: usize = 32 * 1024 + 1;
/// With fewer places than that, a deposit comes back before its lines have left the caches of its readers.
const LEAST_PLACES: usize = 8;
/// Places begin on page borders.
const PAGE: usize = 4096;
/// The most memory for the deposits of all ranks that is worth it.
const MOST_BYTES: usize = 64 << 20;

/// The memory that operations go around with their deposits: the same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// The part of each deposit of an area.
    bytes: usize,
    /// True if small deposits have places of their own.
    pub has_small: bool,
}

impl Rotation {
    /// Large deposits go around this many bytes of their area, small ones around places of their own if there are any.
    pub const fn of(bytes: usize, has_small: bool) -> Rotation {
        Rotation { bytes, has_small }
    }

    /// The bytes that `ranks` ranks with `areas` areas go around, whose deposits have at most `deposit` bytes: all or none. Decided by one
    /// rank for all.
    pub fn decide(ranks: usize, areas: usize, deposit: usize, taking_lines_is_slow: bool) -> usize {
        let fits = ranks.saturating_mul(areas).saturating_mul(deposit) <= MOST_BYTES;
        if fits && taking_lines_is_slow { deposit } else { 0 }
    }

    /// The number of places for deposits of at most `bytes`, and the bytes from one to the next; `None` for one place.
    #[inline]
    fn places(self, bytes: usize) -> Option<(usize, usize)> {
        let step = bytes.next_multiple_of(PAGE);
        (bytes >= LEAST_BYTES && step <= self.bytes / LEAST_PLACES).then(|| (self.bytes / step, step))
    }

    /// Bytes before deposits of at most `bytes` in an area that is used for the `turn`th time.
    #[inline]
    pub fn base(self, turn: u64, bytes: usize) -> usize {
        self.places(bytes).map_or(0, |(places, step)| (turn % places as u64) as usize * step)
    }

    /// Bytes of a deposit that must be there for payloads of at most `bytes`.
    #[inline]
    pub fn room(self, bytes: usize) -> usize {
        self.places(bytes).map_or(bytes, |(places, step)| places * step)
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;

    #[test]
    fn deposits_lie_apart_inside_the_room() {
        let rotation = Rotation::of(1 << 20, true);
        for bytes in [LEAST_BYTES, 64 << 10, 100_000, 128 << 10] {
            let bases: Vec<usize> = (0..100).map(|turn| rotation.base(turn, bytes)).collect();
            let places = 1 + bases[1..].iter().position(|base| *base == bases[0]).expect("a place comes back");
            assert!(places >= LEAST_PLACES, "{bytes}: {places} places");
            for (turn, base) in bases.iter().enumerate() {
                assert!(base + bytes <= rotation.room(bytes) && rotation.room(bytes) <= 1 << 20);
                let next = &bases[turn + 1..(turn + places).min(bases.len())];
                assert!(next.iter().all(|other| other.abs_diff(*base) >= bytes), "{bytes} in turn {turn}");
            }
        }
    }

    #[test]
    fn many_ranks_do_without() {
        assert_eq!([2, 32, 33].map(|ranks| Rotation::decide(ranks, 2, 1 << 20, true)), [1 << 20, 1 << 20, 0]);
        assert_eq!(Rotation::decide(2, 2, 1 << 20, false), 0);
    }

    #[test]
    fn small_and_too_large_deposits_stay() {
        for (rotation, bytes) in [
            (Rotation::of(1 << 20, true), 32 << 10),
            (Rotation::of(1 << 20, true), (128 << 10) + 1),
            (Rotation::of(0, true), 64 << 10),
        ] {
            assert!((0..100).all(|turn| rotation.base(turn, bytes) == 0), "{rotation:?}, {bytes} bytes");
            assert_eq!(rotation.room(bytes), bytes);
        }
    }
}
