//! How long joining waits: silently at first, then with one warning, and for ever unless a timeout is set.

use std::time::{Duration, Instant};

use crate::Error;

/// After this a living but late rank is named on stderr.
const WARN_AFTER: Duration = Duration::from_secs(10);

/// The time that one wait has taken and may take.
pub(crate) struct Deadline {
    since: Instant,
    timeout: Option<Duration>,
    warned: bool,
}

impl Deadline {
    /// Starts the clock; without a timeout the wait is endless.
    pub fn new(timeout: Option<Duration>) -> Deadline {
        Deadline { since: Instant::now(), timeout, warned: false }
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
        if !self.warned && waited >= WARN_AFTER {
            self.warned = true;
            if may_warn() {
                crate::warn(format_args!("still waiting after {} s: {}", WARN_AFTER.as_secs(), waiting_for()));
            }
        }
        Ok(())
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
        let mut deadline = Deadline { since, timeout: None, warned: false };
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
}
