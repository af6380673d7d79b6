//! The package in a real Python with a real numpy: `tests/*.py` as ranks of `python -m earlybird run`, on the module that this
//! build has made.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// One job at a time: waiting ranks spin, and those of two jobs are more than the processors.
static ALONE: Mutex<()> = Mutex::new(());

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A Python of 3.11 or newer with numpy.
fn python() -> &'static str {
    let has_numpy = |python: &&str| {
        let look = "import sys, numpy; sys.exit(sys.version_info < (3, 11))";
        Command::new(python).args(["-c", look]).output().is_ok_and(|output| output.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has_numpy);
    found.expect("a python3 of 3.11 or newer with numpy is needed: apt-get install python3-numpy, or pip install numpy")
}

/// The directory that Python imports the package from: its sources, and the module of this build.
struct Installed(PathBuf);

impl Installed {
    fn new(name: &str) -> Installed {
        let root = std::env::temp_dir().join(format!("earlybird-python-{name}-{}", std::process::id()));
        let package = root.join("earlybird");
        std::fs::create_dir_all(&package).unwrap();
        for entry in std::fs::read_dir(home().join("earlybird")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension != "so") {
                std::os::unix::fs::symlink(&path, package.join(path.file_name().unwrap())).unwrap();
            }
        }
        let built = std::env::current_exe().unwrap().parent().unwrap().join("libearlybird_native.so");
        assert!(built.exists(), "{} was not built", built.display());
        std::os::unix::fs::symlink(built, package.join("_native.abi3.so")).unwrap();
        Installed(root)
    }

    fn run(&self, args: &[&str]) -> Output {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::join_paths([self.0.clone(), home().join("tests")]).unwrap();
        let mut command = Command::new(python());
        command
            .args(args)
            .current_dir(home().join("tests"))
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command.output().unwrap()
    }

    /// Runs a script as ranks; returns its output and its exit code.
    fn ranks(&self, ranks: usize, script: &[&str]) -> (String, Option<i32>) {
        let ranks = ranks.to_string();
        let output = self.run(&[&["-m", "earlybird", "run", "-n", &ranks, "--timeout", "120"], script].concat());
        (text(&output), output.status.code())
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Every rank of `script` passes its tests, and as many as there are in it.
fn passes(script: &str, ranks: &[usize]) {
    let source = std::fs::read_to_string(home().join("tests").join(script)).unwrap();
    let tests = source.matches("\ndef test_").count();
    assert!(tests > 0, "{script} has no tests");
    let installed = Installed::new(script);
    for &ranks in ranks {
        let (said, code) = installed.ranks(ranks, &[script]);
        assert_eq!(code, Some(0), "{script} on {ranks} ranks: {said}");
        assert_eq!(said.matches(&format!("{tests} passed\n")).count(), ranks, "{script} on {ranks} ranks: {said}");
    }
}

/// So many ranks as `right` says report that the scene went as it must, and the job ends with `code`.
fn scene(args: &[&str], ranks: usize, right: usize, code: i32) {
    let installed = Installed::new(&args.join("-"));
    let (said, ended) = installed.ranks(ranks, &[&["failures.py"], args].concat());
    assert_eq!((said.matches("right\n").count(), ended), (right, Some(code)), "{args:?} on {ranks} ranks: {said}");
}

#[test]
fn collectives_give_what_numpy_gives() {
    passes("buffers.py", &[1, 2, 3, 5]);
}

#[test]
fn persistent_calls() {
    passes("persistent.py", &[1, 2, 3]);
}

#[test]
fn arrays_in_shared_memory() {
    passes("shared.py", &[1, 2, 3]);
}

#[test]
fn operators_of_functions() {
    passes("operators.py", &[1, 2, 3]);
    scene(&["operator_raises", "Allreduce"], 3, 3, 0);
    scene(&["operator_raises", "Iallreduce"], 2, 2, 0);
    scene(&["operator_raises", "Allreduce_init"], 2, 2, 0);
    scene(&["operator_raises", "nodes"], 2, 2, 0);
    scene(&["operator_is_interrupted"], 2, 2, 0);
}

#[test]
fn tensors_through_dlpack() {
    passes("tensors.py", &[1, 2]);
}

#[test]
fn objects_groups_threads_and_forks() {
    passes("groups.py", &[1, 2, 3]);
}

#[test]
fn messages_between_two_ranks() {
    passes("messages.py", &[1, 2, 3]);
}

#[test]
fn a_killed_rank_is_named_and_the_others_go_on() {
    scene(&["killed"], 3, 2, 128 + 9);
}

#[test]
fn a_late_rank_is_named() {
    scene(&["late"], 2, 2, 0);
}

#[test]
fn a_signal_ends_a_call_that_waits_or_is_handled_meanwhile() {
    scene(&["interrupted", "blocking"], 3, 3, 0);
    scene(&["interrupted", "request"], 2, 2, 0);
    scene(&["handled"], 2, 2, 0);
    scene(&["joining"], 1, 1, 0);
}

#[test]
fn functions_run_as_ranks() {
    scene(&["spawned"], 1, 1, 0);
}

#[test]
fn the_launcher_has_the_exit_codes_of_the_command_line() {
    let installed = Installed::new("launcher");
    let code = |args: &[&str]| installed.run(&[&["-m", "earlybird", "run"], args].concat()).status.code();
    assert_eq!(code(&["-n", "2", "sh", "-c", "exit $EARLYBIRD_RANK"]), Some(1));
    assert_eq!(code(&["-n", "2", "--timeout", "0.2", "sleep", "30"]), Some(124));
    assert_eq!(code(&["-n", "2", "--", "./not-there"]), Some(127));
    assert_eq!(code(&["-n", "2", "-m", "json.tool", "--help"]), Some(0));
    assert_eq!(code(&["-n", "0", "true"]), Some(2));
    assert_eq!(code(&["-n", "2"]), Some(2));
}

#[test]
fn the_stubs_name_what_the_module_has() {
    let installed = Installed::new("stubs");
    let output = installed.run(&["stubs.py"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).ends_with("names agree\n"), "{}", text(&output));
}

#[test]
fn a_file_without_tests_and_a_failing_one_are_seen() {
    let installed = Installed::new("checker");
    let (said, code) = installed.ranks(2, &["support_fails.py"]);
    assert_eq!((code, said.matches("passed").count()), (Some(1), 0), "{said}");
    assert!(said.contains("test_that_fails failed") && said.contains("was not refused"), "{said}");
}
