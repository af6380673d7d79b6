//! One run: starts the ranks, does violence to them, waits for their ends.

use crate::draw::Scenario;
use crate::judge::{self, Outcome};
use crate::kinds::{Act, Expect, Load};
use crate::said::{Said, now};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A run to make.
pub struct Job<'a> {
    pub scenario: &'a Scenario,
    /// The text for [`crate::select::Selection::of`].
    pub only: &'a str,
    /// The mistake that ranks make on purpose, to test the checker.
    pub sabotage: Option<&'a str>,
    /// The time after the violence that a rank may live without a result.
    pub hang: Duration,
}

/// A started rank.
pub struct Rank {
    child: Child,
    /// True if it has ended; its number is its own until it is waited for.
    pub is_over: bool,
    pub ended: Option<ExitStatus>,
    pub said: Said,
    pub log: PathBuf,
}

impl Rank {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        if !self.is_over {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    fn look(&mut self) {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        self.said.listen();
        self.is_over |= waitid(WaitId::Pid(Pid::from_child(&self.child)), how).unwrap().is_some();
    }

    /// Ends what is left of the rank and of its process group; whether the rank had ended and others of its group had not.
    fn end(&mut self) -> bool {
        let (group, was_over) = (Pid::from_child(&self.child), self.is_over);
        if self.ended.is_some() {
            return false;
        }
        if was_over {
            self.ended = self.child.wait().ok();
        }
        let lingers = kill_process_group(group, Signal::KILL).is_ok() && was_over;
        self.ended = self.ended.or_else(|| self.child.wait().ok());
        self.said.listen();
        lingers
    }
}

/// A run under way; dropping it ends its processes and removes its files.
pub struct Running<'a> {
    pub job: &'a Job<'a>,
    pub ranks: Vec<Rank>,
    pub dir: PathBuf,
    began: u64,
    /// When the violence was done.
    pub acted: Option<u64>,
    /// When the stopped ranks could go on.
    pub continued: Option<u64>,
    ballast: Option<Ballast>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.stop();
        self.ballast = None;
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl<'a> Job<'a> {
    pub fn run(&'a self) -> Outcome {
        let mut running = self.start();
        let hung = running.wait();
        let states = hung.then(|| judge::states(&running));
        let lingering = running.stop();
        judge::judge(&running, states, lingering)
    }

    fn start(&'a self) -> Running<'a> {
        let scenario = self.scenario;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("eb-chaos-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("meet")).unwrap();
        std::fs::set_permissions(dir.join("meet"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let ballast = Ballast::of(scenario, &dir.join("meet"));
        let (ranks, acted, continued) = (Vec::new(), None, None);
        let mut running = Running { job: self, ranks, dir, began: now(), acted, continued, ballast };
        for rank in 0..scenario.ranks {
            let started = running.start_rank(rank);
            running.ranks.push(started);
        }
        running
    }
}

impl Running<'_> {
    fn start_rank(&self, rank: usize) -> Rank {
        let scenario = self.job.scenario;
        let path = |what: &str| self.dir.join(format!("{what}-{rank}"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ours = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("EARLYBIRD_");
        std::env::vars_os().filter(|(name, _)| ours(name)).for_each(|(name, _)| {
            command.env_remove(name);
        });
        command
            .args(["--exact", "rank", "--ignored", "--nocapture", "--test-threads=1", "--quiet"])
            .env("EARLYBIRD_RANK", rank.to_string())
            .env("EARLYBIRD_SIZE", scenario.ranks.to_string())
            .env("EARLYBIRD_JOB", self.dir.file_name().unwrap())
            .env("EARLYBIRD_DIR", self.dir.join("meet"))
            .envs(scenario.vars.iter().map(|(name, value)| (name, value)))
            .env("CHAOS_SEED", scenario.seed.to_string())
            .env("CHAOS_ONLY", self.job.only)
            .env("CHAOS_DRIVER", std::process::id().to_string())
            .env("CHAOS_OVER", self.dir.join("over"))
            .stdin(Stdio::null())
            .stdout(File::create(path("said")).unwrap())
            .stderr(File::create(path("log")).unwrap())
            .process_group(0);
        if let Some(what) = self.job.sabotage {
            command.env("CHAOS_SABOTAGE", what);
        }
        let said = Said::of(File::open(path("said")).unwrap());
        Rank { child: command.spawn().unwrap(), is_over: false, ended: None, said, log: path("log") }
    }

    /// The victims that do not come back.
    pub fn killed(&self) -> &[usize] {
        let Scenario { kind, victims, .. } = self.job.scenario;
        match (kind.expect, kind.act) {
            (Expect::Death, Act::StopOneKillOthers) => &victims[1..],
            (Expect::Death, _) => victims,
            _ => &[],
        }
    }

    pub fn stopped(&self) -> &[usize] {
        let Scenario { kind, victims, .. } = self.job.scenario;
        match kind.act {
            Act::Stop => victims,
            Act::StopOneKillOthers => &victims[..1],
            _ => &[],
        }
    }

    /// Waits until all ranks have ended that must; whether that took too long.
    fn wait(&mut self) -> bool {
        let mut joined = None;
        loop {
            self.ranks.iter_mut().for_each(Rank::look);
            if joined.is_none() && self.ranks.iter().all(|rank| rank.said.joined) {
                joined = Some(now());
            }
            self.act(joined);
            let killed = self.killed();
            if (0..self.ranks.len()).all(|rank| self.ranks[rank].is_over || killed.contains(&rank)) {
                return false;
            }
            // A run without violence may take its time: two cores, a million elements, eight ranks.
            let mut limit = self.job.hang.as_nanos() as u64;
            if self.job.sabotage.is_none() && self.job.scenario.kind.expect == Expect::Success {
                limit *= 8;
            }
            if now() > self.continued.or(self.acted).unwrap_or(self.began) + limit {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Does what is due.
    fn act(&mut self, joined: Option<u64>) {
        let scenario = self.job.scenario;
        if self.acted.is_none() {
            let from = if scenario.kind.load == Load::Joining { Some(self.began) } else { joined };
            let is_due = from.is_some_and(|from| now() >= from + 1000 * scenario.moment_us);
            match scenario.kind.act {
                Act::Kill | Act::Stop | Act::StopOneKillOthers if is_due => {
                    self.stopped().iter().for_each(|victim| self.ranks[*victim].signal(Signal::STOP));
                    self.acted = Some(now());
                    self.killed().iter().for_each(|victim| self.ranks[*victim].signal(Signal::KILL));
                }
                Act::Kill | Act::Stop | Act::StopOneKillOthers => {}
                Act::Exit | Act::Exec | Act::CloseRange | Act::Reopen => self.acted = self.acted_themselves(),
                Act::Fork | Act::ForkThenKill | Act::ForkThenDrop => self.acted = self.acted_themselves(),
                _ => self.acted = joined,
            }
        }
        let Some(acted) = self.acted else { return };
        if self.continued.is_none()
            && now() >= acted + 1_000_000 * scenario.pause_ms * u64::from(!self.stopped().is_empty())
        {
            self.continued = Some(now());
            self.stopped().iter().for_each(|victim| self.ranks[*victim].signal(Signal::CONT));
            std::fs::write(self.dir.join("over"), "").unwrap();
        }
    }

    fn acted_themselves(&self) -> Option<u64> {
        self.job.scenario.victims.iter().filter_map(|victim| self.ranks[*victim].said.acted).max()
    }

    /// Ends everything; the ranks whose process group still had living processes where there should be none.
    fn stop(&mut self) -> Vec<usize> {
        let forks = matches!(self.job.scenario.kind.act, Act::Fork | Act::ForkThenKill | Act::ForkThenDrop);
        let lingering: Vec<usize> = (0..self.ranks.len()).filter(|rank| self.ranks[*rank].end()).collect();
        if forks { Vec::new() } else { lingering }
    }
}

/// File systems without room, in the mount namespace that `tests/long/chaos` makes; given back when dropped.
struct Ballast {
    undo: Vec<String>,
}

impl Ballast {
    fn of(scenario: &Scenario, meet: &Path) -> Option<Ballast> {
        let dose = scenario.dose;
        let meet = meet.display().to_string();
        let (make, undo) = match scenario.kind.act {
            Act::FullDirectory => (
                format!(
                    "mount -t tmpfs -o mode=700,size={}k,nr_inodes={} tmpfs {meet}",
                    4 * (1 + dose % 4),
                    1 + dose / 4 % 6
                ),
                format!("umount -l {meet}"),
            ),
            Act::FullShm => (
                format!("mount -t tmpfs -o size={}k tmpfs /dev/shm", 4 + 64 * (dose % 8)),
                "umount -l /dev/shm".to_owned(),
            ),
            _ => return None,
        };
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(std::env::var_os("CHAOS_OWN_MOUNTS").is_some(), "{make}: only in a mount namespace of its own");
        assert!(is_done(&words(&make)), "{make}");
        Some(Ballast { undo: words(&undo) })
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        is_done(&self.undo);
    }
}

fn is_done(words: &[String]) -> bool {
    Command::new(&words[0]).args(&words[1..]).status().is_ok_and(|status| status.success())
}
