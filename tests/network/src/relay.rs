//! The relay: moves packets between the hosts' devices at the times the switch says, and measures its own lateness.

use crate::switch::Switch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use tun_rs::SyncDevice;

/// How often the relay looks whether it is to stop.
const LOOK_NS: u64 = 20_000_000;
/// Packets read from one device before the next one has its turn.
const BURST: usize = 32;

/// What the relay did to the measurement.
#[derive(Debug)]
pub struct Report {
    packets: u64,
    bytes: u64,
    dropped: u64,
    /// Delivery after the due time, nanoseconds, ascending.
    late_ns: Vec<u64>,
    cpu_share: f64,
}

/// Relays until `stop` is set.
///
/// # Errors
/// What the devices refuse.
pub fn run(devices: &[SyncDevice], mut switch: Switch, stop: &AtomicBool) -> io::Result<Report> {
    // Wake up at the time asked for, not up to 50 us later.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut fds: Vec<_> = devices.iter().map(|device| PollFd::new(device, PollFlags::IN)).collect();
    let mut buffer = vec![0; 1 << 16];
    let mut report = Report { packets: 0, bytes: 0, dropped: 0, late_ns: Vec::new(), cpu_share: 0.0 };
    let (begin_ns, begin_cpu_ns) = (now_ns(), cpu_ns());
    while !stop.load(Ordering::Relaxed) {
        let now = now_ns();
        while let Some(delivery) = switch.deliver(now) {
            report.packets += 1;
            report.bytes += delivery.packet.len() as u64;
            report.late_ns.push(now_ns() - delivery.due_ns);
            match devices[delivery.to].send(&delivery.packet) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => report.dropped += 1,
                Err(error) => return Err(error),
            }
        }
        let sleep_ns = switch.next_due_ns().map_or(LOOK_NS, |due| due.saturating_sub(now_ns()).min(LOOK_NS));
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: sleep_ns as i64 }))?;
        for (from, fd) in fds.iter().enumerate() {
            if !fd.revents().contains(PollFlags::IN) {
                continue;
            }
            for _ in 0..BURST {
                match devices[from].recv(&mut buffer) {
                    Ok(bytes) => switch.accept(now_ns(), from, &buffer[..bytes]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
    }
    report.cpu_share = (cpu_ns() - begin_cpu_ns) as f64 / (now_ns() - begin_ns).max(1) as f64;
    report.dropped += switch.dropped;
    report.late_ns.sort_unstable();
    Ok(report)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let late = |share: f64| match self.late_ns.len() {
            0 => 0.0,
            n => self.late_ns[((n - 1) as f64 * share) as usize] as f64 / 1000.0,
        };
        write!(
            f,
            "relay: {} packets, {} bytes, {} dropped; late by {:.0} us (median), {:.0} us (99 %), {:.0} us (most); \
             {:.0} % of a CPU",
            self.packets,
            self.bytes,
            self.dropped,
            late(0.5),
            late(0.99),
            late(1.0),
            self.cpu_share * 100.0
        )
    }
}

fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

fn cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
