//! Messages at the rendezvous: identity and settings of a rank, errors, and ranks that have ended.
//!
//! Messages are texts, fields with zero bytes between them. The first field names the protocol. A rank states every value
//! that must be equal on all ranks by name, so that an error can name the difference.

use super::AttachOptions;
use super::control::LAYOUT_VERSION;
use super::process::Identity;
use crate::{Error, error_codec};

/// First field of every message.
const PREFIX: &str = "earlybird";
/// Raised when messages or the steps of joining change; ranks of different protocols do not join.
const PROTOCOL: u32 = 2;
/// Hash of the sources, to distinguish builds of one version.
const BUILD: &str = env!("EARLYBIRD_SOURCES");
/// Longest value that is stated in full; of longer ones the beginning and a hash are.
const VALUE_BYTES: usize = 300;

/// The statement of a rank to the fd server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pub rank: usize,
    pub me: Identity,
    /// Names and values that must be alike on all ranks, the most telling first.
    values: Vec<(String, String)>,
}

/// A value that follows from the number of ranks and from settings.
const REGION: &str = "the bytes of a region";

/// A message to the fd server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A rank that wants to join.
    Join(Statement),
    /// A rank that cannot join, and why: the error of all ranks.
    Failed(Error),
    /// Ranks whose processes have ended, as the launcher knows.
    Ended(Vec<usize>),
}

/// The answer. Descriptors travel beside the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The rank may join: control segment and arena come with the answer.
    Welcome,
    /// All ranks have attached already; a later rank belongs to the next group of this name.
    Over,
    /// No rank joins, for this reason.
    Failed(Error),
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

    /// The first value that is not alike, as an error that names it and both values.
    pub fn difference(&self, other: &Statement) -> Option<Error> {
        let unset = "not set".to_owned();
        let named = |of: &Statement, name: &str| of.values.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
        let mut names: Vec<&String> = self.values.iter().chain(&other.values).map(|(name, _)| name).collect();
        // it follows from the others, also from one that only one rank has set
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

/// A value as it is stated: short, and different for different values.
fn shortened(value: &str) -> String {
    let value = value.replace('\0', "?");
    if value.len() <= VALUE_BYTES {
        return value;
    }
    let end = (0..=VALUE_BYTES).rev().find(|end| value.is_char_boundary(*end)).unwrap_or(0);
    format!("{}... (hash {:032x})", &value[..end], super::rendezvous::fnv1a_128(value.as_bytes()))
}

impl Message {
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = vec![PREFIX.to_owned()];
        match self {
            Message::Join(statement) => {
                let Identity { pid, pid_namespace, start_ticks } = statement.me;
                fields.push("join".into());
                fields.extend([statement.rank.to_string(), pid.to_string()]);
                fields.extend([pid_namespace.to_string(), start_ticks.to_string()]);
                fields.extend(statement.values.iter().flat_map(|(name, value)| [name.clone(), value.clone()]));
            }
            Message::Failed(error) => {
                fields.push("failed".into());
                fields.extend(error_codec::to_fields(error));
            }
            Message::Ended(ranks) => {
                fields.push("ended".into());
                fields.extend(ranks.iter().map(usize::to_string));
            }
        }
        error_codec::join(fields)
    }

    /// `None` for what is no message.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let fields = error_codec::split(bytes);
        let (prefix, rest) = fields.split_first()?;
        let (kind, rest) = rest.split_first().filter(|_| prefix == PREFIX)?;
        match kind.as_str() {
            "join" => {
                let ([rank, pid, pid_namespace, start_ticks], values) = rest.split_first_chunk()?;
                let me = Identity {
                    pid: pid.parse().ok()?,
                    pid_namespace: pid_namespace.parse().ok()?,
                    start_ticks: start_ticks.parse().ok()?,
                };
                let values = values.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
                Some(Message::Join(Statement { rank: rank.parse().ok()?, me, values }))
            }
            "failed" => Some(Message::Failed(error_codec::from_fields(rest))),
            "ended" => rest.iter().map(|rank| rank.parse().ok()).collect::<Option<_>>().map(Message::Ended),
            _ => None,
        }
    }
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Answer::Welcome => b"welcome".to_vec(),
            Answer::Over => b"over".to_vec(),
            Answer::Failed(error) => {
                error_codec::join([vec!["failed".to_owned()], error_codec::to_fields(error)].concat())
            }
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let fields = error_codec::split(bytes);
        match fields.split_first()? {
            (kind, []) if kind == "welcome" => Some(Answer::Welcome),
            (kind, []) if kind == "over" => Some(Answer::Over),
            (kind, rest) if kind == "failed" => Some(Answer::Failed(error_codec::from_fields(rest))),
            _ => None,
        }
    }
}

/// Puts the rank before the text of its error, for the other ranks.
pub(crate) fn of_rank(rank: usize, error: Error) -> Error {
    let named = |text: String| if text.starts_with("rank ") { text } else { format!("rank {rank}: {text}") };
    match error {
        Error::Usage { message } => Error::Usage { message: named(message) },
        Error::Unsupported { what, hint } => Error::Unsupported { what: named(what), hint },
        Error::System { context, reason, errno, .. } => Error::numbered(named(context), reason, errno),
        Error::NoSpace { needed, free, hint } => Error::NoSpace { needed, free, hint: named(hint) },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(rank: usize, settings: &[(&str, &str)]) -> Statement {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let options = AttachOptions { rank, size: 4, settings, ..AttachOptions::default() };
        Statement::of(&options, Identity { pid: 7, pid_namespace: 8, start_ticks: 9 }, 4096)
    }

    #[test]
    fn messages_and_errors_survive_their_bytes() {
        for error in crate::error_codec::tests::samples() {
            let answer = Answer::Failed(error.clone());
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
            let message = Message::Failed(error);
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        for message in [Message::Ended(vec![0, 1022]), Message::Join(statement(2, &[("EARLYBIRD_DIR", "")]))] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        for answer in [Answer::Welcome, Answer::Over] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn whatever_comes_is_a_message_or_none() {
        let whole = Message::Join(statement(2, &[("EARLYBIRD_DIR", "/a")])).encode();
        for end in 0..whole.len() {
            let _ = Message::decode(&whole[..end]);
            let _ = Answer::decode(&whole[end..]);
        }
        for text in ["", "earlybird", "earlybird\0join", "earlybird\0ended\0-1", "other\0ended\x001"] {
            assert_eq!(Message::decode(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Message::decode(&[0xff; 64]), None);
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
