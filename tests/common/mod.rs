//! Jobs of real processes for the tests: a test starts its own binary again, once per rank, with a role to play.
//!
//! A watchdog ends a job that hangs and fails its test with everything the ranks printed. Ranks are tied to the test
//! that started them, live in process groups of their own and are killed with them, so no test leaves a process, and
//! every job meets in a directory of its own, so no test leaves a file.
#![allow(dead_code)]

pub mod data;
pub mod flags;
pub mod matrix;
pub mod messages;
mod scratch;
pub mod victims;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
    waitid,
};
use scratch::Scratch;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

const ROLE: &str = "TEST_ROLE";
const ARGS: &str = "TEST_ARGS";
const SAID: &str = "TEST_SAID";
const PARENT: &str = "TEST_PARENT";

/// How a job hangs: generous, since it only turns a hang into a failure.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A part for a rank to play.
pub type Role = (&'static str, fn(&Player));

/// What a rank knows of its role.
pub struct Player {
    args: Vec<String>,
    said: PathBuf,
}

impl Player {
    /// Argument `i` of the job.
    pub fn arg<T: FromStr>(&self, i: usize) -> T {
        let text = self.args.get(i).unwrap_or_else(|| panic!("argument {i} of {:?}", self.args));
        text.parse().unwrap_or_else(|_| panic!("argument {i} of {:?} is of another type", self.args))
    }

    /// All arguments.
    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// Tells the test something, at once and as one line.
    pub fn say(&self, line: impl std::fmt::Display) {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&self.said).unwrap();
        file.write_all(format!("{}\n", line.to_string().replace('\n', " ")).as_bytes()).unwrap();
    }
}

/// A well-mixed number from a seed (splitmix64).
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Comes late to a step by a random time below `most_us`, on one rank of three.
pub fn dawdle(rank: usize, step: u64, most_us: u64) {
    if mix(step * 64 + rank as u64).is_multiple_of(3) {
        std::thread::sleep(Duration::from_micros(mix(step * 97 + rank as u64) % most_us));
    }
}

/// Called by the `#[ignore]`d test `rank` of every file with roles: plays the role this process was started for.
pub fn play(roles: &[Role]) {
    let Ok(role) = std::env::var(ROLE) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let parent = std::env::var(PARENT).unwrap();
    assert_eq!(getppid().map(|p| p.as_raw_nonzero().to_string()), Some(parent), "the test is gone");
    let args = std::env::var(ARGS).unwrap();
    let player = Player {
        args: args.split('\u{1f}').filter(|a| !a.is_empty()).map(str::to_owned).collect(),
        said: std::env::var_os(SAID).unwrap().into(),
    };
    let (_, play) = roles.iter().find(|(name, _)| *name == role).unwrap_or_else(|| panic!("no role {role}"));
    play(&player);
}

/// The test `rank` of the module in a file of a test program, or of the program where it is one file.
fn rank_test(file: &str) -> String {
    let file = Path::new(file);
    match (file.parent().and_then(Path::file_name), file.file_stem().and_then(OsStr::to_str)) {
        (Some(folder), Some(module)) if folder != "tests" => format!("{module}::rank"),
        _ => "rank".into(),
    }
}

/// A job to start.
pub struct Job {
    /// The test that plays a rank.
    rank_test: String,
    role: &'static str,
    ranks: usize,
    args: Vec<String>,
    vars: Vec<(String, String)>,
    /// Those of one rank.
    own_vars: Vec<(usize, String, String)>,
    watchdog: Duration,
}

impl Job {
    /// A job of so many ranks that play a role of the file in which this is called.
    #[track_caller]
    pub fn new(role: &'static str, ranks: usize) -> Job {
        let rank_test = rank_test(Location::caller().file());
        Job { rank_test, role, ranks, args: Vec::new(), vars: Vec::new(), own_vars: Vec::new(), watchdog: WATCHDOG }
    }

    pub fn arg(mut self, arg: impl ToString) -> Job {
        self.args.push(arg.to_string());
        self
    }

    pub fn var(mut self, name: &str, value: impl ToString) -> Job {
        self.vars.push((name.to_owned(), value.to_string()));
        self
    }

    /// A variable of one rank.
    pub fn var_of(mut self, rank: usize, name: &str, value: impl ToString) -> Job {
        self.own_vars.push((rank, name.to_owned(), value.to_string()));
        self
    }

