//! Sizes, ranges of sizes and times as users write them, read the same way by the environment, files and the command line.

use crate::Error;
use std::fmt::Display;
use std::time::Duration;

/// Bytes from a whole number alone or with one of the suffixes `Ki`, `Mi`, `Gi` (powers of 1024): `4096`, `4Ki`.
///
/// # Errors
/// [`Error::Usage`] for anything else, such as signs, fractions, blanks, `K`, `KB`, or more than 2^64 - 1 bytes.
pub fn parse_size(given: &str) -> Result<u64, Error> {
    let refuse = || {
        let meant = meant_size(given).map_or(String::new(), |meant| format!("did you mean {meant}? "));
        let valid = "write whole bytes, or a whole number of Ki, Mi or Gi";
        Error::usage(format!("size {given:?} is not understood; {meant}{valid}"))
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

/// The size that was meant by a number with another unit's name, such as `8KB` or `64k`.
fn meant_size(given: &str) -> Option<String> {
    let digits = given.len() - given.trim_start_matches(|sign: char| sign.is_ascii_digit()).len();
    let (number, unit) = given.split_at(digits);
    let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
        "b" | "byte" | "bytes" => "",
        "k" | "kb" | "ki" | "kib" => "Ki",
        "m" | "mb" | "mi" | "mib" => "Mi",
        "g" | "gb" | "gi" | "gib" => "Gi",
        _ => return None,
    };
    (digits > 0).then(|| format!("{number}{unit}"))
}

/// The first and the last size of the range in `entry`, both included; without a last one it has no end.
///
/// # Errors
/// The errors of [`parse_size`], and [`Error::Usage`] for a range that ends before it begins.
pub(crate) fn parse_range(entry: &str, (first, last): (&str, &str)) -> Result<(u64, u64), Error> {
    let range = (parse_size(first)?, if last.is_empty() { u64::MAX } else { parse_size(last)? });
    if range.0 > range.1 {
        return Err(Error::usage(format!("the range of {entry:?} ends before it begins")));
    }
    Ok(range)
}

/// Puts the place of a mistake before the message of a usage error.
pub(crate) fn located(place: impl Display, error: Error) -> Error {
    match error {
        Error::Usage { message } => Error::usage(format!("{place}: {message}")),
        other => other,
    }
}

/// A time from seconds alone or with one of the units `us`, `ms`, `s`, `min`: `10`, `0.5`, `10s`, `500ms`.
///
/// # Errors
/// [`Error::Usage`] for anything else, such as signs, blanks and exponents, and for more than 2^64 seconds.
pub fn parse_time(given: &str) -> Result<Duration, Error> {
    let refuse =
        || Error::usage(format!("time {given:?} is not understood; write seconds, such as 0.5, or 500ms, 10s, 2min"));
    let (number, unit_s) = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0)]
        .into_iter()
        .find_map(|(suffix, unit_s)| Some((given.strip_suffix(suffix)?, unit_s)))
        .unwrap_or((given, 1.0));
    if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(refuse());
    }
    let number: f64 = number.parse().map_err(|_| refuse())?;
    Duration::try_from_secs_f64(number * unit_s).map_err(|_| refuse())
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
        for (given, meant) in [("8KB", "8Ki"), ("64K", "64Ki"), ("2 MB", "2Mi"), ("8b", "8"), ("1gib", "1Gi")] {
            assert!(usage(parse_size(given)).contains(&format!("did you mean {meant}?")), "{given}");
        }
        for given in ["K", "1Ti", "0x10"] {
            assert!(!usage(parse_size(given)).contains("did you mean"), "{given}");
        }
        for given in ["18446744073709551616", "17179869184Gi", "99999999999999999999999"] {
            assert!(usage(parse_size(given)).contains("2^64"));
        }
    }

    #[test]
    fn times_have_seconds_or_a_unit() {
        assert_eq!(parse_time("100us"), Ok(Duration::from_micros(100)));
        for (given, ms) in
            [("10", 10_000), ("0.5", 500), (".5", 500), ("10s", 10_000), ("500ms", 500), ("2min", 120_000), ("0", 0)]
        {
            assert_eq!(parse_time(given), Ok(Duration::from_millis(ms)), "{given}");
        }
        for given in ["", "s", "ms", "-1", "+1", "1 s", "1e3", "inf", "nan", "1h", "1.2.3", "99999999999999999999999"] {
            assert!(usage(parse_time(given)).contains(&format!("{given:?}")), "{given}");
        }
    }
}
