//! The sizes of the segments that long vectors are cut into.

/// Longer messages are cut into segments of about this many bytes: long enough that a segment's three phases cost by
/// bytes and not by rounds, short enough that the first and the last, which overlap with nothing, are a small part.
pub(super) const SEGMENT_BYTES: usize = 512 << 10;

/// Bytes of a segment where nothing overlaps, so that it is only worth its rounds and its place in the caches; of messages longer than
/// two segments.
const OVERSUBSCRIBED_BYTES: usize = 2 << 20;

/// Elements of each segment of an allreduce: as many segments as give every endpoint equally many, where there are several.
pub(super) fn segment(elements: usize, size: usize, outnumbers_cpus: bool, endpoints: usize) -> usize {
    const LINE: usize = 64;
    let bytes = elements * size;
    let most = if outnumbers_cpus && bytes > 2 * SEGMENT_BYTES { OVERSUBSCRIBED_BYTES } else { SEGMENT_BYTES };
    let segments = match bytes {
        0..=SEGMENT_BYTES => 1,
        _ => bytes.div_ceil(most).next_multiple_of(endpoints),
    };
    elements.div_ceil(segments).next_multiple_of(LINE).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_whole_lines_and_few() {
        for (elements, size, expected) in [(0, 8, 64), (1, 8, 64), (65_536, 8, 65_536), (100_003, 8, 50_048)] {
            let length = segment(elements, size, false, 1);
            assert_eq!(length.max(64), expected.max(64), "{elements}");
            assert!(length * size <= SEGMENT_BYTES + 64 * size);
        }
        assert_eq!(segment(131_072, 8, true, 1), 65_536, "two segments");
        for elements in [131_073usize, 262_144, 1 << 20] {
            let segments = elements.div_ceil(segment(elements, 8, true, 1));
            assert_eq!(segments, (8 * elements).div_ceil(OVERSUBSCRIBED_BYTES), "{elements}");
        }
        // A part for each of three endpoints, but none of a message that is one segment.
        for (elements, outnumbers_cpus, expected) in
            [(65_536usize, false, 1), (65_537, false, 3), (196_609, false, 6), (196_608, true, 3), (65_536, true, 1)]
        {
            assert_eq!(elements.div_ceil(segment(elements, 8, outnumbers_cpus, 3)), expected, "{elements}");
        }
    }
}
