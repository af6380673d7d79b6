//! Warnings to the user: one line on standard error, in one piece, never a panic.

use std::fmt::Arguments;
use std::io::Write;
use std::time::Duration;

/// Length of a wait after which living but late ranks are named in a warning.
pub(crate) const WARN_AFTER: Duration = Duration::from_secs(10);

/// Most ranks that a warning names; the others are only counted.
const MAX_NAMED: usize = 8;

/// Writes `earlybird: <line>` to standard error in one write. Ignores failures: a closed standard error has no reader.
pub fn warn(line: Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("earlybird: {line}\n").as_bytes());
}

/// Lists late ranks for a warning: the first eight by `name`, then the number of the others.
pub(crate) fn list_late(ranks: &[usize], name: impl Fn(usize) -> String) -> String {
    let named: Vec<String> = ranks.iter().take(MAX_NAMED).map(|rank| name(*rank)).collect();
    let others = match ranks.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    format!("{}{others}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::list_late;

    #[test]
    fn eight_late_ranks_are_named_and_the_others_counted() {
        let name = |rank: usize| format!("r{rank}");
        assert_eq!(list_late(&[3, 5], name), "r3, r5");
        assert_eq!(list_late(&(0..8).collect::<Vec<_>>(), name), "r0, r1, r2, r3, r4, r5, r6, r7");
        assert!(list_late(&(0..11).collect::<Vec<_>>(), name).ends_with("r7 and 3 more"));
    }
}
