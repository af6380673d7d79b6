//! How long attach waits: silently at first, then with one warning, and for ever unless a timeout is set.

use std::time::{Duration, Instant};

use crate::Error;

/// After this a living but late rank is named on stderr.
const WARN_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct Patience {
    since: Instant,
    timeout: Option<Duration>,
    warned: bool,
}

impl Patience {
    pub fn new(timeout: Option<Duration>) -> Patience {
        Patience { since: Instant::now(), timeout, warned: false }
    }

    /// A bounded one for cleaning up after a failure, which must not itself become a hang.
    pub fn short() -> Patience {
        Patience { since: Instant::now(), timeout: Some(Duration::from_secs(1)), warned: true }
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
                eprintln!("earlybird: waiting for {} s at {}", WARN_AFTER.as_secs(), waiting_for());
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
        let mut patience = Patience::new(Some(Duration::ZERO));
        let error = patience.check(|| "attach".into(), || vec![3], || false).unwrap_err();
        assert_eq!(error, Error::Timeout { missing: vec![3], after: Duration::ZERO, during: "attach".into() });
        assert!(Patience::new(None).check(|| "attach".into(), Vec::new, || true).is_ok());
    }
}
