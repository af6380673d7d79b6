//! The deadline of a wait for other ranks: silent at first, then one warning, and endless unless a timeout is set.

use std::time::{Duration, Instant};

use crate::Error;
use crate::warn::{self, WARN_AFTER};

/// Interval at which a wait checks whether the late ranks are stopped. A longer gap means that this rank was itself
/// stopped, and does not count against the deadline.
const INSPECT_EVERY: Duration = Duration::from_millis(100);

/// The time that one wait has taken and may take.
pub(crate) struct Deadline {
    since: Instant,
    timeout: Option<Duration>,
    warned: bool,
    inspected: Instant,
    /// Time that counts against the timeout in [`Deadline::is_over`].
    counted: Duration,
}

impl Deadline {
    /// Starts the clock; without a timeout the wait is endless.
    pub fn new(timeout: Option<Duration>) -> Deadline {
        Deadline::since(Instant::now(), timeout)
    }

    fn since(since: Instant, timeout: Option<Duration>) -> Deadline {
        Deadline { since, timeout, warned: false, inspected: since, counted: Duration::ZERO }
    }

    /// Fails when the timeout is over; warns once when 10 s are over and `may_warn` agrees.
    pub fn check(
        &mut self,
        waiting_for: impl FnOnce() -> String,
        missing: impl FnOnce() -> Vec<usize>,
        may_warn: impl FnOnce() -> bool,
    ) -> Result<(), Error> {
        let waited = self.since.elapsed();
        if let Some(after) = self.timeout.filter(|timeout| waited >= *timeout) {
            return Err(Error::Timeout { missing: missing(), after, during: waiting_for() });
        }
        if self.is_warning_due() && may_warn() {
            warn::warn(format_args!("still waiting after {} s: {}", WARN_AFTER.as_secs(), waiting_for()));
        }
        Ok(())
    }

    /// Returns whether the timeout is over, not counting the time during which a late rank is stopped or held by a debugger.
    pub fn is_over(&mut self, is_held: impl FnOnce() -> bool) -> bool {
        let Some(timeout) = self.timeout else { return false };
        let since = self.inspected.elapsed();
        if since >= INSPECT_EVERY.min(timeout) {
            self.inspected = Instant::now();
            self.counted += if is_held() { Duration::ZERO } else { since.min(2 * INSPECT_EVERY) };
        }
        self.counted >= timeout
    }

    /// Returns true once, when the late ranks should be named in a warning.
    pub fn is_warning_due(&mut self) -> bool {
        let due = !self.warned && self.since.elapsed() >= WARN_AFTER;
        self.warned |= due;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_names_the_missing() {
        let mut deadline = Deadline::new(Some(Duration::ZERO));
        let error = deadline.check(|| "attach".into(), || vec![3], || false).unwrap_err();
        assert_eq!(error, Error::Timeout { missing: vec![3], after: Duration::ZERO, during: "attach".into() });
        for endless in [None, Some(Duration::MAX)] {
            assert!(Deadline::new(endless).check(|| "all".into(), Vec::new, || true).is_ok());
        }
    }

    #[test]
    fn one_warning_is_enough() {
        let Some(since) = Instant::now().checked_sub(WARN_AFTER) else { return };
        let mut deadline = Deadline::since(since, None);
        let mut asked = 0;
        for _ in 0..3 {
            let may_warn = || {
                asked += 1;
                false
            };
            deadline.check(|| "all".into(), Vec::new, may_warn).unwrap();
        }
        assert_eq!(asked, 1);
        Deadline::new(None).check(|| "all".into(), Vec::new, || panic!("too early to warn")).unwrap();
    }

    #[test]
    fn time_while_a_late_rank_is_stopped_does_not_count() {
        let Some(since) = Instant::now().checked_sub(Duration::from_secs(1)) else { return };
        let timeout = Some(Duration::from_millis(150));
        assert!(!Deadline::since(since, timeout).is_over(|| true));
        let mut deadline = Deadline::since(since, timeout);
        assert!(deadline.is_over(|| false) && deadline.is_over(|| true));
        assert!(
            !Deadline::since(since, Some(Duration::from_secs(1))).is_over(|| false),
            "this rank was stopped itself"
        );
        assert!(!Deadline::since(since, None).is_over(|| false));
    }
}
