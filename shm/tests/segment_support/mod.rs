//! Ranks as real processes: the test binary runs itself again, and the parent tells each child line by line what to do.
//!
//! Every child has a watchdog, so a hang ends as a failed test and never as a hung one, and is killed and reaped when
//! its handle is dropped.
#![allow(unsafe_code, dead_code)]

mod commands;

pub use commands::serve_as_rank;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use earlybird_shm::memory::AttachOptions;
use rustix::process::{Pid, Signal, kill_process};

const ROLE: &str = "EARLYBIRD_TEST_RANK";
const WATCHDOG: Duration = Duration::from_secs(60);
pub const REGION: usize = 1 << 20;

/// A directory of one test that goes away with it.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("ebtest-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new("/dev/shm").join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub fn meet(&self) -> PathBuf {
        self.0.join("meet")
    }

    pub fn files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.meet()) else { return Vec::new() };
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = earlybird_shm::memory::sweep(Some(&self.meet()));
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Groups of one name in different directories do not mix.
pub fn options(dir: &Path, key: &str, rank: usize, size: usize) -> AttachOptions {
    AttachOptions {
        rank,
        size,
        key: format!("{key} {}", dir.display()),
        dir: Some(dir.into()),
        region_bytes: REGION,
        policy: core::array::from_fn(|i| rank.wrapping_mul(100).wrapping_add(i) as u64),
        ..AttachOptions::default()
    }
}

/// A child process that will be rank `rank`.
pub struct Rank {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    watchdog: Option<(mpsc::Sender<()>, std::thread::JoinHandle<()>)>,
}

impl Rank {
    /// Starts the process; it waits for its first command.
    pub fn spawn(dir: &Path, key: &str, rank: usize, size: usize) -> Rank {
        Rank::spawn_by(Command::new(std::env::current_exe().unwrap()), dir, key, rank, size)
    }

    pub fn spawn_by(mut command: Command, dir: &Path, key: &str, rank: usize, size: usize) -> Rank {
        let mut child = command
            .args(["--exact", "rank_process", "--nocapture", "--quiet", "--test-threads=1"])
            .env(ROLE, format!("{key} {rank} {size} {}", dir.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let pid = child.id();
        let (cancel, cancelled) = mpsc::channel();
        let guard = std::thread::spawn(move || {
            if cancelled.recv_timeout(WATCHDOG) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("watchdog: killing rank process {pid}");
                signal(pid, Signal::KILL);
            }
        });
        Rank { child, input, output, watchdog: Some((cancel, guard)) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// The next answer; empty when the process is gone.
    pub fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return String::new();
            }
            // the test harness of the child talks too
            if let Some(at) = line.find("> ") {
                return line[at + 2..].trim_end().to_owned();
            }
        }
    }

    pub fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Kills without reaping: the process stays a zombie until the handle is dropped.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits until the process has its lock as `rank` on some file, that is, until it has claimed its place.
    pub fn wait_claimed(&self, rank: usize) {
        let wanted = format!(" {} ", self.pid());
        wait_until("the claim of a rank", || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains(&wanted) && line.ends_with(&format!(" {rank} {rank}")))
        });
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if let Some((cancel, guard)) = self.watchdog.take() {
            drop(cancel);
            let _ = guard.join();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(pid: u32, which: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), which);
}

/// Holds a process as a debugger does while `look` runs; false where this user may not.
pub fn while_traced(pid: u32, look: impl FnOnce()) -> bool {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests take no memory of ours; at worst they fail.
    let attached = unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid as libc::pid_t, none, none) };
    if attached != 0 {
        return false;
    }
    look();
    // SAFETY: as above.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid as libc::pid_t, none, none) };
    true
}

/// Lets a rank call `_exit` and holds the calling thread in it, with its memory still mapped, while `look` runs: the
/// process is dying and could go on writing. False where this user may not.
pub fn while_dying(rank: &mut Rank, look: impl FnOnce()) -> bool {
    let pid = rank.pid();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| std::fs::read_to_string(path.join("comm")).unwrap().starts_with("rank_process");
    let path = tasks.into_iter().find(named).expect("the thread that obeys");
    let tid: libc::pid_t = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let (none, options) = (std::ptr::null_mut::<libc::c_void>(), libc::PTRACE_O_TRACEEXIT);
    // SAFETY: these requests take no memory of ours; at worst they fail.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, none, options as *mut libc::c_void) } != 0 {
        return false;
    }
    rank.tell("end-at-once");
    let mut status = 0;
    // SAFETY: `status` is an integer of ours.
    let waited = unsafe { libc::waitpid(tid, &mut status, libc::__WALL) };
    assert_eq!((waited, status >> 8), (tid, libc::SIGTRAP | libc::PTRACE_EVENT_EXIT << 8));
    look();
    // SAFETY: as above.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, none, none) };
    true
}

/// Runs `act` in a thread that belongs to another user.
pub fn as_stranger<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let stranger = std::thread::spawn(move || {
        // SAFETY: the bare system call changes the user of this thread only, which ends with this closure.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, 12345, -1) };
        assert_eq!(changed, 0);
        act()
    });
    stranger.join().unwrap()
}

/// Answer to a join request at an abstract socket; empty where the connection is closed at once.
pub fn said_at(name: &str) -> String {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    if rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).is_err() {
        return String::new();
    }
    // closed already, as it should be
    let _ = rustix::net::send(&socket, br#"{"Ended":[1]}"#, SendFlags::NOSIGNAL);
    let mut bytes = [0; 4096];
    let (heard, _) = rustix::net::recv(&socket, &mut bytes, RecvFlags::empty()).unwrap_or((0, 0));
    String::from_utf8_lossy(&bytes[..heard]).into_owned()
}

/// Waits for something that must happen; the limit only turns a hang into a failure.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what} did not happen");
}

pub fn team(dir: &Path, key: &str, size: usize) -> Vec<Rank> {
    (0..size).map(|rank| Rank::spawn(dir, key, rank, size)).collect()
}

pub fn attach_all(ranks: &mut [Rank]) {
    ranks.iter_mut().for_each(|rank| rank.tell("attach"));
    for rank in ranks {
        assert_eq!(rank.answer(), "ok");
    }
}
