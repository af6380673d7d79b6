//! Errors on their way to other ranks: as JSON in messages and in the control segment, and packed into words in the arena.

use crate::Error;
use crate::text;

/// Words of an error.
pub const ERROR_WORDS: usize = 48;

/// Encodes an error as a text that every rank decodes to the same error. If that has more than `most` bytes, the text is
/// the beginning of the error's message.
pub(crate) fn to_text(error: &Error, most: usize) -> String {
    match serde_json::to_string(error) {
        Ok(text) if text.len() <= most => text,
        _ => text::beginning(&error.to_string(), most).to_owned(),
    }
}

/// Decodes the error of [`to_text`]. A text that encodes none is a message, the cause of [`Error::Poisoned`].
pub(crate) fn from_text(text: &str) -> Error {
    serde_json::from_str(text).unwrap_or_else(|_| Error::Poisoned { cause: text.to_owned() })
}

/// Encodes an error as words, the first of which is not zero.
pub fn to_words(error: &Error) -> [u64; ERROR_WORDS] {
    let mut words = [0; ERROR_WORDS];
    text::pack(&to_text(error, size_of_val(&words)), &mut words);
    words
}

/// Decodes the error of [`to_words`]; `None` for words that are zero.
pub fn from_words(words: &[u64]) -> Option<Error> {
    (words[0] != 0).then(|| from_text(&text::unpack(words)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Duration;

    /// Errors of every kind that joining sends.
    pub(crate) fn samples() -> Vec<Error> {
        vec![
            Error::PeerDied { rank: 3, pid: 12, host: "h".into(), during: "attach".into() },
            Error::Timeout { missing: vec![1, 1022], after: Duration::from_millis(1500), during: "attach".into() },
            Error::Timeout { missing: vec![], after: Duration::ZERO, during: String::new() },
            Error::NoSpace { needed: 5, free: u64::MAX, hint: "rank 1: free some".into() },
            Error::Unsupported { what: "this".into(), hint: "that".into() },
            Error::usage("ümlaut, \"quoted\"\0"),
            Error::system("opening", "no such file"),
            Error::numbered("mapping".into(), "no memory".into(), Some(12)),
            Error::Poisoned { cause: "x".into() },
        ]
    }

    #[test]
    fn an_error_survives_its_text_and_its_words() {
        for error in samples() {
            let text = to_text(&error, 1000);
            assert_eq!(from_text(&text), error);
            for (at, _) in text.char_indices().skip(1) {
                assert_eq!(from_text(&text[..at]), Error::Poisoned { cause: text[..at].into() });
            }
            assert_eq!(from_words(&to_words(&error)), Some(error));
        }
        assert_eq!(from_words(&[0; ERROR_WORDS]), None);
    }

    #[test]
    fn of_an_error_that_is_too_long_the_beginning_of_its_message_arrives() {
        match from_words(&to_words(&Error::system("mapping", "x".repeat(1000)))) {
            Some(Error::Poisoned { cause }) => assert!(cause.starts_with("mapping: xxx") && cause.len() == 384),
            other => panic!("{other:?}"),
        }
    }
}
