//! Errors on their way to other ranks: as bytes in messages and in the control segment, as words in the arena.
//!
//! Bytes are text fields with zero bytes between them and keep every variant that occurs while ranks join. Words are few
//! and of fixed number: kind, two numbers, and the beginning of the text.

use std::time::Duration;

use crate::Error;
use crate::text;

/// Words of an error: kind, two numbers, text.
pub(crate) const ERROR_WORDS: usize = 48;

/// Joins text fields into a message.
pub(crate) fn join(fields: Vec<String>) -> Vec<u8> {
    fields.join("\0").into_bytes()
}

/// Splits a message into its text fields, whatever its bytes are.
pub(crate) fn split(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).split('\0').map(str::to_owned).collect()
}

/// Encodes an error as bytes that every rank decodes to the same error.
pub(crate) fn to_bytes(error: &Error) -> Vec<u8> {
    join(to_fields(error))
}

/// Decodes the error of [`to_bytes`], also from a text that was cut.
pub(crate) fn from_bytes(bytes: &[u8]) -> Error {
    from_fields(&split(bytes))
}

/// Encodes an error as text fields, its code first.
pub(crate) fn to_fields(error: &Error) -> Vec<String> {
    let texts = |texts: &[&String]| texts.iter().map(|text| text.replace('\0', "?")).collect::<Vec<_>>();
    let fields = match error {
        Error::PeerDied { rank, pid, host, during } => {
            [vec![rank.to_string(), pid.to_string()], texts(&[host, during])].concat()
        }
        Error::Timeout { missing, after, during } => {
            let missing: Vec<String> = missing.iter().map(usize::to_string).collect();
            [
                vec![missing.join(" "), u64::try_from(after.as_millis()).unwrap_or(u64::MAX).to_string()],
                texts(&[during]),
            ]
            .concat()
        }
        Error::NoSpace { needed, free, hint } => [vec![needed.to_string(), free.to_string()], texts(&[hint])].concat(),
        Error::Unsupported { what, hint } => texts(&[what, hint]),
        Error::Usage { message } => texts(&[message]),
        Error::System { context, reason, errno, .. } => {
            [texts(&[context, reason]), errno.iter().map(i32::to_string).collect()].concat()
        }
        Error::Poisoned { cause } => texts(&[cause]),
        other => vec![other.to_string()],
    };
    [vec![error.code().to_owned()], fields].concat()
}

/// Decodes the error of [`to_fields`].
pub(crate) fn from_fields(fields: &[String]) -> Error {
    let text = |at: usize| fields.get(at).cloned().unwrap_or_default();
    let number = |at: usize| text(at).parse::<u64>().unwrap_or(0);
    match text(0).as_str() {
        "EB_PEER_DIED" => {
            Error::PeerDied { rank: number(1) as usize, pid: number(2) as u32, host: text(3), during: text(4) }
        }
        "EB_TIMEOUT" => Error::Timeout {
            missing: text(1).split_ascii_whitespace().filter_map(|rank| rank.parse().ok()).collect(),
            after: Duration::from_millis(number(2)),
            during: text(3),
        },
        "EB_NO_SPACE" => Error::NoSpace { needed: number(1), free: number(2), hint: text(3) },
        "EB_UNSUPPORTED" => Error::Unsupported { what: text(1), hint: text(2) },
        "EB_USAGE" => Error::Usage { message: text(1) },
        "EB_SYSTEM" => Error::numbered(text(1), text(2), text(3).parse().ok()),
        _ => Error::Poisoned { cause: text(1) },
    }
}

/// Encodes an error as words. Other variants than `NoSpace` and `Timeout` keep only their text.
pub(crate) fn to_words(error: &Error) -> [u64; ERROR_WORDS] {
    let mut words = [0; ERROR_WORDS];
    let told = match error {
        Error::NoSpace { needed, free, hint } => {
            words[..3].copy_from_slice(&[1, *needed, *free]);
            hint.clone()
        }
        Error::Timeout { missing, after, during } => {
            let first = missing.first().map_or(u64::MAX, |rank| *rank as u64);
            words[..3].copy_from_slice(&[2, first, crate::nanoseconds(*after)]);
            during.clone()
        }
        other => {
            words[0] = 3;
            other.to_string()
        }
    };
    text::pack(&told, &mut words[3..]);
    words
}

/// Decodes the error of [`to_words`]; `None` for words that are zero.
pub(crate) fn from_words(words: &[u64]) -> Option<Error> {
    let text = text::unpack(&words[3..]);
    match words[0] {
        0 => None,
        1 => Some(Error::NoSpace { needed: words[1], free: words[2], hint: text }),
        2 => Some(Error::Timeout {
            missing: usize::try_from(words[1]).into_iter().filter(|rank| *rank != usize::MAX).collect(),
            after: Duration::from_nanos(words[2]),
            during: text,
        }),
        _ => Some(Error::system("splitting a communicator", text)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Errors of every kind that joining sends.
    pub(crate) fn samples() -> Vec<Error> {
        vec![
            Error::PeerDied { rank: 3, pid: 12, host: "h".into(), during: "attach".into() },
            Error::Timeout { missing: vec![1, 1022], after: Duration::from_millis(1500), during: "attach".into() },
            Error::Timeout { missing: vec![], after: Duration::ZERO, during: String::new() },
            Error::NoSpace { needed: 5, free: u64::MAX, hint: "rank 1: free some".into() },
            Error::Unsupported { what: "this".into(), hint: "that".into() },
            Error::usage("ümlaut"),
            Error::system("opening", "no such file"),
            Error::numbered("mapping".into(), "no memory".into(), Some(12)),
            Error::Poisoned { cause: "x".into() },
        ]
    }

    #[test]
    fn an_error_survives_its_bytes() {
        for error in samples() {
            let bytes = to_bytes(&error);
            assert_eq!(from_bytes(&bytes), error);
            (0..bytes.len()).for_each(|end| drop((from_bytes(&bytes[..end]), from_bytes(&bytes[end..]))));
        }
    }

    #[test]
    fn an_error_survives_its_words() {
        let long = "x".repeat(1000);
        for error in [
            Error::NoSpace { needed: 7, free: u64::MAX, hint: "set it higher, \u{fc}".into() },
            Error::Timeout { missing: vec![3], after: Duration::from_millis(5), during: "the table".into() },
            Error::Timeout { missing: vec![], after: Duration::ZERO, during: String::new() },
        ] {
            assert_eq!(from_words(&to_words(&error)), Some(error));
        }
        assert_eq!(from_words(&[0; ERROR_WORDS]), None);
        match from_words(&to_words(&Error::system("mapping", long))) {
            Some(Error::System { reason, .. }) => assert!(reason.starts_with("mapping: xxx") && reason.len() == 360),
            other => panic!("{other:?}"),
        }
    }
}
