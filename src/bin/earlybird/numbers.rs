//! Numbers for readers: sizes with units, sets as ranges.

use itertools::Itertools;

/// A number of bytes with a unit.
pub fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}

/// Ascending numbers as `0-3,8`.
pub fn ranges(numbers: &[usize]) -> String {
    let apart = numbers.iter().enumerate().map(|(at, number)| (number - at, *number)).chunk_by(|(group, _)| *group);
    let runs = apart.into_iter().map(|(_, run)| run.map(|(_, number)| number).collect_vec());
    runs.map(|run| match run[..] {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => unreachable!("a run has an element"),
    })
    .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = [0, 1023, 1536, 64 << 20, 5 << 29].map(size);
        assert_eq!(sizes, ["0 bytes", "1023 bytes", "1.5 KiB", "64.0 MiB", "2.5 GiB"]);
    }

    #[test]
    fn neighbours_are_joined() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!((ranges(&[]).as_str(), ranges(&[5]).as_str()), ("", "5"));
    }
}
