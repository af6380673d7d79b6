//! A failure as bytes: how one rank tells the others that the group cannot go on.

use earlybird_hier::exec::Failure;
use std::time::Duration;

/// Bytes of the longest notice; longer texts are cut.
pub const NOTICE_BYTES: usize = 1024;

/// Words before the text.
const WORDS: usize = 13;

/// Bytes before the text.
const FIXED_BYTES: usize = 1 + WORDS * 8;

/// The notice as bytes, at most [`NOTICE_BYTES`].
pub fn encode(failure: &Failure) -> Vec<u8> {
    let (kind, words, text): (u8, &[u64], &str) = match failure {
        Failure::PeerDied { rank } => (1, &[*rank as u64], ""),
        Failure::Timeout { missing, after } => (2, &[*missing as u64, earlybird_shm::nanoseconds(*after)], ""),
        Failure::Lost { from, to, expected, found } => {
            (3, &[*from as u64, *to as u64, u64::from(*expected), u64::from(*found)], "")
        }
        Failure::Mismatch { rank_a, rank_b } => (4, &[*rank_a as u64, *rank_b as u64], ""),
        Failure::Transport(text) => (5, &[], text.as_str()),
        Failure::Reported { words } => (6, words, ""),
    };
    let mut bytes = vec![kind];
    words.iter().chain(&[0; WORDS]).take(WORDS).for_each(|word| bytes.extend(word.to_le_bytes()));
    let most = text.floor_char_boundary(NOTICE_BYTES - FIXED_BYTES);
    bytes.extend(&text.as_bytes()[..most]);
    bytes
}

/// The failure in `bytes`; anything unreadable is a failure too.
pub fn decode(bytes: &[u8]) -> Failure {
    let word = |i: usize| {
        let at = 1 + 8 * i;
        bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let rank = |i| word(i) as usize;
    match bytes.first() {
        Some(1) => Failure::PeerDied { rank: rank(0) },
        Some(2) => Failure::Timeout { missing: rank(0), after: Duration::from_nanos(word(1)) },
        Some(3) => Failure::Lost { from: rank(0), to: rank(1), expected: word(2) as u32, found: word(3) as u32 },
        Some(4) => Failure::Mismatch { rank_a: rank(0), rank_b: rank(1) },
        Some(5) => Failure::Transport(String::from_utf8_lossy(bytes.get(FIXED_BYTES..).unwrap_or(&[])).into_owned()),
        Some(6) => Failure::Reported { words: std::array::from_fn(word) },
        _ => Failure::Transport("another rank reported a failure that cannot be read".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_survives_the_way() {
        let all = [
            Failure::PeerDied { rank: 7 },
            Failure::Timeout { missing: 3, after: Duration::from_millis(1500) },
            Failure::Lost { from: 1, to: 2, expected: 3, found: u32::MAX },
            Failure::Mismatch { rank_a: 0, rank_b: 1022 },
            Failure::Transport("MPI_Test failed: überlauf".into()),
            Failure::Reported { words: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, u64::MAX] },
        ];
        for failure in all {
            assert_eq!(decode(&encode(&failure)), failure);
        }
    }

    #[test]
    fn a_long_text_is_cut_and_rubbish_is_a_failure() {
        let long = encode(&Failure::Transport("ü".repeat(NOTICE_BYTES)));
        assert!(long.len() <= NOTICE_BYTES);
        assert!(matches!(decode(&long), Failure::Transport(text) if text.starts_with("üü")));
        for rubbish in [&[][..], &[9, 9], &[1]] {
            decode(rubbish);
        }
        assert!(matches!(decode(&[9]), Failure::Transport(_)));
    }
}
