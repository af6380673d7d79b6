//! InjectedFault injection for tests (feature `fault`): a rank dies, stops or panics at a named protocol step.
//!
//! `EARLYBIRD_FAULT=rank:step:n:what`, with `what` one of `kill`, `stop`, `exit`, `exec`, `panic`: when `rank` reaches `step`
//! for the n-th time. Not compiled into anything that ships.
#![allow(unsafe_code)]

use crate::Error;
use crate::protocol::step::Step;
use rustix::process::{Signal, getpid, kill_process};
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Debug, Clone, Copy)]
enum FaultKind {
    Kill,
    Stop,
    Exit,
    Exec,
    Panic,
}

/// The fault to inject in this rank, and its step.
#[derive(Debug)]
pub struct InjectedFault {
    step: Step,
    /// Counts over all groups of the process.
    countdown: AtomicUsize,
    what: FaultKind,
}

impl InjectedFault {
    /// Reads `EARLYBIRD_FAULT`; `None` where it names another rank or is not set.
    pub fn from_env(rank: usize) -> Result<Option<InjectedFault>, Error> {
        let Ok(text) = std::env::var("EARLYBIRD_FAULT") else { return Ok(None) };
        let bad = || Error::usage(format!("EARLYBIRD_FAULT={text:?}: expected rank:step:n:kill|stop|exit|exec|panic"));
        let [who, step, nth, what] = text.split(':').collect::<Vec<_>>()[..] else { return Err(bad()) };
        let fault = InjectedFault {
            step: step.parse()?,
            countdown: AtomicUsize::new(nth.parse().ok().filter(|n| *n > 0).ok_or_else(bad)?),
            what: match what {
                "kill" => FaultKind::Kill,
                "stop" => FaultKind::Stop,
                "exit" => FaultKind::Exit,
                "exec" => FaultKind::Exec,
                "panic" => FaultKind::Panic,
                _ => return Err(bad()),
            },
        };
        Ok((who.parse::<usize>().map_err(|_| bad())? == rank).then_some(fault))
    }

    /// Acts if this is the place.
    pub fn reached(&self, step: Step) {
        if step != self.step {
            return;
        }
        // wraps beyond zero once the fault has struck, and is not met again
        if self.countdown.fetch_sub(1, Relaxed) != 1 {
            return;
        }
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
        }
    }
}
