//! Lines ranks up at one instant and gathers their time stamps: the part that `bench` and `demo` share.
//!
//! Stamps are CLOCK_MONOTONIC, which is the same clock in all processes of a node. Lining up and collecting use a communicator
//! of their own, so that the measured one sees nothing but the measured calls.

use earlybird::pattern::mix;
use earlybird::{Communicator, Error, Op};
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::num::NonZeroU64;

/// A rank spins for the last part of a wait, because a sleep ends late by about this much.
const SPIN_NS: i64 = 50_000;

/// Nanoseconds of the clock that all ranks share.
pub fn now_ns() -> i64 {
    read(ClockId::Monotonic)
}

/// Processor time that this thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> i64 {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The second communicator of a measured group.
pub struct Lineup {
    comm: Communicator,
    spin_ns: i64,
    lead_ns: i64,
}

/// Agreements before the first measured call, by which their time is measured.
const TRIALS: usize = 8;

impl Lineup {
    /// Lines up over a communicator of its own. Collective.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for ranks without a common clock, and what a collective fails with.
    pub fn over(comm: Communicator) -> Result<Lineup, Error> {
        // Sleeps end within microseconds instead of the default 50; refused only by old kernels, then stamps show it.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let is_oversubscribed = comm.size() > comm.allowed_cpus();
        // A rank that shares a processor must not spin while others compute; and the last rank to be lined up may have to wait
        // until all others have been scheduled once.
        let spin_ns = if is_oversubscribed { 0 } else { SPIN_NS };
        let lead_ns = 60_000 + spin_ns + if is_oversubscribed { 100_000 + 30_000 * comm.size() as i64 } else { 30_000 };
        let mut lineup = Lineup { comm, spin_ns, lead_ns };
        if lineup.comm.nodes() > 1 {
            lineup.must_share_a_clock()?;
            // Over a slow network even the last rank must know the instant before it has come.
            let mut longest_ns = 0;
            for trial in 0..TRIALS {
                let start_ns = now_ns();
                lineup.max(0)?;
                longest_ns = longest_ns.max(if trial < TRIALS / 2 { 0 } else { now_ns() - start_ns });
            }
            lineup.lead_ns += lineup.max(longest_ns)?;
        }
        Ok(lineup)
    }

    /// Stamps of ranks are compared, so all must run under one kernel and in one time namespace.
    fn must_share_a_clock(&self) -> Result<(), Error> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let clock = [read("/proc/sys/kernel/random/boot_id"), read("/proc/self/timens_offsets")].concat();
        let mark = clock.bytes().fold(0u64, |mark, byte| mix(mark ^ u64::from(byte))) as i64 >> 1;
        let (largest, smallest) = (self.max(mark)?, -self.max(-mark)?);
        match largest == smallest {
            true => Ok(()),
            false => Err(Error::Unsupported {
                what: "measuring ranks on several machines".into(),
                hint: "their clocks differ; measure on one machine, or on its virtual nodes and hosts".into(),
            }),
        }
    }

    /// Waits for all ranks and agrees on an instant shortly after the last of them came.
    ///
    /// # Errors
    /// The errors of the collective.
    pub fn agree_on_start_ns(&self) -> Result<i64, Error> {
        Ok(self.max(now_ns() + self.lead_ns)?.max(0))
    }

    /// The largest of all ranks' values.
    ///
    /// # Errors
    /// The errors of the collective.
    pub fn max(&self, value: i64) -> Result<i64, Error> {
        let mut values = [value];
        self.comm.all_reduce_in_place(&mut values, Op::Max)?;
        Ok(values[0])
    }

    /// Sleeps, and spins where every rank has a processor, until `at_ns`.
    pub fn wait_until(&self, at_ns: i64) {
        let sleep_until_ns = at_ns - self.spin_ns;
        while now_ns() < sleep_until_ns {
            let until = Timespec { tv_sec: sleep_until_ns / 1_000_000_000, tv_nsec: sleep_until_ns % 1_000_000_000 };
            // Interrupted sleeps are taken up again by the loop.
            let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
        }
        while now_ns() < at_ns {
            std::hint::spin_loop();
        }
    }

    /// Every rank's `mine`, which has the same length on all, in rank order.
    ///
    /// # Errors
    /// The errors of the collective.
    pub fn gather(&self, mine: &[i64]) -> Result<Vec<i64>, Error> {
        let mut all = vec![0; mine.len() * self.comm.size()];
        let first = self.comm.rank() * mine.len();
        all[first..first + mine.len()].copy_from_slice(mine);
        self.comm.all_reduce_in_place(&mut all, Op::Sum)?;
        Ok(all)
    }
}

/// Uses up `cpu_ns` of this thread's processor time, as a computing rank does; the nanoseconds that went by.
pub fn burn(cpu_ns: i64) -> i64 {
    let (begun_ns, until) = (now_ns(), thread_cpu_ns() + cpu_ns);
    while thread_cpu_ns() < until {
        std::hint::spin_loop();
    }
    now_ns() - begun_ns
}