    pub fn watchdog(mut self, limit: Duration) -> Job {
        self.watchdog = limit;
        self
    }

    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Starts every rank.
    pub fn start(self) -> Running {
        let scratch = Scratch::new();
        let mut running = Running { ranks: Vec::new(), scratch, began: Instant::now(), watchdog: self.watchdog };
        for rank in 0..self.ranks {
            let log = std::fs::File::create(running.scratch.log(rank)).unwrap();
            let mut command = Command::new(std::env::current_exe().unwrap());
            for (name, _) in std::env::vars_os() {
                if name.to_string_lossy().starts_with("EARLYBIRD_") {
                    command.env_remove(name);
                }
            }
            command
                .args(["--exact", &self.rank_test, "--ignored", "--nocapture", "--test-threads=1", "--quiet"])
                .env("EARLYBIRD_RANK", rank.to_string())
                .env("EARLYBIRD_SIZE", self.ranks.to_string())
                .env("EARLYBIRD_JOB", running.scratch.key())
                .env("EARLYBIRD_DIR", running.scratch.meet())
                .env(ROLE, self.role)
                .env(ARGS, self.args.join("\u{1f}"))
                .env(SAID, running.scratch.said(rank))
                .env(PARENT, std::process::id().to_string())
                .envs(self.vars.iter().map(|(n, v)| (n, v)))
                .envs(self.own_vars.iter().filter(|(of, ..)| *of == rank).map(|(_, n, v)| (n, v)))
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .process_group(0);
            running.ranks.push(Process { child: command.spawn().unwrap(), ended: None });
        }
        running
    }

    /// Runs the job; every rank must end well. What each said.
    pub fn run(self) -> Vec<Vec<String>> {
        let running = self.start();
        let ends = running.join();
        let bad = ends.iter().any(|end| !end.status.success());
        assert!(!bad, "a rank failed\n{}", ends.iter().map(End::to_string).collect::<String>());
        ends.into_iter().map(|end| end.said).collect()
    }
}

struct Process {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it has ended; what it left in its group is killed before its id can be given to somebody else.
    fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            if waitid(WaitId::Pid(self.pid()), look).unwrap().is_some() {
                self.end();
            }
        }
        self.ended.is_some()
    }

    /// Returns whether it runs another program now.
    fn is_another_program(&self) -> bool {
        let program = std::fs::read_link(format!("/proc/{}/exe", self.child.id()));
        program.is_ok_and(|program| program != std::env::current_exe().unwrap())
    }

    fn end(&mut self) {
        if self.ended.is_none() {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            self.ended = Some(self.child.wait().unwrap());
        }
    }
}

/// How a rank ended.
#[derive(Debug)]
pub struct End {
    pub rank: usize,
    pub pid: u32,
    pub status: ExitStatus,
    pub said: Vec<String>,
    pub log: String,
}

impl End {
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(Signal::KILL.as_raw())
    }

    /// What follows `key` and a blank on the first line that begins with it.
    pub fn heard(&self, key: &str) -> Option<&str> {
        self.said.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "rank {} {}: said {:?}, printed:\n{}", self.rank, self.status, self.said, self.log)
    }
}

/// A job under way. Dropping it kills what is left of it.
pub struct Running {
    ranks: Vec<Process>,
    scratch: Scratch,
    began: Instant,
    watchdog: Duration,
}

impl Running {
    pub fn pid(&self, rank: usize) -> u32 {
        self.ranks[rank].child.id()
    }

    /// Sends a signal to a rank that has not been waited for.
    pub fn signal(&self, rank: usize, signal: Signal) {
        assert!(self.ranks[rank].ended.is_none(), "rank {rank} has ended");
        kill_process(self.ranks[rank].pid(), signal).unwrap();
    }

    /// Waits until `rank` has said a line that begins with `text`.
    pub fn wait_for(&mut self, rank: usize, text: &str) {
        self.wait_until(&format!("word of rank {rank}: {text}"), |job| {
            let heard = job.scratch.lines(rank).iter().any(|line| line.starts_with(text));
            assert!(heard || !job.ranks[rank].has_ended(), "rank {rank} ended without saying {text:?}\n{}", job.tell());
            heard
        });
    }

    /// Waits until the system shows `rank` as stopped.
    pub fn wait_stopped(&mut self, rank: usize) {
        let path = format!("/proc/{}/stat", self.pid(rank));
        self.wait_until(&format!("stop of rank {rank}"), |_| {
            let stat = std::fs::read_to_string(&path).unwrap();
            stat[stat.rfind(')').unwrap()..].starts_with(") T")
        });
    }

    /// Waits until a rank waits for others where they meet.
    pub fn wait_meeting(&mut self) {
        self.wait_until("meeting", |job| {
            let entries = std::fs::read_dir(job.scratch.meet());
            entries.is_ok_and(|mut entries| entries.next().is_some())
        });
    }

    /// Makes the file beside the meeting directory that ranks wait for under this name.
    pub fn raise(&self, flag: &str) {
        std::fs::write(self.scratch.meet().with_extension(flag), "").unwrap();
    }

    /// Waits until these ranks have ended.
    pub fn wait_ended(&mut self, ranks: &[usize]) {
        self.wait_for_each(ranks, Process::has_ended);
    }

    /// Waits until these ranks are `over`.
    fn wait_for_each(&mut self, ranks: &[usize], over: impl Fn(&mut Process) -> bool) {
        self.wait_until(&format!("end of ranks {ranks:?}"), |job| {
            // Each is asked, so that none stays a zombie while another is waited for.
            ranks.iter().filter(|r| !over(&mut job.ranks[**r])).count() == 0
        });
    }

