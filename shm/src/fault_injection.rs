//! Fault injection for tests (feature `fault`): a rank dies, stops, panics or loses its descriptors at a named step.
//!
//! `EARLYBIRD_FAULT=rank:step:n:what`, with `what` one of `kill`, `stop`, `exit`, `exec`, `panic`, `close` (of all
//! descriptors from 3 on; a file takes the numbers) and `files` (no further descriptor can be opened): when `rank` reaches
//! `step` for the n-th time. Several are separated by commas. Not compiled into anything that ships.
#![allow(unsafe_code)]

use crate::Error;
use crate::protocol::step::Step;
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use strum::EnumString;

#[derive(Debug, Clone, Copy, EnumString)]
#[strum(serialize_all = "lowercase")]
enum FaultKind {
    Kill,
    Stop,
    Exit,
    Exec,
    Panic,
    Close,
    Files,
}

/// The faults of this rank.
#[derive(Debug)]
pub struct InjectedFaults(Vec<InjectedFault>);

#[derive(Debug)]
struct InjectedFault {
    step: Step,
    /// The count of passes through the step at which the fault is injected.
    nth: usize,
    /// Counts over all groups of the process.
    reached: AtomicUsize,
    what: FaultKind,
}

impl InjectedFaults {
    /// Reads `EARLYBIRD_FAULT`; `None` where it names another rank or is not set.
    pub fn from_env(rank: usize) -> Result<Option<InjectedFaults>, Error> {
        let Ok(text) = std::env::var("EARLYBIRD_FAULT") else { return Ok(None) };
        let faults = text.split(',').map(InjectedFault::parse).collect::<Result<Vec<_>, _>>()?;
        let faults: Vec<InjectedFault> =
            faults.into_iter().filter(|(victim, _)| *victim == rank).map(|(_, fault)| fault).collect();
        Ok((!faults.is_empty()).then_some(InjectedFaults(faults)))
    }

    /// Acts if this is the place.
    pub fn reached(&self, step: Step) {
        self.0.iter().filter(|fault| fault.step == step).for_each(InjectedFault::reached);
    }
}

/// Acts if this step of joining is the place: `n` is the number of the joining, over all groups of the process, whose rank is
/// that in the first.
pub(crate) fn reached_in_joining(rank: usize, step: &str) {
    static FAULT: OnceLock<Option<InjectedFaults>> = OnceLock::new();
    static JOININGS: AtomicUsize = AtomicUsize::new(0);
    let begins = step == Step::Joining.name();
    let number = JOININGS.fetch_add(begins.into(), Relaxed) + usize::from(begins);
    let fault = FAULT.get_or_init(|| InjectedFaults::from_env(rank).unwrap_or_else(|error| panic!("{error}")));
    let here = |fault: &&InjectedFault| fault.step.name() == step && fault.nth == number;
    fault.iter().flat_map(|fault| &fault.0).filter(here).for_each(InjectedFault::inject);
}

impl InjectedFault {
    fn parse(text: &str) -> Result<(usize, InjectedFault), Error> {
        let bad = || {
            Error::usage(format!(
                "EARLYBIRD_FAULT={text:?}: expected rank:step:n:kill|stop|exit|exec|panic|close|files"
            ))
        };
        let [victim, step, nth, what] = text.split(':').collect::<Vec<_>>()[..] else { return Err(bad()) };
        let fault = InjectedFault {
            step: step.parse()?,
            nth: nth.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?,
            reached: AtomicUsize::new(0),
            what: what.parse().map_err(|_| bad())?,
        };
        Ok((victim.parse::<usize>().map_err(|_| bad())?, fault))
    }

    fn reached(&self) {
        if self.reached.fetch_add(1, Relaxed) + 1 == self.nth {
            self.inject();
        }
    }

    fn inject(&self) {
        match self.what {
            FaultKind::Kill => drop(kill_process(getpid(), Signal::KILL)),
            // To this thread: one sent to the process may first stop another, while this one goes on past the step.
            // SAFETY: a system call that touches no memory of ours.
            FaultKind::Stop => drop(unsafe { libc::raise(libc::SIGSTOP) }),
            FaultKind::Exit => std::process::exit(0),
            FaultKind::Panic => panic!("a panic inside a call, on purpose"),
            FaultKind::Exec => {
                let error = std::process::Command::new("sleep").arg("2").exec();
                panic!("exec of sleep failed: {error}");
            }
            FaultKind::Close => close_descriptors(),
            FaultKind::Files => {
                let maximum = getrlimit(Resource::Nofile).maximum;
                setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum }).expect("a limit may be lowered");
            }
        }
    }
}

/// Closes what others opened, as daemons do, and lets a file take the numbers.
fn close_descriptors() {
    // SAFETY: a system call that touches no memory; later uses of the closed descriptors return errors, which is the fault.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    for _ in 0..64 {
        let file = std::fs::File::open("/proc/self/exe");
        drop(file.map(IntoRawFd::into_raw_fd));
    }
}
