//! Waits for the ranks, passes signals on, and ends the job when one fails: grace, then TERM, then KILL.

use super::rendezvous::LauncherRendezvous;
use super::watchdog::Watchdog;
use super::{Outcome, say};
use crate::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group, pidfd_send_signal};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time between TERM and KILL.
const TERM_TO_KILL: Duration = Duration::from_secs(2);

/// The time limits of a job, and the name that its messages begin with.
pub(super) struct Limits<'a> {
    pub(super) name: &'a str,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) expendable: Option<usize>,
}

/// One process of the job.
pub(super) struct Rank {
    pub(super) rank: usize,
    pub(super) child: Child,
    /// Readable once the process has ended.
    pub(super) pidfd: OwnedFd,
    /// True if the rank leads a process group of its own.
    pub(super) own_group: bool,
    /// Set when the process has been waited for; its process id means nothing from then on.
    pub(super) status: Option<ExitStatus>,
}

impl Rank {
    /// Signals the rank and, if it leads one, its group; does nothing once it has been waited for.
    fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // Errors mean that no process is left to be signalled.
            let _ = match self.own_group {
                true => kill_process_group(Pid::from_child(&self.child), signal),
                false => pidfd_send_signal(&self.pidfd, signal),
            };
        }
    }

    /// The process group that the rank leads.
    fn group(&self) -> Option<Pid> {
        self.own_group.then(|| Pid::from_child(&self.child))
    }

    /// Waits for a rank that has ended. What it left in its group goes first: afterwards the group's number is free.
    fn reap(&mut self, watchdog: &mut Watchdog) -> Result<ExitStatus, Error> {
        if let Some(group) = self.group() {
            self.signal(Signal::KILL);
            watchdog.remove(group);
        }
        let status = self.child.wait().map_err(|error| Error::system(format!("wait for rank {}", self.rank), error))?;
        self.status = Some(status);
        Ok(status)
    }
}

/// The ranks of a job; dropping it kills those that still run, so that no way out of the launcher leaves one behind.
pub(super) struct Ranks {
    all: Vec<Rank>,
    watchdog: Watchdog,
}

impl Ranks {
    pub(super) fn new(watchdog: Watchdog) -> Ranks {
        Ranks { all: Vec::new(), watchdog }
    }

    /// The pipe by which a rank tells the watchdog its group.
    pub(super) fn watchdog_path(&self) -> Option<String> {
        self.watchdog.path()
    }

    pub(super) fn push(&mut self, rank: Rank) {
        rank.group().into_iter().for_each(|group| self.watchdog.add(group));
        self.all.push(rank);
    }

    fn living(&self) -> impl Iterator<Item = &Rank> {
        self.all.iter().filter(|rank| rank.status.is_none())
    }

    fn keep_watchdog(&mut self) {
        let living = self.all.iter().filter(|rank| rank.status.is_none());
        self.watchdog.keep(living.filter_map(Rank::group));
    }

    fn signal(&self, signal: Signal) {
        self.living().for_each(|rank| rank.signal(signal));
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for rank in self.all.iter_mut().filter(|rank| rank.status.is_none()) {
            let _ = rank.child.wait();
        }
    }
}

/// The signals that end a job, each as a stream that becomes readable.
pub(super) struct Signals(Vec<(Signal, UnixStream)>);

impl Signals {
    /// Takes the signals over; before ranks are started, so that none is lost.
    pub(super) fn listen() -> Result<Signals, Error> {
        let mut streams = Vec::new();
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let listen = || -> std::io::Result<UnixStream> {
                let (receiver, sender) = UnixStream::pair()?;
                receiver.set_nonblocking(true)?;
                signal_hook::low_level::pipe::register(signal.as_raw(), sender)?;
                Ok(receiver)
            };
            streams.push((signal, listen().map_err(|error| Error::system("listen for signals", error))?));
        }
        Ok(Signals(streams))
    }

    /// Returns a signal that came since the last call.
    fn take(&self) -> Option<Signal> {
        let arrived = |mut stream: &UnixStream| matches!(stream.read(&mut [0; 64]), Ok(count) if count > 0);
        self.0.iter().find(|(_, stream)| arrived(stream)).map(|(signal, _)| *signal)
    }
}

/// The stages of ending a job.
#[derive(Clone, Copy)]
enum Stage {
    Running,
    Grace(Instant),
    Terminated(Instant),
    Killed,
}

