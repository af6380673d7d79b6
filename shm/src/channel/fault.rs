//! Failure of a group of rings: as a rank reports it, as words that other ranks read, as the error that all of them get.

use super::lines::{DESCRIPTION_WORDS, DETAILS};
use crate::Error;
use crate::memory::Peer;
use crate::protocol::collective::Collective;
use crate::protocol::signature::Signature;
use crate::protocol::word::{Cause, PoisonWord};
use crate::text::{pack, unpack};
use std::time::Duration;

/// Description of a rank's call: the signature, and the plan that was chosen for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallDescription {
    signature: Signature,
    /// The beginning of its name; zero where none was chosen.
    plan: [u64; DESCRIPTION_WORDS - 2],
}

impl CallDescription {
    /// The call of this signature, for which this plan was chosen; 24 bytes of its name are kept.
    pub fn new(signature: Signature, plan: Option<&str>) -> CallDescription {
        let mut words = [0; DESCRIPTION_WORDS - 2];
        pack(plan.unwrap_or_default(), &mut words);
        CallDescription { signature, plan: words }
    }

    pub(super) fn words(&self) -> [u64; DESCRIPTION_WORDS] {
        let [a, b, c] = self.plan;
        [self.signature.kind, self.signature.count, a, b, c]
    }

    /// Decodes the words; `None` where no call was described.
    pub(super) fn from_words([kind, count, plan @ ..]: [u64; DESCRIPTION_WORDS]) -> Option<CallDescription> {
        (kind != 0).then_some(CallDescription { signature: Signature { kind, count }, plan })
    }

    fn describe(&self) -> String {
        let (call, plan) = (self.signature.describe(), unpack(&self.plan));
        match plan.as_str() {
            "" => call,
            plan => call.replace("algorithm auto", &format!("algorithm plan:{plan}")),
        }
    }
}

/// Bytes of a message that travel with a fault.
const MESSAGE_BYTES: usize = 8 * (DETAILS - 3);

/// Reason for which a group fails, as a rank reports it.
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
        /// Both.
        ranks: [usize; 2],
        /// Each one's call, where it is known.
        calls: [Option<CallDescription>; 2],
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
        /// The beginning of its message; 72 bytes are kept.
        message: String,
    },
    /// Something else that ends the group, in words of which 72 bytes are kept.
    Other(String),
    /// Something was found that no healthy rank writes.
    Corrupt,
}

impl Fault {
    /// Encodes the fault as words; the last one is free for the name of the call.
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
            Fault::Mismatch { ranks, calls } => {
                words[0] = ranks[0] as u64 | (ranks[1] as u64) << 32;
                for (words, description) in words[1..].chunks_exact_mut(DESCRIPTION_WORDS).zip(calls) {
                    words.copy_from_slice(
                        &description.map_or([0; DESCRIPTION_WORDS], |description| description.words()),
                    );
                }
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
    words[1] = pack(message, &mut words[2..][..MESSAGE_BYTES / 8]) as u64;
}

fn read(words: &[u64; DETAILS]) -> String {
    unpack(&words[2..DETAILS - 1])
}

/// A fault as every rank reads it: the same words everywhere, hence the same error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultRecord {
    /// Cause, reporter and operation.
    pub poison: u64,
    /// The fault's words and, last, the name of the call.
    pub details: [u64; DETAILS],
}

impl FaultRecord {
    /// `fault` as rank `reporter` found it in call `number`.
    pub fn new(fault: &Fault, reporter: usize, collective: Collective, number: u64) -> Self {
        let (cause, mut details) = fault.words();
        details[DETAILS - 1] = number << 8 | collective as u64;
        FaultRecord { poison: PoisonWord::new(cause, reporter, number).0, details }
    }

