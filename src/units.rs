//! Sizes as users write them, read the same way by the environment and the command line.

use crate::Error;

/// Bytes from a whole number alone or with one of the suffixes `Ki`, `Mi`, `Gi` (powers of 1024): `4096`, `4Ki`.
///
/// # Errors
/// [`Error::Usage`] for anything else, such as signs, fractions, blanks, `K`, `KB`, or more than 2^64 - 1 bytes.
pub fn parse_size(given: &str) -> Result<u64, Error> {
    let refuse = || {
        Error::usage(format!("size {given:?} is not understood; write whole bytes, or a whole number of Ki, Mi or Gi"))
    };
    let (digits, shift) = [("Ki", 10), ("Mi", 20), ("Gi", 30)]
        .into_iter()
        .find_map(|(suffix, shift)| given.strip_suffix(suffix).map(|digits| (digits, shift)))
        .unwrap_or((given, 0));
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refuse());
    }
    let too_large = || Error::usage(format!("size {given:?} is more than 2^64 - 1 bytes"));
    let number: u64 = digits.parse().map_err(|_| too_large())?;
    number.checked_mul(1 << shift).ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;

    #[test]
    fn bytes_and_binary_suffixes_are_read() {
        for (given, bytes) in [
            ("0", 0),
            ("007", 7),
            ("64Ki", 65536),
            ("3Mi", 3 << 20),
            ("2Gi", 2 << 30),
            ("18446744073709551615", u64::MAX),
            ("17179869183Gi", u64::MAX - ((1 << 30) - 1)),
        ] {
            assert_eq!(parse_size(given), Ok(bytes), "{given}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_was_given() {
        for given in
            ["", "Ki", "-1", "+1", "1.5Ki", "1 Ki", " 1", "1k", "1K", "1KB", "1KiB", "1ki", "1Ti", "٣", "0x10", "1e3"]
        {
            assert!(usage(parse_size(given)).contains(&format!("{given:?}")));
        }
        for given in ["18446744073709551616", "17179869184Gi", "99999999999999999999999"] {
            assert!(usage(parse_size(given)).contains("2^64"));
        }
    }
}
