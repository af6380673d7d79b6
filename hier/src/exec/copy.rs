//! Copies of packets, which take large blocks out of memory that is aligned otherwise than theirs.

/// Bytes of a piece. A whole block of 4 KiB and more makes the C library take one instruction (`rep movsb`), which is twenty times slower
/// on AMD's Zen 4 where the target lies a few bytes further in its line than the source, as a block of `malloc` does beside a packet.
const PIECE_BYTES: usize = 2048;

/// Copies `source` to `target`, as [`slice::copy_from_slice`], in pieces that processors copy fast wherever the two lie.
///
/// # Panics
/// If the lengths differ.
pub fn copy_in_pieces(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "the lengths differ");
    for (target, source) in target.chunks_mut(PIECE_BYTES).zip(source.chunks(PIECE_BYTES)) {
        // Opaque to the compiler, which would make one copy of all pieces.
        std::hint::black_box(target).copy_from_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied() {
        for bytes in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7] {
            let source: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            let mut target = vec![255; bytes];
            copy_in_pieces(&mut target, &source);
            assert_eq!(target, source);
        }
    }
}
