//! Progress functions of the caller that run while a rank waits, above all another library's.

use crate::Error;
use crate::engine::{self, Pace};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A function that a waiting rank calls at a bounded interval.
///
/// A program that has messages of another library under way (MPI's, say) may deadlock when its ranks wait in a collective
/// and nothing drives them. While a rank waits longer than some microseconds it calls this at least every so often, and it
/// never sleeps longer than that. The function must not call the communicator that waits (it gets [`Error::Usage`]), and
/// a panic in it aborts the process: the call that waits cannot be left halfway.
#[derive(Clone)]
pub struct Progress {
    every_ns: u64,
    /// Returns whether the call that waits is to be given up.
    drive: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("every_ns", &self.every_ns).finish_non_exhaustive()
    }
}

impl Progress {
    /// Calls `drive` at least every `every` of a wait. Short intervals keep a waiting rank awake: 1 ms costs about one
    /// percent of a CPU, 20 us a whole one.
    ///
    /// # Errors
    /// [`Error::Usage`] for an interval below 1 us or above 50 ms.
    pub fn new(every: Duration, drive: impl Fn() + Send + Sync + 'static) -> Result<Self, Error> {
        Progress::interrupting(every, move || {
            drive();
            false
        })
    }

    /// A progress function that can interrupt the waiting call by returning true, for example after a signal to end the program.
    /// The group fails then, with an [`Error::Poisoned`] on all ranks that names this one. Waits for other nodes, in `shrink`
    /// and in joining are not interrupted.
    ///
    /// # Errors
    /// The errors of [`Progress::new`].
    pub fn interrupting(every: Duration, drive: impl Fn() -> bool + Send + Sync + 'static) -> Result<Self, Error> {
        if !(Duration::from_micros(1)..=Duration::from_millis(50)).contains(&every) {
            return Err(Error::usage(format!("an interval of progress of {every:?}; give 1 us to 50 ms")));
        }
        Ok(Progress { every_ns: crate::nanoseconds(every), drive: Arc::new(drive) })
    }

    /// The most time between two calls of it.
    pub fn every(&self) -> Duration {
        Duration::from_nanos(self.every_ns)
    }

    /// Drives it now, for waits of the layers above.
    pub fn run(&self) {
        let _ = (self.drive)();
    }

    /// Both, at the shorter interval of the two.
    pub fn and(self, other: Progress) -> Progress {
        let (every_ns, first, second) = (self.every_ns.min(other.every_ns), self.drive, other.drive);
        let drive = move || first() | second();
        Progress { every_ns, drive: Arc::new(drive) }
    }
}

/// Progress of one waiter: the function to call, the time of its last call, and the started calls of this process.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    progress: Option<Progress>,
    driven_ns: Cell<u64>,
    started: Pace,
}

impl Driver {
    /// The progress of the waits that follow.
    pub fn set(&mut self, progress: Option<Progress>) {
        *self = Driver { progress, ..Driver::default() };
    }

    /// Creates the driver of another waiter of this process.
    pub fn another(&self) -> Driver {
        Driver { progress: self.progress.clone(), ..Driver::default() }
    }

    /// Drives if it is time to. Returns whether the call that waits is to be given up.
    pub fn drive(&self, now_ns: u64) -> bool {
        self.started.drive_at(now_ns);
        let Some(progress) = &self.progress else { return false };
        if now_ns.saturating_sub(self.driven_ns.get()) < progress.every_ns {
            return false;
        }
        let abort = AbortOnUnwind;
        let interrupts = (progress.drive)();
        std::mem::forget(abort);
        self.driven_ns.set(now_ns);
        interrupts
    }

    /// The longest sleep, where `most_ns` is allowed otherwise.
    pub fn sleep_ns(&self, most_ns: u64) -> u64 {
        let most_ns = engine::sleep_ns(most_ns);
        self.progress.as_ref().map_or(most_ns, |progress| progress.every_ns.min(most_ns))
    }
}

struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        crate::warn(format_args!("the function that drives progress while a rank waits panicked; the process ends"));
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn drives_at_the_interval_and_bounds_sleep() {
        let calls = Arc::new(AtomicU32::new(0));
        let seen = calls.clone();
        let progress = Progress::new(Duration::from_micros(100), move || {
            seen.fetch_add(1, Relaxed);
        })
        .unwrap();
        let mut driver = Driver::default();
        driver.drive(1_000_000);
        assert_eq!((driver.sleep_ns(7), driver.sleep_ns(u64::MAX)), (7, u64::MAX));
        driver.set(Some(progress));
        for (now_ns, so_far) in [(1_000_000, 1), (1_050_000, 1), (1_099_999, 1), (1_100_000, 2), (1_150_000, 2)] {
            driver.drive(now_ns);
            assert_eq!(calls.load(Relaxed), so_far, "{now_ns}");
        }
        driver.another().drive(1_150_000);
        assert_eq!(calls.load(Relaxed), 3);
        assert_eq!((driver.sleep_ns(7), driver.sleep_ns(u64::MAX)), (7, 100_000));
        driver.set(None);
        driver.drive(u64::MAX);
        assert_eq!(calls.load(Relaxed), 3);
    }

    #[test]
    fn two_are_driven_together_at_the_shorter_interval() {
        let calls = Arc::new(AtomicU32::new(0));
        let one = |us, count: u32| {
            let calls = calls.clone();
            let drive = move || {
                calls.fetch_add(count, Relaxed);
            };
            Progress::new(Duration::from_micros(us), drive).unwrap()
        };
        let mut driver = Driver::default();
        driver.set(Some(one(300, 1).and(one(100, 10))));
        driver.drive(1_000_000);
        driver.drive(1_100_000);
        assert_eq!((calls.load(Relaxed), driver.sleep_ns(u64::MAX)), (22, 100_000));
    }

    #[test]
    fn refuses_intervals_that_never_sleep_or_hardly_look() {
        for every in [Duration::ZERO, Duration::from_nanos(999), Duration::from_millis(51)] {
            assert!(matches!(Progress::new(every, || ()), Err(Error::Usage { .. })), "{every:?}");
        }
    }
}
