//! The clock of records: the processor's time-stamp counter where the kernel itself keeps time by it, otherwise the monotonic
//! clock.
//!
//! Records keep the counter as it was read; the file also has calibrations, moments read by both clocks, from which whoever
//! reads the file converts.

use earlybird_shm::now_ns;
use earlybird_shm::time_stamp::{is_kernel_clock, ticks, ticks_after_loads};

/// Readings of which the one that took least time is the calibration.
const TRIES: usize = 5;

/// One moment by the counter and by the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calibration {
    pub ticks: u64,
    pub ns: u64,
    /// Ticks by which the moments of the two readings may differ.
    pub error_ticks: u64,
}

/// The clock that the records of a process are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordClock {
    Counter,
    Monotonic,
}

impl RecordClock {
    pub fn of_this_machine() -> Self {
        if is_kernel_clock() { RecordClock::Counter } else { RecordClock::Monotonic }
    }

    /// A reading that no later store overtakes: once another rank has seen this one arrive, it has been taken.
    #[inline]
    pub fn arrival(self) -> u64 {
        match self {
            RecordClock::Counter => ticks(),
            RecordClock::Monotonic => now_ns(),
        }
    }

    /// A reading that overtakes no earlier load: it comes after every arrival that this rank has seen.
    #[inline]
    pub fn exit(self) -> u64 {
        match self {
            RecordClock::Counter => ticks_after_loads(),
            RecordClock::Monotonic => now_ns(),
        }
    }

    /// The present moment by both clocks, if the counter is in use.
    pub fn calibration(self) -> Option<Calibration> {
        if self == RecordClock::Monotonic {
            return None;
        }
        let read = |_| {
            let (before, ns, after) = (ticks_after_loads(), now_ns(), ticks_after_loads());
            Calibration { ticks: before.midpoint(after), ns, error_ticks: after.saturating_sub(before).div_ceil(2) }
        };
        (0..TRIES).map(read).min_by_key(|calibration| calibration.error_ticks)
    }
}

/// The monotonic clock at readings of the counter, by calibrations of one machine in the order of time.
#[derive(Debug)]
pub(super) struct TimeLine<'a>(&'a [Calibration]);

impl<'a> TimeLine<'a> {
    /// The time line through these calibrations; `None` for fewer than two, which tell no rate.
    pub fn through(calibrations: &'a [Calibration]) -> Option<Self> {
        (calibrations.len() > 1).then_some(TimeLine(calibrations))
    }

    /// The two calibrations nearest in time, between which the rate is taken for constant.
    fn around(&self, ticks: u64) -> [Calibration; 2] {
        let after = self.0.partition_point(|calibration| calibration.ticks <= ticks).clamp(1, self.0.len() - 1);
        [self.0[after - 1], self.0[after]]
    }

    /// Nanoseconds of the monotonic clock at this reading.
    pub fn ns(&self, ticks: u64) -> u64 {
        let [from, to] = self.around(ticks);
        let since = i128::from(ticks) - i128::from(from.ticks);
        let ns = since * i128::from(to.ns - from.ns) / i128::from(to.ticks - from.ticks);
        u64::try_from(i128::from(from.ns) + ns).unwrap_or(0).max(1)
    }

    /// Nanoseconds by which [`TimeLine::ns`] may be wrong at this reading: as much as the two calibrations, and more the further
    /// the reading lies beyond them.
    pub fn error_ns(&self, ticks: u64) -> u64 {
        let [from, to] = self.around(ticks);
        let span = (to.ticks - from.ticks) as f64;
        let beyond = ticks.saturating_sub(to.ticks).max(from.ticks.saturating_sub(ticks)) as f64 / span;
        let worst = from.error_ticks.max(to.error_ticks) as f64 * (1.0 + 2.0 * beyond);
        (worst * (to.ns - from.ns) as f64 / span).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_come_back_as_the_time_within_the_stated_error() {
        // 2.5 ticks per nanosecond, and 2.4 from the second calibration on; readings of both clocks are up to 20 ns apart.
        let calibrations = [(0, 1_000, 10), (25_000_000, 10_001_020, 50), (49_000_000, 20_000_990, 50)]
            .map(|(ticks, ns, error_ticks)| Calibration { ticks, ns, error_ticks });
        let line = TimeLine::through(&calibrations).unwrap();
        for (ticks, ns) in [(0, 1_000), (10_000_000, 4_001_000), (37_000_000, 15_001_000), (61_000_000, 25_001_000)] {
            let (found, error) = (line.ns(ticks), line.error_ns(ticks));
            assert!(found.abs_diff(ns) <= error && error <= 60, "{ticks}: {found} +- {error}, not {ns}");
        }
        let beyond = [30_000_000, 61_000_000].map(|ticks| line.error_ns(ticks));
        assert!(beyond[1] > beyond[0], "{beyond:?}");
        assert!(TimeLine::through(&calibrations[..1]).is_none(), "one moment tells no rate");
    }

    #[test]
    fn the_counter_tells_the_monotonic_clock() {
        let clock = RecordClock::of_this_machine();
        let Some(first) = clock.calibration() else {
            return assert_eq!(clock, RecordClock::Monotonic);
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        let calibrations = [first, clock.calibration().unwrap()];
        let line = TimeLine::through(&calibrations).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let now = clock.calibration().unwrap();
        // The error of both readings, and a clock that is being set by up to 500 ppm meanwhile.
        let error = 2 * line.error_ns(now.ticks) + 20_000;
        assert!(line.ns(now.ticks).abs_diff(now.ns) <= error, "{calibrations:?} {now:?} +- {error}");
        let (arrival, exit) = (clock.arrival(), clock.exit());
        assert!(now.ticks < exit && arrival <= exit, "{now:?} {arrival} {exit}");
    }
}