    /// The error in a group of `size` ranks, whose numbers in the job are added where they are other ones. What the words
    /// name is checked: a bad peer can make it wrong, not harmful.
    pub fn error(&self, size: usize, job_ranks: Option<&[usize]>, peer: impl Fn(usize) -> Peer) -> Error {
        let (poison, words) = (PoisonWord(self.poison), &self.details);
        let (reporter, first) = (poison.reporter(), (words[0] as usize).min(size - 1));
        let name = words[DETAILS - 1];
        let during = match Collective::from_repr(name as u8) {
            Some(collective) => format!("{} {}", collective.name(), name >> 8),
            None => format!("exchange {}", poison.epoch()),
        };
        let in_job = |rank: usize| job_ranks.and_then(|ranks| ranks.get(rank));
        let of_first = || match in_job(first) {
            Some(in_job) => format!("{during} of a sub-communicator (rank {first} is rank {in_job} of the job)"),
            None => during.clone(),
        };
        match poison.cause() {
            Cause::PeerDied => {
                let Peer { pid, host } = peer(first);
                Error::PeerDied { rank: first, pid, host, during: of_first() }
            }
            Cause::Timeout => {
                Error::Timeout { missing: vec![first], after: Duration::from_nanos(words[1]), during: of_first() }
            }
            Cause::Mismatch => {
                let (calls, _) = words[1..].as_chunks::<DESCRIPTION_WORDS>();
                let description =
                    |which: usize| CallDescription::from_words(calls[which]).map(|description| description.describe());
                let other = || "another plan, root, size, type or operator, or another call".into();
                let [rank_a, rank_b] = [words[0] as u32 as usize, (words[0] >> 32) as usize].map(|r| r.min(size - 1));
                let of = |rank: usize, call: String| match in_job(rank) {
                    Some(in_job) => format!("{call} (rank {in_job} of the job)"),
                    None => call,
                };
                let [call_a, call_b] = [description(0).unwrap_or(during), description(1).unwrap_or_else(other)];
                Error::Mismatch { rank_a, call_a: of(rank_a, call_a), rank_b, call_b: of(rank_b, call_b) }
            }
            Cause::NoSpace => Error::NoSpace {
                needed: words[0],
                free: words[1],
                hint: format!(
                    "rank {reporter} could not reserve it in {during}; free memory, raise EARLYBIRD_ARENA_MAX or use fewer ranks"
                ),
            },
            Cause::OperatorPanicked => {
                Error::OperatorPanicked { rank: first, during: of_first(), message: read(words) }
            }
            Cause::Corrupt if words[1] > 0 => {
                Error::Poisoned { cause: format!("rank {reporter} in {during}: {}", read(words)) }
            }
            Cause::Corrupt | Cause::System | Cause::Panicked | Cause::Lost | Cause::Interrupted => {
                Error::Poisoned { cause: format!("rank {reporter} found a damaged ring in {during}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Algorithm;
    use crate::op::{DType, FoldOrder, Op};

    fn error(fault: &Fault) -> Error {
        let peer = |rank| Peer { pid: 100 + rank as u32, host: "here".into() };
        FaultRecord::new(fault, 2, Collective::AllReduce, 17).error(4, None, peer)
    }

    #[test]
    fn a_fault_survives_as_words() {
        let during = "allreduce 17".to_owned();
        let died = Error::PeerDied { rank: 3, pid: 103, host: "here".into(), during: during.clone() };
        assert_eq!(error(&Fault::PeerDied { rank: 3 }), died);
        assert_eq!(error(&Fault::PeerDied { rank: 9 }), died, "a rank that does not exist");
        let message = "ü".repeat(50);
        let panicked = error(&Fault::Panicked { rank: 1, message });
        assert_eq!(panicked, Error::OperatorPanicked { rank: 1, during: during.clone(), message: "ü".repeat(36) });
        let late = error(&Fault::Timeout { missing: 1, after_ns: 5 });
        assert_eq!(late, Error::Timeout { missing: vec![1], after: Duration::from_nanos(5), during });
        assert!(error(&Fault::Other("no luck".into())).to_string().contains("rank 2 in allreduce 17: no luck"));
        let mismatch = error(&Fault::Mismatch { ranks: [1, 3], calls: [None; 2] }).to_string();
        assert!(mismatch.contains("ranks 1 and 3") && mismatch.contains("allreduce 17"), "{mismatch}");
        let call = Signature::new(Collective::AllReduce, DType::F32, Op::Sum, FoldOrder::Rank, Algorithm::Auto, 9);
        let calls = [Some("direct:protocol=latency"), None].map(|plan| Some(CallDescription::new(call, plan)));
        let mismatch = error(&Fault::Mismatch { ranks: [3, 0], calls }).to_string();
        let both = "ranks 3 and 0 made different calls: allreduce of 9 x f32, sum, rank order, algorithm \
            plan:direct:protocol=latency against allreduce of 9 x f32, sum, rank order, algorithm auto;";
        assert!(mismatch.starts_with(both), "{mismatch}");
    }
}
