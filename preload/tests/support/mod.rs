//! Programs of the tests: compiled by the MPI that the library under test is built for, run with and without it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// `openmpi` or `mpich`, or `none` where the library is built empty.
pub const MPI: &str = env!("PRELOAD_MPI");

/// Ranks to test with. MPICH's waiting ranks spin, and more of them than CPUs take minutes.
pub const RANKS: &[usize] = if MPI.as_bytes()[0] == b'o' { &[2, 3, 5] } else { &[2] };

/// Ranks and virtual nodes to test with, as of `RANKS`.
#[allow(dead_code)] // not every test has several nodes
pub const NODES: &[(usize, &str)] =
    if MPI.as_bytes()[0] == b'o' { &[(3, "2,1"), (4, "1,2,1"), (5, "2")] } else { &[(3, "2,1")] };

/// Returns whether there is an MPI to test with; says loudly if not.
pub fn has_mpi() -> bool {
    if MPI == "none" {
        eprintln!("SKIPPED: the interposer was built without an MPI");
    }
    MPI != "none"
}

/// The library under test, beside the test itself: what cargo built for it, not an older one of `cargo build`.
pub fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libearlybird_mpi.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// A program to run, removed when dropped if it was compiled.
pub struct Program {
    mpi: &'static str,
    words: Vec<String>,
    compiled: Option<PathBuf>,
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(path) = &self.compiled {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Program {
    /// The source `name` of `tests/programs`, compiled: C by mpicc, Fortran by mpifort.
    pub fn compile(name: &str) -> Program {
        Program::compile_for(MPI, name, &[])
    }

    /// The same for an MPI and with more options.
    pub fn compile_for(mpi: &'static str, name: &str, more: &[&str]) -> Program {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
        let (compiler, options): (_, &[&str]) = match name.ends_with(".c") {
            true => ("mpicc", &["-O1", "-Wall", "-Werror", "-pthread"]),
            false => ("mpifort", &["-O1"]),
        };
        // Fortran modules are searched for, and left, where the compiler stands.
        static COMPILED: AtomicUsize = AtomicUsize::new(0);
        let number = COMPILED.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("{name}.{}.{number}.{mpi}", std::process::id()));
        let mut command = Command::new(format!("{compiler}.{mpi}"));
        command.args(options).args(more).arg("-o").arg(&path).arg(source).current_dir(std::env::temp_dir());
        assert!(command.status().unwrap().success(), "{name} does not compile");
        Program { mpi, words: vec![path.display().to_string()], compiled: Some(path) }
    }

    /// These words as a command.
    #[allow(dead_code)] // not every test has one
    pub fn command(words: &[&str]) -> Program {
        Program { mpi: MPI, words: words.iter().map(|word| word.to_string()).collect(), compiled: None }
    }

    /// Its path, in the directory of the tests' libraries.
    #[allow(dead_code)] // not every test asks
    pub fn path(&self) -> &str {
        &self.words[0]
    }

    /// Runs it on `ranks` ranks, with the library if `preloaded`.
    pub fn run(&self, ranks: usize, preloaded: bool, arguments: &[&str], vars: &[(&str, &str)]) -> Outcome {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120", &format!("mpirun.{}", self.mpi)]);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        if self.mpi == "openmpi" {
            command.args(["--oversubscribe", "--bind-to", "none"]);
        }
        command.args(["-np", &ranks.to_string(), "env"]);
        if preloaded && !vars.iter().any(|(name, _)| *name == "LD_PRELOAD") {
            command.arg(format!("LD_PRELOAD={}", library().display()));
        }
        command.args(vars.iter().map(|(name, value)| format!("{name}={value}"))).args(&self.words).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut started = command.spawn().unwrap();
        // Kept open: MPICH's mpiexec passes an end of input on to ranks that may have ended, and dies of the broken pipe.
        let input = started.stdin.take();
        let output = started.wait_with_output().unwrap();
        drop(input);
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Outcome { code: output.status.code(), said }
    }

    /// Runs it with and without the library: every rank must say ` right` both times. What it said with it.
    pub fn is_right(&self, ranks: usize, arguments: &[&str]) -> String {
        self.must_be_right(ranks, self.run(ranks, false, arguments, &[]), arguments);
        self.is_right_with(ranks, arguments, &[])
    }

    /// Runs it with the library and these variables: every rank must say ` right`. What it said.
    pub fn is_right_with(&self, ranks: usize, arguments: &[&str], vars: &[(&str, &str)]) -> String {
        // Calls that measurements forward are tested too: a communicator's first ones, and on two ranks some of any size.
        let names = ["allreduce", "reduce", "broadcast", "barrier", "allgather", "gather", "scatter", "alltoall"];
        let interposed = names.map(|name| format!(",{name}=earlybird")).concat();
        let interposed = format!("profile,from-call=1{interposed}");
        let vars = [vars, &[("EARLYBIRD_INTERPOSE", interposed.as_str())]].concat();
        self.must_be_right(ranks, self.run(ranks, true, arguments, &vars), &[arguments, &["preloaded"]].concat())
    }

    fn must_be_right(&self, ranks: usize, outcome: Outcome, what: &[&str]) -> String {
        let rights = outcome.said.matches(" right").count();
        let right = outcome.code == Some(0) && rights == ranks;
        assert!(right, "{:?} {what:?} on {ranks}: {outcome:?}", self.words);
        outcome.said
    }
}

/// Our segments in /dev/shm that stay there; those of jobs that begin meanwhile go within milliseconds, or within 20 s
/// where a rank cannot join.
#[allow(dead_code)] // not every test asks
pub fn left_in_shared_memory() -> Vec<PathBuf> {
    let segments = || {
        let entries = std::fs::read_dir("/dev/shm").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        entries.filter(|path| path.is_file() && path.to_string_lossy().contains("/earlybird-")).collect::<Vec<_>>()
    };
    let mut left = segments();
    for _ in 0..300 {
        if left.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = segments();
        left.retain(|path| now.contains(path));
    }
    left
}

/// The end of a job.
#[derive(Debug)]
pub struct Outcome {
    /// 124 after two minutes.
    pub code: Option<i32>,
    /// Its output, then its errors.
    pub said: String,
}

/// The number of intercepted calls of `function` in a summary.
#[allow(dead_code)] // not every test asks
pub fn intercepted(said: &str, function: &str) -> u64 {
    let lines =
        said.lines().filter_map(|line| line.split_once("earlybird: ")?.1.strip_prefix(function)?.split_once(": "));
    let counts: Vec<u64> = lines
        .filter(|(before, _)| before.trim() == "intercepted")
        .map(|(_, count)| count.split_whitespace().next().unwrap().parse().unwrap())
        .collect();
    assert!(counts.len() < 2, "{function} twice: {said}");
    counts.first().copied().unwrap_or(0)
}
