//! Why a group of rings fails: as a rank reports it, as words that other ranks read, as the error that all of them get.

use super::lines::DETAILS;
use crate::Error;
use crate::protocol::signature::{Collective, Signature};
use crate::protocol::word::{Cause, PoisonWord};
use crate::segment::Peer;
use std::time::Duration;

/// Bytes of a message that travel with a fault.
const MESSAGE_BYTES: usize = 8 * (DETAILS - 3);

/// Why the group fails, as a rank reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A rank is gone that others still need.
    PeerDied {
        /// The rank.
        rank: usize,
    },
    /// A deadline passed.
    Timeout {
        /// A rank that was waited for.
        missing: usize,
        /// The deadline in nanoseconds.
        after_ns: u64,
    },
    /// Two ranks make different calls.
    Mismatch {
        /// Both; the first one's call is described.
        ranks: [usize; 2],
        /// The first one's call, where it is known.
        call: Option<Signature>,
    },
    /// Memory could not be reserved.
    NoSpace {
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// An operator of the user's panicked.
    Panicked {
        /// In this rank.
        rank: usize,
        /// The beginning of its message; 40 bytes are kept.
        message: String,
    },
    /// Something else that ends the group, in words of which 40 bytes are kept.
    Other(String),
    /// Something was found that no healthy rank writes.
    Corrupt,
}

impl Fault {
    /// As words; the last one is free for the name of the call.
    pub(super) fn words(&self) -> (Cause, [u64; DETAILS]) {
        let mut words = [0u64; DETAILS];
        let cause = match self {
            Fault::PeerDied { rank } => {
                words[0] = *rank as u64;
                Cause::PeerDied
            }
            Fault::Timeout { missing, after_ns } => {
                words[..2].copy_from_slice(&[*missing as u64, *after_ns]);
                Cause::Timeout
            }
            Fault::Mismatch { ranks, call } => {
                let Signature { kind, count } = call.unwrap_or(Signature { kind: 0, count: 0 });
                words[..4].copy_from_slice(&[ranks[0] as u64, ranks[1] as u64, kind, count]);
                Cause::Mismatch
            }
            Fault::NoSpace { needed, free } => {
                words[..2].copy_from_slice(&[*needed, *free]);
                Cause::NoSpace
            }
            Fault::Panicked { rank, message } => {
                words[0] = *rank as u64;
                write(message, &mut words);
                Cause::OperatorPanicked
            }
            Fault::Other(message) => {
                write(message, &mut words);
                Cause::Corrupt
            }
            Fault::Corrupt => Cause::Corrupt,
        };
        (cause, words)
    }
}

/// Length and text behind the first word.
fn write(message: &str, words: &mut [u64; DETAILS]) {
    let text = &message[..message.floor_char_boundary(MESSAGE_BYTES)];
    words[1] = text.len() as u64;
    for (word, bytes) in words[2..].iter_mut().zip(text.as_bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
}

fn read(words: &[u64; DETAILS]) -> String {
    let bytes: Vec<u8> = words[2..DETAILS - 1].iter().flat_map(|word| word.to_le_bytes()).collect();
    String::from_utf8_lossy(&bytes[..(words[1] as usize).min(bytes.len())]).into_owned()
}

/// A fault as every rank reads it: the same words everywhere, hence the same error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Cause, reporter and operation.
    pub poison: u64,
    /// The fault's words and, last, the name of the call.
    pub details: [u64; DETAILS],
}

impl Verdict {
    /// `fault` as rank `reporter` found it in call `number`.
    pub fn new(fault: &Fault, reporter: usize, collective: Collective, number: u64) -> Self {
        let (cause, mut details) = fault.words();
        details[DETAILS - 1] = number << 8 | collective as u64;
        Verdict { poison: PoisonWord::new(cause, reporter, number).0, details }
    }

    /// The error in a group of `size` ranks. What the words name is checked: a bad peer can make it wrong, not harmful.
    pub fn error(&self, size: usize, peer: impl Fn(usize) -> Peer) -> Error {
        let (poison, words) = (PoisonWord(self.poison), &self.details);
        let (reporter, first) = (poison.reporter(), (words[0] as usize).min(size - 1));
        let name = words[DETAILS - 1];
        let during = match Collective::from_code(name as u8) {
            Some(collective) => format!("{} {}", collective.name(), name >> 8),
            None => format!("exchange {}", poison.epoch()),
        };
        match poison.cause() {
            Cause::PeerDied => {
                let Peer { pid, host } = peer(first);
                Error::PeerDied { rank: first, pid, host, during }
            }
            Cause::Timeout => Error::Timeout { missing: vec![first], after: Duration::from_nanos(words[1]), during },
            Cause::Mismatch => {
                let call = Signature { kind: words[2], count: words[3] };
                Error::Mismatch {
                    rank_a: first,
                    call_a: if call.kind == 0 { during } else { call.describe() },
                    rank_b: (words[1] as usize).min(size - 1),
                    call_b: "another plan, root, size, type or operator, or another call".into(),
                }
            }
            Cause::NoSpace => Error::NoSpace {
                needed: words[0],
                free: words[1],
                hint: format!(
                    "rank {reporter} could not reserve it in {during}; free memory, raise EARLYBIRD_ARENA_MAX or use fewer ranks"
                ),
            },
            Cause::OperatorPanicked => Error::OperatorPanicked { rank: first, during, message: read(words) },
            Cause::Corrupt if words[1] > 0 => {
                Error::Poisoned { cause: format!("rank {reporter} in {during}: {}", read(words)) }
            }
            Cause::Corrupt | Cause::Panicked | Cause::Lost => {
                Error::Poisoned { cause: format!("rank {reporter} found a damaged ring in {during}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(fault: &Fault) -> Error {
        let peer = |rank| Peer { pid: 100 + rank as u32, host: "here".into() };
        Verdict::new(fault, 2, Collective::AllReduce, 17).error(4, peer)
    }

    #[test]
    fn a_fault_survives_as_words() {
        let during = "allreduce 17".to_owned();
        let died = Error::PeerDied { rank: 3, pid: 103, host: "here".into(), during: during.clone() };
        assert_eq!(error(&Fault::PeerDied { rank: 3 }), died);
        assert_eq!(error(&Fault::PeerDied { rank: 9 }), died, "a rank that does not exist");
        let message = "ü".repeat(30);
        let panicked = error(&Fault::Panicked { rank: 1, message });
        assert_eq!(panicked, Error::OperatorPanicked { rank: 1, during: during.clone(), message: "ü".repeat(20) });
        let late = error(&Fault::Timeout { missing: 1, after_ns: 5 });
        assert_eq!(late, Error::Timeout { missing: vec![1], after: Duration::from_nanos(5), during });
        assert!(error(&Fault::Other("no luck".into())).to_string().contains("rank 2 in allreduce 17: no luck"));
        let mismatch = error(&Fault::Mismatch { ranks: [1, 3], call: None }).to_string();
        assert!(mismatch.contains("ranks 1 and 3") && mismatch.contains("allreduce 17"), "{mismatch}");
    }
}
