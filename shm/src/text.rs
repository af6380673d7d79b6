//! Texts as words that ranks share: the beginning of a name or a message beside the numbers of an error.

use std::any::Any;

/// The text of a panic; `None` where its payload is something else.
pub fn panic_text(payload: &(dyn Any + Send)) -> Option<&str> {
    let formatted = || payload.downcast_ref::<String>().map(String::as_str);
    payload.downcast_ref::<&str>().copied().or_else(formatted)
}

/// The first characters of `text` that fit in so many bytes.
pub fn beginning(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Puts the beginning of `text` into `words`, which are zero behind it; how many bytes of it.
pub fn pack(text: &str, words: &mut [u64]) -> usize {
    let text = beginning(text, 8 * words.len());
    words.fill(0);
    for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(padded);
    }
    text.len()
}

/// The text in `words`, whatever is in them; it ends at the first zero byte.
pub fn unpack(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut words = [u64::MAX; 2];
        for (text, kept) in [
            ("", ""),
            ("ring", "ring"),
            ("abcdefghijklmnoü", "abcdefghijklmno"),
            ("0123456789abcdef", "0123456789abcdef"),
        ] {
            assert_eq!((pack(text, &mut words), unpack(&words).as_str()), (kept.len(), kept));
        }
        assert_eq!(unpack(&[u64::MAX]).chars().count(), 8, "no text at all");
    }
}
