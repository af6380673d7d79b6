//! Messages at the rendezvous: the identity and settings of a rank, errors, and ranks that have ended.
//!
//! Messages are JSON. A rank states every value that must be equal on all ranks by name, so that an error can name the
//! difference.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::AttachOptions;
use super::control::Identity;
use super::control::LAYOUT_VERSION;
use crate::Error;
use crate::text::beginning;

/// Raised when messages or the steps of joining change; ranks of different protocols do not join.
const PROTOCOL: u32 = 4;
/// Hash of the sources, to distinguish builds of one version.
const BUILD: &str = env!("EARLYBIRD_SOURCES");
/// Longest value that is sent in full; longer ones are sent as their beginning and a hash.
const VALUE_BYTES: usize = 300;

/// The statement of a rank to the fd server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Statement {
    pub rank: usize,
    pub me: Identity,
    /// Names and values that must be equal on all ranks, the most telling difference first.
    values: Vec<(String, String)>,
}

/// Name of a value that follows from the number of ranks and from settings.
const REGION: &str = "the bytes of a region";

/// A message to the fd server.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// A rank that wants to join.
    Join(Statement),
    /// The process of a rank that cannot join, and why: the error of all ranks.
    Failed(Identity, Error),
    /// Ranks whose processes have ended, as the launcher knows.
    Ended(Vec<usize>),
}

/// The fd server's answer. Descriptors travel beside the bytes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The rank may join: control segment and arena come with the answer.
    Welcome,
    /// All ranks have attached already; a later rank belongs to the next group of this name.
    Over,
    /// No rank joins, for this reason.
    Failed(Error),
}

impl Message {
    /// The process of the rank that sends this message, if a rank does.
    pub fn sender(&self) -> Option<Identity> {
        match self {
            Message::Join(statement) => Some(statement.me),
            Message::Failed(me, _) => Some(*me),
            Message::Ended(_) => None,
        }
    }
}

impl Statement {
    pub fn of(options: &AttachOptions, me: Identity, region_bytes: usize) -> Statement {
        let own = [
            ("the protocol of joining", PROTOCOL.to_string()),
            ("the version of earlybird", env!("CARGO_PKG_VERSION").to_owned()),
            ("the build of earlybird", BUILD.to_owned()),
            ("the layout of shared memory", LAYOUT_VERSION.to_string()),
            ("the number of ranks (EARLYBIRD_SIZE)", options.size.to_string()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        let stated = options.settings.iter().map(|(name, value)| (name.clone(), shortened(value)));
        let region = (REGION.to_owned(), region_bytes.to_string());
        Statement { rank: options.rank, me, values: own.chain(stated).chain([region]).collect() }
    }

    /// The first value that differs, as an error that names it and both values.
    pub fn difference(&self, other: &Statement) -> Option<Error> {
        let unset = "not set".to_owned();
        let named = |of: &Statement, name: &str| of.values.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let mut names: Vec<&String> = self.values.iter().chain(&other.values).map(|(name, _)| name).collect();
        // last, since it follows from the others, among them one that only one rank may have set
        names.sort_by_key(|name| *name == REGION);
        names.into_iter().find_map(|name| {
            let [ours, theirs] = [self, other].map(|of| named(of, name).unwrap_or_else(|| unset.clone()));
            let advice = match name.starts_with("EARLYBIRD_") {
                true => "set it alike on all ranks of a job",
                false if name.contains("EARLYBIRD_SIZE") => {
                    "tell all ranks of a job the same; different jobs need different names (EARLYBIRD_JOB)"
                }
                false => "all ranks must run the same build of earlybird",
            };
            (ours != theirs).then(|| {
                let (rank, their_rank) = (self.rank, other.rank);
                Error::usage(format!("{name} is {ours} on rank {rank} and {theirs} on rank {their_rank}; {advice}"))
            })
        })
    }
}

/// A short form of a value, different for different values.
fn shortened(value: &str) -> String {
    if value.len() <= VALUE_BYTES {
        return value.to_owned();
    }
    format!("{}... (hash {:032x})", beginning(value, VALUE_BYTES), super::rendezvous::fnv1a_128(value.as_bytes()))
}

/// Encodes a [`Message`] or an [`Answer`].
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("numbers and texts are JSON")
}

/// Decodes the [`Message`] or [`Answer`] of [`encode`]; `None` for any other bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Identity = Identity { pid: 7, pid_namespace: 8, start_ticks: 9 };

    fn statement(rank: usize, settings: &[(&str, &str)]) -> Statement {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let options = AttachOptions { rank, size: 4, settings, ..AttachOptions::default() };
        Statement::of(&options, OWN, 4096)
    }

    #[test]
    fn messages_and_errors_survive_their_bytes() {
        for error in crate::error_codec::tests::samples() {
            let answer = Answer::Failed(error.clone());
            assert_eq!(decode(&encode(&answer)), Some(answer));
            let message = Message::Failed(OWN, error);
            assert_eq!(decode(&encode(&message)), Some(message));
        }
        for message in [Message::Ended(vec![0, 1022]), Message::Join(statement(2, &[("EARLYBIRD_DIR", "")]))] {
            assert_eq!(decode(&encode(&message)), Some(message));
        }
        for answer in [Answer::Welcome, Answer::Over] {
            assert_eq!(decode(&encode(&answer)), Some(answer));
        }
    }

    #[test]
    fn whatever_comes_is_a_message_or_none() {
        let whole = encode(&Message::Join(statement(2, &[("EARLYBIRD_DIR", "/a")])));
        for end in 0..whole.len() {
            assert_eq!(decode::<Message>(&whole[..end]), None);
            assert_eq!(decode::<Answer>(&whole[end..]), None);
        }
        for text in ["", "\"Join\"", "{\"Join\":{}}", "{\"Ended\":[-1]}", "{\"Other\":[1]}", "{\"Ended\":[1]} {}"] {
            assert_eq!(decode::<Message>(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(decode::<Message>(&[0xff; 64]), None);
    }

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let ours = statement(0, &[("EARLYBIRD_DIR", "/a")]);
        assert_eq!(ours.difference(&statement(1, &[("EARLYBIRD_DIR", "/a")])), None);
        let of = |other: &Statement| ours.difference(other).unwrap().to_string();
        assert_eq!(
            of(&statement(3, &[("EARLYBIRD_DIR", "/b")])),
            "EARLYBIRD_DIR is /a on rank 0 and /b on rank 3; set it alike on all ranks of a job"
        );
        assert!(of(&statement(3, &[])).contains("EARLYBIRD_DIR is /a on rank 0 and not set on rank 3"));
        for (at, name) in ["protocol of joining", "version of earlybird", "build of earlybird"].into_iter().enumerate()
        {
            let mut other = statement(2, &[("EARLYBIRD_DIR", "/b")]);
            other.values[at].1 = "another".into();
            let message = of(&other);
            assert!(message.starts_with(&format!("the {name} is {} on rank 0", ours.values[at].1)), "{message}");
            assert!(
                message.ends_with("and another on rank 2; all ranks must run the same build of earlybird"),
                "{message}"
            );
        }
    }

    #[test]
    fn long_values_stay_different() {
        let [a, b] = ["x", "y"].map(|end| shortened(&format!("{}{end}", "é".repeat(1000))));
        assert!(a != b && a.len() < 400, "{a}");
    }
}
