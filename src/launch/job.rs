//! A job and how it starts: one process per rank, through the wrapper, and then supervision until the last one has ended.

use super::rendezvous::{self, LauncherRendezvous};
use super::{MAX_RANKS, Outcome, Wrapper, exec, prefix, supervise, watchdog};
use crate::{Error, RanksPerNode};
use rustix::process::{Pid, PidfdFlags, Resource, getpid, getrlimit, pidfd_open, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// The binding of ranks to processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Bind {
    /// Rank r on the (r mod n)th of the n processors that the launcher is allowed to use.
    #[default]
    Core,
    /// Wherever the launcher may.
    None,
}

impl Bind {
    /// The processor of a rank whose launcher may use these; none where it is not bound.
    pub fn cpu(self, rank: usize, allowed: &[usize]) -> Option<usize> {
        match self {
            Bind::Core => allowed.get(rank % allowed.len().max(1)).copied(),
            Bind::None => None,
        }
    }
}

/// A job: one program, started once per rank.
#[derive(Debug, Clone)]
pub struct Job {
    /// The beginning of the launcher's messages, for example `earlybird run`.
    pub name: String,
    /// Number of ranks, 1 to [`MAX_RANKS`].
    pub ranks: usize,
    /// The program that every rank executes, looked up in `PATH` as a shell does.
    pub program: OsString,
    /// The arguments of the program.
    pub args: Vec<OsString>,
    /// The program whose hidden command `__exec` becomes the rank.
    pub wrapper: Wrapper,
    /// The binding of ranks to processors.
    pub bind: Bind,
    /// Ends the job after this long; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// Time that the other ranks get after the first failure, to print their messages.
    pub grace: Duration,
    /// Marks every line that a rank writes with its number.
    pub prefix: bool,
    /// A rank whose death by SIGKILL is no failure of the job: the others go on without it.
    pub expendable: Option<usize>,
    /// Virtual nodes; the ranks find them in `EARLYBIRD_RANKS_PER_NODE`.
    pub nodes: Option<RanksPerNode>,
}

impl Job {
    /// A job with the defaults of `earlybird run`: bound, no timeout, 5 s of grace, no marks. `binary` is the `earlybird` binary.
    pub fn new(name: &str, binary: PathBuf, ranks: usize, program: OsString, args: Vec<OsString>) -> Job {
        let grace = Duration::from_secs(5);
        let (name, wrapper, bind, timeout) = (name.into(), Wrapper::new(binary, Vec::new()), Bind::Core, None);
        Job { name, ranks, program, args, wrapper, bind, timeout, grace, prefix: false, expendable: None, nodes: None }
    }

    /// Starts all ranks and returns when the last one is gone. Takes over the handling of SIGINT, SIGTERM and SIGHUP
    /// of this process.
    ///
    /// Rank 0 inherits standard input, the others read from /dev/null. Whatever a rank leaves behind in its process
    /// group is killed once the rank has ended.
    ///
    /// # Errors
    /// [`Error::Usage`] for a number of ranks out of range, [`Error::System`] when a rank cannot be started (those
    /// already started are killed).
    pub fn run(&self) -> Result<Outcome, Error> {
        if !(1..=MAX_RANKS).contains(&self.ranks) {
            return Err(Error::usage(format!("{} ranks were asked for; use 1 to {MAX_RANKS}", self.ranks)));
        }
        allow_descriptors(3 * self.ranks as u64 + 64);
        let signals = supervise::Signals::listen()?;
        let cpus = match self.bind {
            Bind::Core => allowed_cpus()?,
            Bind::None => Vec::new(),
        };
        let key = random_key()?;
        let rendezvous = LauncherRendezvous::new(&key);
        let mut ranks = supervise::Ranks::new(watchdog::Watchdog::start(&self.wrapper)?);
        let mut readers = prefix::Readers::default();
        for rank in 0..self.ranks {
            let mut rank_process = self.start(rank, self.bind.cpu(rank, &cpus), ranks.watchdog_path(), &key)?;
            if self.prefix {
                readers.add(rank, &mut rank_process.child);
            }
            ranks.push(rank_process);
        }
        let limits = supervise::Limits {
            name: &self.name,
            timeout: self.timeout,
            grace: self.grace,
            expendable: self.expendable,
        };
        let outcome = supervise::until_all_ended(&limits, &mut ranks, &signals, &rendezvous);
        drop(ranks);
        readers.finish();
        rendezvous::sweep();
        outcome
    }

    fn start(
        &self,
        rank: usize,
        cpu: Option<usize>,
        watchdog: Option<String>,
        key: &str,
    ) -> Result<supervise::Rank, Error> {
        // A group of its own lets us end what the rank started, and keeps the terminal's ctrl-C from reaching the
        // ranks beside the signal that we pass on. Only a member of the terminal's foreground group may read from it.
        let own_group = rank != 0 || !std::io::stdin().is_terminal();
        let mut command = self.wrapper.command(exec::COMMAND);
        command
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(cpu.map_or("-".into(), |cpu| cpu.to_string()))
            .arg(watchdog.filter(|_| own_group).unwrap_or("-".into()))
            .arg(&self.program)
            .args(&self.args)
            .env("EARLYBIRD_RANK", rank.to_string())
            .env("EARLYBIRD_SIZE", self.ranks.to_string())
            .env("EARLYBIRD_JOB", key)
            .env("EARLYBIRD_LAUNCHER", key);
        if let Some(nodes) = &self.nodes {
            command.env("EARLYBIRD_RANKS_PER_NODE", nodes.to_string());
        }
        if own_group {
            command.process_group(0);
        }
        if rank != 0 {
            command.stdin(Stdio::null());
        }
        if self.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = command
            .spawn()
            .map_err(|error| Error::system(format!("start rank {rank} through {}", self.wrapper), error))?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => Ok(supervise::Rank { rank, child, pidfd, own_group, status: None }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::system(format!("watch rank {rank} (pidfd_open, Linux 5.3 or newer)"), error))
            }
        }
    }
}

/// The processors that this process may run on, ascending.
///
/// # Errors
/// [`Error::System`] if the affinity cannot be read.
pub fn allowed_cpus() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None).map_err(|error| Error::system("read the allowed processors", error))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Raises the soft limit on open files towards `count`, as far as the hard limit allows: every rank needs a process
/// descriptor and, marked, two pipes. Where that is not enough, starting a rank says so.
fn allow_descriptors(count: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < count) {
        limit.current = Some(limit.maximum.map_or(count, |hard| hard.min(count)));
        // A refusal changes nothing.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// 128 random bits in hexadecimal: the name under which the ranks of one job meet.
fn random_key() -> Result<String, Error> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Error::system("read /dev/urandom", error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
