//! A failure as bytes: how one rank tells the others that the group cannot go on.

use earlybird_hier::exec::Failure;

/// Bytes of the longest notice; longer texts are cut.
pub const NOTICE_BYTES: usize = 1024;

/// Bytes of a text that fit into a notice however they are written there: each as six, beside the rest of the notice.
const TEXT_BYTES: usize = (NOTICE_BYTES - 64) / 6;

/// The notice as bytes, at most [`NOTICE_BYTES`].
pub fn encode(failure: &Failure) -> Vec<u8> {
    let cut = match failure {
        Failure::Transport(text) => Failure::Transport(earlybird_shm::text::beginning(text, TEXT_BYTES).to_owned()),
        other => other.clone(),
    };
    serde_json::to_vec(&cut).expect("numbers and a text")
}

/// The failure in a notice; bytes that no rank has written are one too.
pub fn decode(bytes: &[u8]) -> Failure {
    let unreadable = |_| Failure::Transport("another rank reported a failure that cannot be read".into());
    serde_json::from_slice(bytes).unwrap_or_else(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
        assert!(encode(&Failure::Transport("\u{1}".repeat(NOTICE_BYTES))).len() <= NOTICE_BYTES);
        assert!(matches!(decode(&long), Failure::Transport(text) if text.starts_with("üü")));
        for rubbish in [&[][..], &[9, 9], &[1]] {
            decode(rubbish);
        }
        assert!(matches!(decode(&[9]), Failure::Transport(_)));
    }
}