    /// Waits until every rank has ended or become another program, ends these, and checks that the job left nothing behind.
    pub fn join(mut self) -> Vec<End> {
        let all = Vec::from_iter(0..self.ranks.len());
        self.wait_for_each(&all, |rank| rank.has_ended() || rank.is_another_program());
        let ends = self.ends();
        self.scratch.must_be_clean();
        ends
    }

    /// Kills every rank at once; `swept` says that some may still have been meeting, whose names the next job removes.
    pub fn kill_all(mut self, swept: bool) {
        for process in &self.ranks {
            if process.ended.is_none() {
                let _ = kill_process(process.pid(), Signal::KILL);
            }
        }
        self.wait_ended(&(0..self.ranks.len()).collect::<Vec<_>>());
        if swept {
            earlybird_shm::memory::sweep(Some(&self.scratch.meet())).unwrap();
        }
        self.scratch.must_be_clean();
    }

    fn wait_until(&mut self, what: &str, mut happened: impl FnMut(&mut Running) -> bool) {
        while !happened(self) {
            if self.began.elapsed() > self.watchdog {
                let states = self.tell();
                panic!("no {what} within {:?}: the job hangs\n{states}", self.watchdog);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ends(&mut self) -> Vec<End> {
        let ranks = self.ranks.iter_mut().enumerate();
        ranks
            .map(|(rank, process)| {
                process.end();
                let (pid, status) = (process.child.id(), process.ended.unwrap());
                let log = std::fs::read_to_string(self.scratch.log(rank)).unwrap_or_default();
                End { rank, pid, status, said: self.scratch.lines(rank), log }
            })
            .collect()
    }

    /// Ends the job and tells all about it.
    fn tell(&mut self) -> String {
        let alive: Vec<usize> = (0..self.ranks.len()).filter(|r| !self.ranks[*r].has_ended()).collect();
        let ends = self.ends();
        format!("alive until now: {alive:?}\n{}", ends.iter().map(End::to_string).collect::<String>())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ranks.iter_mut().for_each(Process::end);
    }
}

/// Runs `role`, in which rank 1 gives rank 2 five elements where that expects four, on one node and on several: all say so.
#[track_caller]
pub fn all_tell_that_counts_differ(role: &'static str) {
    for (ranks, nodes) in [(3, "3"), (3, "1"), (5, "2"), (4, "1,3")] {
        let said = Job::new(role, ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| *lines == said[0]), "{said:?}");
        let text = &said[0][0];
        assert!(text.starts_with("EB_MISMATCH") && text.contains("gives 5 elements to rank 2"), "{text}");
        assert!(text.contains("expects 4 elements of rank 1"), "{text}");
    }
}

/// Kills rank 1 of a job of three when all have said "once": the others say which error they got and end well.
pub fn survivors_tell_of_a_death(job: Job) {
    let mut job = job.start();
    for rank in 0..3 {
        job.wait_for(rank, "once");
    }
    job.signal(1, Signal::KILL);
    for end in job.join() {
        assert!(end.was_killed() == (end.rank == 1), "{end}");
        assert!(end.rank == 1 || end.said == ["once", "EB_PEER_DIED"], "{end}");
    }
}

/// Runs a job in which one rank makes another call than the others: every rank's last word is the same, and begins so.
pub fn all_tell_of_different_calls(job: Job, begins: &str) {
    let (ranks, args) = (job.ranks, job.args.join(", "));
    let ends = job.start().join();
    let told: Vec<&str> = ends.iter().filter_map(|end| end.said.last()).map(String::as_str).collect();
    let one = told.len() == ranks && told.iter().all(|line| *line == told[0]);
    assert!(one && told[0].starts_with(begins), "{args}: {ends:#?}");
}

/// Runs `role` on four ranks of three nodes for each case: a rank, a count, and whether there is a deadline. The rank says
/// "here" and makes no more calls; it is killed, after the others have ended where there is a deadline. They all say the
/// same: a line that names the rank, one for the next call, and what is in `more`.
#[track_caller]
pub fn deaths_and_deadlines_are_everybodys(role: &'static str, cases: &[(usize, usize, bool)], more: &[&str]) {
    for &(who, count, deadline) in cases {
        let job = Job::new(role, 4).arg(who).arg(count).var("EARLYBIRD_RANKS_PER_NODE", "2,1,1");
        let mut job = if deadline { job.var("EARLYBIRD_TIMEOUT", "0.5") } else { job }.start();
        job.wait_for(who, "here");
        if deadline {
            job.wait_ended(&(0..4).filter(|rank| *rank != who).collect::<Vec<_>>());
        }
        job.signal(who, Signal::KILL);
        let ends = job.join();
        let told: Vec<_> = ends.iter().filter(|end| end.rank != who).map(|end| &end.said).collect();
        let expected = match deadline {
            true => format!("EB_TIMEOUT after 500ms rank(s) [{who}]"),
            false => format!("EB_PEER_DIED rank {who} (pid "),
        };
        assert!(told.iter().all(|said| said.len() == 2 + more.len() && *said == told[0]), "{ends:#?}");
        assert!(told[0][0].starts_with(&expected) && told[0][2..] == *more, "{told:?}");
    }
}