/// Returns when the last rank has been waited for.
pub(super) fn until_all_ended(
    job: &Limits<'_>,
    ranks: &mut Ranks,
    signals: &Signals,
    rendezvous: &LauncherRendezvous,
) -> Result<Outcome, Error> {
    let deadline = job.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut outcome = Outcome::Success;
    let mut stage = Stage::Running;
    while ranks.living().next().is_some() {
        let next = match stage {
            Stage::Running => deadline,
            Stage::Grace(until) | Stage::Terminated(until) => Some(until),
            Stage::Killed => None,
        };
        wait(ranks, signals, next)?;
        ranks.keep_watchdog();

        if let Some(signal) = signals.take() {
            let name = signal_name(signal.as_raw());
            if matches!(outcome, Outcome::Interrupted { .. }) {
                say(format_args!("{}: {name} again, killing all ranks", job.name));
                ranks.signal(Signal::KILL);
                stage = Stage::Killed;
            } else {
                say(format_args!("{}: {name}, passed on to all ranks", job.name));
                ranks.signal(signal);
                outcome = Outcome::Interrupted { signal: signal.as_raw() };
                stage = Stage::Grace(Instant::now() + job.grace);
            }
        }

        if let Some((rank, status)) = reap_ended(ranks, rendezvous)?
            && outcome == Outcome::Success
            && !(job.expendable == Some(rank) && status.signal() == Some(Signal::KILL.as_raw()))
        {
            outcome = Outcome::Failed { rank, status };
            let left = ranks.living().count();
            let how = describe(status);
            if status.signal() == Some(Signal::PIPE.as_raw()) {
                // The reader of its output, such as `head`, has closed the pipe: nothing is wrong, and the rest is not wanted.
                ranks.signal(Signal::TERM);
                stage = Stage::Terminated(Instant::now() + TERM_TO_KILL);
            } else if left == 0 {
                say(format_args!("{}: rank {rank} {how}", job.name));
            } else {
                let grace_seconds = job.grace.as_secs_f64();
                say(format_args!("{}: rank {rank} {how}; the {left} other(s) get {grace_seconds} s to end", job.name));
                stage = Stage::Grace(Instant::now() + job.grace);
            }
        }

        let now = Instant::now();
        match stage {
            Stage::Running if deadline.is_some_and(|deadline| now >= deadline) && ranks.living().next().is_some() => {
                let late: Vec<String> = ranks.living().map(|rank| rank.rank.to_string()).collect();
                let seconds = job.timeout.unwrap_or_default().as_secs_f64();
                say(format_args!(
                    "{}: still running after {seconds} s: rank(s) {}; ending the job",
                    job.name,
                    late.join(", ")
                ));
                outcome = Outcome::TimedOut;
                ranks.signal(Signal::TERM);
                stage = Stage::Terminated(now + TERM_TO_KILL);
            }
            Stage::Grace(until) if now >= until => {
                ranks.signal(Signal::TERM);
                stage = Stage::Terminated(now + TERM_TO_KILL);
            }
            Stage::Terminated(until) if now >= until => {
                ranks.signal(Signal::KILL);
                stage = Stage::Killed;
            }
            _ => {}
        }
    }
    Ok(outcome)
}

/// Sleeps until a rank ends, a signal comes or `until` has passed.
fn wait(ranks: &Ranks, signals: &Signals, until: Option<Instant>) -> Result<(), Error> {
    let mut fds: Vec<PollFd> = ranks.living().map(|rank| PollFd::new(&rank.pidfd, PollFlags::IN)).collect();
    fds.extend(ranks.watchdog.pidfd().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
    fds.extend(signals.0.iter().map(|(_, stream)| PollFd::new(stream, PollFlags::IN)));
    let timeout = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Error::system("wait for the ranks", error)),
    }
}

/// Waits for every rank that has ended and returns the first that failed. Of several that ended between two looks the
/// one that a signal killed is named: the others most likely only report its death.
fn reap_ended(ranks: &mut Ranks, rendezvous: &LauncherRendezvous) -> Result<Option<(usize, ExitStatus)>, Error> {
    let mut failed = None;
    let Ranks { all, watchdog } = ranks;
    for rank in all.iter_mut().filter(|rank| rank.status.is_none()) {
        let mut fds = [PollFd::new(&rank.pidfd, PollFlags::IN)];
        let ended = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if !matches!(ended, Ok(count) if count > 0) {
            continue;
        }
        let status = rank.reap(watchdog)?;
        rendezvous.announce_end(rank.rank);
        let first: &mut Option<(usize, ExitStatus)> = &mut failed;
        if !status.success() && first.is_none_or(|(_, seen)| seen.signal().is_none() && status.signal().is_some()) {
            *first = Some((rank.rank, status));
        }
    }
    Ok(failed)
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by {}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or(format!("signal {signal}"), str::to_owned)
}
